//! The words of a line, and the limits of keys and values.

/// The longest key.
pub const KEY_BYTES_MAX: usize = 250;

/// Most words of a line; memcached's `MAX_TOKENS` without its end mark.
const WORDS_MAX: usize = 23;

/// The words of a line.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub(super) words: [&'a [u8]; WORDS_MAX],
    pub(super) len: usize,
}

impl<'a> Words<'a> {
    /// Splits a line into words; words beyond the maximum are dropped.
    pub(super) fn of(line: &'a [u8]) -> Self {
        let mut all = [&[][..]; WORDS_MAX];
        let mut len = 0;
        for (place, word) in all.iter_mut().zip(words(line)) {
            *place = word;
            len += 1;
        }
        Words { words: all, len }
    }

    /// Each word.
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.words[..self.len]
    }

    /// True if the last word suppresses the response.
    pub(super) fn noreply(&self) -> bool {
        self.as_slice().last() == Some(&&b"noreply"[..])
    }
}

pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty())
}

/// A value's length, if memcached accepts it with its line end.
pub(super) fn value_len(len: i32) -> Option<u32> {
    u32::try_from(len).ok().filter(|_| len <= i32::MAX - 2)
}
