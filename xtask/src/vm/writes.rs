//! The log of a disk's writes that the kernel's target `log-writes` keeps, and its replay up
//! to a crash (Linux, Documentation/admin-guide/device-mapper/log-writes.rst).
//!
//! The log has writes when they are on stable media for sure: with the flush that follows
//! them, or at once if they had FUA. So a crash leaves all entries up to the last flush,
//! and of those after it what had FUA, and any part of the others. The very last entry may
//! be in flight. What the log cannot tell is the order of a plain write and one with FUA
//! between two flushes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MAGIC: u64 = 0x006a_7366_7773_6872;

const FLUSH: u64 = 1 << 0;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// Bytes of an entry; a mark's name follows in the same sector.
const ENTRY_BYTES: u64 = 32;

/// What to do with a log.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// Print the number of entries, then those that are marks, with their names
    List {
        /// The disk of the log
        log: PathBuf,
    },
    /// Write to a disk of zeros what a crash after some entries leaves
    Replay {
        /// The disk of the log
        log: PathBuf,
        /// The disk to write to
        disk: PathBuf,
        /// Entries before the crash
        entries: usize,
        /// Chooses what is left of the writes after the last flush
        #[arg(long)]
        seed: u64,
    },
}

/// Runs a task.
///
/// # Errors
/// If the log is damaged, or a disk fails.
pub fn run(task: &Task) -> Result<()> {
    match task {
        Task::List { log } => {
            let log = Log::open(log)?;
            println!("entries {}", log.entries.len());
            for (index, entry) in log.entries.iter().enumerate() {
                if let Some(name) = &entry.mark {
                    println!("{index} {name}");
                }
            }
            Ok(())
        }
        Task::Replay {
            log,
            disk,
            entries,
            seed,
        } => Log::open(log)?.replay(disk, *entries, *seed),
    }
}

struct Log {
    file: File,
    sector_bytes: u64,
    entries: Vec<Entry>,
}

struct Entry {
    /// Of the disk.
    sector: u64,
    sectors: u64,
    flags: u64,
    mark: Option<String>,
    /// The offset of its data in the log.
    data: u64,
}

impl Log {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        // Its last word has 32 bits, and zeros follow.
        let header: [u64; 4] = words(&file, 0)?;
        let [magic, version, count, sector_bytes] = header;
        ensure!(magic == MAGIC, "{} has no log", path.display());
        ensure!(version == 1, "a log of version {version}");
        let mut log = Log {
            file,
            sector_bytes,
            entries: Vec::new(),
        };
        let mut at = sector_bytes;
        for _ in 0..count {
            let entry = log.entry(at)?;
            at = entry.data + entry.data_bytes(sector_bytes);
            log.entries.push(entry);
        }
        Ok(log)
    }

    /// The entry at an offset.
    fn entry(&self, at: u64) -> Result<Entry> {
        let [sector, sectors, flags, text_bytes] = words(&self.file, at)?;
        let text_max = self.sector_bytes - ENTRY_BYTES;
        ensure!(
            text_bytes <= text_max,
            "a damaged entry at byte {at} of the log"
        );
        let mut text = vec![0; text_bytes as usize];
        self.file.read_exact_at(&mut text, at + ENTRY_BYTES)?;
        Ok(Entry {
            sector,
            sectors,
            flags,
            mark: (flags & MARK != 0).then(|| String::from_utf8_lossy(&text).into_owned()),
            data: at + self.sector_bytes,
        })
    }

    /// Writes what is left of the first `entries` to `disk`.
    fn replay(&self, disk: &Path, entries: usize, seed: u64) -> Result<()> {
        let disk = File::options().write(true).open(disk)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let entries = &self.entries[..entries];
        let is_flush = |entry: &Entry| entry.flags & FLUSH != 0;
        // The flush covers what was written before it, and not its own data.
        let flush = entries.iter().rposition(is_flush).unwrap_or(0);
        for (index, entry) in entries.iter().enumerate() {
            // The last one may not have ended.
            let has_ended = entry.flags & FUA != 0 && index + 1 < entries.len();
            let kept = match index < flush || has_ended {
                true => 1.0,
                false => [0.0, 0.5, 1.0][random.random_range(0..3)],
            };
            let at = entry.sector * self.sector_bytes;
            let mut data = vec![0; (entry.sectors * self.sector_bytes) as usize];
            if entry.flags & DISCARD == 0 {
                self.file.read_exact_at(&mut data, entry.data)?;
            }
            if kept == 1.0 {
                disk.write_all_at(&data, at)?;
                continue;
            }
            let sectors = data.chunks(self.sector_bytes as usize);
            for (at, sector) in (at..).step_by(self.sector_bytes as usize).zip(sectors) {
                if random.random_bool(kept) {
                    disk.write_all_at(sector, at)?;
                }
            }
        }
        Ok(disk.sync_all()?)
    }
}

