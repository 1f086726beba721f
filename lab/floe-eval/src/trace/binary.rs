//! The fields of a binary record, read in order.

/// The rest of a record. Reading past its end is an error.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn u16_le(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u32_le(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u64_le(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u32_be(&mut self) -> Result<u32, String> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| format!("the record ends before a field of {N} bytes"))?;
        self.0 = rest;
        Ok(*field)
    }
}
