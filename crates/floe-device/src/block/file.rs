//! An existing regular file or block device as a flat range of blocks.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use floe_core::ByteSize;
use rustix::fs::FallocateFlags;

use super::{BlockDevice, Reserved, ZEROS, check_blocks, check_range, check_shape, reservation};
use crate::buffer::{IoBuf, IoData};
use crate::config::{Direct, IoChoice, OpenDeviceError, RingChoice};
use crate::contract::{Completer, OpFuture};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::file::engine::Engine;
use crate::file::entries::EntryKind;
use crate::file::opening::{
    Access, arena_and_rings, block_device_size, choose_direct, io_error, is_tmpfs, lock,
    logical_block_bytes, open_file, set_direct,
};
use crate::file::owner::{OpenFile, Owner};
use crate::file::request::{Aftermath, BlockJob, Job, Request, Transfer, is_unsupported};
use crate::zoned::is_host_managed;

/// A file or block device to open as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct FileBlocksConfig {
    /// The file or block device, which must exist.
    pub path: PathBuf,
    /// Open it for reading only. Several processes may do that at once.
    pub read_only: bool,
    /// Bytes of a block. Default: the logical block of a block device; for a file,
    /// 512 if direct I/O allows that, else 4096.
    pub block_size: Option<ByteSize>,
    /// Bypass the page cache.
    pub direct: Direct,
    /// How operations reach the kernel.
    pub io: IoChoice,
    /// The io_uring that an operation uses if several threads use the device.
    pub rings: RingChoice,
    /// Bytes of buffers registered with the kernel; zero for none.
    pub registered_buffers: ByteSize,
}

impl FileBlocksConfig {
    /// The file or block device at `path`, for reading and writing, with defaults
    /// otherwise.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FileBlocksConfig {
            path: path.into(),
            read_only: false,
            block_size: None,
            direct: Direct::Auto,
            io: IoChoice::Auto,
            rings: RingChoice::Auto,
            registered_buffers: ByteSize::mib(32),
        }
    }
}

/// An existing regular file or block device of any whole number of blocks. Nothing is
/// created, extended or truncated.
///
/// Operations run as those of a [`FileDevice`](crate::FileDevice), on its engine.
/// Dropping the device waits for operations in flight.
pub struct FileBlocks {
    engine: Engine,
    blocks: Arc<Blocks>,
}

impl FileBlocks {
    /// Opens the configured file, and locks it: exclusively, or with other readers if
    /// it is opened for reading only.
    ///
    /// # Errors
    /// See [`OpenDeviceError`]; nothing was changed.
    pub fn open(config: &FileBlocksConfig) -> Result<Self, OpenDeviceError> {
        let path = &*config.path;
        let access = match config.read_only {
            true => Access::Read,
            false => Access::Write,
        };
        if is_host_managed(path) {
            return Err(OpenDeviceError::NoRandomWrites(path.display().to_string()));
        }
        let file = open_file(path, access)?;
        lock(&file, path, access)?;
        let (is_block_device, size) = size_of(&file).map_err(|error| io_error(path, error))?;
        let block_size = match is_block_device {
            true => block_of_device(&file, path, config.block_size)?,
            false => config
                .block_size
                .unwrap_or(block_of_file(&file, config.direct)),
        };
        let block_bytes = u32::try_from(block_size.bytes())
            .map_err(|_| OpenDeviceError::LogicalBlock(block_size))?;
        check_shape(&path.display().to_string(), size, block_bytes)?;
        let is_direct = choose_direct(&file, path, config.direct, block_size)?;
        let (buffers, io) = (config.registered_buffers, config.io);
        let (arena, rings) =
            arena_and_rings(&[&file], buffers, io, config.rings, EntryKind::Transfers)?;
        let blocks = Arc::new(Blocks {
            size: AtomicU64::new(size.bytes()),
            block_bytes,
            read_only: config.read_only,
            is_volatile: is_in_memory(&file, path, is_block_device),
            zeroes: AtomicBool::new(true),
            discards: AtomicBool::new(true),
            is_fenced: AtomicBool::new(false),
            open: OpenFile::new(path, file, is_direct, arena),
        });
        Ok(FileBlocks {
            engine: Engine::new(Arc::<Blocks>::clone(&blocks), rings),
            blocks,
        })
    }

