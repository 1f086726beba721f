//! Rings: which of several nodes owns a key, as the clients' hashing says.

use std::cmp::Reverse;

use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// How clients spread keys over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingHash {
    /// Unknown: the node takes every key.
    #[default]
    Off,
    /// nutcracker's `distribution: ketama` with `hash: fnv1a_64`, its defaults. A server's
    /// weight counts.
    Nutcracker,
    /// pymemcache's `HashClient`: rendezvous hashing with 32-bit MurmurHash3. Weights do not
    /// count.
    Pymemcache,
    /// emcache: rendezvous hashing with eight bits of 128-bit MurmurHash3. Weights do not count.
    Emcache,
}

floe_core::parse_by_name!(RingHash);

/// A node of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, as the clients hash it.
    pub name: String,
    /// Its share of the keys beside the others' weights.
    pub weight: u32,
}

impl From<&str> for Member {
    /// A member of average weight.
    fn from(name: &str) -> Self {
        Member {
            name: name.to_owned(),
            weight: 1,
        }
    }
}

impl Member {
    /// Reads an entry of nutcracker's list of servers: `host:port:weight`, and a name after a
    /// space. The weight may be left out. Without a name it is the one that clients hash:
    /// `host:port`, which nutcracker shortens to the host with port 11211.
    ///
    /// ```
    /// use floe::membership::{Member, RingHash::{Nutcracker, Pymemcache}};
    /// let name = |entry, hash| Member::parse(entry, hash).unwrap().name;
    /// assert_eq!(name("10.0.0.1:11211:1 cache-a", Nutcracker), "cache-a");
    /// assert_eq!(name("10.0.0.1:11211:1", Nutcracker), "10.0.0.1");
    /// assert_eq!(name("10.0.0.1:11211", Pymemcache), "10.0.0.1:11211");
    /// ```
    pub fn parse(entry: &str, hash: RingHash) -> Option<Self> {
        let (address, name) = match entry.trim().split_once(' ') {
            Some((address, name)) => (address, Some(name.trim())),
            None => (entry.trim(), None),
        };
        let mut parts = address.rsplitn(3, ':');
        let (last, before) = (parts.next()?, parts.next()?);
        let (host, port, weight) = match parts.next() {
            Some(host) => (host, before, last.parse().ok()?),
            None => (before, last, 1),
        };
        let number: u16 = port.parse().ok()?;
        let name = match name {
            Some(name) => name.to_owned(),
            None if number == LIBMEMCACHED_PORT && hash == RingHash::Nutcracker => host.to_owned(),
            None => format!("{host}:{port}"),
        };
        // emcache hashes the address, whatever the name.
        let is_named = hash == RingHash::Emcache && name != format!("{host}:{port}");
        let is_valid = !host.is_empty() && !name.is_empty() && weight > 0 && !is_named;
        is_valid.then_some(Member { name, weight })
    }
}

/// libmemcached, and with it nutcracker, leaves this port out of names.
const LIBMEMCACHED_PORT: u16 = 11211;

/// Points of a node of average weight on the continuum: four of each MD5.
const POINTS_PER_NODE: u32 = 160;
const POINTS_PER_HASH: u32 = 4;

/// How keys are spread: the same for all nodes of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The clients' hashing.
    pub hash: RingHash,
    /// nutcracker's `hash_tag`: the part of a key between these two characters is hashed in its
    /// place, if it has both.
    pub tag: Option<[u8; 2]>,
    /// Grows with each change of a ring that operators list.
    pub generation: u64,
}

/// A ring, as one of its nodes sees it.
#[derive(Debug)]
pub struct Ring {
    hash: RingHash,
    keys: Keys,
    tag: Option<[u8; 2]>,
    members: usize,
    list: u64,
    identity: u64,
}

#[derive(Debug)]
enum Keys {
    /// The only node owns all, and a node that is no member owns none.
    All(bool),
    /// Points in ascending order, and whether they are the node's own.
    Ketama(Box<[(u32, bool)]>),
    /// The node's own name, and those of the others.
    Rendezvous(String, Vec<String>),
    /// The node itself, and the others.
    Emcache(EmcacheNode, Vec<EmcacheNode>),
}

/// A node as emcache hashes it.
#[derive(Debug)]
struct EmcacheNode {
    /// Host and port without a colon between.
    id: String,
    name: String,
    /// Decides between equal scores.
    hash: u32,
}

impl EmcacheNode {
    fn new(name: &str) -> Self {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let id = format!("{host}{port}");
        EmcacheNode {
            hash: emcache_hash(id.as_bytes()),
            id,
            name: name.to_owned(),
        }
    }

