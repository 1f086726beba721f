//! Arrays that grow by a page at a time, so that growth neither copies nor
//! doubles them.

use std::ops::{Index, IndexMut};

/// Elements of a page.
pub(super) const PAGE: usize = 1 << PAGE_BITS;
const PAGE_BITS: usize = 10;

/// An array of `T` by `u32` index.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
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

    /// Makes the indexes of the page of `id` valid.
    pub(super) fn allocate(&mut self, id: u32) {
        let page = id as usize / PAGE;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([self.blank; PAGE]));
    }

    /// Frees the RAM of page `page`, none of whose elements is in use.
    pub(super) fn release(&mut self, page: u32) {
        self.pages[page as usize] = None;
    }

    /// Bytes of RAM of `len` elements, and of the pages' addresses. The rest of the
    /// last page is left out: a cache of a hundred blocks would else consist of it.
    pub(super) fn memory_of(&self, len: usize) -> u64 {
        (len * size_of::<T>() + self.pages.capacity() * size_of::<usize>()) as u64
    }
}

impl<T> Pages<T> {
    fn page(&self, id: u32) -> &[T; PAGE] {
        let page = self.pages[id as usize >> PAGE_BITS].as_ref();
        page.expect("pages with elements in use are allocated")
    }

    fn page_mut(&mut self, id: u32) -> &mut [T; PAGE] {
        let page = self.pages[id as usize >> PAGE_BITS].as_mut();
        page.expect("pages with elements in use are allocated")
    }
}

impl<T> Index<u32> for Pages<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.page(id)[id as usize % PAGE]
    }
}

impl<T> IndexMut<u32> for Pages<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.page_mut(id)[id as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_valid_elements() {
        let mut pages = Pages::new(0_u32);
        assert_eq!(pages.memory_of(0), 0);
        pages.allocate(2);
        let addresses = (pages.pages.capacity() * size_of::<usize>()) as u64;
        assert_eq!(pages.memory_of(3), 12 + addresses);
        pages.allocate(PAGE as u32);
        let addresses = (pages.pages.capacity() * size_of::<usize>()) as u64;
        assert_eq!(pages.memory_of(PAGE + 1), (PAGE as u64 + 1) * 4 + addresses);
    }
}
