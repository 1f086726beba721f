//! `[device]`.

use floe_device::DeviceConfig;

use crate::config::{Choice, Key, Kind, Limits, Section};

const KINDS: &[Choice] = &[
    Choice {
        word: "file",
        doc: "A regular file or a block device, also a zoned one; an NVMe namespace of any kind if `path` is its character device or `nvme:SERIAL`.",
    },
    Choice {
        word: "zns",
        doc: "A zoned NVMe namespace, by passthrough.",
    },
    Choice {
        word: "fdp",
        doc: "An NVMe namespace with flexible data placement, by passthrough.",
    },
    Choice {
        word: "nvme",
        doc: "A conventional NVMe namespace, by passthrough.",
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
        doc: "Yes, if the file system supports it.",
    },
    Choice {
        word: "on",
        doc: "Yes; without support, opening fails.",
    },
    Choice {
        word: "off",
        doc: "No.",
    },
];

const MODEL: &[Choice] = &[
    Choice {
        word: "queues",
        doc: "Queues with latencies and bandwidths, for any geometry.",
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
        doc: "The SN540's flash with 16 placement handles.",
    },
    Choice {
        word: "sata",
        doc: "A SATA SSD of 960 GB.",
    },
    Choice {
        word: "optane",
        doc: "A 3D XPoint drive.",
    },
    Choice {
        word: "ram_disk",
        doc: "Memory.",
    },
    Choice {
        word: "hdd_array",
        doc: "An array of hard discs.",
    },
];
const KEEPING: &[Choice] = &[
    Choice {
        word: "elided",
        doc: "Bytes of emulated origins are kept as the numbers that generate them: terabytes fit.",
    },
    Choice {
        word: "whole",
        doc: "All bytes.",
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
        doc: "A bounded number of threads with pread and pwrite, or the NVMe driver's ioctl.",
    },
];
const RINGS: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "One per current_thread runtime, which is a thread; one that all multi_thread runtimes share.",
    },
    Choice {
        word: "shared",
        doc: "One for all threads.",
    },
    Choice {
        word: "per_thread",
        doc: "One per thread, also in multi_thread runtimes.",
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
            key("kind", Kind::Choice(KINDS), "The kind of device."),
            key(
                "path",
                Kind::Path,
                "The file, block device or NVMe namespace: `/dev/ng0n1`, or `nvme:SERIAL` by the drive's serial number, with `:NAMESPACE` where the drive has several. When not set, `cache.floe` in the data directory.",
            ),
            key(
                "paths",
                Kind::List,
                "The drives of an array, instead of `device.path`: one cache over up to 32 files, block devices or namespaces of one kind (docs/devices.md). Their order does not matter. A drive that fails is dropped with its values.",
            ),
            key(
                "size",
                Kind::Size,
                "Bytes to use, of each drive if `device.paths` names several. A file is created or extended (sparse) to this size and never shortened. When not set: all of an existing file or block device, and 4GiB for a new file in the data directory, less if the disk lacks room.",
            )
            .limits(Limits::at_least(1)),
            key(
                "zone_size",
                Kind::Size,
                "Distance between the starts of two zones, the unit of reclaim. When not set: the zone size of the cache on the device. For a new cache, a power of two from 4 to 64 MiB with at least 64 zones; on less than 64 MiB, at least 16 zones. Large chunks get zones that hold 8 of them, up to 64 MiB. A simulated SSD has zones of 64 MiB, a zoned drive its own. Part of the format.",
            )
            .limits(Limits::at_least(512)),
            key(
                "zone_capacity",
                Kind::Size,
                "Writable bytes of a zone. When not set, all of it; a zoned drive has its own. Part of the format.",
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
                "Most zones that may be open at once. When not set, no limit but the drive's.",
            )
            .limits(Limits::at_least(1)),
            key(
                "max_active_zones",
                Kind::Integer,
                "Most zones that may be active at once. When not set, no limit but the drive's.",
            )
            .limits(Limits::at_least(1)),
            key(
                "max_append",
                Kind::Size,
                "Most bytes of one append; lowered to the zone capacity and to what a zoned drive takes.",
            )
            .limits(Limits::at_least(512)),
            key(
                "direct",
                Kind::Choice(DIRECT),
                "Bypass the page cache.",
            ),
            key(
                "discard",
                Kind::Bool,
                "Free a zone's space when it is reset (hole or discard). When not set: on for block devices and namespaces, off for files until their file system is full. Writes cost a file system least where it has written before.",
            ),
            key(
                "preallocate",
                Kind::Bool,
                "Allocate all space at opening, to detect a full file system early. Only useful without `discard`.",
            ),
            key("io", Kind::Choice(IO), "How operations reach the kernel."),
            key(
                "rings",
                Kind::Choice(RINGS),
                "The io_uring instance of an operation, if several threads use the device.",
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
            "`sim`, queues: whether the device is zoned: it accepts writes only at the write pointer, and zones keep their states over a restart. Otherwise it is a conventional SSD.",
        ),
        key(
            "sim.native_append",
            Kind::Bool,
            "`sim`, queues: whether the device chooses the address of an append. When not set, as `sim.zoned`.",
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
            "`sim`, queues: number of units, which process commands concurrently, each in first-in, first-out order.",
        )
        .limits(Limits::at_least(1)),
        key(
            "sim.stripe",
            Kind::Size,
            "`sim`, queues: consecutive bytes on one unit.",
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
            "`sim`, queues: whether a power loss can lose completed writes until they are flushed.",
        ),
        key(
            "sim.volatile_cache_bytes",
            Kind::Size,
            "`sim`, queues: most bytes that such a power loss can lose.",
        ),
        key(
            "sim.dies",
            Kind::Integer,
            "`sim`, whole SSDs: dies to simulate: fewer than the drive's, and proportionally wider, to save CPU time. Must divide the drive's number.",
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
            "`sim`, whole SSDs: a file with the drive's initial state: read if it exists, otherwise written after preconditioning. Valid for runs with the same settings of the drive.",
        ),
        key(
            "sim.trim",
            Kind::Bool,
            "`sim`, whole SSDs: whether resetting a zone of a conventional drive trims it.",
        ),
        key(
            "sim.data",
            Kind::Choice(KEEPING),
            "`sim`: how bytes are kept in memory; reads return the same either way.",
        ),
    ]
}
