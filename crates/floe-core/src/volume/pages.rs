//! Arrays that grow by a page at a time, so that growth neither copies nor
//! doubles them.

use std::ops::{Index, IndexMut};

/// Elements of a page.
pub(super) const PAGE: usize = 1 << PAGE_BITS;
const PAGE_BITS: usize = 10;

/// An array of `T` by `u32` index.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Box<[T; PAGE]>>,
    blank: T,
}

impl<T: Copy> Pages<T> {
    /// An array without elements; new elements will be `blank`.
    pub(super) fn new(blank: T) -> Self {
        Pages {
            pages: Vec::new(),
            blank,
        }
    }

    /// Makes every index below `len` valid.
    pub(super) fn grow_to(&mut self, len: usize) {
        while self.pages.len() * PAGE < len {
            self.pages.push(Box::new([self.blank; PAGE]));
        }
    }

    /// The elements from `first` on that lie in the same page, `len` at most.
    pub(super) fn run(&self, first: u32, len: usize) -> &[T] {
        let within = first as usize % PAGE;
        &self.pages[first as usize / PAGE][within..within + len]
    }

    /// The same elements, to change them.
    pub(super) fn run_mut(&mut self, first: u32, len: usize) -> &mut [T] {
        let within = first as usize % PAGE;
        &mut self.pages[first as usize / PAGE][within..within + len]
    }

    /// Bytes of RAM of the array.
    pub(super) fn memory_bytes(&self) -> u64 {
        let elements = self.pages.len() * PAGE * size_of::<T>();
        (elements + self.pages.capacity() * size_of::<usize>()) as u64
    }
}

impl<T> Index<u32> for Pages<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.pages[id as usize >> PAGE_BITS][id as usize % PAGE]
    }
}

impl<T> IndexMut<u32> for Pages<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.pages[id as usize >> PAGE_BITS][id as usize % PAGE]
    }
}
