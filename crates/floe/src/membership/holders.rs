//! The order in which nodes are likely to hold an object: the one to which a balancer sends it,
//! then those to which it would if the ones before were away.

use std::collections::HashSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How objects are spread over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderOrder {
    /// Rendezvous hashing of the nodes' addresses (Thaler and Ravishankar, 1996): the same at
    /// every node, but no balancer's.
    #[default]
    Rendezvous,
    /// HAProxy's `balance uri path-only` with `hash-type consistent djb2 avalanche`, servers of
    /// equal weight with the ids 1, 2, …, and paths of the form `/bucket/key`.
    Haproxy,
}

floe_core::parse_by_name!(HolderOrder);

/// HAProxy's points of a server of weight 1, and the numbers that each server has for them.
const POINTS_PER_WEIGHT: u32 = 16;
const NUMBERS_PER_SERVER: u32 = WEIGHT_MAX * POINTS_PER_WEIGHT;

/// HAProxy's greatest weight.
const WEIGHT_MAX: u32 = 256;

/// The bytes of a key that clients of S3 encode in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// A list of nodes, to be ordered for each object.
#[derive(Clone, Debug)]
pub struct Holders {
    nodes: usize,
    spread: Spread,
}

#[derive(Clone, Debug)]
enum Spread {
    /// A seed for each node.
    Rendezvous(Vec<u64>),
    /// Points of nodes on the ring of 32-bit numbers, in ascending order.
    Ring(Vec<(u32, usize)>),
}

impl Holders {
    /// The nodes of these names, which every node must list alike; for HAProxy in the order of
    /// its servers' ids, and with the weight that each has, at most 256.
    pub fn new<Name: AsRef<str>>(order: HolderOrder, weight: u32, names: &[Name]) -> Self {
        let spread = match order {
            HolderOrder::Rendezvous => {
                let seed = |name: &Name| xxh3_64_with_seed(name.as_ref().as_bytes(), 0);
                Spread::Rendezvous(names.iter().map(seed).collect())
            }
            HolderOrder::Haproxy => {
                let each = POINTS_PER_WEIGHT * weight.min(WEIGHT_MAX);
                let mut points = Vec::with_capacity(names.len() * each as usize);
                for node in 0..names.len() {
                    let first = (node as u32 + 1).wrapping_mul(NUMBERS_PER_SERVER);
                    let points_of =
                        (0..each).map(|point| (avalanche(first.wrapping_add(point)), node));
                    points.extend(points_of);
                }
                points.sort_unstable();
                Spread::Ring(points)
            }
        };
        Holders {
            nodes: names.len(),
            spread,
        }
    }

    /// The indexes of all nodes, the likeliest holder of an object first. With HAProxy's ring
    /// the first few cost little, however many nodes there are.
    ///
    /// ```
    /// use floe::membership::{HolderOrder, Holders};
    /// let three = Holders::new(HolderOrder::Haproxy, 1, &["n1", "n2", "n3"]);
    /// assert_eq!(three.of("bucket", "obj-0").count(), 3);
    /// ```
    pub fn of(&self, bucket: &str, key: &str) -> Box<dyn Iterator<Item = usize> + Send + '_> {
        match &self.spread {
            Spread::Rendezvous(seeds) => {
                let path = format!("{bucket}/{key}");
                let score = |&seed| xxh3_64_with_seed(path.as_bytes(), seed);
                let mut scored: Vec<(u64, usize)> = seeds.iter().map(score).zip(0..).collect();
                scored.sort_unstable_by(|one, other| other.cmp(one));
                Box::new(scored.into_iter().map(|(_, node)| node))
            }
            Spread::Ring(points) => {
                let mut seen = HashSet::new();
                let nearest = nearest(points, path_hash(bucket, key));
                let nodes = nearest.filter(move |node| seen.insert(*node));
                Box::new(nodes.take(self.nodes))
            }
        }
    }
}

