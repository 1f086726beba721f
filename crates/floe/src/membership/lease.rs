//! Keeps a node's place in a registry: a lease, and with it the ring of all that have one.
//!
//! **Why a lease keeps the law.** The node counts its lease from the moment at which it sent
//! the renewal, with the time in which the machine sleeps, and asks the registry for a tenth
//! more. So it is no longer confirmed when the registry lets its place expire, if no clock runs
//! a tenth slower than another; the time of day does not matter.
//!
//! **Why a ring of leases keeps it.** The ring is what the registry lists. A node that sees
//! another ring announces it, which takes away what the ring gives to others, and says so in
//! its entry. It owns what the ring adds once all entries say so. A node that is gone has no
//! entry, and was not confirmed when it expired. So no key has two owners. Clients may learn of
//! a ring in any order: one that asks the wrong node gets a miss. Only the registry's clock and
//! the node itself may end a lease.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3;

use super::{Member, Membership, Ring, RingHash, Spread};

/// Renewals of a lease in its time.
const RENEWALS: u32 = 3;

/// Calls, one after the other, that a lease has time for.
const CALLS: u32 = 6;

/// The time between looks at a ring that is yet to settle.
const SETTLING_PAUSE: Duration = Duration::from_millis(100);

/// Looks with that pause at one ring.
const LOOKS_IN_HASTE: u32 = 50;

/// The error of a registry or of the content.
pub type LeaseError = Box<dyn Error + Send + Sync>;

/// A node's record in a registry, which ends with the node's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The node's weight.
    pub weight: u32,
    /// How it thinks that clients spread keys.
    pub hash: RingHash,
    /// The part of a key that is hashed; empty for all of it.
    pub tag: String,
    /// The ring beyond which the node owns nothing: see the module.
    pub announced: u64,
}

/// An entry of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The node.
    pub name: String,
    /// Its words.
    pub entry: Entry,
    /// Differs between two registrations of one name.
    pub revision: u64,
    /// Differs between two replacements of one entry.
    pub modification: u64,
}

/// A linearizable store of nodes' entries, with leases. A call may be dropped at any time, and
/// take effect all the same.
pub trait Registry: Send + Sync {
    /// Grants a lease of at least `time`, and returns its number.
    fn grant(&self, time: Duration) -> impl Future<Output = Result<u64, LeaseError>> + Send;

    /// Renews a lease; `false` if it has ended.
    fn renew(&self, lease: u64) -> impl Future<Output = Result<bool, LeaseError>> + Send;

    /// Ends a lease, and removes the entries under it.
    fn revoke(&self, lease: u64) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Adds an entry under a lease, and returns its revision, also if it is there already;
    /// `None` if there is one of that name under another lease.
    fn register(
        &self,
        name: &str,
        entry: &Entry,
        lease: u64,
    ) -> impl Future<Output = Result<Option<u64>, LeaseError>> + Send;

    /// Replaces the entry of that name, revision and modification; `false` if there is none. A
    /// late repetition finds another modification.
    fn replace(
        &self,
        entry: &Registered,
        lease: u64,
    ) -> impl Future<Output = Result<bool, LeaseError>> + Send;

    /// All entries, and the revision of the registry: it falls only if changes were lost, as by
    /// a copy that was put back.
    fn members(&self) -> impl Future<Output = Result<(u64, Vec<Registered>), LeaseError>> + Send;
}

/// The content of a node, which may hold what other nodes have replaced.
pub trait Content: Send + Sync {
    /// The place of the node.
    fn membership(&self) -> &Membership;

    /// Forgets durably all that no origin can confirm.
    fn begin_era(&self) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Calls [`Membership::settle`] with a version above all that were issued.
    fn settle(&self) -> impl Future<Output = Result<(), LeaseError>> + Send;
}

/// A place to keep.
#[derive(Clone, Debug)]
pub struct Place {
    /// The node's name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// How clients spread keys; the registered nodes are the ring unless the hash is `Off`.
    pub spread: Spread,
    /// The time for which a renewal confirms the node.
    pub lease: Duration,
    /// Begin an era after each time without confirmation, even if the lease did not end: for
    /// clients that leave a node out by their own judgement.
    pub forgets_after_gaps: bool,
}

