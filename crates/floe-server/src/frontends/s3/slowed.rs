//! Clients with too many busy connections.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use s3s::{S3Error, S3ErrorCode};

use super::config::S3Config;
use super::error::retriable;
use crate::metrics::Counter;
use crate::net::Activity;

/// The least limit if none is set.
const LEAST: usize = 64;

/// The limit, and the requests that were refused for it.
#[derive(Debug)]
pub(super) struct Slowed {
    most: AtomicUsize,
    requests: Counter,
}

impl Slowed {
    pub(super) fn new(config: &S3Config) -> Self {
        Slowed {
            most: AtomicUsize::new(limit(config)),
            requests: Counter::default(),
        }
    }

    /// Takes the limit for later requests, also of open connections.
    pub(super) fn replace_limit(&self, config: &S3Config) {
        self.most.store(limit(config), Relaxed);
    }

    /// The error of a request, if its connection is one too many of its client.
    pub(super) fn refusal(&self, activity: &Activity) -> Option<S3Error> {
        let most = self.most.load(Relaxed);
        if !activity.exceeds(most) {
            return None;
        }
        self.requests.add(1);
        let message = format!(
            "This client has {most} busy connections, the most of one client. Use fewer, or \
             raise s3.max_connections_per_client."
        );
        Some(retriable(S3ErrorCode::SlowDown, message))
    }

    pub(super) fn count(&self) -> u64 {
        self.requests.get()
    }
}

fn limit(config: &S3Config) -> usize {
    match config.max_connections_per_client {
        None => (config.max_connections as usize / 2).max(LEAST),
        Some(0) => usize::MAX,
        Some(most) => most as usize,
    }
}
