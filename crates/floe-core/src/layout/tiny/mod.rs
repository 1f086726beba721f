//! What the tiny engines put on flash.
//!
//! Objects, index and filters lie in pages of 4,096 bytes, each checked by
//! itself and each naming what it is, so that a page that was lost, left over
//! or written to the wrong place is never taken for another. Superblock and
//! fences are framed as the chunk engine's structures are. `docs/format.md`,
//! chapter "Tiny objects", is the same knowledge as prose.
//!
//! | file | structure |
//! |---|---|
//! | `page_id` | the name of a page |
//! | `page` | what every page begins with; pages whose body is an engine's |
//! | `objects` | objects in a page |
//! | `filters` | the filters that a set-group brings along |
//! | `index_head` | what an index group is |
//! | `superblock` | what a cache is |
//! | `journal` | hashes that are dead in older set-groups; which of these there are |

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
    split_record,
};
pub use page::{open_index, read_page_id, seal_index};
pub use page_id::{PageId, PageKind};
pub use superblock::{TINY_SUPERBLOCK_BYTES, TinyEngine, TinyFormatPlan, TinySuperblock};