impl Place {
    fn entry(&self, announced: u64) -> Entry {
        let tag = self
            .spread
            .tag
            .map(|tag| String::from_utf8_lossy(&tag).into());
        Entry {
            weight: self.weight,
            hash: self.spread.hash,
            tag: tag.unwrap_or_default(),
            announced,
        }
    }

    /// The time for one call of the registry.
    pub fn time_of_calls(&self) -> Duration {
        self.lease / CALLS
    }

    /// The time between renewals.
    fn pause(&self) -> Duration {
        self.lease / RENEWALS
    }

    /// True if the registered nodes are a ring.
    pub fn has_ring(&self) -> bool {
        self.spread.hash != RingHash::Off
    }

    /// Distinguishes content that this place may hold from that of others.
    pub fn identity(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(&[self.spread.hash as u8, 1]);
        hasher.update(&self.spread.tag.unwrap_or_default());
        hasher.update(self.name.as_bytes());
        hasher.digest()
    }
}

/// Why a place was lost.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("its lease has ended")]
    Ended,
    #[error("its entry is gone")]
    Removed,
    #[error("the registry has lost changes")]
    Reverted,
    #[error("the registry failed: {0}")]
    Registry(LeaseError),
    #[error("the registry renews its lease, but does not show the ring: {0}")]
    Blind(LeaseError),
    #[error("an era could not begin: {0}")]
    Content(LeaseError),
}

/// Keeps `place` until `stop` is cancelled, then gives it up. While there is no place the node
/// is not confirmed, and each new place begins an era.
pub async fn keep(
    place: &Place,
    registry: &impl Registry,
    content: &impl Content,
    clock: &Clock,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        let mut session = Session {
            place,
            registry,
            content,
            clock,
            lease: None,
            view: 0,
            is_settled: true,
            revision: 0,
            looks: 0,
            settles_from: Tick::ZERO,
            blind_since: None,
        };
        session.withdraw();
        let lost = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            Err(lost) = session.run() => Some(lost),
        };
        session.withdraw();
        // If it fails, the lease ends by itself.
        if let Some(lease) = session.lease {
            let _ = session.timed(registry.revoke(lease)).await;
        }
        if let Some(lost) = lost {
            tracing::warn!(%lost, "this node lost its place, and answers with misses");
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = clock.sleep(place.pause()) => {}
            }
        }
    }
}

/// One lease, from its grant to its end.
struct Session<'a, R, C> {
    place: &'a Place,
    registry: &'a R,
    content: &'a C,
    clock: &'a Clock,
    lease: Option<u64>,
    /// The ring that was announced last.
    view: u64,
    is_settled: bool,
    /// The highest revision of the registry.
    revision: u64,
    /// Looks at this ring.
    looks: u32,
    /// When the first ring may settle.
    settles_from: Tick,
    /// Since when the lease is renewed, but nothing else is answered.
    blind_since: Option<Tick>,
}

