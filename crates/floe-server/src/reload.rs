//! Values that a reload replaces.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// Applies a reload, and returns the names of the applied settings.
pub(crate) type Reload = Box<dyn FnOnce() -> Vec<&'static str>>;

/// A value that a reload replaces; users see the new one at their next [`get`](Self::get).
pub(crate) struct Reloadable<T>(Arc<RwLock<Arc<T>>>);

impl<T> Reloadable<T> {
    pub(crate) fn new(value: T) -> Self {
        Reloadable(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The current value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the value with that of `other`.
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
    /// Hides the value, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloadable")
    }
}