    fn score(&self, key: &[u8]) -> (u32, u32) {
        (emcache_hash(&[key, self.id.as_bytes()].concat()), self.hash)
    }
}

impl Ring {
    /// The ring of `members` as the node `own` sees it.
    pub fn new(spread: Spread, members: &[Member], own: &str) -> Self {
        let Spread { hash, tag, .. } = spread;
        let list = list_of(spread, members);
        let is_member = members.iter().any(|member| member.name == own);
        let keys = match hash {
            RingHash::Off => Keys::All(true),
            _ if !is_member || members.len() == 1 => Keys::All(is_member),
            RingHash::Nutcracker => Keys::Ketama(continuum(members, own)),
            RingHash::Pymemcache => {
                Keys::Rendezvous(own.to_owned(), others(members, own).collect())
            }
            RingHash::Emcache => {
                let others = others(members, own);
                Keys::Emcache(
                    EmcacheNode::new(own),
                    others.map(|name| EmcacheNode::new(&name)).collect(),
                )
            }
        };
        Ring {
            hash,
            keys,
            tag: tag.filter(|_| hash == RingHash::Nutcracker),
            members: members.len(),
            list,
            identity: xxh3_64_with_seed(own.as_bytes(), list),
        }
    }

    /// True if the node owns `key`.
    pub fn owns(&self, key: &[u8]) -> bool {
        self.owns_hashed(key, self.hash(key))
    }

    /// The hash of a key on a continuum, the same for all rings of one hashing and tag.
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        match self.hash {
            RingHash::Nutcracker => fnv1a(self.hashed_part(key)),
            RingHash::Off | RingHash::Pymemcache | RingHash::Emcache => 0,
        }
    }

    /// As [`owns`](Ring::owns), with the key's hash.
    pub(super) fn owns_hashed(&self, key: &[u8], hash: u32) -> bool {
        match &self.keys {
            Keys::All(owns) => *owns,
            Keys::Ketama(points) => {
                let next = points.partition_point(|&(point, _)| point < hash);
                // The first point comes after the last one.
                points.get(next).or(points.first()).is_some_and(|p| p.1)
            }
            Keys::Rendezvous(own, others) => {
                let score = |name: &str| murmur3(&[name.as_bytes(), b"-", key]);
                let best = (score(own), own);
                others.iter().all(|other| (score(other), other) < best)
            }
            Keys::Emcache(own, others) => {
                // Of two nodes that are alike, emcache takes the first one of its list.
                let best = (own.score(key), Reverse(&own.name));
                let mut others = others.iter();
                others.all(|other| (other.score(key), Reverse(&other.name)) < best)
            }
        }
    }

    /// The node's share of all keys, if their hashes are uniform: from 0 to 1.
    pub fn share(&self) -> f64 {
        match &self.keys {
            Keys::All(owns) => f64::from(u8::from(*owns)),
            Keys::Ketama(points) => {
                // The first point also owns what comes after the last one.
                let last = points.last().map_or(0, |&(point, _)| point);
                let before = std::iter::once(last).chain(points.iter().map(|&(point, _)| point));
                let arcs = points.iter().zip(before);
                let own = arcs.filter(|((_, is_own), _)| *is_own);
                let own: u64 = own
                    .map(|(&(point, _), before)| u64::from(point.wrapping_sub(before)))
                    .sum();
                own as f64 / (f64::from(u32::MAX) + 1.0)
            }
            Keys::Rendezvous(_, others) => 1.0 / (others.len() as f64 + 1.0),
            Keys::Emcache(_, others) => 1.0 / (others.len() as f64 + 1.0),
        }
    }

    /// The number of nodes.
    pub fn members(&self) -> usize {
        self.members
    }

    /// The same for all nodes of one ring.
    pub fn list(&self) -> u64 {
        self.list
    }

    /// Differs between rings that give other keys to this node.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    fn hashed_part<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let part = self.tag.and_then(|[first, last]| {
            let start = key.iter().position(|&byte| byte == first)? + 1;
            let len = key[start..].iter().position(|&byte| byte == last)?;
            (len > 0).then(|| &key[start..start + len])
        });
        part.unwrap_or(key)
    }
}

/// The names of the other members.
fn others(members: &[Member], own: &str) -> impl Iterator<Item = String> {
    let others = members.iter().filter(move |member| member.name != own);
    others.map(|member| member.name.clone())
}

