//! Real devices.

use super::config::{
    FlashConfig, FtlConfig, HostInterface, InPlaceConfig, Interface, Isolation, Medium, NandConfig,
    SsdConfig, Victim, ZonedConfig,
};
use crate::ByteSize;

/// The block of all presets.
const BLOCK: ByteSize = ByteSize::kib(4);

impl SsdConfig {
    /// The names that [`SsdConfig::preset`] knows.
    pub const PRESETS: [&'static str; 7] = [
        "zn540",
        "sn540",
        "fdp",
        "sata",
        "optane",
        "ram-disk",
        "hdd-array",
    ];

    /// The device with that name, if there is one.
    pub fn preset(name: &str) -> Option<Self> {
        Some(match name {
            "zn540" => SsdConfig::zn540(),
            "sn540" => SsdConfig::sn540(),
            "fdp" => SsdConfig::fdp(),
            "sata" => SsdConfig::sata(),
            "optane" => SsdConfig::optane(),
            "ram-disk" => SsdConfig::ram_disk(),
            "hdd-array" => SsdConfig::hdd_array(),
            _ => return None,
        })
    }

    /// Western Digital Ultrastar DC ZN540, 1 TB, zoned.
    ///
    /// 904 zones of 1077 MiB, 2 GiB apart, at most 14 open and 14 active, as
    /// the ZNCache and OxCache papers and the measurements of ZNS+ and ConfZNS
    /// report.
    ///
    /// With the NAND's times this model reproduces the two papers' throughputs
    /// and latencies. They agree with TLC of 96 layers (program 2–3 ms
    /// one-shot, 16 KiB pages, two planes).
    pub fn zn540() -> Self {
        let interface = Interface::Zoned(ZonedConfig {
            zones: 904,
            zone_size: ByteSize::mib(2048),
            open_max: 14,
            active_max: 14,
            append_max: ByteSize::mib(1),
        });
        western_digital("ZN540", 904, interface)
    }

    /// Western Digital Ultrastar DC SN540, 960 GB: the ZN540's hardware with a
    /// conventional firmware (the papers have it from the vendor). 894.3 GiB of
    /// 991.8 are visible, and 10.9 % are over-provisioning.
    pub fn sn540() -> Self {
        let interface = Interface::Conventional(FtlConfig {
            capacity: ByteSize::mib(915_712),
            mapping_unit: ByteSize::kib(256),
            handles: 1,
            isolation: Isolation::Initial,
            collect_below: 6,
            throttle_at: 3,
            collect_window: ByteSize::mib(16),
            victim: Victim::AgeAware,
        });
        western_digital("SN540", 943, interface)
    }

    /// The SN540's NAND and capacity under flexible data placement, with 16
    /// initially isolated reclaim-unit handles of one superblock each. Drives
    /// on sale (Samsung PM9D3a, Micron 9550) have 8 to 16 handles and reclaim
    /// units of 1 to 13 GB.
    pub fn fdp() -> Self {
        let mut config = SsdConfig::sn540();
        config.name = "FDP".into();
        config.host.buffer = ByteSize::mib(24);
        if let Some(flash) = config.flash_mut()
            && let Interface::Conventional(ftl) = &mut flash.interface
        {
            ftl.handles = 16;
            // A spare superblock for every handle.
            ftl.collect_below += u32::from(ftl.handles);
            ftl.throttle_at += u32::from(ftl.handles);
        }
        config
    }

    /// A SATA drive of 960 GB for data centres, after Samsung's data sheet of
    /// the PM893: reads 550 MB/s, writes 520 MB/s, 98,000 random reads/s,
    /// 30,000 random writes/s.
    pub fn sata() -> Self {
        SsdConfig {
            name: "SATA".into(),
            block: BLOCK,
            host: HostInterface {
                write_bytes_per_s: 530_000_000,
                read_bytes_per_s: 560_000_000,
                command_overhead_ns: 60_000,
                buffer: ByteSize::mib(16),
                read_window: ByteSize::mib(1),
            },
            medium: Medium::Flash(FlashConfig {
                nand: NandConfig {
                    dies: 16,
                    stripe_dies: 4,
                    program_ns: 2_000_000,
                    read_page_ns: 110_000,
                    ..western_digital_nand()
                },
                superblock: ByteSize::mib(768),
                superblocks: 1300,
                interface: Interface::Conventional(FtlConfig {
                    capacity: ByteSize::mib(915_712),
                    mapping_unit: ByteSize::kib(64),
                    handles: 1,
                    isolation: Isolation::Initial,
                    collect_below: 6,
                    throttle_at: 3,
                    collect_window: ByteSize::mib(8),
                    victim: Victim::AgeAware,
                }),
            }),
        }
    }

