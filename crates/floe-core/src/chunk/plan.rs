//! Validates the configuration: [`ChunkConfig`] becomes a [`Plan`].

use serde::{Deserialize, Serialize};

use crate::layout::{
    FormatPlan, KEY_MAX_BYTES, LARGE_MAX_BYTES, SMALL_MAX_BYTES, SlotGeometry, ZoneLayout,
    large_descriptor_bytes, piece_batch_bytes, piece_bytes_max, slot_piece_bytes, summary_bytes,
};
use crate::placement::Stream;
use crate::{ByteSize, Geometry};

/// Zones 0 and 1 hold the superblock and the journal.
pub const METADATA_ZONES: u32 = 2;

/// The order in which chunks are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eviction {
    /// Zone LRU with promotion: a hit on any value makes its whole zone recent.
    /// The least recent zone is evicted (ZNCache §3.3).
    #[default]
    Zplru,
    /// Evicts the oldest zone.
    Fifo,
    /// SIEVE over zones (Zhang et al., NSDI '24): a hand walks from old to new
    /// and spares zones that were hit since it last passed.
    Sieve,
    /// Chunk LRU: evicts the least recent chunks. Host GC reclaims their space
    /// on zoned devices, reuse in place on devices that allow random writes
    /// (ZNCache §3.3, future work there).
    Clru,
}

/// The layout of zones under CLRU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClruLayout {
    /// Slots if the device allows random writes, otherwise a log.
    #[default]
    Auto,
    /// A log of batches, and host GC.
    Log,
    /// Slots of one chunk each, written in place. Every value takes a whole
    /// slot, however short it is.
    Slots,
}

crate::names! {
    ClruLayout {
        Auto => "auto",
        Log => "log",
        Slots => "slots",
    }
}

/// The failures that an acknowledged delete or overwrite survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Power loss: tombstones are flushed to stable media before the response.
    #[default]
    Power,
    /// A crash of the process, but not of the machine: tombstones are written
    /// before the response, but not flushed.
    Process,
}

/// The order of reads of large values while others stream in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeReads {
    /// Reads start at once. Hits are fast, and incoming values wait for flash.
    First,
    /// A read starts once all streams that came before it have begun, so reads
    /// and writes share flash in order of arrival. The default: under load no
    /// request is overtaken, which shortens the tail most.
    #[default]
    InTurn,
}

crate::parse_by_name!(Eviction, ClruLayout, Durability, LargeReads);

/// The chunk engine's settings, as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChunkConfig {
    /// Bytes of a chunk, the unit that objects are cut into: 64 KiB to 1 GiB.
    /// Over slots, no value is longer.
    pub size: ByteSize,
    /// The order in which chunks are evicted.
    pub eviction: Eviction,
    /// Zones that are open at a time; `None` chooses by the device's limits.
    pub open_zones: Option<u32>,
    /// Free zones at or below which background eviction starts.
    pub reclaim_start_free_zones: Option<u32>,
    /// Free zones at which background eviction stops.
    pub reclaim_stop_free_zones: Option<u32>,
    /// CLRU with host GC: minimum share of garbage in a zone, in percent, for
    /// GC to collect it while free zones are not scarce.
    pub gc_garbage_percent: u32,
    /// CLRU: slots written in place, or a log with host GC.
    pub clru_layout: ClruLayout,
    /// The failures that an acknowledged delete or overwrite survives.
    pub durability: Durability,
    /// Bytes of values in RAM that wait to be written.
    pub write_buffer: ByteSize,
    /// Index shards; `None` chooses by capacity. Not a user setting: one shard makes
    /// tests of eviction exact.
    pub shards: Option<u32>,
    /// Milliseconds that a small value may wait to share a write with others.
    pub flush_delay_ms: u64,
    /// The order of reads of large values while others stream in.
    pub large_reads: LargeReads,
    /// Bytes of large values that all readers together may read ahead, besides
    /// 256 KiB for each.
    pub read_ahead: ByteSize,
}

impl Default for ChunkConfig {
    fn default() -> Self {
        ChunkConfig {
            size: ByteSize::kib(64),
            eviction: Eviction::Zplru,
            open_zones: None,
            reclaim_start_free_zones: None,
            reclaim_stop_free_zones: None,
            gc_garbage_percent: 20,
            clru_layout: ClruLayout::Auto,
            durability: Durability::Power,
            write_buffer: ByteSize::mib(64),
            shards: None,
            flush_delay_ms: 5,
            large_reads: LargeReads::InTurn,
            read_ahead: ByteSize::mib(64),
        }
    }
}