fn list_of(spread: Spread, members: &[Member]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&[spread.hash as u8]);
    hasher.update(&spread.tag.unwrap_or_default());
    hasher.update(&spread.generation.to_le_bytes());
    let mut sorted: Vec<&Member> = members.iter().collect();
    sorted.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for member in sorted {
        hasher.update(member.name.as_bytes());
        hasher.update(&[0]);
        hasher.update(&member.weight.to_le_bytes());
    }
    hasher.digest()
}

/// The continuum of ketama as twemproxy 0.5 builds it for live servers.
fn continuum(members: &[Member], own: &str) -> Box<[(u32, bool)]> {
    let total: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let mut points = Vec::with_capacity(members.len() * POINTS_PER_NODE as usize);
    for member in members {
        // In twemproxy's precision and order, since a rounding decides on four points.
        let share = member.weight as f32 / total as f32;
        let scaled = share * POINTS_PER_NODE as f32 / POINTS_PER_HASH as f32 * members.len() as f32;
        let hashes = (f64::from(scaled) + 0.000_000_000_1) as f32;
        for index in 0..hashes.floor() as u32 {
            let digest = Md5::digest(format!("{}-{index}", member.name));
            for point in digest.chunks_exact(4) {
                // Unreachable fallback: chunks have four bytes.
                let point = u32::from_le_bytes(point.try_into().unwrap_or_default());
                points.push((point, member.name.as_str()));
            }
        }
    }
    // By name, too: the order of the list must not matter.
    points.sort_unstable();
    let points = points.into_iter();
    points.map(|(point, name)| (point, name == own)).collect()
}

/// twemproxy's `fnv1a_64`, which keeps 32 bits, and takes bytes for signed as on x86-64.
fn fnv1a(key: &[u8]) -> u32 {
    key.iter().fold(0x8422_2325, |hash: u32, &byte| {
        (hash ^ byte as i8 as u32).wrapping_mul(0x0000_01b3)
    })
}

