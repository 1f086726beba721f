//! The meta commands: a key and one-letter flags, some with a token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::line::{KEY_BYTES_MAX, Words};
use super::number::{signed_32, unsigned, unsigned_32};
use crate::frontends::memcached::words as say;

/// The longest opaque word, its letter included.
const OPAQUE_BYTES_MAX: usize = 32;

/// A key, as given or decoded from base64.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack of one request; a box would be an allocation for each"
)]
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// As received.
    Plain(&'a [u8]),
    /// Decoded: the first `usize` of these bytes.
    Decoded([u8; KEY_BYTES_MAX], usize),
}

impl Key<'_> {
    /// The key's bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Key::Plain(key) => key,
            Key::Decoded(bytes, len) => &bytes[..*len],
        }
    }

    /// True if the key was sent in base64, and so must be returned in base64.
    pub fn is_decoded(&self) -> bool {
        matches!(self, Key::Decoded(..))
    }

    pub(super) fn decode(word: &[u8]) -> Option<Key<'static>> {
        let mut bytes = [0; KEY_BYTES_MAX];
        let len = STANDARD.decode_slice(word, &mut bytes).ok()?;
        (len > 0).then_some(Key::Decoded(bytes, len))
    }
}

/// The `M` flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode(pub Option<u8>);

/// A meta command.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// The key.
    pub key: Key<'a>,
    words: Words<'a>,
    /// Index of the first flag among the words.
    flags_at: usize,
    /// `q`: suppresses the usual response.
    pub quiet: bool,
    /// `v`: return the value.
    pub value: bool,
    /// `u`: the read does not count as an access.
    pub no_bump: bool,
    /// `I`: mark as stale.
    pub stale: bool,
    /// `N`: creates a missing item with this time to live.
    pub vivify: Option<i32>,
    /// `T`: the time to live to set.
    pub ttl: Option<i32>,
    /// `R`: if less than this is left, one client must refill the item.
    pub recache: Option<i32>,
    /// `C`: the version to compare.
    pub version: Option<u64>,
    /// `F`: the client's flags.
    pub client_flags: u32,
    /// `M`.
    pub mode: Mode,
    /// `D`: the amount to count by.
    pub delta: u64,
    /// `J`: the first count.
    pub initial: u64,
}

impl<'a> Meta<'a> {
    /// The flags in their order, each with its token.
    pub fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let Words { words, len } = self.words;
        let flags = words.into_iter().take(len).skip(self.flags_at);
        // No word is empty.
        flags.map(|word| (word[0], word))
    }

    /// Parses the flags from word `flags_at` on. Of several faults the last one
    /// is reported, in memcached's words.
    pub(super) fn read(words: Words<'a>, flags_at: usize) -> Result<Self, &'static str> {
        let mut meta = Meta {
            key: Key::Plain(words.as_slice()[0]),
            words,
            flags_at,
            quiet: false,
            value: false,
            no_bump: false,
            stale: false,
            vivify: None,
            ttl: None,
            recache: None,
            version: None,
            client_flags: 0,
            mode: Mode(None),
            delta: 1,
            initial: 0,
        };
        let mut seen = [false; 127];
        let mut fault = None;
        for &word in &words.as_slice()[flags_at..] {
            match seen.get_mut(usize::from(word[0])) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(say::DUPLICATE_FLAG),
            }
            let unknown = meta.read_flag(word, &mut fault);
            if unknown {
                return Err(say::INVALID_FLAG);
            }
        }
        fault.map_or(Ok(meta), Err)
    }

    /// Parses one flag; returns whether it is unknown.
    fn read_flag(&mut self, word: &'a [u8], fault: &mut Option<&'static str>) -> bool {
        let rest = &word[1..];
        let mut checked = |read: Option<i32>| {
            if read.is_none() {
                *fault = Some(say::BAD_TOKEN);
            }
            read
        };
        match word[0] {
            b'N' => self.vivify = checked(signed_32(rest)),
            b'T' => self.ttl = checked(signed_32(rest)),
            b'R' => self.recache = checked(signed_32(rest)),
            b'b' => match Key::decode(self.key.as_slice()) {
                Some(key) => self.key = key,
                None => *fault = Some(say::BAD_BASE64),
            },
            b'v' => self.value = true,
            b'u' => self.no_bump = true,
            b'q' => self.quiet = true,
            b'I' => self.stale = true,
            b'F' => match unsigned_32(rest) {
                Some(flags) => self.client_flags = flags,
                None => {
                    fault.get_or_insert(say::BAD_FORMAT);
                }
            },
            b'C' => match unsigned(rest) {
                Some(version) => self.version = Some(version),
                None => *fault = Some(say::BAD_TOKEN),
            },
            b'M' => match word {
                [_, mode] => self.mode = Mode(Some(*mode)),
                _ => *fault = Some(say::BAD_MODE_LENGTH),
            },
            b'J' => match unsigned(rest) {
                Some(initial) => self.initial = initial,
                None => *fault = Some(say::BAD_INITIAL),
            },
            b'D' => match unsigned(rest) {
                Some(delta) => self.delta = delta,
                None => *fault = Some(say::BAD_META_DELTA),
            },
            b'l' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' => {}
            _ => return true,
        }
        false
    }

    pub(super) fn has_long_opaque(&self) -> bool {
        self.flags()
            .any(|(flag, word)| flag == b'O' && word.len() > OPAQUE_BYTES_MAX)
    }
}
