//! Numbers of runs: stretches of elements of [`Pages`](super::pages::Pages), of
//! a few lengths.
//!
//! Runs of one length lie in pages of their own. Only the last run of a length
//! can be given up, so its owner moves that run into the hole that another one
//! left. RAM then follows the runs there are, not the most there were of each
//! length. A page without runs is released, and its number serves any length.

use super::pages::PAGE;

/// Runs of `N` lengths, which are numbered by their first elements.
#[derive(Debug)]
pub(super) struct Slabs<const N: usize> {
    slabs: [Slab; N],
    /// Numbers of released pages.
    released: Vec<u32>,
    /// Numbers of pages used so far.
    pages: u32,
}

/// The runs of one length.
#[derive(Debug)]
struct Slab {
    len: usize,
    pages: Vec<u32>,
    runs: usize,
}

impl<const N: usize> Slabs<N> {
    /// No runs. Those of class `i` have `lengths[i]` elements, from one to a page.
    pub(super) fn new(lengths: [usize; N]) -> Self {
        let empty = |len| Slab {
            len,
            pages: Vec::new(),
            runs: 0,
        };
        Slabs {
            slabs: lengths.map(empty),
            released: Vec::new(),
            pages: 0,
        }
    }

    /// Adds a run after the last one of `class`. Its page may have to be allocated.
    pub(super) fn push(&mut self, class: usize) -> u32 {
        let slab = &mut self.slabs[class];
        if slab.runs == slab.pages.len() * slab.runs_in_page() {
            let page = self.released.pop().unwrap_or(self.pages);
            self.pages = self.pages.max(page + 1);
            slab.pages.push(page);
        }
        slab.runs += 1;
        slab.run(slab.runs - 1)
    }

    /// The last run of `class`, which has one.
    pub(super) fn last(&self, class: usize) -> u32 {
        let slab = &self.slabs[class];
        slab.run(slab.runs - 1)
    }

    /// Gives up the last run of `class`. Returns its page if that has no run any more.
    pub(super) fn pop(&mut self, class: usize) -> Option<u32> {
        let slab = &mut self.slabs[class];
        slab.runs -= 1;
        if slab.runs > (slab.pages.len() - 1) * slab.runs_in_page() {
            return None;
        }
        let page = slab.pages.pop();
        self.released.extend(page);
        page
    }

    /// Elements that exist for the runs there are. The rest of each length's last
    /// page is left out: a cache of a hundred blocks would else consist of it.
    pub(super) fn elements(&self) -> usize {
        let in_use = self.slabs.iter().map(|slab| {
            let full = slab.runs / slab.runs_in_page();
            full * PAGE + slab.runs % slab.runs_in_page() * slab.len
        });
        in_use.sum()
    }

    /// Bytes of RAM, without the elements.
    pub(super) fn memory_bytes(&self) -> u64 {
        let pages = self.slabs.iter().map(|slab| slab.pages.capacity());
        let pages = pages.sum::<usize>() + self.released.capacity();
        (pages * size_of::<u32>()) as u64
    }
}

impl Slab {
    fn runs_in_page(&self) -> usize {
        PAGE / self.len
    }

    fn run(&self, at: usize) -> u32 {
        let within = at % self.runs_in_page() * self.len;
        self.pages[at / self.runs_in_page()] * PAGE as u32 + within as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_runs_is_released_and_serves_another_length() {
        let mut slabs = Slabs::new([3, 256]);
        let first = slabs.push(0);
        assert_eq!((first, slabs.push(0), slabs.last(0)), (0, 3, 3));
        assert_eq!(slabs.push(1), PAGE as u32);
        assert_eq!((slabs.elements(), slabs.pages), (6 + 256, 2));
        assert_eq!((slabs.pop(0), slabs.last(0)), (None, first));
        assert_eq!((slabs.pop(0), slabs.elements()), (Some(0), 256));
        for run in 1..4 {
            assert_eq!(slabs.push(1), (PAGE + run * 256) as u32);
        }
        assert_eq!(slabs.push(1), 0, "the page of the other length");
        assert_eq!((slabs.elements(), slabs.pages), (PAGE + 256, 2));
    }

    #[test]
    fn the_tail_of_a_full_page_is_counted() {
        let mut slabs = Slabs::new([300]);
        for _ in 0..3 {
            slabs.push(0);
        }
        assert_eq!(slabs.elements(), PAGE);
        assert_eq!(slabs.push(0), PAGE as u32);
        assert_eq!(slabs.elements(), PAGE + 300);
    }
}
