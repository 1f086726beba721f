//! Synthetic bytes: streams generated from one number. Their bytes can be
//! checked at any offset without being kept, and a piece of a stream can be
//! recognised.
//!
//! Emulated origins serve them. Simulated SSDs keep a stream's state in place
//! of its bytes, so that experiments with terabytes need no terabytes.

/// The distance between the states of two consecutive words: 2^64 divided by
/// the golden ratio, so that nearby states differ in many bits.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = size_of::<u64>();
/// Words compared at once, before the first difference is located.
const STRIDE: usize = 32;

/// A stream of synthetic bytes: a Weyl sequence as 64-bit little-endian words,
/// the upper half of each folded into its lower half. Two streams never agree
/// in a word unless one is the other shifted. More randomness would only cost
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeUp {
    /// The state at the first word.
    state: u64,
}

impl MadeUp {
    /// The fewest bytes that [`MadeUp::recognise`] needs.
    pub const RECOGNISABLE: usize = 2 * WORD;

    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        MadeUp { state: seed }
    }

    /// The stream that begins with `bytes`, if the first
    /// [`RECOGNISABLE`](Self::RECOGNISABLE) of them belong to a stream. Other
    /// bytes are mistaken for a stream with probability 2^-64: compare all of
    /// them with [`MadeUp::agreement`].
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk()?;
        let second = rest.first_chunk()?;
        let state = fold(u64::from_le_bytes(*first));
        let next = fold(state.wrapping_add(GAMMA));
        (next == u64::from_le_bytes(*second)).then_some(MadeUp { state })
    }

    /// The stream that begins at this one's byte `words * 8`; earlier if
    /// negative.
    pub fn shifted(&self, words: i64) -> Self {
        let distance = (words as u64).wrapping_mul(GAMMA);
        MadeUp {
            state: self.state.wrapping_add(distance),
        }
    }

    /// Writes the bytes that begin at `offset`.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        let (mut state, head) = self.at(offset);
        let (first, rest) = bytes.split_at_mut(head.len().min(bytes.len()));
        first.copy_from_slice(&head[..first.len()]);
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&fold(state).to_le_bytes());
            state = state.wrapping_add(GAMMA);
        }
        let last = words.into_remainder();
        last.copy_from_slice(&fold(state).to_le_bytes()[..last.len()]);
    }

    /// The length of the longest prefix of `bytes` that equals the stream's
    /// bytes at `offset`.
    pub fn agreement(&self, offset: u64, bytes: &[u8]) -> usize {
        let (mut state, head) = self.at(offset);
        let (first, rest) = bytes.split_at(head.len().min(bytes.len()));
        if first != &head[..first.len()] {
            return common(first, &head);
        }
        let mut at = first.len();
        for stride in rest.chunks_exact(STRIDE * WORD) {
            if !is_made_up(state, stride) {
                break;
            }
            state = state.wrapping_add(GAMMA.wrapping_mul(STRIDE as u64));
            at += stride.len();
        }
        for word in bytes[at..].chunks(WORD) {
            let wanted = fold(state).to_le_bytes();
            if word != &wanted[..word.len()] {
                return at + common(word, &wanted);
            }
            state = state.wrapping_add(GAMMA);
            at += word.len();
        }
        at
    }

    /// The state at the first word that begins at or after `offset`, and the
    /// stream's bytes between `offset` and that word.
    fn at(&self, offset: u64) -> (u64, Head) {
        let word = offset / WORD as u64;
        let state = self.state.wrapping_add(GAMMA.wrapping_mul(word));
        let skip = (offset % WORD as u64) as usize;
        if skip == 0 {
            return (state, Head::default());
        }
        let head = Head {
            word: fold(state).to_le_bytes(),
            skip,
        };
        (state.wrapping_add(GAMMA), head)
    }
}

/// The end of a word: its bytes from `skip` on.
struct Head {
    word: [u8; WORD],
    skip: usize,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            word: [0; WORD],
            skip: WORD,
        }
    }
}

impl std::ops::Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.word[self.skip..]
    }
}

/// True if `words`, whole words, are those of the stream from `state` on.
/// Without branches, for speed.
fn is_made_up(mut state: u64, words: &[u8]) -> bool {
    let mut difference = 0;
    for word in words.chunks_exact(WORD) {
        // `chunks_exact` gives whole words.
        let given = word.try_into().map_or(0, u64::from_le_bytes);
        difference |= given ^ fold(state);
        state = state.wrapping_add(GAMMA);
    }
    difference == 0
}

/// The length of the longest common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Its own inverse.
const fn fold(z: u64) -> u64 {
    z ^ (z >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn generated_words_are_fixed() {
        let mut bytes = [0; 16];
        MadeUp::new(1).fill(0, &mut bytes);
        let second = 1u64.wrapping_add(GAMMA);
        let words = [1, second ^ (second >> 32)].map(u64::to_le_bytes);
        assert_eq!(bytes, *words.as_flattened());
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(seed: u64, cut in 0usize..2000, len in 0usize..2000, base in 0u64..100) {
            let stream = MadeUp::new(seed);
            let mut whole = vec![0; cut + len];
            stream.fill(base, &mut whole);
            let mut piece = vec![0; len];
            stream.fill(base + cut as u64, &mut piece);
            prop_assert_eq!(&piece, &whole[cut..]);
            prop_assert_eq!(stream.agreement(base + cut as u64, &piece), len);
        }

        #[test]
        fn the_first_difference_is_found(seed: u64, base in 0u64..100, len in 1usize..2000, at: proptest::sample::Index, flip in 1u8..) {
            let stream = MadeUp::new(seed);
            let mut bytes = vec![0; len];
            stream.fill(base, &mut bytes);
            let at = at.index(len);
            bytes[at] ^= flip;
            prop_assert_eq!(stream.agreement(base, &bytes), at);
        }

        #[test]
        fn streams_are_recognised_where_they_are_met(seed: u64, word in 0i64..1000) {
            let stream = MadeUp::new(seed);
            let mut bytes = [0; 16];
            stream.fill(word as u64 * 8, &mut bytes);
            let met = MadeUp::recognise(&bytes);
            prop_assert_eq!(met, Some(stream.shifted(word)));
            prop_assert_eq!(met.map(|met| met.shifted(-word)), Some(stream));
        }

        #[test]
        fn other_bytes_are_not(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            prop_assert_eq!(MadeUp::recognise(&bytes), None);
        }
    }
}
