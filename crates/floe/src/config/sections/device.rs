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

const KEEPING: &[Choice] = &[
    Choice {
        word: "elided",
        doc: "what an emulated origin made up as the numbers it follows from: terabytes fit.",
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
                "Distance between the starts of two zones, the unit in which space is freed. Part of the format.",
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
                "Whether to allocate all space when opening, so that a full file system shows then and not later. Only useful without `discard`.",
            ),
            key("io", Kind::Choice(IO), "How operations reach the kernel."),
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
            "sim.zoned",
            Kind::Bool,
            "`sim`: zoned: writes go only where the write pointer is, and zones keep their states over a restart. Otherwise a conventional SSD.",
        ),
        key(
            "sim.native_append",
            Kind::Bool,
            "`sim`: whether the device chooses where appends land. When not set, as `sim.zoned`.",
        ),
        key(
            "sim.placement_handles",
            Kind::Integer,
            "`sim`: placement handles (reclaim-unit handles) that the device offers.",
        )
        .limits(Limits::between(0, 65_535)),
        key(
            "sim.units",
            Kind::Integer,
            "`sim`: commands that are worked on at once; each is a first-in, first-out queue.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.stripe",
            Kind::Size,
            "`sim`: bytes that lie on one unit before the next unit's begin.",
        )
        .limits(Limits::at_least(512)),
        microseconds(
            "sim.read_us",
            "`sim`: microseconds to read a stripe from flash.",
        ),
        microseconds(
            "sim.write_us",
            "`sim`: microseconds until an append or write is in the device's buffer.",
        ),
        microseconds("sim.reset_us", "`sim`: microseconds to reset a zone."),
        microseconds("sim.finish_us", "`sim`: microseconds to finish a zone."),
        microseconds("sim.flush_us", "`sim`: microseconds to flush."),
        key(
            "sim.read_bandwidth",
            Kind::Size,
            "`sim`: bytes per second from the device.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.write_bandwidth",
            Kind::Size,
            "`sim`: bytes per second to the device.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.volatile_cache",
            Kind::Bool,
            "`sim`: whether completed writes can be lost with the power until flushed.",
        ),
        key(
            "sim.volatile_cache_bytes",
            Kind::Size,
            "`sim`: most bytes that can be lost so.",
        ),
        key(
            "sim.data",
            Kind::Choice(KEEPING),
            "`sim`: how bytes are kept. It reads the same either way.",
        ),
    ]
}