/// A setting that cannot work: its name and value, the reason, and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value} cannot work: {reason}; {cure}")]
pub struct ConfigError {
    /// The setting, as written in the configuration file.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The limit that it breaks.
    pub reason: String,
    /// The nearest value that works, or what else to change.
    pub cure: String,
}

impl ConfigError {
    fn new(
        setting: &'static str,
        value: impl ToString,
        reason: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        ConfigError {
            setting,
            value: value.to_string(),
            reason: reason.into(),
            cure: cure.into(),
        }
    }
}

/// Free zones that start and stop background eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaterMarks {
    /// At or below this many free zones, eviction starts.
    pub high: u32,
    /// At this many free zones, it stops.
    pub low: u32,
}

/// A configuration that fits a geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The device's geometry.
    pub geometry: Geometry,
    /// Log zones, or slots written in place.
    pub layout: ZoneLayout,
    /// The division of a zone, if `layout` is slots.
    pub slots: Option<SlotGeometry>,
    /// Bytes of a chunk, and of a slot's longest value.
    pub chunk_bytes: u64,
    /// Bytes of the longest value: a chunk over slots, otherwise what a zone
    /// holds. At least `chunk_bytes`.
    pub value_bytes_max: u64,
    /// The eviction policy.
    pub eviction: Eviction,
    /// Data zones that are open at a time.
    pub open_zones: u32,
    /// Free zones that start and stop background eviction.
    pub water: WaterMarks,
    /// Percent of garbage from which on host GC collects a zone early.
    pub gc_garbage_percent: u32,
    /// The failures that acknowledged invalidations survive.
    pub durability: Durability,
    /// Bytes that may wait in write buffers.
    pub write_buffer_bytes: u64,
    /// Index shards.
    pub shards: u32,
    /// Nanoseconds that a small value may wait to share a write.
    pub flush_delay_ns: u64,
    /// The order of reads of large values while others stream in.
    pub large_reads: LargeReads,
    /// Bytes that all readers of large values together may read ahead.
    pub read_ahead_bytes: u64,
    /// Target bytes of a batch of small values: one append.
    pub batch_bytes: u64,
    /// Payload bytes of one piece of a large value.
    pub piece_bytes: u32,
}

impl Plan {
    /// Checks `config` against the device.
    ///
    /// # Errors
    /// Names the setting that cannot work and the nearest value that does.
    pub fn new(config: &ChunkConfig, geometry: &Geometry) -> Result<Plan, ConfigError> {
        geometry.validate().map_err(|e| {
            ConfigError::new("device", "geometry", e.to_string(), "check the device")
        })?;
        let block = u64::from(geometry.block_size);
        let chunk_bytes = config.size.bytes();
        check_chunk_size(chunk_bytes, geometry)?;
        check_addressing(geometry)?;
        let slots = slot_geometry(config, geometry)?;

        let data_zones = data_zones(geometry)?;
        let open_zones = open_zones(config, geometry, data_zones)?;
        let water = water_marks(config, data_zones, open_zones)?;
        let smallest_batch =
            SMALL_MAX_BYTES.min(chunk_bytes as usize) as u64 + KEY_MAX_BYTES as u64 + 2 * block;
        // A batch takes at most a small part of its zone. Otherwise zones would
        // be closed half empty.
        let batch_bytes = u64::from(geometry.max_append_bytes)
            .min(1 << 20)
            .min((geometry.zone_capacity / 8).max(SMALL_MAX_BYTES as u64 + 4 * block))
            .min((geometry.zone_capacity / 2).max(smallest_batch.next_multiple_of(block)))
            / block
            * block;
        if batch_bytes < smallest_batch {
            return Err(ConfigError::new(
                "device.max_append",
                ByteSize(u64::from(geometry.max_append_bytes)),
                format!(
                    "a value of {} and its descriptor must fit one append",
                    ByteSize(SMALL_MAX_BYTES.min(chunk_bytes as usize) as u64)
                ),
                format!(
                    "at least {} is needed",
                    ByteSize(smallest_batch.next_multiple_of(block))
                ),
            ));
        }
        let write_buffer_bytes = config.write_buffer.bytes();
        if write_buffer_bytes < 4 * batch_bytes {
            return Err(ConfigError::new(
                "chunk.write_buffer",
                config.write_buffer,
                format!("writes of {} must overlap", ByteSize(batch_bytes)),
                format!("the least that works is {}", ByteSize(4 * batch_bytes)),
            ));
        }
        if config.gc_garbage_percent > 100 {
            return Err(ConfigError::new(
                "chunk.gc_garbage_percent",
                config.gc_garbage_percent,
                "a percentage is 0 to 100",
                "use 20, the default",
            ));
        }
        let chunks = geometry.total_capacity() / chunk_bytes;
        let shards = match config.shards {
            Some(n) if (1..=4096).contains(&n) => n,
            Some(n) => {
                return Err(ConfigError::new(
                    "chunk.shards",
                    n,
                    "there must be 1 to 4096 shards",
                    "leave it out to choose by capacity",
                ));
            }
            None => u32::try_from((chunks / 256).clamp(4, 64)).unwrap_or(64),
        };
        Ok(Plan {
            geometry: geometry.clone(),
            layout: if slots.is_some() {
                ZoneLayout::Slots
            } else {
                ZoneLayout::Log
            },
            slots,
            chunk_bytes,
            value_bytes_max: match slots {
                Some(_) => chunk_bytes,
                None => log_value_bytes_max(chunk_bytes, batch_bytes, geometry),
            },
            eviction: config.eviction,
            open_zones,
            water,
            gc_garbage_percent: config.gc_garbage_percent,
            durability: config.durability,
            write_buffer_bytes,
            shards,
            flush_delay_ns: config.flush_delay_ms.saturating_mul(1_000_000),
            large_reads: config.large_reads,
            read_ahead_bytes: config.read_ahead.bytes(),
            batch_bytes,
            piece_bytes: slots
                .and_then(|_| slot_piece_bytes(chunk_bytes, geometry.block_size))
                .unwrap_or_else(|| piece_bytes(geometry)),
        })
    }

