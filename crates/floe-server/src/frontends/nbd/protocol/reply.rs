//! Heads of replies.

use bytes::BufMut;
pub use floe::backing::nbd::wire::{CHUNK_MAGIC, DONE, SIMPLE_MAGIC, chunk};

use super::Rejection;

/// The id of `base:allocation`, the only context.
pub const ALLOCATION_ID: u32 = 1;

/// Appends a simple reply without an error.
pub fn put_done(out: &mut impl BufMut, cookie: u64) {
    put_simple(out, cookie, 0);
}

/// Appends an error. Structured replies have its reason as well.
pub fn put_error(out: &mut impl BufMut, cookie: u64, rejection: Rejection, structured: bool) {
    let Rejection { errno, reason } = rejection;
    if !structured {
        return put_simple(out, cookie, errno as u32);
    }
    // Reasons are short.
    put_chunk(out, cookie, chunk::ERROR, 6 + reason.len() as u32);
    out.put_u32(errno as u32);
    out.put_u16(reason.len() as u16);
    out.put_slice(reason.as_bytes());
}

/// Appends the head of a read's reply; `len` bytes of data from `at` follow.
pub fn put_data_head(out: &mut impl BufMut, cookie: u64, at: u64, len: u32, structured: bool) {
    if !structured {
        return put_done(out, cookie);
    }
    put_chunk(out, cookie, chunk::OFFSET_DATA, 8 + len);
    out.put_u64(at);
}

/// Appends the allocation of `len` bytes: all of them are allocated.
pub fn put_allocated(out: &mut impl BufMut, cookie: u64, len: u32) {
    put_chunk(out, cookie, chunk::BLOCK_STATUS, 12);
    out.put_u32(ALLOCATION_ID);
    out.put_u32(len);
    out.put_u32(0);
}

fn put_simple(out: &mut impl BufMut, cookie: u64, errno: u32) {
    out.put_u32(SIMPLE_MAGIC);
    out.put_u32(errno);
    out.put_u64(cookie);
}

fn put_chunk(out: &mut impl BufMut, cookie: u64, kind: u16, len: u32) {
    out.put_u32(CHUNK_MAGIC);
    out.put_u16(DONE);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(len);
}
