//! Values that are replaced while the frontends serve.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// A value of which every user sees the newest at its next [`get`](Self::get).
pub(crate) struct Reloadable<T>(Arc<RwLock<Arc<T>>>);

impl<T> Reloadable<T> {
    pub(crate) fn new(value: T) -> Self {
        Reloadable(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The present value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the value by that of `other`.
    pub(crate) fn replace_with(&self, other: &Self) {
        let value = other.get();
        *self.0.write() = value;
    }
}

impl<T> Clone for Reloadable<T> {
    fn clone(&self) -> Self {
        Reloadable(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Reloadable<T> {
    /// Never prints the value, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloadable")
    }
}
