//! Marks: durable numbers for sets of names, which eviction does not remove.
//!
//! A name consists of a group and the rest. A set is one name, all names of a group that
//! begin with a prefix, a group, or all names; its mark is the number that was drawn when
//! it was last raised. The number of a name is the highest of the sets that it is in. Who
//! stores with a value the number that its name had, and serves only values whose number
//! is still that of the name, has dropped a set of any size by raising its mark.
//!
//! Only hashes of names are kept: if two collide, raising one raises the other too.
//! A bounded table never forgets a mark. Instead the group with the most of them is raised
//! as a whole.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use floe_core::hash::{ByKeyHash, KeyHash, mix};
use floe_core::layout::{Mark, Span};
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::chunk::{Engine, live_marks};
use crate::error::CacheError;

/// The group whose mark is the era. No group of names has a NUL.
const ERA: &str = "\0era";

/// Numbers that can be drawn in a second, as a power of two, before they run ahead of time.
const NUMBERS_PER_SECOND_LOG2: u32 = 20;

/// A set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSet<'a> {
    /// All names.
    All,
    /// The names of a group.
    Group(&'a str),
    /// The names of a group that begin with a prefix.
    Prefix(&'a str, &'a str),
    /// One name: its group and its rest.
    Name(&'a str, &'a str),
}

/// The marks of a store.
pub(crate) struct Marks {
    engine: Arc<Engine>,
    /// There is a mark. Most stores have none.
    any: AtomicBool,
    table: RwLock<Table>,
    /// Held while marks are drawn and made durable, so that numbers only rise.
    raising: Mutex<()>,
}

impl Marks {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        let table = Table::of(engine.recovered_marks());
        Marks {
            engine: Arc::clone(engine),
            any: AtomicBool::new(!table.is_empty()),
            table: RwLock::new(table),
            raising: Mutex::default(),
        }
    }

    /// The number of a name; 0 if no set with it was ever raised.
    pub(crate) fn number_of(&self, group: &str, rest: &str) -> u64 {
        match self.any.load(Acquire) {
            true => self.table.read().number_of(group, rest),
            false => 0,
        }
    }

    /// The number of the era, in which nothing counts that an origin did not confirm and an
    /// earlier one had; 0 in the first.
    pub(crate) fn era(&self) -> u64 {
        self.number_of(ERA, "")
    }

    /// Begins an era.
    ///
    /// # Errors
    /// As [`raise`](Marks::raise).
    pub(crate) async fn begin_era(&self) -> Result<(), CacheError> {
        self.raise(&[NameSet::Group(ERA)]).await
    }

    /// The number of a name that no origin has: also that of the era.
    pub(crate) fn number_of_only(&self, group: &str, rest: &str) -> u64 {
        self.number_of(group, rest).max(self.era())
    }

    /// Raises the marks of sets. After it returns, their names have a number that they
    /// never had before, and no crash takes it back.
    ///
    /// # Errors
    /// [`CacheError::NotDurable`]: the names may have new numbers after a restart;
    /// [`CacheError::Closed`].
    pub(crate) async fn raise(&self, sets: &[NameSet<'_>]) -> Result<(), CacheError> {
        let _raising = self.raising.lock().await;
        let marks = {
            let table = self.table.read();
            // A later number than any that was ever drawn, even if the last one was lost.
            let number = self.engine.clock().unix_seconds() << NUMBERS_PER_SECOND_LOG2;
            table.raised(sets, number, self.engine.marks_max())
        };
        self.engine.commit_marks(&marks).await?;
        if marks.iter().any(Mark::supersedes_others) {
            let next = self.table.read().with(&marks);
            // The old table is dropped after the lock.
            let _old = std::mem::replace(&mut *self.table.write(), next);
        } else {
            self.table.write().add(&marks);
        }
        self.any.store(true, Release);
        Ok(())
    }

    /// Sets whose marks count.
    pub(crate) fn len(&self) -> usize {
        self.table.read().numbers.len()
    }
}

#[derive(Debug, Default)]
struct Table {
    /// The marks by a hash of span and id.
    numbers: HashMap<KeyHash, Mark, ByKeyHash>,
    /// Lengths of the prefixes among them, which are never empty.
    lengths: BTreeSet<u16>,
    /// The mark of all names.
    all: Option<Mark>,
    highest: u64,
}

impl Table {
    fn is_empty(&self) -> bool {
        self.highest == 0
    }

