//! A future that is polled in the context of another runtime.

use std::borrow::Borrow;
use std::pin::Pin;
use std::task::{self, Poll};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;

pin_project! {
    /// A future that is dropped in the context, too. An `async` function would hold its future
    /// twice.
    pub(super) struct Guest<H: Borrow<Handle>, F> {
        host: H,
        #[pin]
        future: Option<F>,
    }

    impl<H: Borrow<Handle>, F> PinnedDrop for Guest<H, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let host: &Handle = (*this.host).borrow();
            let _entered = host.enter();
            this.future.set(None);
        }
    }
}

impl<H: Borrow<Handle>, F: Future> Guest<H, F> {
    pub(super) fn new(host: H, future: F) -> Self {
        Guest {
            host,
            future: Some(future),
        }
    }
}

impl<H: Borrow<Handle>, F: Future> Future for Guest<H, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let host: &Handle = (*this.host).borrow();
        let _entered = host.enter();
        match this.future.as_pin_mut() {
            Some(future) => future.poll(context),
            // Unreachable: it is there until the guest is dropped.
            None => Poll::Pending,
        }
    }
}
