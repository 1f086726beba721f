//! The names of pages: kind, life and number.

use std::fmt;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// Objects of one set, or of a log.
    Objects,
    /// One set's filters for the set-groups of an index group.
    Index,
    /// Part of the filters of a single set-group.
    Filters,
    /// What an index group is.
    IndexHead,
}

impl PageKind {
    /// All of them.
    pub const ALL: [PageKind; 4] = [
        PageKind::Objects,
        PageKind::Index,
        PageKind::Filters,
        PageKind::IndexHead,
    ];

    /// The two bytes that tell it apart from other pages and from anything else.
    pub const fn magic(self) -> [u8; 2] {
        match self {
            PageKind::Objects => *b"\xf1o",
            PageKind::Index => *b"\xf1i",
            PageKind::Filters => *b"\xf1f",
            PageKind::IndexHead => *b"\xf1h",
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PageKind::Objects => "page of objects",
            PageKind::Index => "page of index",
            PageKind::Filters => "page of filters",
            PageKind::IndexHead => "head of index",
        })
    }
}

/// Which page it is; no two pages that a cache ever writes share it, except
/// one that an engine rewrites in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// What it holds.
    pub kind: PageKind,
    /// The sequence of its set-group; of an index page or an index group's
    /// head, that of the index group's first set-group.
    pub sequence: u64,
    /// The set; of a page of filters, its number among them, from zero.
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
