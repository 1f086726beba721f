//! A bounded arena of page-aligned buffers in one mapping, so that one
//! registration with the kernel covers all of them (registered buffers).

use std::io;
use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::mapping::Mapping;

/// Bytes of a span: the unit that the arena gives to a size class, and its
/// largest buffer.
const SPAN_BYTES: usize = 1 << 20;
/// Smallest buffer.
const PIECE_MIN: usize = 4096;
/// Size classes: 4 KiB, 8 KiB, … 1 MiB.
const CLASSES: usize = (SPAN_BYTES / PIECE_MIN).trailing_zeros() as usize + 1;
const WORDS: usize = SPAN_BYTES / PIECE_MIN / 64;

/// A mapping that is handed out in pieces.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    /// Unmapped with the arena.
    _mapping: Mapping,
    state: Mutex<State>,
}

// SAFETY: the arena only hands out disjoint pieces; its own state is locked.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

#[derive(Debug)]
struct State {
    spans: Vec<Span>,
    /// Spans that belong to no class.
    unused: Vec<u32>,
    /// Per class, spans with a free piece. Spans that filled up or changed class
    /// since are stale entries, which `take` removes.
    partial: [Vec<u32>; CLASSES],
}

#[derive(Clone, Debug)]
struct Span {
    class: Option<u8>,
    /// The span is on its class's partial list.
    listed: bool,
    free: u16,
    bitmap: [u64; WORDS],
}

impl Arena {
    /// Maps an arena of `len` bytes, rounded up to whole MiB.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let len = len
            .checked_next_multiple_of(SPAN_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // With huge pages a registered buffer is one segment per transfer instead
        // of one per 4 KiB, and the TLB misses less: 64 KiB reads cost a third
        // less CPU.
        let mapping = Mapping::new(len)?;
        let base = mapping.start();
        let spans = len / SPAN_BYTES;
        let span = Span {
            class: None,
            listed: false,
            free: 0,
            bitmap: [0; WORDS],
        };
        let state = State {
            spans: vec![span; spans],
            unused: (0..spans as u32).rev().collect(),
            partial: Default::default(),
        };
        Ok(Arena {
            base,
            len,
            _mapping: mapping,
            state: Mutex::new(state),
        })
    }

    /// Start and length of the mapping.
    pub(crate) fn extent(&self) -> (NonNull<u8>, usize) {
        (self.base, self.len)
    }

    /// A piece of at least `len` bytes, initialized, with stale content; `None`
    /// if none is free or `len` exceeds 1 MiB.
    pub(crate) fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let class = class_of(len)?;
        let (span, piece) = self.state.lock().take(class)?;
        let offset = span as usize * SPAN_BYTES + piece * piece_bytes(class);
        // SAFETY: the offset lies inside the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// Returns a piece that `take` returned.
    ///
    /// # Safety
    /// `ptr` came from `take` of this arena, was not returned yet, and is not
    /// used any more.
    pub(crate) unsafe fn give_back(&self, ptr: NonNull<u8>) {
        let offset = ptr.as_ptr() as usize - self.base.as_ptr() as usize;
        self.state.lock().give_back(offset);
    }
}

impl State {
    fn take(&mut self, class: usize) -> Option<(u32, usize)> {
        loop {
            let Some(&number) = self.partial[class].last() else {
                self.claim_span(class)?;
                continue;
            };
            let span = &mut self.spans[number as usize];
            if span.class != Some(class as u8) || span.free == 0 {
                span.listed = false;
                self.partial[class].pop();
                continue;
            }
            return Some((number, span.take_piece()));
        }
    }

    fn claim_span(&mut self, class: usize) -> Option<()> {
        let number = self.unused.pop()?;
        let pieces = SPAN_BYTES / piece_bytes(class);
        let span = &mut self.spans[number as usize];
        span.class = Some(class as u8);
        span.free = pieces as u16;
        for (i, word) in span.bitmap.iter_mut().enumerate() {
            let bits = pieces.saturating_sub(i * 64).min(64);
            *word = if bits == 64 {
                u64::MAX
            } else {
                (1 << bits) - 1
            };
        }
        span.listed = true;
        self.partial[class].push(number);
        Some(())
    }

    fn give_back(&mut self, offset: usize) {
        let number = offset / SPAN_BYTES;
        let span = &mut self.spans[number];
        let class = usize::from(span.class.expect("a span with a piece in use has a class"));
        let piece = offset % SPAN_BYTES / piece_bytes(class);
        debug_assert_eq!(span.bitmap[piece / 64] >> (piece % 64) & 1, 0, "freed once");
        span.bitmap[piece / 64] |= 1 << (piece % 64);
        span.free += 1;
        if usize::from(span.free) == SPAN_BYTES / piece_bytes(class) {
            self.release_span(number as u32, class);
        } else if !span.listed {
            span.listed = true;
            self.partial[class].push(number as u32);
        }
    }

    /// Makes an entirely free span available to every class.
    fn release_span(&mut self, number: u32, class: usize) {
        let span = &mut self.spans[number as usize];
        span.class = None;
        span.free = 0;
        if std::mem::take(&mut span.listed) {
            self.partial[class].retain(|&n| n != number);
        }
        self.unused.push(number);
    }
}

impl Span {
    fn take_piece(&mut self) -> usize {
        let word = self
            .bitmap
            .iter()
            .position(|&w| w != 0)
            .expect("a span counted as partial has a free piece");
        let bit = self.bitmap[word].trailing_zeros() as usize;
        self.bitmap[word] &= self.bitmap[word] - 1;
        self.free -= 1;
        word * 64 + bit
    }
}

fn class_of(len: usize) -> Option<usize> {
    let rounded = len.checked_next_power_of_two()?.max(PIECE_MIN);
    (rounded <= SPAN_BYTES).then(|| (rounded / PIECE_MIN).trailing_zeros() as usize)
}

fn piece_bytes(class: usize) -> usize {
    PIECE_MIN << class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_bounded_and_reused_across_classes() {
        let arena = Arena::new(4 << 20).unwrap();
        for len in [4096usize, 65536, 100_000, 1 << 20, 4096] {
            let mut taken = Vec::new();
            while let Some(ptr) = arena.take(len) {
                taken.push(ptr);
            }
            let piece = len.next_power_of_two();
            assert_eq!(taken.len(), (4 << 20) / piece, "all of it for {len}");
            let mut starts: Vec<usize> = taken.iter().map(|p| p.as_ptr() as usize).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|w| w[1] - w[0] >= piece));
            for ptr in taken {
                // SAFETY: taken above, given back once.
                unsafe { arena.give_back(ptr) };
            }
        }
        assert!(arena.take((1 << 20) + 1).is_none());
    }
}
