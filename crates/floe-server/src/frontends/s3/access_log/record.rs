//! The line of a request in flight.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use floe::origin::OriginRequestId;
use floe_core::Tick;
use floe_device::Clock;
use futures::future::Either;
use http::StatusCode;

use super::AccessLog;
use super::entry::{Asked, Entry, cut_text};

/// The access key of a request, once its signature is verified.
#[derive(Clone, Debug, Default)]
pub(in crate::frontends::s3) struct Verified(Arc<OnceLock<String>>);

impl Verified {
    pub(in crate::frontends::s3) fn set(&self, access_key: &str) {
        // It is verified once.
        let _ = self.0.set(access_key.to_owned());
    }
}

/// The line of a request, which ends when this is dropped.
pub(in crate::frontends::s3) struct Record {
    log: Arc<AccessLog>,
    clock: Clock,
    began: Tick,
    /// None after it was written or cancelled.
    entry: Option<Box<Entry>>,
    verified: Verified,
    received_bytes: Arc<AtomicU64>,
    origin_request_id: OriginRequestId,
}

impl Record {
    /// Begins a line, if the log is on.
    pub(in crate::frontends::s3) fn begin(
        log: &Arc<AccessLog>,
        clock: &Clock,
        client: SocketAddr,
        asked: &Asked<'_>,
    ) -> Option<Self> {
        log.is_on().then(|| Record {
            log: Arc::clone(log),
            clock: clock.clone(),
            began: clock.now(),
            entry: Some(Box::new(Entry::new(client, asked))),
            verified: Verified::default(),
            received_bytes: Arc::default(),
            origin_request_id: OriginRequestId::default(),
        })
    }

    /// The place of the access key.
    pub(in crate::frontends::s3) fn verified(&self) -> Verified {
        self.verified.clone()
    }

    /// The count of the body's bytes.
    pub(in crate::frontends::s3) fn received_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received_bytes)
    }

    /// Prepares the answer to a request, and notes the origin's request behind it if there is a
    /// `record`.
    pub(in crate::frontends::s3) fn answering<F: Future>(
        record: Option<&Self>,
        answer: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        match record {
            Some(record) => Either::Left(record.origin_request_id.clone().scope(answer)),
            None => Either::Right(answer),
        }
    }

    /// Records the beginning of the answer.
    pub(in crate::frontends::s3) fn answered(
        &mut self,
        status: StatusCode,
        request_id: &str,
        cache: Option<Cow<'static, str>>,
    ) {
        let first_byte_us = self.elapsed_us();
        if let Some(entry) = &mut self.entry {
            entry.status = Some(status.as_u16());
            entry.request_id = Some(request_id.to_owned());
            entry.first_byte_us = Some(first_byte_us);
            if let Some(cache) = cache {
                entry.cache = cache;
            }
            // The id of an answer of the origin is that of the request already.
            if entry.cache != "forwarded" {
                let id = self.origin_request_id.get();
                entry.origin_request_id = id.as_deref().map(cut_text);
            }
        }
    }

    /// Records the code of an error.
    pub(in crate::frontends::s3) fn failed(&mut self, code: &str) {
        if let Some(entry) = &mut self.entry {
            entry.error = Some(code.to_owned());
        }
    }

    pub(in crate::frontends::s3) fn sent(&mut self, bytes: u64) {
        if let Some(entry) = &mut self.entry {
            entry.sent_bytes += bytes;
        }
    }

    /// Ends it without a line: another way of the request has its own.
    pub(in crate::frontends::s3) fn cancel(mut self) {
        self.entry = None;
    }

    fn elapsed_us(&self) -> u64 {
        let elapsed = self.clock.now().since(self.began);
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration_us = self.elapsed_us();
        if let Some(mut entry) = self.entry.take() {
            entry.duration_us = duration_us;
            entry.received_bytes = self.received_bytes.load(Relaxed);
            if let Some(key) = self.verified.0.get() {
                entry.access_key = Some(key.clone());
            }
            self.log.write(entry);
        }
    }
}
