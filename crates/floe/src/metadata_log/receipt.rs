//! Waiting for a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot::{self, error::RecvError};

use super::owner::Answer;
use crate::error::CacheError;

/// A log, to the waiters of its requests.
pub(super) trait Awaited: Send + Sync {
    /// Does the log's work as far as it goes now, for the waiter of request `number`.
    fn help(&self, number: u64, context: &Context<'_>);

    /// The waiter of request `number` is gone before its answer.
    fn leave(&self, number: u64);
}

/// Resolves once a request is as durable as configured, or has failed. Waiting for it does the
/// log's work.
pub(crate) struct Receipt {
    number: u64,
    answer: oneshot::Receiver<Answer>,
    log: Arc<dyn Awaited>,
    is_over: bool,
}

impl Receipt {
    /// The receipt of the request `number` to `log`, which answers it through the channel.
    pub(super) fn new(
        number: u64,
        answer: oneshot::Receiver<Answer>,
        log: Arc<dyn Awaited>,
    ) -> Self {
        Receipt {
            number,
            answer,
            log,
            is_over: false,
        }
    }

    /// Waits for the request's group.
    pub(crate) async fn wait(mut self) -> Result<(), CacheError> {
        match (&mut self).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(CacheError::NotDurable(reason)),
            Err(_) => Err(CacheError::Closed),
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.number).finish()
    }
}

impl Future for Receipt {
    type Output = Result<Answer, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let receipt = &mut *self;
        let mut answer = Pin::new(&mut receipt.answer).poll(context);
        if answer.is_pending() {
            receipt.log.help(receipt.number, context);
            answer = Pin::new(&mut receipt.answer).poll(context);
        }
        receipt.is_over = answer.is_ready();
        answer
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.is_over {
            self.log.leave(self.number);
        }
    }
}