/// MurmurHash3 of 32 bits with seed 0 (Austin Appleby), of `parts` one after the other.
fn murmur3(parts: &[&[u8]]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |block: u32| block.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let (mut hash, mut block, mut len) = (0u32, 0u32, 0u32);
    for &byte in parts.iter().copied().flatten() {
        block |= u32::from(byte) << (8 * (len % 4));
        len += 1;
        if len % 4 == 0 {
            hash = (hash ^ scramble(block)).rotate_left(13);
            hash = hash.wrapping_mul(5).wrapping_add(0xe654_6b64);
            block = 0;
        }
    }
    if len % 4 != 0 {
        hash ^= scramble(block);
    }
    hash ^= len;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// emcache's hash, of the first four bytes of [`murmur3_128`]: it shifts its masks where it means
/// to shift the bytes, and takes these for signed.
fn emcache_hash(data: &[u8]) -> u32 {
    let bytes = murmur3_128(data).to_le_bytes();
    let signed = |index: usize| bytes[index] as i8 as u32;
    (signed(3) & 0xff00_0000) | (signed(2) & 0xffff_0000) | (signed(1) & 0xffff_ff00) | signed(0)
}

/// The first half of MurmurHash3 of 128 bits for 64-bit machines, with seed 0 (Austin Appleby).
fn murmur3_128(data: &[u8]) -> u64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let scramble1 = |block: u64| block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble2 = |block: u64| block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let finish = |hash: u64| {
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    };
    let (mut one, mut two) = (0u64, 0u64);
    let blocks = data.chunks_exact(16);
    let rest = blocks.remainder();
    for block in blocks {
        one = (one ^ scramble1(word(&block[..8]))).rotate_left(27);
        one = one
            .wrapping_add(two)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        two = (two ^ scramble2(word(&block[8..]))).rotate_left(31);
        two = two
            .wrapping_add(one)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    let (first, second) = rest.split_at(rest.len().min(8));
    // A block of zeros changes nothing.
    two ^= scramble2(word(second));
    one ^= scramble1(word(first));
    let len = data.len() as u64;
    (one, two) = (one ^ len, two ^ len);
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    (one, two) = (finish(one), finish(two));
    one.wrapping_add(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u32) -> Vec<Member> {
        let member = |index| Member::from(format!("n{index}").as_str());
        (1..=count).map(member).collect()
    }

    fn spread(hash: RingHash) -> Spread {
        Spread {
            hash,
            ..Spread::default()
        }
    }

    const TAGGED: Spread = Spread {
        hash: RingHash::Nutcracker,
        tag: Some(*b"{}"),
        generation: 0,
    };

    /// The owner of each of `keys` keys among `members`.
    fn owners(hash: RingHash, members: &[Member], keys: u32) -> Vec<usize> {
        let rings = members.iter();
        let rings = rings.map(|member| Ring::new(spread(hash), members, &member.name));
        let rings: Vec<Ring> = rings.collect();
        let of = |key: u32| {
            let key = format!("key-{key}");
            let owners = rings.iter().enumerate();
            let owners: Vec<usize> = owners
                .filter(|(_, ring)| ring.owns(key.as_bytes()))
                .map(|(index, _)| index)
                .collect();
            assert_eq!(owners.len(), 1, "{key} has one owner");
            owners[0]
        };
        (0..keys).map(of).collect()
    }

    #[test]
    fn each_key_has_one_owner_and_few_move() {
        for hash in [
            RingHash::Nutcracker,
            RingHash::Pymemcache,
            RingHash::Emcache,
        ] {
            let three = owners(hash, &members(3), 3000);
            let four = owners(hash, &members(4), 3000);
            for owner in 0..3 {
                let owned = three.iter().filter(|&&o| o == owner).count();
                assert!((500..1500).contains(&owned), "{hash:?} {owned}");
            }
            let moved = three.iter().zip(&four).filter(|(a, b)| a != b);
            assert!(moved.clone().all(|(_, &to)| to == 3), "{hash:?}");
            assert!((500..1000).contains(&moved.count()), "{hash:?}");
        }
    }

    #[test]
    fn shares_are_those_of_keys() {
        for hash in [
            RingHash::Nutcracker,
            RingHash::Pymemcache,
            RingHash::Emcache,
        ] {
            let mut members = members(5);
            members[0].weight = 2;
            let rings = members.iter();
            let rings = rings.map(|member| Ring::new(spread(hash), &members, &member.name));
            let shares: Vec<f64> = rings.map(|ring| ring.share()).collect();
            assert!(
                (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9,
                "{shares:?}"
            );
            // Words of many forms, as the hash is not uniform for numbers.
            let keys = 20_000;
            let ring = Ring::new(spread(hash), &members, "n1");
            let key = |n: u32| format!("{:x}", u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let owned = (0..keys).filter(|&n| ring.owns(key(n).as_bytes())).count();
            let owned = owned as f64 / f64::from(keys);
            assert!(
                (owned - shares[0]).abs() < 0.03,
                "{hash:?} {owned} {shares:?}"
            );
        }
    }

    #[test]
    fn weights_count_for_nutcracker() {
        let mut weighted = members(2);
        weighted[0].weight = 3;
        let owners = owners(RingHash::Nutcracker, &weighted, 4000);
        let first = owners.iter().filter(|&&owner| owner == 0).count();
        assert!((2700..3300).contains(&first), "{first}");
    }

    #[test]
    fn a_tag_is_hashed_in_place_of_the_key() {
        let members = members(3);
        let owner = |key: &str| {
            let owns = |member: &&Member| {
                let ring = Ring::new(TAGGED, &members, &member.name);
                ring.owns(key.as_bytes())
            };
            members.iter().find(owns).unwrap().name.clone()
        };
        for user in 0..50 {
            let tagged = format!("a{{{user}}}");
            assert_eq!(owner(&tagged), owner(&format!("b:{{{user}}}:x")));
            assert_eq!(owner(&tagged), owner(&user.to_string()));
        }
        // Without both characters, or with nothing between them, all of it counts.
        let ring = Ring::new(TAGGED, &members, "n1");
        for whole in ["{}x", "a{b", "a}b{", ""] {
            assert_eq!(ring.hashed_part(whole.as_bytes()), whole.as_bytes());
        }
    }

    #[test]
    fn murmur3_is_the_published_function() {
        // Of the reference implementation, with seed 0.
        assert_eq!(murmur3(&[b""]), 0);
        assert_eq!(murmur3(&[b"test"]), 0xba6b_d213);
        assert_eq!(murmur3(&[b"Hello", b", world!"]), 0xc036_3e43);
    }

    #[test]
    fn entries_are_nutcrackers() {
        let parsed = |entry| {
            let member = Member::parse(entry, RingHash::Nutcracker);
            member.map(|member| (member.name, member.weight))
        };
        let named = |name: &str, weight| Some((name.to_owned(), weight));
        assert_eq!(parsed("10.0.0.1:11211:2"), named("10.0.0.1", 2));
        assert_eq!(parsed("h:1:3 x"), named("x", 3));
        assert_eq!(parsed("h:1"), named("h:1", 1));
        for wrong in ["", "h", "h:x", "h:1:0", ":1:1", "h:70000:1", "h:1:-1 x"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
