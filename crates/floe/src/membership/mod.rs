//! The place of this cache among several that share keys.
//!
//! A node answers from its cache while it is *confirmed*, and for the keys that it *owns*.
//! Otherwise reads miss and writes are refused: another node may have acknowledged newer
//! values meanwhile.
//!
//! **The order that keeps the law.** A read is admitted before it looks a key up. A write is
//! admitted before it begins, and again before it is acknowledged. So an acknowledged write
//! happened while no other node owned its key. Values from before the node last gained a key do
//! not count: [`Membership::admit`] says which.
//!
//! Ownership changes in two steps. [`Membership::announce`] takes away what the next ring gives
//! to others. Once each node of the next ring has done so, [`Membership::settle`] gives the node
//! what the next ring adds.
//!
//! Must not depend on how nodes learn of each other.

mod holders;
mod lease;
mod ring;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use parking_lot::RwLock;

pub use holders::{HolderOrder, Holders};
pub use lease::{Content, Entry, LeaseError, Place, Registered, Registry, keep};
pub use ring::{Member, Ring, RingHash, Spread};

/// Confirmed without a limit of time.
const ALWAYS: u64 = u64::MAX;

/// Rings of the past that are kept to tell since when a key is owned. Of keys owned through all
/// of them, what is older does not count.
const RINGS_MAX: usize = 16;

/// Announced rings at once that differ. With more the node forgets them, and owns nothing until
/// it has settled.
const PENDING_MAX: usize = 64;

/// Why a node may not answer for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node may have lost its place: another one may own its keys.
    #[error("this node is not confirmed as a member of its ring")]
    Unconfirmed,
    /// Another node owns the key.
    #[error("another node of the ring owns this key")]
    Foreign,
}

/// Operations that were refused since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Reads, answered as misses.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// The place of a node among those that share keys. A new one is confirmed for ever and owns
/// every key.
#[derive(Debug)]
pub struct Membership {
    clock: Clock,
    /// A tick; `ALWAYS` without a limit.
    confirmed_until: AtomicU64,
    has_ring: AtomicBool,
    rings: RwLock<Rings>,
    identity: AtomicU64,
    reads_refused: AtomicU64,
    writes_refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Rings {
    /// Settled rings, oldest first. Without one the node owns nothing.
    settled: VecDeque<Epoch>,
    /// Announced since, in order.
    pending: Vec<Ring>,
}

/// A ring, and the first version that was issued in it.
#[derive(Debug)]
struct Epoch {
    ring: Ring,
    version: u64,
}

impl Rings {
    /// The first version from which on the node owned `key` without a break; `None` if it does
    /// not own it.
    fn owned_since(&self, key: &[u8]) -> Option<u64> {
        let hash = self.settled.back()?.ring.hash(key);
        let owns = |ring: &Ring| ring.owns_hashed(key, hash);
        if !self.pending.iter().all(owns) {
            return None;
        }
        let newest_first = self.settled.iter().rev();
        let owned = newest_first.take_while(|epoch| owns(&epoch.ring));
        owned.last().map(|epoch| epoch.version)
    }

    /// Drops a settled ring. Of two equal ones the later one says all that the earlier one does,
    /// unless that is the oldest, whose version counts.
    fn shorten(&mut self) {
        let lists: Vec<u64> = self.settled.iter().map(|one| one.ring.list()).collect();
        let is_repeated = |&index: &usize| lists[index + 1..].contains(&lists[index]);
        match (1..lists.len()).find(is_repeated) {
            Some(index) => drop(self.settled.remove(index)),
            None => drop(self.settled.pop_front()),
        }
    }

    fn announce(&mut self, ring: Ring) {
        // An equal one takes away the same keys.
        self.pending.retain(|earlier| earlier.list() != ring.list());
        if self.pending.len() == PENDING_MAX {
            self.pending.clear();
            self.settled.clear();
        }
        self.pending.push(ring);
    }
}

impl Membership {
    /// The place of a node that is alone.
    pub(crate) fn new(clock: Clock) -> Self {
        Membership {
            clock,
            confirmed_until: AtomicU64::new(ALWAYS),
            has_ring: AtomicBool::new(false),
            rings: RwLock::default(),
            identity: AtomicU64::new(0),
            reads_refused: AtomicU64::new(0),
            writes_refused: AtomicU64::new(0),
        }
    }

    /// Confirms the node until it is withdrawn.
    pub fn confirm(&self) {
        self.confirmed_until.store(ALWAYS, Ordering::Release);
    }

    /// Confirms the node until `when`, by [`Clock::now_with_sleep`].
    pub fn confirm_until(&self, when: Tick) {
        self.confirmed_until.store(when.0, Ordering::Release);
    }