    /// Intel Optane DC P5800X, 800 GB, after its data sheet: reads 7.2 GB/s,
    /// writes 6.1 GB/s, 1.5 million random accesses/s, latency 5 µs.
    pub fn optane() -> Self {
        SsdConfig {
            name: "Optane".into(),
            block: BLOCK,
            host: HostInterface {
                write_bytes_per_s: 6_100_000_000,
                read_bytes_per_s: 7_200_000_000,
                command_overhead_ns: 1_500,
                buffer: ByteSize::mib(1),
                read_window: ByteSize::mib(1),
            },
            medium: Medium::InPlace(InPlaceConfig {
                capacity: ByteSize::gib(745),
                lanes: 7,
                stripe: ByteSize::kib(4),
                read_ns: 100,
                write_ns: 100,
                seek_ns: 0,
                read_bytes_per_s: 1_050_000_000,
                write_bytes_per_s: 900_000_000,
            }),
        }
    }

    /// Memory behind a block device, with the bandwidth of one memory channel
    /// and a copy per access. It shows a cache's own limit on a device that
    /// costs nearly nothing.
    pub fn ram_disk() -> Self {
        SsdConfig {
            name: "RAM disk".into(),
            block: BLOCK,
            host: HostInterface {
                write_bytes_per_s: 20_000_000_000,
                read_bytes_per_s: 20_000_000_000,
                command_overhead_ns: 1_000,
                buffer: ByteSize::mib(1),
                read_window: ByteSize::mib(1),
            },
            medium: Medium::InPlace(InPlaceConfig {
                capacity: ByteSize::gib(256),
                lanes: 4,
                stripe: ByteSize::kib(4),
                read_ns: 100,
                write_ns: 100,
                seek_ns: 0,
                read_bytes_per_s: 10_000_000_000,
                write_bytes_per_s: 10_000_000_000,
            }),
        }
    }

    /// Twelve discs of 7200 rpm, 18 TB each, after Seagate's data sheet of the
    /// Exos X18: 270 MB/s, 4.16 ms for half a turn, 8.5 ms for a seek.
    pub fn hdd_array() -> Self {
        SsdConfig {
            name: "HDD array".into(),
            block: BLOCK,
            host: HostInterface {
                write_bytes_per_s: 6_000_000_000,
                read_bytes_per_s: 6_000_000_000,
                command_overhead_ns: 50_000,
                buffer: ByteSize::mib(256),
                read_window: ByteSize::mib(16),
            },
            medium: Medium::InPlace(InPlaceConfig {
                capacity: ByteSize::gib(12 * 16 * 1024),
                lanes: 12,
                stripe: ByteSize::kib(256),
                read_ns: 0,
                write_ns: 0,
                seek_ns: 12_660_000,
                read_bytes_per_s: 270_000_000,
                write_bytes_per_s: 270_000_000,
            }),
        }
    }
}

/// The ZN540's hardware behind an interface.
fn western_digital(name: &str, superblocks: u32, interface: Interface) -> SsdConfig {
    SsdConfig {
        name: name.into(),
        block: BLOCK,
        host: western_digital_host(),
        medium: Medium::Flash(FlashConfig {
            nand: western_digital_nand(),
            superblock: ByteSize::mib(1077),
            superblocks,
            interface,
        }),
    }
}

fn western_digital_host() -> HostInterface {
    HostInterface {
        write_bytes_per_s: 3_200_000_000,
        read_bytes_per_s: 3_200_000_000,
        command_overhead_ns: 55_000,
        buffer: ByteSize::mib(16),
        read_window: ByteSize::mib(2),
    }
}

/// 32 dies: raw 1.15 GiB/s writing and 2.8 GiB/s reading.
///
/// The sharing of a die between reads and programs was calibrated with
/// ZNCache's tables 6 and 7. With many reads (512 MiB, Zipf, twice the cache),
/// writing a chunk takes 13 s and reading one 4 s: there, reads go first as
/// long as they come. With few reads (OxCache's 14 readers), they wait for the
/// program under way. docs/findings.md has the effect of other values.
fn western_digital_nand() -> NandConfig {
    NandConfig {
        dies: 32,
        stripe_dies: 4,
        page: ByteSize::kib(16),
        program_unit: ByteSize::kib(96),
        read_page_ns: 175_000,
        program_ns: 2_450_000,
        erase_ns: 5_000_000,
        parity_every: 16,
        suspends_per_program: 0,
        read_burst_ns: 5_000_000,
    }
}
