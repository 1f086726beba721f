//! Bytes of a caller that the engine holds.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

/// A value's bytes in memory. The last reference to bytes with an owner
/// ([`Bytes::from_owner`]) drops that owner, which runs the caller's code in
/// the task of another caller or of the engine. A panic in it ends here.
#[derive(Debug)]
pub(crate) struct HeldBytes(Bytes);

impl HeldBytes {
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl From<Bytes> for HeldBytes {
    fn from(bytes: Bytes) -> Self {
        HeldBytes(bytes)
    }
}

impl Deref for HeldBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if catch_unwind(AssertUnwindSafe(|| drop(bytes))).is_err() {
            tracing::error!("the owner of a value's bytes panicked when it was dropped");
        }
    }
}
