//! `[device]`.

use floe_device::DeviceConfig;

use crate::config::{Choice, Key, Kind, Limits, Section};

const KINDS: &[Choice] = &[
    Choice {
        word: "file",
        doc: "A regular file or a block device.",
    },
    Choice {
        word: "memory",
        doc: "Memory; gone when the process ends.",
    },
    Choice {
        word: "sim",
        doc: "A simulated SSD in memory, with the latencies of `device.sim`.",
    },
];

const DIRECT: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "Where the file system can.",
    },
    Choice {
        word: "on",
        doc: "Or fail to open.",
    },
    Choice {
        word: "off",
        doc: "Never.",
    },
];

const MODEL: &[Choice] = &[
    Choice {
        word: "queues",
        doc: "queues with latencies and bandwidths, for any geometry.",
    },
    Choice {
        word: "zn540",
        doc: "WD Ultrastar DC ZN540, 1 TB, zoned.",
    },
    Choice {
        word: "sn540",
        doc: "WD Ultrastar DC SN540, 960 GB, conventional.",
    },
    Choice {
        word: "fdp",
        doc: "the SN540's flash with 16 placement handles.",
    },
    Choice {
        word: "sata",
        doc: "a SATA SSD of 960 GB.",
    },
    Choice {
        word: "optane",
        doc: "a drive of 3D XPoint.",
    },
    Choice {
        word: "ram_disk",
        doc: "memory.",
    },
    Choice {
        word: "hdd_array",
        doc: "an array of hard discs.",
    },
];
const KEEPING: &[Choice] = &[
    Choice {
        word: "elided",
        doc: "bytes of emulated origins as the numbers that generate them: terabytes fit.",
    },
    Choice {
        word: "whole",
        doc: "all bytes as they are.",
    },
];
const IO: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "io_uring where the kernel allows it and the file system gains from it, otherwise threads.",
    },
    Choice {
        word: "uring",
        doc: "io_uring, or fail to open.",
    },
    Choice {
        word: "threads",
        doc: "A bounded number of threads with pread and pwrite.",
    },
];
const RINGS: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "one for every current_thread runtime, which is a thread; one that all multi_thread runtimes share.",
    },
    Choice {
        word: "shared",
        doc: "one for all.",
    },
    Choice {
        word: "per_thread",
        doc: "one for every thread, also of multi_thread runtimes.",
    },
];

pub(super) fn section() -> Result<Section, String> {
    let mut keys = keys();
    keys.extend(sim_keys());
    Section::adopt(
        "device",
        "The flash device that holds the cache.",
        &DeviceConfig::default(),
        &[],
        keys,
    )
}

fn keys() -> Vec<Key> {
    let key = Key::new;
    vec![
            key("kind", Kind::Choice(KINDS), "What kind of device to open."),
            key(
                "path",
                Kind::Path,
                "The file or block device. When not set, `cache.floe` in the data directory.",
            ),
            key(
                "size",
                Kind::Size,
                "Bytes to use. A file is created or extended (sparse) to this size and never shortened. When not set: all of an existing file or block device, and 4GiB for a new file in the data directory, less if the disk lacks room.",
            )
            .limits(Limits::at_least(1)),
            key(
                "zone_size",
                Kind::Size,
                "Distance between the starts of two zones, the unit in which space is freed. When not set: that of the cache that the device holds; for a new cache a power of two that makes at least 64 zones, but 4 to 64 MiB, and at least 16 zones where less than 64 MiB are given. Large chunks get zones that hold 8 of them, up to 64 MiB. A simulated SSD has zones of 64 MiB. Part of the format.",
            )
            .limits(Limits::at_least(512)),
            key(
                "zone_capacity",
                Kind::Size,
                "Writable bytes of a zone. When not set, all of it. Part of the format.",
            )
            .limits(Limits::at_least(512)),
            key(
                "block_size",
                Kind::Size,
                "The unit of reading and writing: a power of two. Part of the format.",
            )
            .limits(Limits::between(512, 64 << 10)),
            key(
                "max_open_zones",
                Kind::Integer,
                "Most zones that may be open at once. When not set, no limit.",
            )
            .limits(Limits::at_least(1)),
            key(
                "max_active_zones",
                Kind::Integer,
                "Most zones that may be active at once. When not set, no limit.",
            )
            .limits(Limits::at_least(1)),
            key(
                "max_append",
                Kind::Size,
                "Most bytes of one append; lowered to the zone capacity.",
            )
            .limits(Limits::at_least(512)),
            key(
                "direct",
                Kind::Choice(DIRECT),
                "Whether to bypass the page cache.",
            ),
            key(
                "discard",
                Kind::Bool,
                "Whether resetting a zone gives its space back (hole or discard).",
            ),
            key(
                "preallocate",
                Kind::Bool,
                "Whether to allocate all space when opening, so that a full file system is reported then and not later. Only useful without `discard`.",
            ),
            key("io", Kind::Choice(IO), "How operations reach the kernel."),
            key(
                "rings",
                Kind::Choice(RINGS),
                "Which io_uring an operation goes through, where several threads use the device.",
            ),
            key(
                "registered_buffers",
                Kind::Size,
                "Bytes of buffers registered with the kernel; 0 for none.",
            ),
    ]
}

