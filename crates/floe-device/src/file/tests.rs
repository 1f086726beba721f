use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_core::ByteSize;
use floe_core::hash::HashSeed;
use floe_core::layout::{CacheId, FormatPlan, Superblock, ZoneLayout};
use parking_lot::Mutex;
use proptest::prelude::*;
use rustix::fs::FlockOperation;

use super::contents::{CacheShape, Contents, Medium};
use super::entries::EntryKind;
use super::open::whole_block_of;
use super::opening::{lock, patiently};
use super::owner::{OpenFile, Owner};
use super::request::{
    Aftermath, Answer, BlockJob, Job, Passthrough, PassthroughData, Request, Transfer, Verdict,
    ZonedJob,
};
use super::rings::Rings;
use super::signatures::{MAGIC_BYTES_MAX, SIGNATURES};
use super::threads::Threads;
use crate::config::RingChoice;
use crate::contract::OpFuture;
use crate::error::DeviceErrorKind;
use crate::nvme::command::Command;

const MIB: u64 = 1 << 20;
const LEN: u64 = 80 * MIB + 12_800;

/// Inspects a sparse file of `len` bytes with `parts` written to it, as a file
/// and as a block device.
fn look(len: u64, parts: &[(u64, &[u8])]) -> [Contents; 2] {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len).unwrap();
    for (offset, bytes) in parts {
        file.write_all_at(bytes, *offset).unwrap();
    }
    [false, true].map(|is_block_device| {
        let medium = Medium {
            file: &file,
            len,
            is_block_device,
        };
        let contents = medium.contents(Some(3 * MIB)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), len);
        contents
    })
}

fn is_foreign(contents: Contents) -> bool {
    matches!(contents, Contents::Foreign { .. })
}

fn superblock(zone_size: u64, zone_count: u32) -> Vec<u8> {
    let superblock = Superblock {
        id: CacheId([7; 16]),
        hash_seed: HashSeed(1),
        created_unix_s: 1,
        epoch: 1,
        plan: FormatPlan {
            block_size: 4096,
            zone_count,
            zone_size,
            zone_capacity: zone_size,
            chunk_bytes: 65536,
            piece_bytes: 65536,
            layout: ZoneLayout::Log,
        },
    };
    let mut block = vec![0; Superblock::encoded_bytes(4096)];
    superblock.encode(&mut block).unwrap();
    block
}

#[test]
fn zeros_and_holes_are_empty() {
    assert_eq!(look(0, &[]), [Contents::Empty; 2]);
    assert_eq!(look(1700, &[(0, &[0; 1700])]), [Contents::Empty; 2]);
    let zeros = vec![0; 3 * MIB as usize];
    assert_eq!(look(LEN, &[(5 * MIB, &zeros)]), [Contents::Empty; 2]);
}

#[test]
fn every_foreign_signature_is_recognised_by_name() {
    for signature in SIGNATURES {
        assert!(signature.magic().len() <= MAGIC_BYTES_MAX);
        let offset = signature.place.offset(LEN).unwrap();
        for found in look(LEN, &[(offset, signature.magic())]) {
            let Contents::Foreign { what, .. } = found else {
                panic!("{} is taken for {found:?}", signature.name);
            };
            assert_eq!(what, signature.name);
        }
    }
}

#[test]
fn a_cache_is_known_by_either_superblock() {
    for (zone_size, zone_count) in [(MIB, 64), (3 * MIB, 20), (16 * MIB, 5)] {
        let block = superblock(zone_size, zone_count);
        let shape = CacheShape {
            zone_size,
            size: zone_size * u64::from(zone_count),
            block_size: 4096,
        };
        let garbage = [0x5a; 4096];
        let first = look(LEN, &[(0, &block)]);
        let second = look(LEN, &[(zone_size, &block)]);
        let damaged = look(LEN, &[(0, &garbage), (zone_size, &block)]);
        for found in [first, second, damaged] {
            assert_eq!(found, [Contents::Cache(Some(shape)); 2]);
        }
    }
    // A superblock inside a user's file does not count.
    let found = look(LEN, &[(0, &[1]), (2 * MIB, &superblock(MIB, 64))]);
    assert!(found.into_iter().all(is_foreign));
}

#[test]
fn the_block_size_is_the_largest_atomic_write_of_the_drive() {
    let queue = |files: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        whole_block_of(folder.path()).map(ByteSize::bytes)
    };
    let blocks = |logical, physical| {
        [
            ("logical_block_size", logical),
            ("physical_block_size", physical),
        ]
    };
    assert_eq!(queue(&blocks("512\n", "512\n")), Some(512));
    assert_eq!(queue(&blocks("512\n", "4096\n")), Some(4096));
    assert_eq!(queue(&blocks("4096\n", "512\n")), Some(4096));
    for (atomic, whole) in [("0\n", 512), ("4096\n", 4096), ("16384\n", 16384)] {
        let [logical, physical] = blocks("512\n", "512\n");
        let files = [logical, physical, ("atomic_write_unit_max_bytes", atomic)];
        assert_eq!(queue(&files), Some(whole));
    }
    assert_eq!(queue(&[]), None, "the kernel does not tell");
    assert_eq!(queue(&[("logical_block_size", "512\n")]), None);
    assert_eq!(queue(&blocks("512\n", "none\n")), None);
}

