//! Arbitrary contents of a file, opened as a cache. Opening accepts only an empty
//! file or a cache, and inspection changes no file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe::device::config::{DeviceKind, IoChoice};
use floe::device::{Clock, DeviceConfig, open};
use floe_fuzz_targets::LAYOUTS;

const BLOCK: usize = 4096;

/// The file's length, in units of 64 KiB and further bytes, then pieces: an
/// offset of three bytes, a length of one, and the bytes.
pub(crate) fn contents(data: &[u8]) -> Option<Vec<u8>> {
    let (&[units, bytes], mut pieces) = data.split_first_chunk()?;
    let mut contents = vec![0; usize::from(units) * (64 << 10) + usize::from(bytes)];
    while let Some((&[a, b, c, len], rest)) = pieces.split_first_chunk() {
        let (piece, rest) = rest.split_at_checked(usize::from(len))?;
        let offset = u32::from_le_bytes([a, b, c, 0]) as usize;
        contents
            .get_mut(offset..offset + piece.len())?
            .copy_from_slice(piece);
        pieces = rest;
    }
    Some(contents)
}

/// A unique path. Drop removes its file.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        Scratch(std::env::temp_dir().join(format!("floe-contents-{process}-{number}")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover file does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn device_contents(data: &[u8]) {
    let Some(before) = contents(data).filter(|contents| !contents.is_empty()) else {
        return;
    };
    let scratch = Scratch::new();
    let file = File::create_new(&scratch.0).expect("a file is made");
    file.set_len(before.len() as u64).expect("it grows");
    for (at, block) in before.chunks(BLOCK).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            let written = file.write_all_at(block, (at * BLOCK) as u64);
            written.expect("it is written");
        }
    }
    drop(file);
    let config = DeviceConfig {
        kind: DeviceKind::File,
        path: Some(scratch.0.clone()),
        io: IoChoice::Threads,
        ..DeviceConfig::default()
    };
    let opened = open(&config, &Clock::real());
    let after = std::fs::read(&scratch.0).expect("it is read");
    assert!(after == before, "{opened:?} changed it");
    if opened.is_ok() {
        let is_empty = before.iter().all(|byte| *byte == 0);
        // Every structure of Floe begins like this.
        let claims = |block: &[u8]| block.starts_with(b"Floe");
        assert!(
            is_empty || before.chunks(BLOCK).any(claims),
            "it is foreign"
        );
    }
}

pub(crate) fn seed(units: u8, pieces: &[(u32, &[u8])]) -> Vec<u8> {
    let mut seed = vec![units, 0];
    for (offset, bytes) in pieces {
        for (at, piece) in (*offset..).step_by(255).zip(bytes.chunks(255)) {
            seed.extend(&at.to_le_bytes()[..3]);
            seed.push(piece.len() as u8);
            seed.extend(piece);
        }
    }
    seed
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let superblocks = LAYOUTS.targets.iter().find(|it| it.name == "superblock");
    let superblock = superblocks.and_then(|target| (target.seeds)().pop());
    // The first byte chooses a block size there.
    let block = superblock.map_or(Vec::new(), |seed| seed[1..].to_vec());
    vec![
        seed(16, &[]),
        seed(16, &[(0, &block)]),
        seed(16, &[(64 << 10, &block)]),
        seed(16, &[(0, b"not Floe's"), (64 << 10, &block)]),
        seed(16, &[(512, b"EFI PART"), (510, &[0x55, 0xaa])]),
        seed(16, &[(1080, &[0x53, 0xef])]),
        seed(16, &[((16 << 16) - 512, b"EFI PART")]),
        seed(64, &[(2 << 20, b"data in the middle")]),
    ]
}