    /// Withdraws the confirmation.
    pub fn withdraw(&self) {
        self.confirmed_until.store(0, Ordering::Release);
    }

    /// True if the node is confirmed now.
    pub fn is_confirmed(&self) -> bool {
        match self.confirmed_until.load(Ordering::Acquire) {
            ALWAYS => true,
            0 => false,
            until => self.clock.now_with_sleep() < Tick(until),
        }
    }

    /// The time for which the node is confirmed yet; `None` without a limit.
    pub fn confirmed_for(&self) -> Option<Duration> {
        match self.confirmed_until.load(Ordering::Acquire) {
            ALWAYS => None,
            until => Some(Tick(until).since(self.clock.now_with_sleep())),
        }
    }

    /// Replaces all rings by one that no other node disputes: one of the settings, the same for
    /// every node.
    pub fn fix(&self, ring: Ring) {
        self.set_identity(ring.identity());
        let settled = VecDeque::from([Epoch { ring, version: 0 }]);
        *self.rings.write() = Rings {
            settled,
            pending: Vec::new(),
        };
        self.has_ring.store(true, Ordering::Release);
    }

    /// Items of another `identity` are forgotten when items are opened: they may be of keys
    /// that were others' then.
    pub fn set_identity(&self, identity: u64) {
        self.identity.store(identity, Ordering::Release);
    }

    /// Owns nothing until a ring has settled.
    pub fn await_ring(&self) {
        *self.rings.write() = Rings::default();
        self.has_ring.store(true, Ordering::Release);
    }

    /// Owns no more than `ring` gives it, from now on.
    pub fn announce(&self, ring: Ring) {
        self.rings.write().announce(ring);
    }

    /// Owns what the last announced ring gives it. `version` is greater than all that were
    /// issued before: of keys that are gained, nothing older counts.
    pub fn settle(&self, version: u64) {
        let rings = &mut *self.rings.write();
        let pending = rings.pending.drain(..);
        rings
            .settled
            .extend(pending.map(|ring| Epoch { ring, version }));
        while rings.settled.len() > RINGS_MAX {
            rings.shorten();
        }
    }

    /// Owns nothing, and knows of no ring.
    pub fn forget_rings(&self) {
        *self.rings.write() = Rings::default();
    }

    /// Nodes of the ring in use, 0 without one.
    pub fn ring_members(&self) -> usize {
        let rings = self.rings.read();
        rings.settled.back().map_or(0, |now| now.ring.members())
    }

    /// The node's share of all keys by the ring in use; 1 without one.
    pub fn ring_share(&self) -> f64 {
        let rings = self.rings.read();
        match self.has_ring.load(Ordering::Acquire) {
            true => rings.settled.back().map_or(0.0, |now| now.ring.share()),
            false => 1.0,
        }
    }

    /// A number of the ring in use that all its nodes have, if they agree; 0 without one.
    pub fn ring_list(&self) -> u64 {
        let rings = self.rings.read();
        rings.settled.back().map_or(0, |now| now.ring.list())
    }

    /// True if the node may own a key, and knows of no ring that is yet to settle.
    pub fn is_settled(&self) -> bool {
        self.has_keys() && self.rings.read().pending.is_empty()
    }

    /// True if the node may own a key. While a ring is yet to settle, it keeps those that this
    /// and the one before give it.
    pub fn has_keys(&self) -> bool {
        !self.has_ring.load(Ordering::Acquire) || !self.rings.read().settled.is_empty()
    }

    /// Distinguishes settings under which other keys are owned; 0 without a ring.
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    /// The lowest version whose values count for `key`, if the node may answer for it now.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(&self, key: &[u8]) -> Result<u64, Refusal> {
        if !self.is_confirmed() {
            return Err(Refusal::Unconfirmed);
        }
        if !self.has_ring.load(Ordering::Acquire) {
            return Ok(0);
        }
        let owned_since = self.rings.read().owned_since(key);
        owned_since.ok_or(Refusal::Foreign)
    }