    /// True if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.blocks.open.is_direct
    }

    /// Allocates the holes of a file, so that writes do not fail for want of space.
    /// Does nothing on a block device. Blocks the thread.
    ///
    /// # Errors
    /// The file system's, such as that it lacks the room or cannot allocate ahead.
    pub fn fill_holes(&self) -> std::io::Result<()> {
        const STAT_BLOCK: u64 = 512;
        let file = &self.blocks.open.file;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.blocks().saturating_mul(STAT_BLOCK) >= self.size_bytes()
        {
            return Ok(());
        }
        let all = FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, all, 0, self.size_bytes())?)
    }

    /// Starts a request, or rejects it because of `check`.
    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        check: Result<Range<u64>, DeviceErrorKind>,
        request: impl FnOnce(Range<u64>, Completer<T>) -> Request,
    ) -> OpFuture<T> {
        match check {
            Ok(range) => {
                let (completer, future) = OpFuture::pending();
                self.engine.submit(request(range, completer));
                future
            }
            Err(kind) => self.blocks.open.reject(operation, None, kind),
        }
    }

    /// Runs what may wait on a thread of its own.
    fn elsewhere<T: Send + 'static>(
        &self,
        operation: Operation,
        act: impl FnOnce(&Blocks) -> Result<T, DeviceErrorKind> + Send + 'static,
    ) -> OpFuture<T> {
        let blocks = Arc::clone(&self.blocks);
        let acting = tokio::task::spawn_blocking(move || act(&blocks));
        OpFuture::new(async move {
            let broke_off = |error| Err(DeviceErrorKind::Io(std::io::Error::other(error)));
            let acted = acting.await.unwrap_or_else(broke_off);
            acted.map_err(|kind| DeviceError::new(operation, None, kind))
        })
    }

    /// Changes what this machine has reserved by `key`.
    fn change_reservation(
        &self,
        key: u64,
        change: fn(&File, u64) -> std::io::Result<()>,
    ) -> OpFuture<()> {
        if !self.blocks.open.is_block_device {
            return OpFuture::ready(Ok(()));
        }
        self.elsewhere(Operation::Reserve, move |blocks| {
            change(&blocks.open.file, key).map_err(DeviceErrorKind::from_io)
        })
    }

    fn write_so(&self, at: u64, data: IoData, transfer: fn(IoData) -> Transfer) -> OpFuture<()> {
        let check = check_range(self, at, data.len()).and_then(|range| self.check_change(range));
        self.start(Operation::Write, check, |range, completer| {
            let job = BlockJob::Write(completer);
            request(transfer(data), range.start, job)
        })
    }

    /// Checks the range of a change.
    fn check_change(&self, range: Range<u64>) -> Result<Range<u64>, DeviceErrorKind> {
        check_blocks(self, &range)?;
        if self.blocks.is_fenced.load(Relaxed) {
            let why = "another machine has reserved the device, and may have written to it";
            return Err(DeviceErrorKind::Io(std::io::Error::other(why)));
        }
        match self.blocks.read_only {
            true => Err(DeviceErrorKind::Unsupported(
                "it was opened for reading only",
            )),
            false => Ok(range),
        }
    }
}

/// True for a file on tmpfs, and for a block device that the kernel keeps in memory.
fn is_in_memory(file: &File, path: &Path, is_block_device: bool) -> bool {
    if !is_block_device {
        return is_tmpfs(file);
    }
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ram") || name.starts_with("zram")
}

/// True for a block device, and the bytes of the file.
fn size_of(file: &File) -> std::io::Result<(bool, ByteSize)> {
    let metadata = file.metadata()?;
    Ok(match metadata.file_type().is_block_device() {
        true => (true, ByteSize(block_device_size(file)?)),
        false => (false, ByteSize(metadata.len())),
    })
}

/// The logical block of a block device, unless a larger one is configured.
fn block_of_device(
    file: &File,
    path: &Path,
    wanted: Option<ByteSize>,
) -> Result<ByteSize, OpenDeviceError> {
    let bytes = logical_block_bytes(file).map_err(|error| io_error(path, error))?;
    let logical = ByteSize(bytes.into());
    match wanted {
        Some(wanted) if wanted < logical => Err(OpenDeviceError::BelowLogicalBlock {
            path: path.to_owned(),
            wanted,
            logical,
        }),
        wanted => Ok(wanted.unwrap_or(logical)),
    }
}

/// The smallest block of a file that direct I/O allows.
fn block_of_file(file: &File, direct: Direct) -> ByteSize {
    const SECTOR: ByteSize = ByteSize(512);
    match direct != Direct::Off && set_direct(file, SECTOR.bytes() as usize).is_ok() {
        true => SECTOR,
        false => ByteSize::kib(4),
    }
}

