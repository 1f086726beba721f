//! Closing a zone: writes a summary, then a note that the zone is full.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::layout::{Note, SummaryEntry, SummaryShape, ZoneLife, encode_summary_page};

use super::Log;
use crate::abort::OnAbort;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;

impl Log {
    /// Starts to close every zone that can be closed.
    pub(super) fn close_ready_zones(self: &Arc<Self>) {
        let ready = self.base.zones.lock().take_closable();
        for zone in ready {
            let log = Arc::clone(self);
            tokio::spawn(async move { log.close_zone(zone).await });
        }
    }

    /// Closes every open zone, and waits for that.
    pub(crate) async fn close_open_zones(self: &Arc<Self>) {
        self.base.zones.lock().close_all();
        loop {
            let changed = self.base.zones.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.close_ready_zones();
            if !self.base.zones.lock().any_closing() {
                return;
            }
            changed.await;
        }
    }

    /// Writes a zone's summary, releases its remaining capacity and journals
    /// that it is full. Without a summary, recovery scans the zone.
    async fn close_zone(self: Arc<Self>, zone: ZoneId) {
        // Otherwise every later close of the cache would wait for this one.
        let abandoned = OnAbort::new(|| {
            self.base.zones.lock().done(zone);
            self.base.zones.retire(zone);
        });
        let life = self.base.index.states().life(zone);
        let entries = self.take_listed(zone);
        let summary = self.write_summary(life, &entries).await;
        if let Err(error) = self.base.env.device.finish(zone).await {
            tracing::warn!(%error, "a zone could not be finished");
        }
        match summary {
            Ok(summary_offset) => {
                let note = Note::ZoneFull {
                    life,
                    summary_offset,
                    records: entries.len() as u32,
                };
                self.base.journal.commit_later(vec![note]).await;
            }
            Err(error) => {
                tracing::warn!(%error, "a zone has no summary; the next start scans it");
                add(&self.base.env.counters.write_errors, 1);
                if let WriteError::Device(error) = &error {
                    self.base.zones.note_unwritable(zone, error);
                }
            }
        }
        abandoned.done();
        {
            let mut table = self.base.zones.lock();
            table.closed(zone);
            if self.base.zones.is_low(&table) {
                self.base.zones.wake_reclaimer();
            }
        }
        self.base.zones.notify_changed();
    }

    async fn write_summary(
        &self,
        life: ZoneLife,
        entries: &[SummaryEntry],
    ) -> Result<u64, WriteError> {
        let (device, placement) = (&self.base.env.device, self.placement(life.zone));
        let shape = SummaryShape::new(entries.len(), self.base.env.block_size());
        let mut start = None;
        for page in 0..shape.pages() {
            let mut buf = device.allocate(shape.page_bytes(page));
            encode_summary_page(self.base.env.id, life, shape, page, entries, &mut buf)?;
            // One at a time, because the pages must be adjacent.
            let at = device.append(life.zone, buf.freeze(), placement).await?;
            start.get_or_insert(at.offset);
        }
        Ok(start.unwrap_or(0))
    }
}