impl<R: Registry, C: Content> Session<'_, R, C> {
    fn withdraw(&self) {
        let membership = self.content.membership();
        membership.withdraw();
        if self.place.has_ring() {
            membership.forget_rings();
        }
    }

    /// Returns only when the place is lost.
    async fn run(&mut self) -> Result<std::convert::Infallible, Lost> {
        let lease = self.timed(self.registry.grant(self.place.lease * 11 / 10));
        let lease = lease.await.map_err(Lost::Registry)?;
        self.lease = Some(lease);
        let revision = self.register(lease).await?;
        let era = self.content.begin_era();
        era.await.map_err(Lost::Content)?;
        // If the registry has lost its entries, their nodes are still confirmed for so long.
        self.settles_from = self.clock.now_with_sleep() + self.place.lease;
        tracing::info!(name = self.place.name, "this node has a place");
        let mut confirmed_until: Option<Tick> = None;
        let mut is_failing = false;
        loop {
            let mut is_answered = true;
            let sent = self.clock.now_with_sleep();
            match self.look(lease, revision).await {
                Ok(()) => {
                    let gap = confirmed_until.is_some_and(|until| sent >= until);
                    if gap && self.place.forgets_after_gaps {
                        let era = self.content.begin_era();
                        era.await.map_err(Lost::Content)?;
                    }
                    let until = sent + self.place.lease;
                    self.content.membership().confirm_until(until);
                    confirmed_until = Some(until);
                    is_failing = false;
                }
                Err(Lost::Registry(error)) => {
                    match std::mem::replace(&mut is_failing, true) {
                        false => tracing::warn!(error, "the registry fails; asking again"),
                        true => tracing::debug!(error, "the registry fails"),
                    }
                    is_answered = false;
                }
                Err(lost) => return Err(lost),
            }
            let is_calm = self.is_settled || self.looks > LOOKS_IN_HASTE;
            let pause = match is_calm && is_answered {
                true => self.place.pause(),
                false => self.place.pause().min(SETTLING_PAUSE),
            };
            self.clock.sleep(pause).await;
        }
    }

    /// Registers the node; waits while the name is taken, as after a crash.
    async fn register(&self, lease: u64) -> Result<u64, Lost> {
        let mut is_first = true;
        loop {
            let entry = self.place.entry(0);
            let registered = self.registry.register(&self.place.name, &entry, lease);
            match self.timed(registered).await.map_err(Lost::Registry)? {
                Some(revision) => return Ok(revision),
                None if is_first => tracing::warn!(
                    name = self.place.name,
                    "the name is taken, by a node that ended without leaving or by another one; \
                     waiting for its lease to end"
                ),
                None => {}
            }
            is_first = false;
            self.clock.sleep(self.place.pause()).await;
            self.renew(lease).await?;
        }
    }

    async fn renew(&self, lease: u64) -> Result<(), Lost> {
        match self.timed(self.registry.renew(lease)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Lost::Ended),
            Err(error) => Err(Lost::Registry(error)),
        }
    }

    /// Renews the lease, and looks at the ring.
    async fn look(&mut self, lease: u64, revision: u64) -> Result<(), Lost> {
        self.renew(lease).await?;
        if !self.place.has_ring() {
            return Ok(());
        }
        let seen = self.see_ring(lease, revision).await;
        let Err(Lost::Registry(error)) = seen else {
            self.blind_since = None;
            return seen;
        };
        // With the lease the node would keep its keys from the others, and not answer for them.
        let now = self.clock.now_with_sleep();
        let since = *self.blind_since.get_or_insert(now);
        match now.since(since) > self.place.lease {
            true => Err(Lost::Blind(error)),
            false => Err(Lost::Registry(error)),
        }
    }

    async fn see_ring(&mut self, lease: u64, revision: u64) -> Result<(), Lost> {
        let members = self.timed(self.registry.members());
        let (revision_now, members) = members.await.map_err(Lost::Registry)?;
        if revision_now < self.revision {
            return Err(Lost::Reverted);
        }
        self.revision = revision_now;
        let own = |one: &&Registered| one.name == self.place.name && one.revision == revision;
        let own = members.iter().find(own).ok_or(Lost::Removed)?;
        let view = view_of(&members);
        if view != self.view {
            let ring = self.ring_of(&members);
            self.content.membership().announce(ring);
            (self.view, self.is_settled, self.looks) = (view, false, 0);
        }
        self.looks += 1;
        if own.entry.announced != view {
            let entry = Registered {
                entry: self.place.entry(view),
                ..own.clone()
            };
            let replaced = self.registry.replace(&entry, lease);
            if !self.timed(replaced).await.map_err(Lost::Registry)? {
                // An earlier one without an answer was late: the next look shows the entry.
                return Ok(());
            }
        }
        let mut others = members.iter().filter(|one| one.name != self.place.name);
        let may_settle = !self.is_settled && self.clock.now_with_sleep() >= self.settles_from;
        if may_settle && others.all(|one| self.agrees(one)) {
            self.content.settle().await.map_err(Lost::Content)?;
            self.is_settled = true;
            tracing::info!(nodes = members.len(), "the ring has settled");
        }
        Ok(())
    }

    /// True if another node owns nothing beyond the ring that this node announced.
    fn agrees(&self, other: &Registered) -> bool {
        let (own, entry) = (self.place.entry(self.view), &other.entry);
        if (entry.hash, &entry.tag) != (own.hash, &own.tag) {
            if self.looks == LOOKS_IN_HASTE {
                tracing::error!(
                    node = other.name,
                    "another node of the ring has other settings of node.ring_hash or \
                     node.hash_tag: keys that the change of the ring would bring stay without an \
                     owner"
                );
            }
            return false;
        }
        entry.announced == self.view
    }

    fn ring_of(&self, members: &[Registered]) -> Ring {
        let member = |one: &Registered| Member {
            name: one.name.clone(),
            weight: one.entry.weight.max(1),
        };
        let members: Vec<Member> = members.iter().map(member).collect();
        Ring::new(self.place.spread, &members, &self.place.name)
    }

    /// The answer of a registry, within the time between renewals.
    async fn timed<T>(
        &self,
        call: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.clock.sleep(self.place.time_of_calls()) => {
                Err("no answer in a sixth of the lease".into())
            }
        }
    }
}

