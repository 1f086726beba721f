//! The shares of keys of a ring's servers.

use floe::membership::{Member, Ring, RingHash, Spread};
use serde::Serialize;

/// The servers of a pool.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct PoolShares {
    pub(crate) pool: String,
    pub(crate) servers: Vec<ServerShare>,
    /// The largest share over that of the server's weight.
    pub(crate) imbalance: f64,
}

/// A server's part of all keys.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ServerShare {
    pub(crate) name: String,
    pub(crate) weight: u32,
    /// From 0 to 1, if the hashes of keys are uniform.
    pub(crate) share: f64,
}

impl PoolShares {
    /// The shares of `members` on ketama's continuum.
    pub(super) fn new(pool: &str, members: &[Member]) -> Self {
        let spread = Spread {
            hash: RingHash::Nutcracker,
            ..Spread::default()
        };
        let share = |member: &Member| ServerShare {
            name: member.name.clone(),
            weight: member.weight,
            share: Ring::new(spread, members, &member.name).share(),
        };
        let servers: Vec<ServerShare> = members.iter().map(share).collect();
        let total: f64 = members.iter().map(|member| f64::from(member.weight)).sum();
        let over = servers
            .iter()
            .map(|one| one.share * total / f64::from(one.weight));
        PoolShares {
            pool: pool.to_owned(),
            imbalance: over.reduce(f64::max).unwrap_or(1.0),
            servers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_weights_about() {
        let mut members = ["a", "b", "c"].map(Member::from);
        members[0].weight = 2;
        let shares = PoolShares::new("p", &members);
        let sum: f64 = shares.servers.iter().map(|one| one.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
        assert!((0.4..0.6).contains(&shares.servers[0].share), "{shares:?}");
        assert!((1.0..1.4).contains(&shares.imbalance), "{shares:?}");
    }
}