/// The nodes of the points around a hash, the nearest one first: HAProxy takes the one before or
/// after the hash, whichever is nearer.
fn nearest(points: &[(u32, usize)], hash: u32) -> impl Iterator<Item = usize> + Send + '_ {
    let after = points.partition_point(|&(point, _)| point < hash);
    let mut ahead = points[after..].iter().chain(&points[..after]).peekable();
    let behind = points[..after].iter().rev();
    let mut behind = behind.chain(points[after..].iter().rev()).peekable();
    std::iter::from_fn(move || {
        let (&&(next, _), &&(previous, _)) = (ahead.peek()?, behind.peek()?);
        let nearest = match hash.wrapping_sub(previous) <= next.wrapping_sub(hash) {
            true => behind.next(),
            false => ahead.next(),
        };
        nearest.map(|&(_, node)| node)
    })
}

/// HAProxy's hash of the path that clients of S3 send for an object.
fn path_hash(bucket: &str, key: &str) -> u32 {
    let parts = ["/", bucket, "/"].into_iter();
    let parts = parts.chain(percent_encode(key.as_bytes(), ENCODED));
    let hash = parts.flat_map(str::bytes).fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    });
    avalanche(hash)
}

/// HAProxy's `full_hash`: an integer hash of Bob Jenkins, then a multiplication.
fn avalanche(number: u32) -> u32 {
    let mut a = number;
    a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    a = (a ^ 0xc761_c23c) ^ (a >> 19);
    a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(0xc000_0001)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Deserialize)]
    struct Recorded {
        paths: String,
        /// By the number of servers, their weight and the one that was away: a digit for each
        /// path, the last one of the server's number.
        owners: HashMap<String, String>,
    }

    #[test]
    fn the_order_is_haproxys() {
        let recorded = include_str!("../../tests/data/haproxy.json");
        let recorded: Recorded = serde_json::from_str(recorded).unwrap();
        assert_eq!(recorded.owners.len(), 10);
        for (case, owners) in &recorded.owners {
            let (servers, away) = case.split_once(" without ").unwrap_or((case, "0"));
            let (count, weight) = servers.split_once(" of weight ").unwrap();
            let number = |text: &str| text.parse::<usize>().unwrap();
            let names = vec![""; number(count)];
            let holders = Holders::new(HolderOrder::Haproxy, number(weight) as u32, &names);
            let away = number(away);
            for (path, owner) in recorded.paths.split(' ').zip(owners.bytes()) {
                let (bucket, key) = path[1..].split_once('/').unwrap();
                let key = percent_encoding::percent_decode_str(key)
                    .decode_utf8()
                    .unwrap();
                let first = holders.of(bucket, &key).find(|node| node + 1 != away);
                assert_eq!(
                    (first.unwrap() + 1) % 10,
                    usize::from(owner - b'0'),
                    "{case}: {path}"
                );
            }
        }
    }

    #[test]
    fn every_node_is_named_once() {
        for order in [HolderOrder::Rendezvous, HolderOrder::Haproxy] {
            for count in [0, 1, 2, 7] {
                let names: Vec<_> = (0..count).map(|node| format!("10.0.0.{node}:1")).collect();
                let holders = Holders::new(order, 1, &names);
                for key in 0..50 {
                    let mut all: Vec<_> = holders.of("b", &key.to_string()).collect();
                    all.sort_unstable();
                    assert_eq!(all, (0..count).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn objects_of_a_node_that_is_gone_go_to_the_next_one() {
        let names = ["a", "b", "c", "d"];
        let four = Holders::new(HolderOrder::Rendezvous, 1, &names);
        let three = Holders::new(HolderOrder::Rendezvous, 1, &names[..3]);
        for key in 0..200 {
            let key = key.to_string();
            let without: Vec<_> = four.of("b", &key).filter(|&node| node != 3).collect();
            assert_eq!(without, three.of("b", &key).collect::<Vec<_>>());
        }
    }
}