    fn number_of(&self, group: &str, rest: &str) -> u64 {
        let mut hash = NameHash::of_group(group);
        let group = hash.id();
        let of = |span, id| {
            let mark = self.numbers.get(&key(span, group, id));
            mark.map_or(0, |mark| mark.number)
        };
        let all = self.all.map_or(0, |mark| mark.number);
        let mut number = all.max(of(Span::Group, group));
        let mut hashed = 0;
        for &length in &self.lengths {
            let Some(piece) = rest.as_bytes().get(hashed..usize::from(length)) else {
                break;
            };
            hash.add(piece);
            hashed = usize::from(length);
            number = number.max(of(Span::Prefix(length), hash.id()));
        }
        hash.add(&rest.as_bytes()[hashed..]);
        number.max(of(Span::Name, hash.id()))
    }

    /// A table of marks that all count.
    fn of(marks: &[Mark]) -> Self {
        let mut table = Table::default();
        table.add(marks);
        table
    }

    /// The table with `marks` too, without those that they supersede.
    fn with(&self, marks: &[Mark]) -> Self {
        let known = self.numbers.values().chain(self.all.iter());
        Table::of(&live_marks(known.chain(marks).copied().collect()))
    }

    /// Adds marks that supersede no other set's.
    fn add(&mut self, marks: &[Mark]) {
        for &mark in marks {
            self.highest = self.highest.max(mark.number);
            match mark.span {
                Span::All => {
                    self.all = Some(mark);
                    continue;
                }
                Span::Prefix(length) => {
                    self.lengths.insert(length);
                }
                Span::Group | Span::Name => {}
            }
            let known = self.numbers.entry(key_of(&mark)).or_insert(mark);
            if mark.number > known.number {
                *known = mark;
            }
        }
    }