    /// The zones that hold values.
    pub fn data_zones(&self) -> impl Iterator<Item = crate::ZoneId> + use<> {
        (METADATA_ZONES..self.geometry.zone_count).map(crate::ZoneId)
    }

    /// The streams of writes. Slots are overwritten one by one, so all have the same.
    pub fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let (new, moved) = match self.layout {
            ZoneLayout::Log => (self.open_zones, self.eviction == Eviction::Clru),
            ZoneLayout::Slots => (1, false),
        };
        let other = [Some(Stream::Metadata), moved.then_some(Stream::Moved)];
        other.into_iter().flatten().chain((0..new).map(Stream::New))
    }

    /// Bytes of a large value that one write or read carries: a piece, or a
    /// part of the single piece that a slot holds.
    pub fn stream_bytes(&self) -> u32 {
        match self.layout {
            ZoneLayout::Log => self.piece_bytes,
            // 1 MiB, or one block if blocks are longer.
            ZoneLayout::Slots => self.piece_bytes.min(1 << 20).max(self.geometry.block_size),
        }
    }

    /// This plan as the superblock records it.
    pub fn format(&self) -> FormatPlan {
        FormatPlan {
            block_size: self.geometry.block_size,
            zone_count: self.geometry.zone_count,
            zone_size: self.geometry.zone_size,
            zone_capacity: self.geometry.zone_capacity,
            chunk_bytes: self.chunk_bytes,
            piece_bytes: self.piece_bytes,
            layout: self.layout,
        }
    }

    /// Flash bytes that a large value of `value_len` takes, descriptors included.
    pub fn large_footprint(&self, key_len: usize, value_len: u64) -> u64 {
        large_footprint(&self.geometry, self.piece_bytes, key_len, value_len)
    }
}

fn large_footprint(geometry: &Geometry, piece_bytes: u32, key_len: usize, value_len: u64) -> u64 {
    let full = value_len / u64::from(piece_bytes.max(1));
    let rest = (value_len % u64::from(piece_bytes.max(1))) as u32;
    let last = if rest == 0 {
        0
    } else {
        piece_batch_bytes(rest, geometry.block_size)
    };
    let descriptor =
        large_descriptor_bytes(key_len, value_len, piece_bytes, geometry.block_size) as u64;
    full * piece_batch_bytes(piece_bytes, geometry.block_size) + last + descriptor
}

/// Payload bytes of a piece on this device.
fn piece_bytes(geometry: &Geometry) -> u32 {
    // Appends beyond a megabyte gain nothing, and every piece in flight costs
    // RAM.
    let append = geometry
        .max_append_bytes
        .min((1 << 20) + geometry.block_size);
    piece_bytes_max(append, geometry.block_size).unwrap_or(geometry.block_size)
}

