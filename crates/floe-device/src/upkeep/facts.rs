//! What the kernel and the drive say of a drive: model, queue, caches, health.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::nvme::log_page::Health;
use crate::nvme::{self, Drive, DriveError, Interface, is_namespace};

/// Bytes of a sector, in which the kernel counts whatever the drive's blocks are.
const SECTOR_BYTES: u64 = 512;
/// Characters of a serial number that results keep.
const SERIAL_SUFFIX: usize = 4;

/// A drive as the kernel and the drive itself describe it. What neither tells is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveFacts {
    /// The path that was named.
    pub path: PathBuf,
    /// `file`, `block`, `zoned block`, `zns`, `fdp`, `nvme` or `none`.
    pub kind: String,
    /// The model.
    pub model: Option<String>,
    /// The last characters of the serial number.
    pub serial_suffix: Option<String>,
    /// The firmware's revision.
    pub firmware: Option<String>,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// The unit in which it is addressed.
    pub logical_block_bytes: Option<u64>,
    /// The unit that it writes without reading.
    pub physical_block_bytes: Option<u64>,
    /// The kernel's I/O scheduler, which passthrough does not use.
    pub scheduler: Option<String>,
    /// `write back` if the drive has a volatile write cache, else `write through`.
    pub write_cache: Option<String>,
    /// A hard disc.
    pub rotational: Option<bool>,
    /// Requests in each queue of the kernel.
    pub queue_depth: Option<u64>,
    /// Hardware queues.
    pub queues: Option<u64>,
    /// The NUMA node of its controller.
    pub numa_node: Option<u64>,
    /// Of a partition, its offset.
    pub partition_offset_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// Health, if the drive is an NVMe drive and the process may read it.
    pub health: Option<HealthFacts>,
}

/// The health of an NVMe drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFacts {
    /// Bits of what needs attention.
    pub critical_warning: u8,
    /// Degrees Celsius.
    pub temperature_celsius: i32,
    /// Spare capacity that is left, of 100.
    pub available_spare_percent: u8,
    /// Estimate of the life that is used; may exceed 100.
    pub percentage_used: u8,
    /// Bytes that hosts read, by the drive's health log, as those below.
    pub host_read_bytes: u64,
    /// Bytes that hosts wrote to all namespaces.
    pub host_written_bytes: u64,
    /// Errors of the medium that were not recovered.
    pub media_errors: u64,
    /// Power losses without notice.
    pub unsafe_shutdowns: u64,
    /// What the drive wrote to its medium, if it tells.
    pub media: Option<MediaFacts>,
}

/// Bytes written, both by the same log, so that their ratio is a write amplification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaFacts {
    /// `fdp` for the log of data placement, which counts since that was turned on, or
    /// `endurance_group`, which counts in 10^9 bytes.
    pub log: String,
    /// Bytes that hosts wrote.
    pub host_written_bytes: u64,
    /// Bytes that the drive wrote to its medium.
    pub media_written_bytes: u64,
}

impl HealthFacts {
    /// The health of `drive`; `None` if the process may not read it.
    pub fn of(drive: &Drive) -> Option<Self> {
        HealthFacts::from_drive(drive).ok()
    }

    /// As [`of`](Self::of), with the reason.
    pub(super) fn from_drive(drive: &Drive) -> Result<Self, DriveError> {
        let health = drive.health()?;
        // Without a fallback: each log counts from another time.
        let media = match drive.interface() {
            Interface::Placement(placement) => {
                let found = drive.placement_statistics(placement.group).ok();
                found.map(|it| ("fdp", it.host_written_bytes, it.media_written_bytes))
            }
            Interface::Conventional | Interface::Zoned(_) => {
                let found = drive.endurance_group().ok().flatten();
                found.map(|it| {
                    let log = "endurance_group";
                    (log, it.host_written_bytes, it.media_written_bytes)
                })
            }
        };
        Ok(HealthFacts {
            media: media.map(|(log, host, media)| MediaFacts {
                log: log.to_owned(),
                host_written_bytes: clamped(host),
                media_written_bytes: clamped(media),
            }),
            ..HealthFacts::decode(&health)
        })
    }