    /// The marks that raise `sets` to `least` or more, so that no more than `most` count then.
    fn raised(&self, sets: &[NameSet<'_>], least: u64, most: usize) -> Vec<Mark> {
        let number = least.max(self.highest + 1);
        let marks: Vec<Mark> = sets.iter().map(|&set| mark_of(set, number)).collect();
        if let Some(all) = marks.iter().find(|mark| mark.span == Span::All) {
            return vec![*all];
        }
        let is_new = |mark: &&Mark| !self.numbers.contains_key(&key_of(mark));
        let new = marks.iter().filter(is_new).count();
        match self.numbers.len() + new <= most {
            true => marks,
            false => self.merged(marks, number, most - most / 8),
        }
    }

    /// `marks`, with as many groups raised as a whole as it takes for `most` to count.
    fn merged(&self, marks: Vec<Mark>, number: u64, most: usize) -> Vec<Mark> {
        let mut sizes: HashMap<u64, usize> = HashMap::new();
        for mark in self.numbers.values().chain(&marks) {
            *sizes.entry(mark.group).or_default() += 1;
        }
        let mut total: usize = sizes.values().sum();
        let mut by_size: Vec<(u64, usize)> = sizes.into_iter().collect();
        by_size.sort_unstable_by_key(|&(group, size)| (std::cmp::Reverse(size), group));
        let mut whole = BTreeSet::new();
        for (group, size) in by_size {
            if total <= most || size == 1 {
                break;
            }
            whole.insert(group);
            total -= size - 1;
        }
        if total > most {
            return vec![mark_of(NameSet::All, number)];
        }
        tracing::warn!(
            groups = whole.len(),
            "the table of purges is full: buckets with many purges are purged as a whole"
        );
        let groups = whole.iter().map(|&group| Mark {
            span: Span::Group,
            group,
            id: group,
            number,
        });
        let others = marks.iter().filter(|mark| !whole.contains(&mark.group));
        others.copied().chain(groups).collect()
    }
}

fn key_of(mark: &Mark) -> KeyHash {
    key(mark.span, mark.group, mark.id)
}

/// The key of a mark in the table: as uniform as a hash must be.
fn key(span: Span, group: u64, id: u64) -> KeyHash {
    let span = match span {
        Span::All => 1 << 17,
        Span::Group => 0,
        Span::Prefix(length) => u64::from(length),
        Span::Name => 1 << 16,
    };
    KeyHash(mix(id ^ mix(group ^ span)))
}

fn mark_of(set: NameSet<'_>, number: u64) -> Mark {
    let (group, rest) = match set {
        NameSet::All => {
            return Mark {
                span: Span::All,
                group: 0,
                id: 0,
                number,
            };
        }
        NameSet::Group(group) => (group, ""),
        NameSet::Prefix(group, rest) | NameSet::Name(group, rest) => (group, rest),
    };
    let span = match (set, u16::try_from(rest.len())) {
        (NameSet::Name(..), _) => Span::Name,
        (_, Ok(0)) => Span::Group,
        (_, Ok(length)) => Span::Prefix(length),
        // No name is so long: the set is empty.
        (_, Err(_)) => Span::Name,
    };
    let mut hash = NameHash::of_group(group);
    let group = hash.id();
    hash.add(rest.as_bytes());
    Mark {
        span,
        group,
        id: hash.id(),
        number,
    }
}

/// A hash of a name's first bytes, from which that of more bytes follows (FNV-1a, 64 bits).
#[derive(Clone, Copy)]
struct NameHash(u64);

impl NameHash {
    fn of_group(group: &str) -> Self {
        let mut hash = NameHash(0xcbf2_9ce4_8422_2325);
        hash.add(group.as_bytes());
        // No group has this byte, which is not UTF-8.
        hash.add(&[0xff]);
        hash
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn id(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use rand::seq::IndexedRandom;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const GROUPS: [&str; 3] = ["a", "ab", "b"];
    const RESTS: [&str; 8] = ["", "a", "b", "ab", "a/b", "a/b/c", "ä", "ab/"];

    fn within(set: NameSet<'_>, group: &str, rest: &str) -> bool {
        match set {
            NameSet::All => true,
            NameSet::Group(of) => group == of,
            NameSet::Prefix(of, prefix) => group == of && rest.starts_with(prefix),
            NameSet::Name(of, name) => group == of && rest == name,
        }
    }

    fn raise(table: &mut Table, set: NameSet<'_>, most: usize) -> u64 {
        *table = table.with(&table.raised(&[set], 0, most));
        table.highest
    }

    #[test]
    fn a_name_has_the_number_of_the_last_set_with_it() {
        for seed in 0..20 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut table = Table::default();
            let mut expected: HashMap<(&str, &str), u64> = HashMap::new();
            for _ in 0..60 {
                let group = *GROUPS.choose(&mut rng).unwrap();
                let rest = *RESTS.choose(&mut rng).unwrap();
                let set = match rng.random_range(0..20) {
                    0 => NameSet::All,
                    1 | 2 => NameSet::Group(group),
                    3..10 => NameSet::Name(group, rest),
                    _ => NameSet::Prefix(group, rest),
                };
                let number = raise(&mut table, set, 100);
                for group in GROUPS {
                    for rest in RESTS {
                        if within(set, group, rest) {
                            expected.insert((group, rest), number);
                        }
                        let of = expected.get(&(group, rest)).copied().unwrap_or(0);
                        assert_eq!(table.number_of(group, rest), of, "{set:?} {group}/{rest}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_table_raises_whole_groups_and_forgets_nothing() {
        let most = 64;
        let mut table = Table::default();
        for number in 0..10 {
            raise(
                &mut table,
                NameSet::Name("small", &number.to_string()),
                most,
            );
        }
        for number in 0..1000 {
            let name = number.to_string();
            let before = table.number_of("large", &name);
            raise(&mut table, NameSet::Name("large", &name), most);
            assert!(table.numbers.len() <= most);
            assert!(table.number_of("large", &name) > before);
        }
        assert_eq!(table.number_of("small", "3"), 4);
        // Each in a group of its own.
        for number in 0..1000 {
            let group = number.to_string();
            let before = table.number_of(&group, "x");
            raise(&mut table, NameSet::Name(&group, "x"), most);
            assert!(table.numbers.len() <= most);
            assert!(table.number_of(&group, "x") > before);
        }
    }

    #[test]
    fn a_number_that_was_lost_is_not_drawn_again() {
        let table = Table::default();
        let marks = table.raised(&[NameSet::Name("a", "b")], 7 << 20, 10);
        assert_eq!(marks[0].number, 7 << 20);
        // The table is that of before, a second later.
        let again = table.raised(&[NameSet::Name("a", "b")], 8 << 20, 10);
        assert!(again[0].number > marks[0].number);
        let table = table.with(&again);
        let next = table.raised(&[NameSet::All], 8 << 20, 10);
        assert_eq!(next[0].number, (8 << 20) + 1);
    }

    #[test]
    fn marks_in_any_order_make_one_table() {
        let mut marks = Vec::new();
        let mut table = Table::default();
        for number in 0..40 {
            let name = (number % 5).to_string();
            let set = match number % 7 {
                0 => NameSet::Group("a"),
                1 => NameSet::Prefix("a", &name),
                _ => NameSet::Name("a", &name),
            };
            let raised = table.raised(&[set], 0, 100);
            table = table.with(&raised);
            marks.extend(raised);
        }
        marks.reverse();
        let other = Table::default().with(&marks);
        assert_eq!(other.numbers, table.numbers);
        assert_eq!(
            (other.lengths, other.highest),
            (table.lengths, table.highest)
        );
    }

    #[test]
    fn a_prefix_longer_than_any_name_has_no_names() {
        let mut table = Table::default();
        raise(&mut table, NameSet::Prefix("a", &"x".repeat(70_000)), 10);
        assert_eq!(table.number_of("a", "x"), 0);
    }
}
