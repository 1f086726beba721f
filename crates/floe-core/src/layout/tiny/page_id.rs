//! The identities of pages: kind, sequence and number.

use std::fmt;

/// The contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// Objects of one set, or of a log.
    Objects,
    /// One set's filters for the set-groups of an index group.
    Index,
    /// Part of the filters of a single set-group.
    Filters,
    /// The head of an index group.
    IndexHead,
}

crate::names! {
    PageKind {
        Objects => "page of objects",
        Index => "page of index",
        Filters => "page of filters",
        IndexHead => "head of index",
    }
}

impl PageKind {
    /// The two bytes that distinguish its pages from others and from foreign
    /// data.
    pub const fn magic(self) -> [u8; 2] {
        match self {
            PageKind::Objects => *b"\xf1o",
            PageKind::Index => *b"\xf1i",
            PageKind::Filters => *b"\xf1f",
            PageKind::IndexHead => *b"\xf1h",
        }
    }
}

/// The identity of a page. No two pages that a cache ever writes share one,
/// except for pages that an engine rewrites in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The page's contents.
    pub kind: PageKind,
    /// The sequence of its set-group. For an index page and an index group's
    /// head, that of the index group's first set-group.
    pub sequence: u64,
    /// The set. For a page of filters, its number among them, from zero.
    pub number: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageId {
            kind,
            sequence,
            number,
        } = self;
        write!(f, "{kind} {number} of set-group {sequence}")
    }
}