fn sim_keys() -> Vec<Key> {
    let key = Key::new;
    let microseconds = |name, doc| Key::new(name, Kind::Float, doc);
    vec![
        key(
            "sim.model",
            Kind::Choice(MODEL),
            "`sim`: the model: plain queues or a whole SSD.",
        ),
        key(
            "sim.zoned",
            Kind::Bool,
            "`sim`, queues: zoned: writes go only where the write pointer is, and zones keep their states over a restart. Otherwise a conventional SSD.",
        ),
        key(
            "sim.native_append",
            Kind::Bool,
            "`sim`, queues: whether the device chooses where appends land. When not set, as `sim.zoned`.",
        ),
        key(
            "sim.placement_handles",
            Kind::Integer,
            "`sim`, queues: placement handles (reclaim-unit handles) that the device offers.",
        )
        .limits(Limits::between(0, 65_535)),
        key(
            "sim.units",
            Kind::Integer,
            "`sim`, queues: commands that are processed at once; each is a first-in, first-out queue.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.stripe",
            Kind::Size,
            "`sim`, queues: bytes that lie on one unit before the next unit's begin.",
        )
        .limits(Limits::at_least(512)),
        microseconds(
            "sim.read_us",
            "`sim`, queues: microseconds to read a stripe from flash.",
        ),
        microseconds(
            "sim.write_us",
            "`sim`, queues: microseconds until an append or write is in the device's buffer.",
        ),
        microseconds("sim.reset_us", "`sim`, queues: microseconds to reset a zone."),
        microseconds("sim.finish_us", "`sim`, queues: microseconds to finish a zone."),
        microseconds("sim.flush_us", "`sim`, queues: microseconds to flush."),
        key(
            "sim.read_bandwidth",
            Kind::Size,
            "`sim`, queues: bytes per second from the device.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.write_bandwidth",
            Kind::Size,
            "`sim`, queues: bytes per second to the device.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.volatile_cache",
            Kind::Bool,
            "`sim`, queues: whether completed writes can be lost with the power until flushed.",
        ),
        key(
            "sim.volatile_cache_bytes",
            Kind::Size,
            "`sim`, queues: most bytes that can be lost in this way.",
        ),
        key(
            "sim.dies",
            Kind::Integer,
            "`sim`, whole SSDs: dies to simulate, fewer than the drive has and each as much wider, to compute less. Must divide their number.",
        )
        .limits(Limits::between(1, 65_535)),
        key(
            "sim.superblock",
            Kind::Size,
            "`sim`, whole SSDs: the unit of erasing of a conventional drive; on an FDP drive its reclaim unit. When not set, the drive's own, scaled down as `size` is from its capacity.",
        )
        .limits(Limits::at_least(4096)),
        key(
            "sim.mapping_unit",
            Kind::Size,
            "`sim`, whole SSDs: the unit of a conventional drive's mapping table. When not set, 16 KiB, or more for a drive of more than 64 GiB.",
        )
        .limits(Limits::at_least(4096)),
        key(
            "sim.precondition",
            Kind::Bool,
            "`sim`, whole SSDs: whether a conventional drive starts after one pass of random writes, like a drive that has been in use.",
        ),
        key(
            "sim.state",
            Kind::Path,
            "`sim`, whole SSDs: a file that keeps the drive's state at the start: read if it is there, otherwise written when the drive was made and preconditioned. For every run with the same settings of the drive.",
        ),
        key(
            "sim.trim",
            Kind::Bool,
            "`sim`, whole SSDs: whether resetting a zone of a conventional drive trims it.",
        ),
        key(
            "sim.data",
            Kind::Choice(KEEPING),
            "`sim`: how bytes are kept. It reads the same either way.",
        ),
    ]
}