impl Entry {
    /// Bytes in the log that follow the entry's sector.
    fn data_bytes(&self, sector_bytes: u64) -> u64 {
        match self.flags & DISCARD {
            0 => self.sectors * sector_bytes,
            _ => 0,
        }
    }
}

/// The four words at an offset.
fn words(file: &File, at: u64) -> Result<[u64; 4]> {
    let mut bytes = [0; ENTRY_BYTES as usize];
    file.read_exact_at(&mut bytes, at)?;
    let (words, _) = bytes.as_chunks();
    Ok(std::array::from_fn(|word| u64::from_le_bytes(words[word])))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SECTOR_BYTES: usize = 512;

    /// A log of `entries`: sector, flags, and the byte that fills the sector or a mark's name.
    fn log(entries: &[(u64, u64, &str)]) -> tempfile::NamedTempFile {
        let sector = |words: [u64; 4], text: &str| {
            let mut sector: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            sector.extend(text.bytes());
            sector.resize(SECTOR_BYTES, 0);
            sector
        };
        let count = entries.len() as u64;
        let mut bytes = sector([MAGIC, 1, count, SECTOR_BYTES as u64], "");
        for (at, flags, text) in entries {
            match *flags {
                MARK => bytes.extend(sector([0, 0, MARK, text.len() as u64], text)),
                FLUSH => bytes.extend(sector([0, 0, FLUSH, 0], "")),
                DISCARD => bytes.extend(sector([*at, 1, DISCARD, 0], "")),
                flags => {
                    bytes.extend(sector([*at, 1, flags, 0], ""));
                    bytes.extend(text.repeat(SECTOR_BYTES).bytes());
                }
            }
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), bytes).expect("written");
        file
    }

    /// The first bytes of three sectors after a crash.
    fn crash(log: &tempfile::NamedTempFile, entries: usize, seed: u64) -> String {
        let disk = tempfile::NamedTempFile::new().expect("a file");
        fs::write(disk.path(), vec![b'0'; 3 * SECTOR_BYTES]).expect("written");
        let log = Log::open(log.path()).expect("a log");
        log.replay(disk.path(), entries, seed).expect("replayed");
        let bytes = fs::read(disk.path()).expect("read");
        (0..3)
            .map(|sector| char::from(bytes[sector * SECTOR_BYTES]))
            .collect()
    }

    #[test]
    fn a_crash_keeps_what_was_flushed_or_written_through() {
        let log = log(&[
            (0, 0, "a"),
            (1, 0, "b"),
            (0, FLUSH, ""),
            (0, MARK, "here"),
            (0, 0, "c"),
            (2, FUA, "d"),
            (1, DISCARD, ""),
            (0, FLUSH, ""),
        ]);
        let marks = Log::open(log.path()).expect("a log").entries;
        assert_eq!(marks[3].mark.as_deref(), Some("here"));
        let states = |entries| -> std::collections::BTreeSet<_> {
            (0..64).map(|seed| crash(&log, entries, seed)).collect()
        };
        assert!(states(4).iter().eq(["ab0"]));
        assert!(states(6).iter().eq(["ab0", "abd", "cb0", "cbd"]));
        assert!(states(7).iter().all(|state| state.ends_with('d')));
        assert!(states(8).iter().eq(["c\0d"]));
        assert!(states(2).len() == 4, "nothing was flushed yet");
    }
}