impl BlockDevice for FileBlocks {
    fn size_bytes(&self) -> u64 {
        self.blocks.size.load(Relaxed)
    }

    fn refresh_size(&self) -> OpFuture<u64> {
        let blocks = &self.blocks;
        let result = match size_of(&blocks.open.file) {
            Ok((_, size)) => {
                let block = u64::from(blocks.block_bytes);
                let size = size.bytes() / block * block;
                blocks.size.store(size, Relaxed);
                Ok(size)
            }
            Err(error) => Err(DeviceError::io(Operation::Report, None, error)),
        };
        OpFuture::ready(result)
    }

    fn set_size(&self, size: u64, allocates: bool) -> OpFuture<()> {
        self.elsewhere(Operation::Resize, move |blocks| {
            blocks.set_size(size, allocates)
        })
    }

    fn reserve(&self, key: u64, taken_from: Option<u64>) -> OpFuture<Reserved> {
        if !self.blocks.open.is_block_device {
            return OpFuture::ready(Ok(Reserved::Unsupported));
        }
        self.elsewhere(Operation::Reserve, move |blocks| {
            let reserved = reservation::reserve(&blocks.open.file, key, taken_from);
            reserved.map_err(DeviceErrorKind::from_io)
        })
    }

    fn confirm(&self, key: u64) -> OpFuture<()> {
        self.change_reservation(key, reservation::confirm)
    }

    fn release(&self, key: u64) -> OpFuture<()> {
        self.change_reservation(key, reservation::release)
    }

    fn block_bytes(&self) -> u32 {
        self.blocks.block_bytes
    }

    fn describe(&self) -> String {
        self.engine.describe()
    }

    fn is_volatile(&self) -> bool {
        self.blocks.is_volatile
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.engine.allocate(len)
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let check = check_range(self, at, buf.len());
        self.start(Operation::Read, check, |range, completer| {
            request(Transfer::Read(buf), range.start, BlockJob::Read(completer))
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.write_so(at, data, Transfer::Write)
    }

    fn write_durably(&self, at: u64, data: IoData) -> Option<OpFuture<()>> {
        let is_able = self.blocks.open.writes_durably();
        is_able.then(|| self.write_so(at, data, Transfer::WriteDurably))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        let check = self.check_change(range);
        self.start(Operation::WriteZeroes, check, |range, completer| {
            let transfer = match self.blocks.zeroes.load(Relaxed) {
                true => Transfer::Zero(range.end - range.start),
                false => zeros_for(&range),
            };
            let at = range.start;
            request(transfer, at, BlockJob::WriteZeroes(range, completer))
        })
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        let check = self.check_change(range);
        if check.is_ok() && !self.blocks.discards.load(Relaxed) {
            return OpFuture::ready(Ok(()));
        }
        self.start(Operation::Discard, check, |range, completer| {
            let len = range.end - range.start;
            let transfer = match self.blocks.open.is_block_device {
                true => Transfer::Discard(len),
                false => Transfer::Punch(len),
            };
            request(transfer, range.start, BlockJob::Discard(completer))
        })
    }

    fn flush(&self) -> OpFuture<()> {
        self.start(Operation::Flush, Ok(0..0), |_, completer| {
            request(Transfer::Sync, 0, BlockJob::Flush(completer))
        })
    }

    fn counters(&self) -> &Counters {
        &self.blocks.open.counters
    }
}

impl fmt::Debug for FileBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBlocks({})", self.describe())
    }
}

fn request(transfer: Transfer, at: u64, job: BlockJob) -> Request {
    Request::new(transfer, at, Job::Blocks(job))
}

/// A write of zeros to the first part of `range`.
fn zeros_for(range: &Range<u64>) -> Transfer {
    let len = (range.end - range.start).min(ZEROS.len() as u64);
    Transfer::Write(ZEROS.slice(0..len as usize))
}

/// The blocks of a file, for its engine.
struct Blocks {
    /// Changes only when it is asked for again.
    size: AtomicU64,
    block_bytes: u32,
    read_only: bool,
    /// The file is on tmpfs, or the block device is in memory.
    is_volatile: bool,
    /// The file system or device can write zeros by itself. Cleared if it cannot.
    zeroes: AtomicBool,
    /// Discards have an effect. Cleared if they have none.
    discards: AtomicBool,
    /// A write has met the reservation of another machine.
    is_fenced: AtomicBool,
    open: OpenFile,
}

