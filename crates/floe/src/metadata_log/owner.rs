//! The owner of a log, which writes groups of requests.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::LogError;
use super::combiner::Wakers;
use super::contents::{Contents, Demand, RecordOf, Written};
use super::zones::Log;

/// The result of a request: nothing, or the reason of its failure.
pub(super) type Answer = Result<(), String>;

/// A request of a caller.
pub(super) struct Request<C: Contents> {
    pub(super) entries: Option<C::Entries>,
    pub(super) demand: Demand,
    /// The caller, if it waits.
    pub(super) done: Option<oneshot::Sender<Answer>>,
}

/// The owner of a log.
pub(super) struct Owner<C: Contents> {
    pub(super) log: Log<C::Superblock>,
    pub(super) contents: C,
    /// A group failed, for good.
    pub(super) is_broken: bool,
    pub(super) wakers: Arc<Wakers>,
}

impl<C: Contents> Owner<C> {
    /// Writes a group, and answers its requests.
    pub(super) async fn write_group(
        mut self: Box<Self>,
        requests: Vec<Request<C>>,
    ) -> Option<Box<Self>> {
        let (mut settles, mut closes) = (false, false);
        let (mut entries, mut waiting) = (Vec::new(), Vec::new());
        for request in requests {
            entries.extend(request.entries.into_iter().flatten());
            waiting.extend(request.done);
            settles |= request.demand == Demand::Settle;
            closes |= request.demand == Demand::Close;
        }
        self.contents.gather(&mut entries);
        let result = self.write(&entries, settles).await;
        self.contents.written(&entries, &result);
        let result = result.map(drop).map_err(|error| error.to_string());
        let owner = match closes {
            true => self.complete(true).await,
            false => Some(self),
        };
        for done in waiting {
            // A dropped caller needs no response.
            let _ = done.send(result.clone());
        }
        owner
    }

    /// Gives the last block its second copy.
    pub(super) async fn complete(mut self: Box<Self>, ends: bool) -> Option<Box<Self>> {
        if let Err(error) = self.log.complete().await {
            tracing::warn!(%error, "the journal's last block has only one copy; the next records go to the other zone");
        }
        (!ends).then_some(self)
    }

    async fn write(&mut self, entries: &[C::Entry], settles: bool) -> Result<Written, LogError> {
        if self.is_broken {
            return Err(LogError::Broken);
        }
        let records = entries.iter().map(C::record).collect();
        let result = if !settles {
            let stand_alone = entries.iter().all(C::stands_alone);
            self.append(records, stand_alone).await
        } else if entries.is_empty() && self.contents.is_settled() {
            Ok(Written::Appended)
        } else {
            self.move_on(records).await
        };
        self.is_broken = C::FAILS_FOR_GOOD && result.is_err();
        result
    }

    async fn append(
        &mut self,
        records: Vec<RecordOf<C>>,
        stand_alone: bool,
    ) -> Result<Written, LogError> {
        match self.log.commit(&records, stand_alone).await {
            Ok(()) => Ok(Written::Appended),
            // The zone is full, or the append failed.
            Err(_) => self.move_on(records).await,
        }
    }

    /// Moves to the other zone with `records` and all live records.
    async fn move_on(&mut self, records: Vec<RecordOf<C>>) -> Result<Written, LogError> {
        // A checkpoint takes long, and a waiter's thread has other work.
        self.wakers.change_to_keeper().await;
        let mut written = Vec::new();
        if C::READS_BACK {
            written = self.log.read_back().await?;
            written.extend(records);
        }
        let live = self.contents.live(written);
        self.log.checkpoint(live).await?;
        let bytes = self.log.written_bytes();
        Ok(Written::Moved { bytes })
    }
}