/// The kernel keeps the files of a ring open until its requests have ended, so that nothing
/// else uses a drive meanwhile.
#[test]
fn a_ring_holds_the_claim_of_its_device() {
    let file = tempfile::tempfile().unwrap();
    let claimed = tempfile::NamedTempFile::new().unwrap();
    let try_lock = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    for entries in [EntryKind::Transfers, EntryKind::Commands] {
        let claim = claimed.reopen().unwrap();
        lock(&claim, claimed.path(), super::opening::Access::Write).unwrap();
        let rings = Rings::new(&[&file, &claim], None, RingChoice::Shared, entries);
        let Ok(rings) = rings else {
            eprintln!("SKIPPED: no io_uring here");
            return;
        };
        drop(claim);
        let other = claimed.reopen().unwrap();
        assert_eq!(try_lock(&other), Err(rustix::io::Errno::WOULDBLOCK));
        rings.close();
        patiently(|| Ok(try_lock(&other)?)).unwrap();
    }
}

/// A device of which only the outcomes of its requests are kept.
struct Outcomes {
    open: OpenFile,
    all: Mutex<Vec<Result<(), DeviceErrorKind>>>,
}

impl Owner for Outcomes {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, _: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        self.all.lock().push(result);
        let (waker, next) = (None, None);
        Aftermath { waker, next }
    }
}

/// As for a waiting reset, whose writer ends on the thread that drains a ring.
#[test]
fn what_follows_a_request_needs_no_runtime() {
    let file = tempfile::tempfile().unwrap();
    let outcomes = Arc::new(Outcomes {
        open: OpenFile::new(Path::new("test"), file, false, None),
        all: Mutex::default(),
    });
    let threads = Arc::new(Threads::new(Arc::<Outcomes>::clone(&outcomes)));
    let request = || {
        let (completer, _) = OpFuture::pending();
        Request::new(Transfer::Sync, 0, Job::Blocks(BlockJob::Flush(completer)))
    };
    threads.follow(request());
    threads.submit(request());
    threads.drain();
    let all = outcomes.all.lock();
    assert!(
        matches!(all[..], [Ok(()), Err(DeviceErrorKind::Io(_))]),
        "{all:?}"
    );
}

/// A drive that is not ready may be soon. An append may have landed, so it is not repeated.
#[test]
fn transient_statuses_repeat_commands_that_may_be_repeated() {
    const NOT_READY: i32 = 0x082;
    const DO_NOT_RETRY: i32 = 0x4000;
    const WRITE_FAULT: i32 = 0x280;
    let outcome = |command: Command, code| {
        let passthrough = Passthrough::new(command, PassthroughData::None, 0..0);
        let transfer = Transfer::Passthrough(Box::new(passthrough));
        let (completer, _) = OpFuture::pending();
        let job = Job::Zoned(ZonedJob::Flush(completer));
        let mut request = Request::new(transfer, 0, job);
        let repeats = |_: &i32| {
            let answer = Answer { code, value: 0 };
            matches!(request.answered(answer), Verdict::Again)
        };
        (0..100).take_while(repeats).count()
    };
    let read = Command::read(1, 0, 1);
    let repeated = outcome(read, NOT_READY);
    assert!((1..10).contains(&repeated), "not for ever: {repeated}");
    assert_eq!(outcome(Command::flush(1), NOT_READY), repeated);
    assert_eq!(outcome(read, NOT_READY | DO_NOT_RETRY), 0);
    assert_eq!(outcome(read, WRITE_FAULT), 0);
    assert_eq!(outcome(Command::append(1, 0, 1), NOT_READY), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Data at the beginning of an extent is found at any offset.
    #[test]
    fn data_never_counts_as_empty(
        block in 0..(LEN / 4096),
        bytes in proptest::collection::vec(any::<u8>(), 1..4096),
    ) {
        let [file, _] = look(LEN, &[(block * 4096, &bytes)]);
        let is_blank = bytes.iter().all(|&byte| byte == 0);
        prop_assert_eq!(file == Contents::Empty, is_blank);
    }

    /// Inspection of arbitrary bytes ends and does not panic.
    #[test]
    fn any_bytes_can_be_inspected(
        len in 0..(2 * MIB),
        offset in 0..(2 * MIB),
        bytes in proptest::collection::vec(any::<u8>(), 1..512),
    ) {
        let offset = offset.min(len);
        let bytes = &bytes[..bytes.len().min((len - offset) as usize)];
        let _ = look(len, &[(offset, bytes)]);
    }
}
