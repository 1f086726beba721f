//! Doubly linked lists of elements in one array, by `u32` index. Links take
//! eight bytes per element, for any number of lists.
//!
//! An element is in at most one list. Neither the list nor the array records in
//! which one; the policy that owns both does.

/// The index of no element.
pub const NONE: u32 = u32::MAX;

/// The neighbours of one element in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    newer: u32,
    older: u32,
}

impl Default for Links {
    /// The links of an element that is in no list.
    fn default() -> Self {
        Links {
            newer: NONE,
            older: NONE,
        }
    }
}

/// An array whose elements have links.
pub trait Linked {
    /// The links of element `id`.
    fn links(&self, id: u32) -> Links;
    /// The links of element `id`, to change them.
    fn links_mut(&mut self, id: u32) -> &mut Links;
}

impl Linked for [Links] {
    fn links(&self, id: u32) -> Links {
        self[id as usize]
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        &mut self[id as usize]
    }
}

/// A list, from its newest element to its oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    newest: u32,
    oldest: u32,
}

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

impl List {
    /// The empty list.
    pub const EMPTY: List = List {
        newest: NONE,
        oldest: NONE,
    };

    /// The newest element, or [`NONE`].
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// The oldest element, or [`NONE`].
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// True if the list has no element.
    pub fn is_empty(&self) -> bool {
        self.newest == NONE
    }

    /// The element that is next newer than `id`, or [`NONE`].
    pub fn newer_than(&self, array: &(impl Linked + ?Sized), id: u32) -> u32 {
        array.links(id).newer
    }

    /// Adds `id`, which is in no list, as the newest.
    pub fn push_newest(&mut self, array: &mut (impl Linked + ?Sized), id: u32) {
        let older = std::mem::replace(&mut self.newest, id);
        *array.links_mut(id) = Links { newer: NONE, older };
        match older {
            NONE => self.oldest = id,
            older => array.links_mut(older).newer = id,
        }
    }

    /// Adds `id`, which is in no list, as the oldest.
    pub fn push_oldest(&mut self, array: &mut (impl Linked + ?Sized), id: u32) {
        let newer = std::mem::replace(&mut self.oldest, id);
        *array.links_mut(id) = Links { newer, older: NONE };
        match newer {
            NONE => self.newest = id,
            newer => array.links_mut(newer).older = id,
        }
    }

    /// Removes `id` from this list; `id` must be in it.
    pub fn unlink(&mut self, array: &mut (impl Linked + ?Sized), id: u32) {
        let Links { newer, older } = array.links(id);
        match newer {
            NONE => self.newest = older,
            newer => array.links_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => array.links_mut(older).newer = newer,
        }
        *array.links_mut(id) = Links::default();
    }

    /// Makes `id`, which is in this list, the newest.
    pub fn refresh(&mut self, array: &mut (impl Linked + ?Sized), id: u32) {
        if self.newest != id {
            self.unlink(array, id);
            self.push_newest(array, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// The elements of `list`, oldest first.
    fn elements(list: &List, links: &[Links]) -> Vec<u32> {
        let step = |&id: &u32| Some(list.newer_than(links, id)).filter(|&id| id != NONE);
        let first = Some(list.oldest()).filter(|&id| id != NONE);
        std::iter::successors(first, step).collect()
    }

    proptest! {
        /// Compares two lists over one array with two queues.
        #[test]
        fn lists_are_queues(steps in prop::collection::vec((0_u32..8, 0_usize..2, 0_u8..4), 0..200)) {
            let mut links = [Links::default(); 8];
            let mut lists = [List::EMPTY; 2];
            let mut queues = [VecDeque::new(), VecDeque::new()];
            for (id, to, step) in steps {
                let at = queues.iter().position(|queue| queue.contains(&id));
                match (at, step) {
                    (None, 3) => {
                        lists[to].push_oldest(&mut links[..], id);
                        queues[to].push_front(id);
                    }
                    (None, _) => {
                        lists[to].push_newest(&mut links[..], id);
                        queues[to].push_back(id);
                    }
                    (Some(at), 0) => {
                        lists[at].unlink(&mut links[..], id);
                        queues[at].retain(|&other| other != id);
                    }
                    (Some(at), 1) => {
                        lists[at].refresh(&mut links[..], id);
                        queues[at].retain(|&other| other != id);
                        queues[at].push_back(id);
                    }
                    (Some(at), _) => {
                        lists[at].unlink(&mut links[..], id);
                        lists[to].push_newest(&mut links[..], id);
                        queues[at].retain(|&other| other != id);
                        queues[to].push_back(id);
                    }
                }
                for (list, queue) in lists.iter().zip(&queues) {
                    prop_assert!(elements(list, &links).iter().eq(queue));
                    prop_assert_eq!(list.newest(), queue.back().copied().unwrap_or(NONE));
                    prop_assert_eq!(list.is_empty(), queue.is_empty());
                }
            }
        }
    }
}
