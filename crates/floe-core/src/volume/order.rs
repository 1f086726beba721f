//! Orders of replacement: LRU, SIEVE, LFU, CLOCK, over blocks or over groups.
//!
//! An order names its victim and leaves it in place, because the cache may not
//! take it: AdaCache replaces the victim block only if its size is the wanted
//! one, and a driver may have pinned it.

use serde::{Deserialize, Serialize};

use crate::list::{Linked, List, NONE};
use crate::{display_name, parse_by_name};

/// The order in which blocks or groups are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Least recently used first.
    #[default]
    Lru,
    /// SIEVE: a hand walks from old to new and spares what was used since it
    /// last passed (Zhang et al., NSDI '24).
    Sieve,
    /// Least frequently used first, and among equals the one that reached its
    /// count first. Counts end at 255 and with the stay in the cache.
    Lfu,
    /// CLOCK: a hand goes around the places of the cache and spares what was
    /// used since it last passed (Corbató, 1968). An element needs one byte; each
    /// of the other orders links elements, with eight bytes.
    Clock,
}

parse_by_name!(Replacement);
display_name!(Replacement);

impl Replacement {
    /// Every order.
    pub const ALL: [Replacement; 4] = [
        Replacement::Lru,
        Replacement::Sieve,
        Replacement::Lfu,
        Replacement::Clock,
    ];

    /// The name it parses from.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; Replacement::ALL.len()] = ["lru", "sieve", "lfu", "clock"];
        NAMES[self as usize]
    }

    /// True if elements have a mark: a bit of SIEVE, a count of LFU, the state
    /// of CLOCK.
    pub(super) fn has_marks(self) -> bool {
        self != Replacement::Lru
    }

    /// True if elements have links.
    pub(super) fn has_links(self) -> bool {
        self != Replacement::Clock
    }
}

/// The orders of a cache. AdaCache has both levels. Without a level of groups
/// the victim block names the group to evict when sizes differ; without one of
/// blocks a group is evicted whenever there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Levels {
    /// The order of blocks.
    pub block: Option<Replacement>,
    /// The order of groups.
    pub group: Option<Replacement>,
}

/// Elements that an order can hold.
pub(super) trait Ranked: Linked {
    fn mark(&mut self, id: u32) -> &mut u8;

    /// The first element at `place` or after it, around the end of the cache,
    /// whose mark is not [`ABSENT`], and the place after it. There must be one.
    fn at_or_after(&self, place: u32) -> (u32, u32);
}

/// Marks of CLOCK: no element, one that the hand takes, one that it spares once.
pub(super) const ABSENT: u8 = 0;
const UNUSED: u8 = 1;
const USED: u8 = 2;

/// Victims that may be rejected before the search ends without one.
const REJECTIONS_MAX: usize = 64;

/// Elements in their order of replacement.
#[derive(Debug)]
pub(super) enum Order {
    Lru(List),
    /// `hand` is the start of the next search, [`NONE`] for the oldest.
    Sieve {
        list: List,
        hand: u32,
    },
    /// One list per count.
    Lfu(Box<[List; 256]>),
    /// The place where the next search starts, and the number of elements.
    Clock {
        hand: u32,
        len: u32,
    },
}

impl Order {
    pub(super) fn new(kind: Replacement) -> Self {
        match kind {
            Replacement::Lru => Order::Lru(List::EMPTY),
            Replacement::Sieve => Order::Sieve {
                list: List::EMPTY,
                hand: NONE,
            },
            Replacement::Lfu => Order::Lfu(Box::new([List::EMPTY; 256])),
            Replacement::Clock => Order::Clock { hand: 0, len: 0 },
        }
    }