    fn decode(health: &Health) -> Self {
        const ZERO_CELSIUS_KELVIN: i32 = 273;
        HealthFacts {
            critical_warning: health.critical_warning,
            temperature_celsius: i32::from(health.temperature_kelvin) - ZERO_CELSIUS_KELVIN,
            available_spare_percent: health.available_spare_percent,
            percentage_used: health.percentage_used,
            host_read_bytes: clamped(health.host_read_bytes),
            host_written_bytes: clamped(health.host_written_bytes),
            media_errors: clamped(health.media_errors),
            unsafe_shutdowns: clamped(health.unsafe_shutdowns),
            media: None,
        }
    }
}

/// A number of a drive, which JSON holds up to 64 bits.
fn clamped(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl DriveFacts {
    /// The facts of the file, block device or namespace at `path`. Opens a namespace for
    /// reading, and changes nothing.
    pub fn of(path: &Path) -> Self {
        let drive = nvme::block_device(path).and_then(|_| Drive::open(path).ok());
        let block = match &drive {
            Some(drive) => drive.block_path().map(Path::to_owned),
            None => Some(path.to_owned()),
        };
        let mut facts = block
            .and_then(|block| Some(Self::of_block(&block_entry(&block)?)))
            .unwrap_or_default();
        facts.path = path.to_owned();
        facts.kind = kind_of(path, drive.as_ref()).to_owned();
        facts.kernel = text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        match &drive {
            Some(drive) => facts.ask(drive),
            None if facts.kind == "file" => {
                facts.size_bytes = fs::metadata(path).ok().map(|found| found.len());
            }
            None => {}
        }
        facts
    }

    /// A device without a path, of a kind such as `sim`.
    pub fn without_drive(kind: impl Into<String>) -> Self {
        DriveFacts {
            kind: kind.into(),
            kernel: text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default(),
            ..DriveFacts::default()
        }
    }

    fn ask(&mut self, drive: &Drive) {
        let controller = drive.controller();
        self.model = Some(controller.model.clone());
        self.serial_suffix = Some(suffix(&controller.serial));
        self.firmware = Some(controller.firmware.clone());
        self.size_bytes = Some(drive.namespace().bytes());
        self.logical_block_bytes = Some(drive.namespace().block_bytes.into());
        self.health = HealthFacts::of(drive);
    }

    /// The facts of the block device whose folder in the kernel's `/sys` is `entry`.
    fn of_block(entry: &Path) -> Self {
        let partition = number(&entry.join("start")).filter(|_| entry.join("partition").exists());
        // The queue of a partition is that of its drive.
        let disk = match partition {
            Some(_) => entry.parent().unwrap_or(entry),
            None => entry,
        };
        let queue = |name: &str| disk.join("queue").join(name);
        let device = |name: &str| {
            // Of a namespace, a controller or, where it may have several, a subsystem.
            let found = text(&disk.join("device").join(name));
            found.filter(|text| !text.is_empty())
        };
        let count = fs::read_dir(disk.join("mq")).ok();
        DriveFacts {
            model: device("model"),
            serial_suffix: device("serial").map(|serial| suffix(&serial)),
            firmware: device("firmware_rev").or_else(|| device("rev")),
            size_bytes: number(&entry.join("size")).map(|sectors| sectors * SECTOR_BYTES),
            logical_block_bytes: number(&queue("logical_block_size")),
            physical_block_bytes: number(&queue("physical_block_size")),
            scheduler: text(&queue("scheduler")).map(|all| selected(&all)),
            write_cache: text(&queue("write_cache")),
            rotational: number(&queue("rotational")).map(|is| is == 1),
            queue_depth: number(&queue("nr_requests")),
            queues: count.map(|all| all.count() as u64),
            numa_node: ["device/numa_node", "device/device/numa_node"]
                .iter()
                .find_map(|file| number(&disk.join(file))),
            partition_offset_bytes: partition.map(|sectors| sectors * SECTOR_BYTES),
            ..DriveFacts::default()
        }
    }
}

fn kind_of(path: &Path, drive: Option<&Drive>) -> &'static str {
    let is_block = || fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    match drive.map(Drive::interface) {
        Some(Interface::Zoned(_)) if is_namespace(path) => "zns",
        Some(Interface::Placement(_)) if is_namespace(path) => "fdp",
        Some(Interface::Conventional) if is_namespace(path) => "nvme",
        _ if crate::zoned::is_host_managed(path) => "zoned block",
        _ if is_block() => "block",
        _ if path.is_file() => "file",
        _ => "none",
    }
}