fn check_chunk_size(chunk_bytes: u64, geometry: &Geometry) -> Result<(), ConfigError> {
    const LEAST: u64 = 64 << 10;
    const MOST: u64 = 1 << 30;
    let block = u64::from(geometry.block_size);
    if !(LEAST..=MOST).contains(&chunk_bytes) {
        let nearest = ByteSize(chunk_bytes.clamp(LEAST, MOST));
        return Err(ConfigError::new(
            "chunk.size",
            ByteSize(chunk_bytes),
            "chunks are 64KiB to 1GiB",
            format!("the nearest is {nearest}"),
        ));
    }
    if !chunk_bytes.is_multiple_of(block) {
        let nearest = ByteSize(chunk_bytes / block * block);
        return Err(ConfigError::new(
            "chunk.size",
            ByteSize(chunk_bytes),
            format!("it must be a multiple of the device's block, {block} bytes"),
            format!("the nearest is {nearest}"),
        ));
    }
    let overhead = zone_overhead(geometry, chunk_bytes);
    if chunk_bytes + overhead > geometry.zone_capacity {
        let room = geometry.zone_capacity.saturating_sub(overhead) / (64 << 10) * (64 << 10);
        let zone = (chunk_bytes + overhead).next_multiple_of(LEAST);
        let smallest = u64::from(METADATA_ZONES + LEAST_DATA_ZONES) * zone;
        let is_small = smallest > geometry.zone_size * u64::from(geometry.zone_count);
        let (room, zone, smallest) = (ByteSize(room), ByteSize(zone), ByteSize(smallest));
        let mut cure = format!("use zones of at least {zone} (device.zone_size)");
        if is_small {
            cure += &format!(" and a device of at least {smallest} (device.size)");
        }
        if room.bytes() >= LEAST {
            cure = format!("the largest that fits is {room}, or {cure}");
        }
        return Err(ConfigError::new(
            "chunk.size",
            ByteSize(chunk_bytes),
            format!(
                "a chunk must fit a zone, whose capacity is {}",
                ByteSize(geometry.zone_capacity)
            ),
            cure,
        ));
    }
    Ok(())
}

/// Bytes of a zone that a chunk cannot use: header, descriptors, summary.
fn zone_overhead(geometry: &Geometry, chunk_bytes: u64) -> u64 {
    let block = u64::from(geometry.block_size);
    let footprint = large_footprint(geometry, piece_bytes(geometry), KEY_MAX_BYTES, chunk_bytes);
    footprint - chunk_bytes + block + summary_bytes(1, geometry.block_size) as u64
}

/// The longest value that a zone of a log holds. A large value may exceed the
/// chunk size, because it streams into one zone. The chunk stays the limit only
/// if an append cannot carry a batch with the longest small value.
fn log_value_bytes_max(chunk_bytes: u64, batch_bytes: u64, geometry: &Geometry) -> u64 {
    let block = u64::from(geometry.block_size);
    if batch_bytes < (SMALL_MAX_BYTES + KEY_MAX_BYTES) as u64 + 2 * block {
        return chunk_bytes;
    }
    // The overhead grows with the value. That of a value as long as the zone is
    // an upper bound.
    let overhead = zone_overhead(geometry, geometry.zone_capacity.min(LARGE_MAX_BYTES));
    let room = geometry.zone_capacity.saturating_sub(overhead) / block * block;
    room.min(LARGE_MAX_BYTES).max(chunk_bytes)
}

/// The division of zones into slots, or `None` for a log.
fn slot_geometry(
    config: &ChunkConfig,
    geometry: &Geometry,
) -> Result<Option<SlotGeometry>, ConfigError> {
    let wanted = config.clru_layout;
    let reject =
        |reason: &str, cure: &str| Err(ConfigError::new("chunk.clru_layout", wanted, reason, cure));
    match (wanted, config.eviction) {
        (ClruLayout::Slots, _) if !geometry.random_writes => reject(
            "the device takes no writes in place",
            "`log` works there, and `auto` chooses it",
        ),
        (ClruLayout::Slots, eviction) if eviction != Eviction::Clru => reject(
            "only chunk.eviction = clru writes chunks in place",
            "set chunk.eviction = `clru`, or leave chunk.clru_layout out",
        ),
        (ClruLayout::Auto | ClruLayout::Slots, Eviction::Clru) if geometry.random_writes => {
            let divided = SlotGeometry::new(
                geometry.zone_capacity,
                geometry.block_size,
                config.size.bytes(),
            );
            match divided {
                Some(slots) => Ok(Some(slots)),
                None => Err(ConfigError::new(
                    "chunk.size",
                    config.size,
                    format!(
                        "not one slot fits a zone, whose capacity is {}",
                        ByteSize(geometry.zone_capacity)
                    ),
                    "use larger zones (device.zone_size) or smaller chunks",
                )),
            }
        }
        _ => Ok(None),
    }
}