    /// Adds `id`, which is in no order.
    pub(super) fn insert(&mut self, elements: &mut impl Ranked, id: u32) {
        match self {
            Order::Lru(list) => list.push_newest(elements, id),
            Order::Sieve { list, .. } => {
                *elements.mark(id) = 0;
                list.push_newest(elements, id);
            }
            Order::Lfu(lists) => {
                *elements.mark(id) = 1;
                lists[1].push_newest(elements, id);
            }
            Order::Clock { len, .. } => {
                *elements.mark(id) = UNUSED;
                *len += 1;
            }
        }
    }

    /// Notes a use of `id`.
    pub(super) fn touch(&mut self, elements: &mut impl Ranked, id: u32) {
        match self {
            Order::Lru(list) => list.refresh(elements, id),
            Order::Sieve { .. } => *elements.mark(id) = 1,
            Order::Clock { .. } => *elements.mark(id) = USED,
            Order::Lfu(lists) => {
                let count = *elements.mark(id);
                if count < u8::MAX {
                    lists[usize::from(count)].unlink(elements, id);
                    lists[usize::from(count) + 1].push_newest(elements, id);
                    *elements.mark(id) = count + 1;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, elements: &mut impl Ranked, id: u32) {
        match self {
            Order::Lru(list) => list.unlink(elements, id),
            Order::Sieve { list, hand } => {
                if *hand == id {
                    *hand = list.newer_than(elements, id);
                }
                list.unlink(elements, id);
            }
            Order::Lfu(lists) => lists[usize::from(*elements.mark(id))].unlink(elements, id),
            Order::Clock { hand, len } => {
                // The next element at this place is not the next to go.
                let (next, after) = elements.at_or_after(*hand);
                if next == id {
                    *hand = after;
                }
                *elements.mark(id) = ABSENT;
                *len -= 1;
            }
        }
    }

    /// The element to replace next that `accepts` allows.
    pub(super) fn victim(
        &mut self,
        elements: &mut impl Ranked,
        mut accepts: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        match self {
            Order::Lru(list) => first_accepted(list, elements, REJECTIONS_MAX, accepts).ok(),
            Order::Sieve { list, hand } => {
                let mut candidate = *hand;
                let mut rejections = 0;
                while rejections < REJECTIONS_MAX {
                    if candidate == NONE {
                        candidate = list.oldest();
                    }
                    if candidate == NONE {
                        return None;
                    }
                    if std::mem::take(elements.mark(candidate)) == 0 {
                        if accepts(candidate) {
                            *hand = candidate;
                            return Some(candidate);
                        }
                        rejections += 1;
                    }
                    candidate = list.newer_than(elements, candidate);
                }
                None
            }
            Order::Lfu(lists) => {
                let mut rejections_left = REJECTIONS_MAX;
                for list in lists.iter().filter(|list| !list.is_empty()) {
                    match first_accepted(list, elements, rejections_left, &mut accepts) {
                        Ok(victim) => return Some(victim),
                        Err(left) => rejections_left = left,
                    }
                }
                None
            }
            Order::Clock { hand, len } => {
                let mut place = *hand;
                let rejections_max = REJECTIONS_MAX.min(*len as usize);
                let mut rejections = 0;
                while rejections < rejections_max {
                    let (candidate, next) = elements.at_or_after(place);
                    let mark = elements.mark(candidate);
                    if *mark == USED {
                        *mark = UNUSED;
                    } else if accepts(candidate) {
                        *hand = place;
                        return Some(candidate);
                    } else {
                        rejections += 1;
                    }
                    place = next;
                }
                None
            }
        }
    }
}

/// The oldest element of `list` that `accepts` allows, or how many more may be
/// rejected.
fn first_accepted(
    list: &List,
    elements: &impl Ranked,
    mut rejections_left: usize,
    mut accepts: impl FnMut(u32) -> bool,
) -> Result<u32, usize> {
    let mut candidate = list.oldest();
    while candidate != NONE && rejections_left > 0 {
        if accepts(candidate) {
            return Ok(candidate);
        }
        rejections_left -= 1;
        candidate = list.newer_than(elements, candidate);
    }
    Err(rejections_left)
}