/// The folder of a block device in the kernel's `/sys`.
fn block_entry(path: &Path) -> Option<PathBuf> {
    let found = fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    let is_block = found.file_type().is_block_device();
    let entry = || fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok();
    is_block.then(entry).flatten()
}

fn text(path: &Path) -> Option<String> {
    let read: io::Result<String> = fs::read_to_string(path);
    read.ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The word in brackets.
fn selected(all: &str) -> String {
    let inner = all
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(all, |(word, _)| word).to_owned()
}

fn suffix(serial: &str) -> String {
    let skipped = serial.chars().count().saturating_sub(SERIAL_SUFFIX);
    serial.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_what_is_not_there_have_a_kind() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let facts = DriveFacts::of(file.path());
        assert_eq!(
            (facts.kind.as_str(), facts.size_bytes),
            ("file", Some(4096))
        );
        assert!(!facts.kernel.is_empty());
        assert_eq!(DriveFacts::of(Path::new("/no/such/path")).kind, "none");
    }

    #[test]
    fn a_partition_has_the_queue_of_its_drive() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("nvme0n1");
        for (file, content) in [
            ("queue/scheduler", "mq-deadline kyber [none]\n"),
            ("queue/write_cache", "write back\n"),
            ("queue/nr_requests", "1023\n"),
            ("queue/rotational", "0\n"),
            ("queue/logical_block_size", "512\n"),
            ("queue/physical_block_size", "4096\n"),
            ("device/model", "SAMPLE 2000\n"),
            ("device/serial", "S5XYNG0K123456   \n"),
            ("device/firmware_rev", "1.0\n"),
            ("device/numa_node", "-1\n"),
            ("mq/0/cpu_list", "0\n"),
            ("mq/1/cpu_list", "1\n"),
            ("nvme0n1p1/partition", "1\n"),
            ("nvme0n1p1/start", "2048\n"),
            ("nvme0n1p1/size", "8192\n"),
        ] {
            let path = disk.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let facts = DriveFacts::of_block(&disk.join("nvme0n1p1"));
        let expected = DriveFacts {
            model: Some("SAMPLE 2000".to_owned()),
            serial_suffix: Some("3456".to_owned()),
            firmware: Some("1.0".to_owned()),
            size_bytes: Some(4 << 20),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(4096),
            scheduler: Some("none".to_owned()),
            write_cache: Some("write back".to_owned()),
            rotational: Some(false),
            queue_depth: Some(1023),
            queues: Some(2),
            partition_offset_bytes: Some(1 << 20),
            ..DriveFacts::default()
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn facts_of_a_drive_that_counts_beyond_64_bits_have_a_json_form() {
        let health = Health::decode(&[0xff; 512]).unwrap();
        let facts = HealthFacts::decode(&health);
        assert_eq!(facts.host_written_bytes, u64::MAX);
        let value = serde_json::to_value(&facts).unwrap();
        assert_eq!(value["media_errors"], u64::MAX);
    }
}
