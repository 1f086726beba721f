//! A namespace as a device.

use std::fmt;
use std::sync::Arc;

use floe_core::ssd::{Programmed, Statistics};
use floe_core::{Address, Geometry, ZoneId};

use super::drive::placement_statistics;
use super::operations::{Operations, Store};
use crate::buffer::{IoBuf, IoData};
use crate::contract::{Device, OpFuture, Placement, ZonePeaks, ZoneReport, ZoneState};
use crate::counters::Counters;
use crate::error::{DeviceErrorKind, Operation};
use crate::file::engine::Engine;
use crate::file::request::Request;
use crate::file::rings::Rings;
use crate::zones::{check_append, check_range, check_zone};

/// An NVMe namespace by passthrough.
///
/// The drive of a zoned namespace places appends, many at once in each zone, and keeps the
/// zones' states. Zones of other namespaces are regions, as those of a file; with data
/// placement, a write names a reclaim unit handle.
///
/// Operations must be started inside a tokio runtime, as those of a
/// [`FileDevice`](crate::FileDevice). Dropping the device waits for operations in flight.
pub struct NvmeDevice {
    engine: Engine,
    operations: Arc<Operations>,
    description: String,
}

impl NvmeDevice {
    pub(super) fn over(operations: Operations, rings: Option<Rings>, kind: &str) -> Self {
        let description = format!("{kind} {}", operations.open.path.display());
        let operations = Arc::new(operations);
        NvmeDevice {
            engine: Engine::new(Arc::<Operations>::clone(&operations), rings),
            operations,
            description,
        }
    }

    /// Starts the request that `make` returns with its future, or rejects the operation.
    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: ZoneId,
        make: impl FnOnce() -> Result<(Option<Request>, OpFuture<T>), DeviceErrorKind>,
    ) -> OpFuture<T> {
        match make() {
            Ok((request, future)) => {
                if let Some(request) = request {
                    self.engine.submit(request);
                }
                future
            }
            Err(kind) => self.operations.open.reject(operation, zone, kind),
        }
    }

    fn append_so(
        &self,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
        store: Store,
    ) -> OpFuture<Address> {
        let operations = &*self.operations;
        self.start(Operation::Append, zone, || {
            check_append(&operations.geometry, zone, data.len())?;
            let offset = operations.zones.lock().reserve(zone, data.len() as u64)?;
            let (completer, future) = OpFuture::pending();
            let at = Address::new(zone, offset);
            let request = operations.append(at, data, placement, store, completer);
            Ok((Some(request), future))
        })
    }

    /// True if a read of `zone` need not ask the drive, which might return anything.
    fn reads_as_zeros(&self, zone: ZoneId) -> bool {
        !self.operations.limits.unwritten_reads_zero
            && self.operations.limits.is_zoned
            && self.operations.zones.lock().state(zone).0 == ZoneState::Empty
    }
}

impl Device for NvmeDevice {
    fn geometry(&self) -> &Geometry {
        &self.operations.geometry
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.engine.allocate(len)
    }

    fn zone_peaks(&self) -> Option<ZonePeaks> {
        Some(self.operations.zones.lock().peaks())
    }

    fn counters(&self) -> &Counters {
        &self.operations.open.counters
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn reap(&self) -> bool {
        self.engine.reap()
    }

    fn read(&self, at: Address, mut buf: IoBuf) -> OpFuture<IoBuf> {
        let operations = &*self.operations;
        self.start(Operation::Read, at.zone, || {
            check_range(&operations.geometry, at.zone, at.offset, buf.len())?;
            let (completer, future) = OpFuture::pending();
            if self.reads_as_zeros(at.zone) {
                buf.fill(0);
                let (bytes, open) = (buf.len() as u64, &operations.open);
                open.end_transfer(Operation::Read, at.zone, bytes, Ok(buf), completer);
                return Ok((None, future));
            }
            Ok((Some(operations.read(at, buf, completer)), future))
        })
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, placement, Store::Cached)
    }

    fn appends_durably(&self) -> bool {
        true
    }

    /// By force unit access, where there is a volatile write cache.
    fn append_durably(&self, zone: ZoneId, data: IoData, to: Placement) -> OpFuture<Address> {
        self.append_so(zone, data, to, Store::Through)
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let operations = &*self.operations;
        self.start(Operation::Write, at.zone, || {
            check_range(&operations.geometry, at.zone, at.offset, data.len())?;
            if operations.limits.is_zoned {
                return Err(DeviceErrorKind::Unsupported("writes in place"));
            }
            operations.zones.lock().writer_started(at.zone)?;
            let (completer, future) = OpFuture::pending();
            let request = operations.write(at, data, placement, completer);
            Ok((Some(request), future))
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let home = self.engine.home();
        self.start(Operation::Reset, zone, || {
            check_zone(&operations.geometry, zone)?;
            let (future, reset) = operations.zones.request_reset(zone, home)?;
            Ok((reset.map(|reset| operations.change(zone, reset)), future))
        })
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let operations = &*self.operations;
        let home = self.engine.home();
        self.start(Operation::Finish, zone, || {
            check_zone(&operations.geometry, zone)?;
            let zones = &operations.zones;
            let accepted = match operations.limits.is_zoned {
                true => zones.request_finish(zone, home)?,
                false => zones.lock().finish(zone).map(|()| None)?,
            };
            let Some((future, finish)) = accepted else {
                Counters::add(&operations.open.counters.finishes, 1);
                return Ok((None, OpFuture::ready(Ok(()))));
            };
            Ok((finish.map(|finish| operations.change(zone, finish)), future))
        })
    }

    /// Without a volatile write cache, what has completed is on stable media.
    fn flush(&self) -> OpFuture<()> {
        let operations = &*self.operations;
        let (completer, future) = OpFuture::pending();
        match operations.limits.has_write_cache {
            true => self.engine.submit(operations.flush(completer)),
            false => {
                operations.open.end_flush(Ok(()), completer);
            }
        }
        future
    }

    /// The states of zones as Floe tracks them. A zone that the drive has withdrawn
    /// shows once an operation on it fails.
    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        OpFuture::ready(Ok(self.operations.zones.lock().report()))
    }

    /// The drive's own counts, with data placement. The caller waits for one command; the
    /// kernel allows it only with CAP_SYS_ADMIN.
    fn media_statistics(&self) -> Option<Statistics> {
        let group = self.operations.limits.group?;
        let found = placement_statistics(&self.operations.open.file, group).ok()?;
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let host = bytes(found.host_written_bytes);
        Some(Statistics {
            host_written_bytes: host,
            programmed: Programmed {
                host_bytes: host,
                collected_bytes: bytes(found.media_written_bytes).saturating_sub(host),
                ..Programmed::default()
            },
            ..Statistics::default()
        })
    }
}

impl fmt::Debug for NvmeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeDevice({})", self.description)
    }
}