fn check_addressing(geometry: &Geometry) -> Result<(), ConfigError> {
    let blocks =
        geometry.zone_size / u64::from(geometry.block_size) * u64::from(geometry.zone_count);
    if blocks >= u64::from(u32::MAX) {
        return Err(ConfigError::new(
            "device.block_size",
            geometry.block_size,
            format!("the index addresses 2^32 blocks, the device has {blocks}"),
            "use a larger block size, or several caches",
        ));
    }
    Ok(())
}

const LEAST_DATA_ZONES: u32 = 4;

fn data_zones(geometry: &Geometry) -> Result<u32, ConfigError> {
    let data = geometry.zone_count.saturating_sub(METADATA_ZONES);
    if data < LEAST_DATA_ZONES {
        let least = u64::from(METADATA_ZONES + LEAST_DATA_ZONES);
        return Err(ConfigError::new(
            "device.size",
            ByteSize(geometry.zone_size * u64::from(geometry.zone_count)),
            format!(
                "the device has {} zones of {}; {least} are needed ({METADATA_ZONES} for metadata)",
                geometry.zone_count,
                ByteSize(geometry.zone_size)
            ),
            format!(
                "the smallest size that works is {}, or use smaller zones (device.zone_size)",
                ByteSize(least * geometry.zone_size)
            ),
        ));
    }
    Ok(data)
}

fn open_zones(
    config: &ChunkConfig,
    geometry: &Geometry,
    data_zones: u32,
) -> Result<u32, ConfigError> {
    let device_limit = [geometry.max_open_zones, geometry.max_active_zones]
        .into_iter()
        .flatten()
        .min();
    // Two open zones are reserved for the metadata zones, both of which are
    // open while the metadata log moves.
    let limit = device_limit.map_or(u32::MAX, |n| n.saturating_sub(METADATA_ZONES));
    if limit == 0 {
        return Err(ConfigError::new(
            "device.max_open_zones",
            device_limit.unwrap_or(0),
            "two open zones are reserved for metadata",
            "the device must allow at least 3 open and active zones",
        ));
    }
    let most = limit.min((data_zones / 2).max(1));
    match config.open_zones {
        None => Ok(4.min(most).min((data_zones / 4).max(1))),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(n) => Err(ConfigError::new(
            "chunk.open_zones",
            n,
            format!("the device and its {data_zones} data zones allow 1 to {most}"),
            format!("the nearest is {}", n.clamp(1, most)),
        )),
    }
}

fn water_marks(
    config: &ChunkConfig,
    data_zones: u32,
    open_zones: u32,
) -> Result<WaterMarks, ConfigError> {
    // Enough free zones that writers do not wait for evictions, and few enough
    // that little flash is unused. A restart writes to new zones beside those
    // that were open. With fewer free ones it would begin with evictions.
    let high = config
        .reclaim_start_free_zones
        .unwrap_or_else(|| (data_zones / 64).max(open_zones.min(data_zones / 4)).max(1));
    let low = config
        .reclaim_stop_free_zones
        .unwrap_or_else(|| high + (data_zones / 64).max(1));
    let most = data_zones.saturating_sub(open_zones + 1).max(1);
    if high == 0 || high >= low {
        return Err(ConfigError::new(
            "chunk.reclaim_start_free_zones",
            high,
            format!("it must be at least 1 and below chunk.reclaim_stop_free_zones = {low}"),
            format!(
                "the nearest is {}",
                high.clamp(1, low.saturating_sub(1).max(1))
            ),
        ));
    }
    if low > most {
        return Err(ConfigError::new(
            "chunk.reclaim_stop_free_zones",
            low,
            format!("of {data_zones} data zones at most {most} can be kept free"),
            format!("the nearest is {most}"),
        ));
    }
    Ok(WaterMarks { high, low })
}
