//! The settings of a node among others.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use floe::membership::{Member, Place, Ring, RingHash, Spread};
use serde::{Deserialize, Serialize};

use crate::config::{ServerConfigError, both_or_none, problem};

/// The validity of a node's content after an absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rejoin {
    /// Valid: nothing else takes its keys while it is away.
    #[default]
    Warm,
    /// Outdated: it forgets at each start what no origin can confirm.
    NewEra,
    /// It answers with misses until it is told.
    Wait,
}

/// The section `[node]`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// The node's name in its ring; empty is the machine's.
    pub name: String,
    /// The validity of the node's content after an absence.
    pub rejoin: Rejoin,
    /// The nodes of a ring that does not change.
    pub ring: Vec<String>,
    /// The number of the ring in `ring`, which grows with each change of it.
    pub ring_generation: u64,
    /// How clients spread memcached's keys over nodes.
    pub ring_hash: RingHash,
    /// The two characters around the part of a key that is hashed.
    pub hash_tag: String,
    /// The weight of this node in a ring of leases.
    pub weight: u32,
    /// The addresses of etcd.
    pub etcd: Vec<String>,
    /// The user of etcd, if it has any.
    pub etcd_user: String,
    /// The user's password.
    pub etcd_password: String,
    /// A PEM file with the authorities of etcd's certificates; empty for the machine's.
    pub etcd_ca: PathBuf,
    /// A PEM file with this node's certificate for etcd; empty for none.
    pub etcd_certificate: PathBuf,
    /// The PEM file with its key.
    pub etcd_key: PathBuf,
    /// The keys of etcd that the nodes of one ring use begin with it.
    pub etcd_prefix: String,
    /// Milliseconds for which a renewal of the lease confirms the node.
    pub lease_ms: u32,
}

impl fmt::Debug for NodeConfig {
    /// Hides the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "NodeConfig({:?}, {:?}, {:?})",
            self.name, self.ring, self.etcd
        )
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            name: String::new(),
            rejoin: Rejoin::Warm,
            ring: Vec::new(),
            ring_generation: 0,
            ring_hash: RingHash::Off,
            hash_tag: String::new(),
            weight: 1,
            etcd: Vec::new(),
            etcd_user: String::new(),
            etcd_password: String::new(),
            etcd_ca: PathBuf::new(),
            etcd_certificate: PathBuf::new(),
            etcd_key: PathBuf::new(),
            etcd_prefix: "/floe/".to_owned(),
            lease_ms: 5000,
        }
    }
}

/// Bytes of the longest name: nutcracker 0.4 hashes no more of longer ones.
const NAME_BYTES_MAX: usize = 75;

/// The time for one call of one address of etcd.
const CALL_MS_MIN: u128 = 40;

/// The same where a password is checked, which etcd makes slow on purpose.
const LOGIN_MS_MIN: u128 = 200;

const LEASE_MS_MIN: u32 = 300;
const LEASE_MS_MAX: u32 = 3_600_000;

/// Nodes of a ring, 160 points each.
const NODES_MAX: usize = 4096;

