//! Cleaning up after work that ended early.

/// Runs its function when it is dropped before the work that it guards is done:
/// the work panicked, or its task was cancelled.
#[must_use = "dropping it is what runs the function"]
pub(crate) struct OnAbort<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnAbort<F> {
    pub(crate) fn new(clean_up: F) -> Self {
        OnAbort(Some(clean_up))
    }

    /// The work is done: nothing is to be cleaned up.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnAbort<F> {
    fn drop(&mut self) {
        if let Some(clean_up) = self.0.take() {
            clean_up();
        }
    }
}
