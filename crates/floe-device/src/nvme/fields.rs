//! Little-endian fields of the structures that a drive returns.

/// A structure is shorter than its fields, or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive returned {0}")]
pub struct DecodeError(pub(super) &'static str);

/// Bytes of which fields are read.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields in `bytes`, of which there are at least `len`. `what` names the structure
    /// if there are fewer.
    pub(super) fn new(
        bytes: &'a [u8],
        len: usize,
        what: &'static str,
    ) -> Result<Self, DecodeError> {
        match bytes.len() >= len {
            true => Ok(Fields(bytes)),
            false => Err(DecodeError(what)),
        }
    }

    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let field = &self.0[at..at + N];
        field.try_into().expect("the slice has this length")
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(super) fn u128(self, at: usize) -> u128 {
        u128::from_le_bytes(self.array(at))
    }

    /// ASCII text of `len` bytes, without its padding.
    pub(super) fn text(self, at: usize, len: usize) -> String {
        let bytes = &self.0[at..at + len];
        let text = String::from_utf8_lossy(bytes);
        text.trim_matches(|char| char == ' ' || char == '\0')
            .to_owned()
    }

    /// The entries of `len` bytes from `at`, at most `count`: those that are whole.
    pub(super) fn entries(
        self,
        at: usize,
        len: usize,
        count: usize,
    ) -> impl Iterator<Item = Fields<'a>> {
        let rest = self.0.get(at..).unwrap_or_default();
        rest.chunks_exact(len).take(count).map(Fields)
    }
}