/// Identifies a ring with the registrations of its nodes. Never 0.
fn view_of(members: &[Registered]) -> u64 {
    let mut sorted: Vec<&Registered> = members.iter().collect();
    sorted.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut hasher = Xxh3::new();
    for member in sorted {
        hasher.update(member.name.as_bytes());
        hasher.update(&[0]);
        hasher.update(&member.entry.weight.to_le_bytes());
        hasher.update(&member.revision.to_le_bytes());
    }
    hasher.digest() | 1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use floe_device::virtual_time;
    use parking_lot::Mutex;

    use super::super::RingHash;
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    /// A registry that renews every lease, and shows its one entry only as long as it is asked
    /// to.
    #[derive(Default)]
    struct Dimmed {
        entry: Mutex<Option<Registered>>,
        is_dark: AtomicUsize,
        revoked: AtomicUsize,
    }

    impl Registry for Dimmed {
        async fn grant(&self, _time: Duration) -> Result<u64, LeaseError> {
            Ok(1)
        }

        async fn renew(&self, _lease: u64) -> Result<bool, LeaseError> {
            Ok(true)
        }

        async fn revoke(&self, _lease: u64) -> Result<(), LeaseError> {
            self.revoked.fetch_add(1, SeqCst);
            Ok(())
        }

        async fn register(
            &self,
            name: &str,
            entry: &Entry,
            _lease: u64,
        ) -> Result<Option<u64>, LeaseError> {
            *self.entry.lock() = Some(Registered {
                name: name.to_owned(),
                entry: entry.clone(),
                revision: 1,
                modification: 1,
            });
            Ok(Some(1))
        }

        async fn replace(&self, entry: &Registered, _lease: u64) -> Result<bool, LeaseError> {
            *self.entry.lock() = Some(entry.clone());
            Ok(true)
        }

        async fn members(&self) -> Result<(u64, Vec<Registered>), LeaseError> {
            match self.is_dark.load(SeqCst) {
                0 => Ok((1, self.entry.lock().clone().into_iter().collect())),
                _ => Err("permission denied".into()),
            }
        }
    }

    struct Empty(Membership);

    impl Content for Empty {
        fn membership(&self) -> &Membership {
            &self.0
        }

        async fn begin_era(&self) -> Result<(), LeaseError> {
            Ok(())
        }

        async fn settle(&self) -> Result<(), LeaseError> {
            self.0.settle(1);
            Ok(())
        }
    }

    /// With the lease it would keep its keys from the others, and not answer for them.
    #[test]
    fn a_node_that_may_not_look_at_the_ring_gives_its_lease_up() {
        virtual_time::run(1, |clock| async move {
            let place = Place {
                name: "n1".to_owned(),
                weight: 1,
                spread: Spread {
                    hash: RingHash::Nutcracker,
                    ..Spread::default()
                },
                lease: LEASE,
                forgets_after_gaps: false,
            };
            let registry = Dimmed::default();
            let content = Empty(Membership::new(clock.clone()));
            let stop = CancellationToken::new();
            let watch = async {
                clock.sleep(3 * LEASE).await;
                assert!(content.0.is_confirmed() && content.0.is_settled());
                registry.is_dark.store(1, SeqCst);
                clock.sleep(LEASE / 2).await;
                assert_eq!(
                    registry.revoked.load(SeqCst),
                    0,
                    "a short time is no reason"
                );
                clock.sleep(2 * LEASE).await;
                assert!(registry.revoked.load(SeqCst) > 0 && !content.0.is_confirmed());
                registry.is_dark.store(0, SeqCst);
                clock.sleep(5 * LEASE).await;
                assert!(content.0.is_confirmed(), "it takes a place again");
                stop.cancel();
            };
            futures::join!(keep(&place, &registry, &content, &clock, &stop), watch);
        });
    }
}
