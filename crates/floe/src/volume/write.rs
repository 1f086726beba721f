//! The way of a write, of zeros, and of a discard.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::volume::mode::Sector;
use floe_core::volume::{ByteRange, Extent, Operation, Request, Step};
use floe_device::{DeviceError, IoBuf, IoData, OpFuture};

use super::decide::Decision;
use super::error::VolumeError;
use super::finish::Finish;
use super::state::{Shared, VolumeState};

/// A change of a volume.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(IoData),
    Zeroes,
    Discard,
}

impl Change {
    fn operation(&self) -> Operation {
        match self {
            Change::Write(_) => Operation::Write,
            Change::Zeroes => Operation::WriteZeroes,
            Change::Discard => Operation::Trim,
        }
    }
}

impl Shared {
    /// Changes `range` of a volume, which is whole blocks of it. It goes on if the
    /// future is dropped.
    pub(super) async fn change(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        range: ByteRange,
        change: Change,
    ) -> Result<(), VolumeError> {
        let mut parts = Vec::new();
        for part in self.regions(range) {
            let change = match &change {
                Change::Write(data) => {
                    let from = (part.start - range.start) as usize;
                    Change::Write(data.slice(from..from + part.len() as usize))
                }
                other => other.clone(),
            };
            let (shared, volume) = (Arc::clone(self), Arc::clone(volume));
            parts.push(Finish::new(async move {
                shared.change_region(&volume, part, change).await
            }));
        }
        let mut result = Ok(());
        for part in futures::future::join_all(parts).await {
            result = result.and(part);
        }
        result
    }

    /// Carries out the part of a change in one region.
    async fn change_region(
        self: &Arc<Self>,
        volume: &VolumeState,
        range: ByteRange,
        change: Change,
    ) -> Result<(), VolumeError> {
        volume.check_writable()?;
        let extent = Extent {
            volume: volume.id,
            range,
        };
        self.table.intend(extent).await?;
        let request = Request {
            volume: volume.id,
            operation: change.operation(),
            range,
        };
        let Decision {
            steps,
            outcome,
            lock,
        } = self.decide(request).await;
        let mut result = self.carry_out(volume, range, &change, &steps).await;
        if outcome.has_cleared_dirty && result.is_ok() {
            // The cache had the only durable copy of what these bytes were.
            result = volume.flush_backing().await;
        }
        if let Err(error) = result {
            if outcome.has_cleared_dirty {
                volume.poison(&format!("a write over unwritten data failed: {error}"));
            }
            self.undo(&steps, &lock);
            return Err(error);
        }
        let makes_dirty = steps.iter().any(|step| matches!(step, Step::WriteCache(_)));
        let settled = self.settle(&steps, &lock);
        drop(lock);
        if makes_dirty {
            self.dirty_writes.fetch_add(1, SeqCst);
        }
        if settled.needs_writing {
            let written = self.table.written(settled.ticket).await;
            written.inspect_err(|error| self.poison_all(error))?;
        }
        Ok(())
    }

    async fn carry_out(
        &self,
        volume: &VolumeState,
        range: ByteRange,
        change: &Change,
        steps: &[Step],
    ) -> Result<(), VolumeError> {
        let mut to_cache: Vec<OpFuture<()>> = Vec::new();
        let mut to_backing: Vec<OpFuture<()>> = Vec::new();
        let mut reads: Vec<(ByteRange, OpFuture<IoBuf>)> = Vec::new();
        let data = |of: ByteRange| {
            let from = (of.start - range.start) as usize;
            match change {
                Change::Write(data) => Some(data.slice(from..from + of.len() as usize)),
                Change::Zeroes | Change::Discard => None,
            }
        };
        for step in steps {
            match *step {
                Step::ReadBacking(extent) => {
                    let buf = volume.backing.allocate(extent.range.len() as usize);
                    let read = volume.backing.read(extent.range.start, buf);
                    reads.push((extent.range, read));
                }
                Step::WriteCache(piece) => {
                    if let Some(data) = data(piece.extent.range) {
                        to_cache.push(self.device.write(self.offset(piece.place), data));
                    }
                }
                Step::ZeroCache(piece) => {
                    let at = self.offset(piece.place);
                    let range = at..at + piece.extent.range.len();
                    to_cache.push(self.device.write_zeroes(range));
                }
                Step::WriteBacking(extent) => {
                    if let Some(data) = data(extent.range) {
                        to_backing.push(volume.backing.write(extent.range.start, data));
                    }
                }
                Step::ZeroBacking(extent) => {
                    let range = extent.range.start..extent.range.end;
                    to_backing.push(volume.backing.write_zeroes(range));
                }
                Step::TrimBacking(extent) => {
                    let range = extent.range.start..extent.range.end;
                    to_backing.push(volume.backing.discard(range));
                }
                Step::ReadCache(_)
                | Step::Fill(_)
                | Step::Flush(_)
                | Step::WriteBack(_)
                | Step::Unmap(_)
                | Step::Map(_)
                | Step::Mark(_, Sector::Missing | Sector::Clean | Sector::Dirty) => {}
            }
        }
        let mut result = Ok(());
        let mut parts = Vec::with_capacity(reads.len());
        for (range, read) in reads {
            match read.await {
                Ok(buf) => parts.push((range, buf.freeze())),
                Err(error) => result = Err(VolumeError::backing(error)),
            }
        }
        let changed_backing = !to_backing.is_empty();
        // All of them end before the locks do.
        result = result.and(all(to_backing, VolumeError::backing).await);
        result = result.and(all(to_cache, VolumeError::cache).await);
        if changed_backing {
            volume.needs_flush.store(true, SeqCst);
        }
        result?;
        self.write_fills(steps, &parts).await
    }
}

/// Waits for all operations; returns the last error.
pub(super) async fn all(
    operations: Vec<OpFuture<()>>,
    error: fn(DeviceError) -> VolumeError,
) -> Result<(), VolumeError> {
    let mut result = Ok(());
    for operation in operations {
        if let Err(failed) = operation.await {
            result = Err(error(failed));
        }
    }
    result
}