impl Owner for Blocks {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let Request { done, transfer, .. } = request;
        let Job::Blocks(job) = request.job else {
            unreachable!("a block device starts operations on blocks");
        };
        let (open, counters) = (&self.open, &self.open.counters);
        let waker = match job {
            BlockJob::Read(completer) => {
                let result = open.count(result, &counters.reads, Operation::Read, None);
                Counters::add(&counters.read_bytes, done as u64);
                completer.complete_quietly(result.map(|()| match transfer {
                    Transfer::Read(buf) => buf,
                    _ => unreachable!("a read's transfer is a read"),
                }))
            }
            BlockJob::Write(completer) => {
                open.note_durable_write(&transfer, &result);
                self.note_conflict(&result);
                let result = open.count(result, &counters.writes, Operation::Write, None);
                Counters::add(&counters.write_bytes, done as u64);
                completer.complete_quietly(result)
            }
            BlockJob::WriteZeroes(range, completer) => {
                return self.zeroes_step(&transfer, range, result, completer);
            }
            BlockJob::Discard(completer) => {
                let result = self.discarded(result);
                let result = result.map_err(|kind| {
                    Counters::add(&counters.errors, 1);
                    DeviceError::new(Operation::Discard, None, kind)
                });
                completer.complete_quietly(result)
            }
            BlockJob::Flush(completer) => {
                let result = open.count(result, &counters.flushes, Operation::Flush, None);
                completer.complete_quietly(result)
            }
        };
        Aftermath { waker, next: None }
    }
}

impl Blocks {
    /// Learns that another machine has reserved the device: it may have written by now, and
    /// nothing of this one may land later, when it has gone.
    fn note_conflict(&self, result: &Result<(), DeviceErrorKind>) {
        if let Err(DeviceErrorKind::Io(error)) = result
            && error.raw_os_error() == Some(libc::EBADE)
        {
            tracing::error!(
                device = %self.open.path.display(),
                "another machine has reserved the device; this one writes no more"
            );
            self.is_fenced.store(true, Relaxed);
        }
    }

    fn set_size(&self, size: u64, allocates: bool) -> Result<(), DeviceErrorKind> {
        if self.open.is_block_device || self.read_only {
            return Err(DeviceErrorKind::Unsupported(
                "only files that are open for writing are enlarged or truncated",
            ));
        }
        let file = &self.open.file;
        let resize = || -> std::io::Result<()> {
            if allocates {
                rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size)?;
            }
            file.set_len(size)
        };
        if let Err(error) = resize() {
            // The first error is more useful than one of releasing what was allocated.
            let _ = file.set_len(self.size.load(Relaxed));
            return Err(DeviceErrorKind::from_io(error));
        }
        self.size.store(size, Relaxed);
        file.sync_all().map_err(DeviceErrorKind::from_io)
    }

    /// Continues a write of zeros after `transfer`, which wrote the first part of
    /// `range`.
    fn zeroes_step(
        &self,
        transfer: &Transfer,
        range: Range<u64>,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Aftermath {
        let counters = &self.open.counters;
        let rest = match (transfer, &result) {
            (Transfer::Zero(_), Err(DeviceErrorKind::Io(error))) if is_unsupported(error) => {
                self.zeroes.store(false, Relaxed);
                range
            }
            (Transfer::Write(zeros), Ok(())) => {
                Counters::add(&counters.write_bytes, zeros.len() as u64);
                range.start + zeros.len() as u64..range.end
            }
            (_, Ok(())) => {
                Counters::add(&counters.write_bytes, range.end - range.start);
                range.end..range.end
            }
            (_, Err(_)) => range.end..range.end,
        };
        if !rest.is_empty() {
            let (transfer, at) = (zeros_for(&rest), rest.start);
            let next = request(transfer, at, BlockJob::WriteZeroes(rest, completer));
            return Aftermath {
                waker: None,
                next: Some(next),
            };
        }
        let operation = Operation::WriteZeroes;
        let result = self.open.count(result, &counters.writes, operation, None);
        let waker = completer.complete_quietly(result);
        Aftermath { waker, next: None }
    }

    /// The result of a discard, which succeeds without effect where none is possible.
    fn discarded(&self, result: Result<(), DeviceErrorKind>) -> Result<(), DeviceErrorKind> {
        match result {
            Err(DeviceErrorKind::Io(error)) if is_unsupported(&error) => {
                let path = self.open.path.display();
                tracing::info!(device = %path, %error, "discards have no effect here");
                self.discards.store(false, Relaxed);
                Ok(())
            }
            result => result,
        }
    }
}