impl NodeConfig {
    /// True if nodes hold leases, but do not know which of them a key belongs to.
    pub(crate) fn leases_without_ring(&self) -> bool {
        !self.etcd.is_empty() && self.ring_hash == RingHash::Off
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the first invalid one and the remedy.
    pub(crate) fn validate(&self) -> Result<(), ServerConfigError> {
        if self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control) {
            return Err(problem(
                "node.name",
                "it is longer than 75 bytes, or not text",
                "use the name of this server in the clients' configuration",
            ));
        }
        if !self.hash_tag.is_empty() && self.tag().is_none() {
            return Err(problem(
                "node.hash_tag",
                "it is not two characters of ASCII",
                "use the hash_tag of nutcracker, such as \"{}\"",
            ));
        }
        if self.weight == 0 {
            return Err(problem("node.weight", "it is 0", "use at least 1"));
        }
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.lease_ms) {
            return Err(problem(
                "node.lease_ms",
                &format!("{} ms is not within 300 ms and an hour", self.lease_ms),
                "use a few seconds",
            ));
        }
        let is_wrong = |one: &&String| !(one.starts_with("http://") || one.starts_with("https://"));
        if let Some(wrong) = self.etcd.iter().find(is_wrong) {
            return Err(problem(
                "node.etcd",
                &format!("`{wrong}` is no address"),
                "use addresses such as \"http://10.0.0.5:2379\"",
            ));
        }
        both_or_none("node.etcd", &self.etcd_certificate, &self.etcd_key)?;
        if self.etcd_user.is_empty() != self.etcd_password.is_empty() {
            return Err(problem(
                "node.etcd_user",
                "a user and its password belong together, and one of them is missing",
                "set both node.etcd_user and node.etcd_password, or none",
            ));
        }
        let is_plain = |one: &&String| one.starts_with("http://");
        let has_secrets =
            !self.etcd_ca.as_os_str().is_empty() || !self.etcd_key.as_os_str().is_empty();
        if let Some(plain) = self.etcd.iter().find(is_plain).filter(|_| has_secrets) {
            return Err(problem(
                "node.etcd",
                &format!("`{plain}` has no TLS, so certificates have no effect"),
                "use https://, or remove node.etcd_ca, node.etcd_certificate and node.etcd_key",
            ));
        }
        let calls = self.place().map(|place| place.time_of_calls().as_millis());
        let least = match self.etcd_user.is_empty() {
            true => CALL_MS_MIN,
            false => LOGIN_MS_MIN,
        };
        if calls.is_some_and(|time| time / (self.etcd.len() as u128) < least) {
            return Err(problem(
                "node.lease_ms",
                "it leaves no time to ask each address of node.etcd",
                "use a longer lease, or fewer addresses",
            ));
        }
        if !self.etcd.is_empty() && self.rejoin == Rejoin::Warm {
            return Err(problem(
                "node.rejoin",
                "it is \"warm\", so a lost lease would change nothing",
                "use \"wait\" or \"new-era\", or leave node.etcd empty",
            ));
        }
        self.validate_ring()
    }

    fn validate_ring(&self) -> Result<(), ServerConfigError> {
        let has_hash = self.ring_hash != RingHash::Off;
        if self.ring.is_empty() {
            if has_hash && self.etcd.is_empty() {
                return Err(problem(
                    "node.ring_hash",
                    "there is no ring",
                    "list its nodes in node.ring, or let them register with node.etcd",
                ));
            }
            return Ok(());
        }
        if !has_hash {
            return Err(problem(
                "node.ring",
                "it has no effect while node.ring_hash is \"off\"",
                "say with node.ring_hash how clients spread keys",
            ));
        }
        if self.ring.len() > NODES_MAX {
            return Err(problem(
                "node.ring",
                "it has more than 4096 nodes",
                "use several rings",
            ));
        }
        let cure = "use entries of nutcracker's `servers`: \"host:port:weight name\"";
        let mut members: Vec<Member> = Vec::new();
        for entry in &self.ring {
            let wrong = |why: &str| problem("node.ring", &format!("`{entry}` {why}"), cure);
            let member =
                Member::parse(entry, self.ring_hash).ok_or_else(|| wrong("is no server"))?;
            if members.iter().any(|other| other.name == member.name) {
                return Err(wrong("is listed twice"));
            }
            members.push(member);
        }
        let name = self.effective_name();
        if members.iter().all(|member| member.name != name) {
            return Err(problem(
                "node.name",
                &format!("`{name}` is none of node.ring"),
                "set node.name to this node's name in node.ring",
            ));
        }
        Ok(())
    }

    /// The node's place in a line, unless it is alone.
    pub fn summary(&self) -> Option<String> {
        let name = self.effective_name();
        let place = match (self.ring.len(), self.etcd.len(), self.rejoin) {
            (0, 0, Rejoin::Warm) => return None,
            (0, 0, Rejoin::NewEra) => "it has forgotten its items".to_owned(),
            (0, 0, Rejoin::Wait) => "misses until POST /v1/node/confirm or join".to_owned(),
            (0, _, _) if self.ring_hash == RingHash::Off => {
                "misses until it has a lease in etcd".to_owned()
            }
            (0, ..) => "in a ring of leases in etcd; misses until it has settled".to_owned(),
            (nodes, ..) => format!("in a fixed ring of {nodes}"),
        };
        Some(format!("{name}, {place}"))
    }

    /// The name, or the machine's.
    pub(crate) fn effective_name(&self) -> String {
        match self.name.as_str() {
            "" => rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            name => name.to_owned(),
        }
    }

    /// nutcracker's `hash_tag`.
    fn tag(&self) -> Option<[u8; 2]> {
        let tag: [u8; 2] = self.hash_tag.as_bytes().try_into().ok()?;
        tag.is_ascii().then_some(tag)
    }

    fn spread(&self, hash: RingHash) -> Spread {
        Spread {
            hash,
            tag: self.tag(),
            generation: self.ring_generation,
        }
    }

    /// The ring that does not change, if there is one.
    pub(super) fn fixed_ring(&self) -> Option<Ring> {
        let members: Vec<Member> = self
            .ring
            .iter()
            .filter_map(|one| Member::parse(one, self.ring_hash))
            .collect();
        let spread = self.spread(self.ring_hash);
        (!members.is_empty()).then(|| Ring::new(spread, &members, &self.effective_name()))
    }

    /// The place to keep in etcd, if there is one.
    pub(super) fn place(&self) -> Option<Place> {
        (!self.etcd.is_empty()).then(|| Place {
            name: self.effective_name(),
            weight: self.weight,
            // A ring of the settings is not that of the leases.
            spread: Spread {
                // It counts changes of a list.
                generation: 0,
                ..self.spread(match self.ring.is_empty() {
                    true => self.ring_hash,
                    false => RingHash::Off,
                })
            },
            lease: Duration::from_millis(u64::from(self.lease_ms)),
            forgets_after_gaps: self.rejoin == Rejoin::NewEra,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_named_with_their_cure() {
        let default = NodeConfig::default;
        default().validate().unwrap();
        let ring = |entries: &[&str], name: &str| NodeConfig {
            name: name.into(),
            ring: entries.iter().map(|&entry| entry.into()).collect(),
            ring_hash: RingHash::Nutcracker,
            ..default()
        };
        ring(&["h1:11211:1 a", "h2:11211:1 b"], "b")
            .validate()
            .unwrap();
        let etcd = || vec!["http://127.0.0.1:2379".to_owned()];
        for (config, named) in [
            (ring(&["h1:11211:1 a"], "b"), "none of node.ring"),
            (ring(&["h1:11211:1 a", "h2:11211:1 a"], "a"), "listed twice"),
            (ring(&["h1"], "h1"), "no server"),
            (
                NodeConfig {
                    ring_hash: RingHash::Off,
                    ..ring(&["h1:1 a"], "a")
                },
                "node.ring_hash",
            ),
            (
                NodeConfig {
                    ring_hash: RingHash::Pymemcache,
                    ..default()
                },
                "no ring",
            ),
            (
                NodeConfig {
                    etcd: etcd(),
                    ..default()
                },
                "node.rejoin",
            ),
            (
                NodeConfig {
                    etcd: vec!["10.0.0.1".into()],
                    rejoin: Rejoin::Wait,
                    ..default()
                },
                "node.etcd",
            ),
            (
                NodeConfig {
                    lease_ms: 10,
                    ..default()
                },
                "node.lease_ms",
            ),
            (
                NodeConfig {
                    etcd_user: "floe".into(),
                    ..default()
                },
                "node.etcd_password",
            ),
            (
                NodeConfig {
                    etcd_key: "key.pem".into(),
                    ..default()
                },
                "node.etcd_certificate",
            ),
            (
                NodeConfig {
                    etcd: etcd(),
                    etcd_ca: "ca.pem".into(),
                    rejoin: Rejoin::Wait,
                    ..default()
                },
                "has no TLS",
            ),
            (
                NodeConfig {
                    hash_tag: "{".into(),
                    ..default()
                },
                "node.hash_tag",
            ),
            (
                NodeConfig {
                    weight: 0,
                    ..default()
                },
                "node.weight",
            ),
        ] {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
