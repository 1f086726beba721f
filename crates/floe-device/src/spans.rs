//! Divides a range into pieces of powers of two, given out and taken back one by one.

/// Bytes of a span: the unit that is given to a size class, and the largest piece.
pub(crate) const SPAN_BYTES: usize = 1 << 20;
/// Smallest piece.
const PIECE_MIN: usize = 4096;
/// Size classes: 4 KiB, 8 KiB, … 1 MiB.
const CLASSES: usize = (SPAN_BYTES / PIECE_MIN).trailing_zeros() as usize + 1;
const WORDS: usize = SPAN_BYTES / PIECE_MIN / 64;

/// The free and used pieces of a range.
#[derive(Debug)]
pub(crate) struct Spans {
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

impl Spans {
    /// A range of `bytes`, of which whole spans are used.
    pub(crate) fn new(bytes: usize) -> Self {
        let count = bytes / SPAN_BYTES;
        let span = Span {
            class: None,
            listed: false,
            free: 0,
            bitmap: [0; WORDS],
        };
        Spans {
            spans: vec![span; count],
            unused: (0..count as u32).rev().collect(),
            partial: Default::default(),
        }
    }

    /// The offset of a piece of at least `len` bytes; `None` if none is free or `len` exceeds
    /// a span.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let class = class_of(len)?;
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
            let piece = span.take_piece();
            return Some(number as usize * SPAN_BYTES + piece * piece_bytes(class));
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

    /// Takes back the piece at `offset`.
    pub(crate) fn give_back(&mut self, offset: usize) {
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
