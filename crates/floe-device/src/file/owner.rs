//! The device above a ring engine: it owns the open file, and completes the requests
//! that have ended.
//!
//! Must not depend on: the engine's rings and threads, and zones.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use floe_core::{Address, ZoneId};

use super::request::{Aftermath, Request, Transfer, is_unsupported};
use crate::arena::Arena;
use crate::contract::{Completer, OpFuture};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};

/// A device whose requests a ring engine executes.
pub(crate) trait Owner: Send + Sync {
    /// The file that the requests are about.
    fn open_file(&self) -> &OpenFile;

    /// Completes a request that has ended: states, counters, and result.
    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath;

    /// Completes a request that has ended and wakes its waiter; returns the
    /// next request.
    fn end(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Option<Request> {
        let Aftermath { waker, next } = self.finished(request, result);
        if let Some(waker) = waker {
            waker.wake();
        }
        next
    }

    /// Fails `request` and its successors because no back end can run them.
    fn fail(&self, request: Request, why: &dyn Fn() -> DeviceErrorKind) {
        let mut next = Some(request);
        while let Some(request) = next {
            next = self.end(request, Err(why()));
        }
    }
}

/// An open file or block device.
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) is_block_device: bool,
    pub(crate) is_direct: bool,
    /// A write can end once its data is on stable media. Cleared if it cannot.
    pub(crate) durable_writes: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) file: File,
    /// Another file that keeps others from using the device while requests are in flight.
    pub(crate) claim: Option<File>,
}

impl OpenFile {
    pub(crate) fn new(path: &Path, file: File, is_direct: bool, arena: Option<Arc<Arena>>) -> Self {
        let is_block_device = file
            .metadata()
            .is_ok_and(|found| found.file_type().is_block_device());
        OpenFile {
            path: path.to_owned(),
            is_block_device,
            is_direct,
            durable_writes: AtomicBool::new(is_block_device || has_durable_writes(&file)),
            counters: Counters::default(),
            arena,
            file,
            claim: None,
        }
    }

    /// True if a write with `RWF_DSYNC` ends once its data is on stable media.
    pub(crate) fn writes_durably(&self) -> bool {
        self.durable_writes.load(Relaxed)
    }

    /// Learns from the result of a durable write that the medium cannot do it.
    pub(crate) fn note_durable_write(
        &self,
        transfer: &Transfer,
        result: &Result<(), DeviceErrorKind>,
    ) {
        if let (Transfer::WriteDurably(_), Err(DeviceErrorKind::Io(error))) = (transfer, result)
            && is_unsupported(error)
        {
            tracing::warn!(
                device = %self.path.display(), %error,
                "durable writes are not supported here; the whole device is flushed instead"
            );
            self.durable_writes.store(false, Relaxed);
        }
    }

    /// The file of the requests, and the claim if there is one.
    pub(crate) fn files(&self) -> Vec<&File> {
        [&self.file].into_iter().chain(&self.claim).collect()
    }

    pub(crate) fn reject<T: Send + 'static>(
        &self,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        kind: DeviceErrorKind,
    ) -> OpFuture<T> {
        Counters::add(&self.counters.errors, 1);
        OpFuture::ready(Err(DeviceError::new(operation, zone, kind)))
    }

    /// Rejects a durable append, which only a flush could make durable.
    pub(crate) fn reject_durable(&self, zone: ZoneId) -> OpFuture<Address> {
        let kind = DeviceErrorKind::Unsupported("durable appends without a flush");
        self.reject(Operation::Append, zone, kind)
    }

    /// Counts an operation that has ended, in `counter` if it succeeded.
    pub(crate) fn count<T>(
        &self,
        result: Result<T, DeviceErrorKind>,
        counter: &AtomicU64,
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
    ) -> Result<T, DeviceError> {
        let counter = match result {
            Ok(_) => counter,
            Err(_) => &self.counters.errors,
        };
        Counters::add(counter, 1);
        result.map_err(|kind| DeviceError::new(operation, zone, kind))
    }

    /// Ends a read, append or write in place, which transferred `bytes` bytes.
    pub(crate) fn end_transfer<T>(
        &self,
        operation: Operation,
        zone: ZoneId,
        bytes: u64,
        result: Result<T, DeviceErrorKind>,
        completer: Completer<T>,
    ) -> Option<Waker> {
        let counters = &self.counters;
        let (ended, transferred) = match operation {
            Operation::Read => (&counters.reads, &counters.read_bytes),
            Operation::Append => (&counters.appends, &counters.append_bytes),
            _ => (&counters.writes, &counters.write_bytes),
        };
        Counters::add(transferred, bytes);
        completer.complete_quietly(self.count(result, ended, operation, zone))
    }

    /// Ends a flush.
    pub(crate) fn end_flush(
        &self,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Option<Waker> {
        let flushes = &self.counters.flushes;
        let result = self.count(result, flushes, Operation::Flush, None);
        completer.complete_quietly(result)
    }
}

/// True on file systems that are known to flush the drive's cache at a write with `RWF_DSYNC`:
/// ext2 to ext4, XFS, btrfs, F2FS. Those of other machines or processes may ignore the flag.
fn has_durable_writes(file: &File) -> bool {
    const KNOWN: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
    let found = rustix::fs::fstatfs(file);
    found.is_ok_and(|found| KNOWN.contains(&(found.f_type as u64 & 0xffff_ffff)))
}