    /// As [`admit`](Membership::admit), for a read: counts a refusal.
    pub(crate) fn admit_read(&self, key: &[u8]) -> Option<u64> {
        let admitted = self.admit(key);
        if admitted.is_err() {
            self.reads_refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted.ok()
    }

    /// As [`admit`](Membership::admit), for a write: counts a refusal.
    pub(crate) fn admit_write(&self, key: &[u8]) -> Result<u64, Refusal> {
        let admitted = self.admit(key);
        if admitted.is_err() {
            self.writes_refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Operations that were refused.
    pub fn refusals(&self) -> Refusals {
        Refusals {
            reads: self.reads_refused.load(Ordering::Relaxed),
            writes: self.writes_refused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread() -> Spread {
        Spread {
            hash: RingHash::Nutcracker,
            ..Spread::default()
        }
    }

    fn ring(names: &[&str], own: &str) -> Ring {
        let members: Vec<Member> = names.iter().map(|&name| name.into()).collect();
        Ring::new(spread(), &members, own)
    }

    /// A key that `a` owns among `a` and `b`, and `c` once it has joined.
    fn moving_key() -> Vec<u8> {
        let (two, three) = (ring(&["a", "b"], "a"), ring(&["a", "b", "c"], "a"));
        let keys = (0..).map(|n: u32| n.to_string().into_bytes());
        let mut moving = keys.filter(|key| two.owns(key) && !three.owns(key));
        moving.next().unwrap()
    }

    #[test]
    fn a_node_alone_admits_every_key() {
        let membership = Membership::new(Clock::real());
        assert_eq!(membership.admit(b"key"), Ok(0));
        assert!(membership.is_settled());
        membership.withdraw();
        assert_eq!(membership.admit(b"key"), Err(Refusal::Unconfirmed));
        assert_eq!(membership.admit_read(b"key"), None);
        assert_eq!(
            membership.refusals(),
            Refusals {
                reads: 1,
                writes: 0
            }
        );
        membership.confirm();
        assert_eq!(membership.admit(b"key"), Ok(0));
    }

    #[test]
    fn a_confirmation_ends_by_itself() {
        floe_device::virtual_time::run(0, async |clock: Clock| {
            let membership = Membership::new(clock.clone());
            membership.confirm_until(clock.now() + Duration::from_secs(3));
            clock.sleep(Duration::from_millis(2999)).await;
            assert!(membership.is_confirmed());
            clock.sleep(Duration::from_millis(1)).await;
            assert!(!membership.is_confirmed());
        });
    }

    /// Announced rings, the version with which they settle, and what is admitted then.
    type Step<'a> = (&'a [&'a [&'a str]], u64, Result<u64, Refusal>);

    #[test]
    fn a_key_that_went_and_came_back_starts_anew() {
        let key = moving_key();
        let membership = Membership::new(Clock::real());
        membership.await_ring();
        let (two, three): (&[&str], &[&str]) = (&["a", "b"], &["a", "b", "c"]);
        let steps: [Step<'_>; 4] = [
            (&[two], 10, Ok(10)),
            (&[three], 20, Err(Refusal::Foreign)),
            (&[two], 30, Ok(30)),
            // A ring that was replaced before it settled may have been another node's already.
            (&[three, two], 40, Ok(40)),
        ];
        for (rings, version, admitted) in steps {
            for names in rings {
                membership.announce(ring(names, "a"));
            }
            assert_eq!(membership.admit(&key), Err(Refusal::Foreign));
            membership.settle(version);
            assert_eq!(membership.admit(&key), admitted);
        }
    }

    #[test]
    fn a_key_that_stays_keeps_its_values() {
        let (two, three) = (ring(&["a", "b"], "a"), ring(&["a", "b", "c"], "a"));
        let keys = (0..).map(|n: u32| n.to_string().into_bytes());
        let mut staying = keys.filter(|key| two.owns(key) && three.owns(key));
        let key = staying.next().unwrap();
        let membership = Membership::new(Clock::real());
        membership.await_ring();
        membership.announce(two);
        membership.settle(10);
        membership.announce(three);
        assert_eq!(membership.admit(&key), Ok(10));
        membership.settle(20);
        assert_eq!(membership.admit(&key), Ok(10));
        // A node that comes and goes costs no history.
        for version in 21..21 + 4 * RINGS_MAX as u64 {
            let names: &[&str] = if version % 2 == 0 {
                &["a", "b"]
            } else {
                &["a", "b", "c"]
            };
            membership.announce(ring(names, "a"));
            membership.settle(version);
        }
        assert_eq!(membership.admit(&key), Ok(10));
        // Many different rings do: what is older than the history does not count.
        let other = |generation| {
            let spread = Spread {
                generation,
                ..spread()
            };
            Ring::new(spread, &["a".into(), "b".into()], "a")
        };
        for generation in 1..=RINGS_MAX as u64 {
            membership.announce(other(generation));
            membership.settle(100 + generation);
        }
        assert_eq!(membership.admit(&key), Ok(101));
        // So do many announcements, unless they repeat.
        for _ in 0..=PENDING_MAX {
            membership.announce(ring(&["a", "b"], "a"));
        }
        assert_eq!(membership.admit(&key), Ok(101));
        for generation in 0..=PENDING_MAX as u64 {
            membership.announce(other(generation));
        }
        assert_eq!(membership.admit(&key), Err(Refusal::Foreign));
    }
}
