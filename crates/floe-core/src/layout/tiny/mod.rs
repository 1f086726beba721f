//! The structures that the tiny engines write to flash.
//!
//! Objects, index and filters are in pages of 4,096 bytes. Each page has its
//! own checksum and identity, so that a lost, leftover or misplaced write is
//! never mistaken for another page. Superblock and fences are framed as the
//! chunk engine's structures are. `docs/format.md`, chapter "Tiny objects",
//! describes the same in prose.
//!
//! | file | structure |
//! |---|---|
//! | `page_id` | the identity of a page |
//! | `page` | the header of every page; pages whose body belongs to an engine |
//! | `objects` | objects in a page |
//! | `filters` | the filters of one set-group |
//! | `index_head` | the head of an index group |
//! | `superblock` | identity and plan of a cache |
//! | `journal` | key hashes that are dead in older set-groups; the set-groups of each instance |

mod filters;
mod index_head;
mod journal;
mod objects;
mod page;
mod page_id;
mod superblock;

#[cfg(test)]
mod tests;

pub use filters::{
    TRAILER_HEAD_BYTES, TrailerHead, decode_trailer, decode_trailer_head, encode_trailer,
    trailer_body_bytes, trailer_pages,
};
pub use index_head::{INDEX_HEAD_BYTES, IndexHead};
pub use journal::{Fence, TINY_NOTE_BYTES, TinyNote};
pub use objects::{
    Content, Hit, KEY_BYTES_MAX, ObjectRef, ObjectsPage, decode_objects, encode_objects, record,
    record_of, split_record,
};
pub use page::{open_index, read_page_id, seal_index};
pub use page_id::{PageId, PageKind};
pub use superblock::{TINY_SUPERBLOCK_BYTES, TinyEngine, TinyFormatPlan, TinySuperblock};
