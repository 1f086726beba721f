//! The findings of an inspection.

use std::fmt::Write as _;

use serde::Serialize;

/// The state of a record, as far as it is known without an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    /// No tombstone covers it; a newer record may exist.
    Present,
    /// It was dead before it was written.
    Void,
    /// A tombstone in the journal covers it.
    Dead,
}

/// The journal's note about a zone in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneState {
    /// None: the zone was being written.
    Open,
    /// It is full and has a summary.
    Full,
    /// It was open at a recovery, and accepts no more.
    Closed,
}

/// A finding on flash. Offsets are bytes from the zone's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// A superblock.
    Superblock {
        /// Its zone.
        zone: u32,
        /// It is the current one.
        current: bool,
        /// The cache's identity.
        cache_id: String,
        /// When the cache was formatted, in seconds since 1970.
        created_unix_s: u64,
        /// The superblock with the higher epoch is newer.
        epoch: u64,
        /// Bytes of a block.
        block_size: u32,
        /// Number of zones.
        zone_count: u32,
        /// Bytes from one zone's start to the next.
        zone_size: u64,
        /// Writable bytes of a zone.
        zone_capacity: u64,
        /// The largest value.
        chunk_bytes: u64,
        /// Payload bytes of a piece of a large value.
        piece_bytes: u32,
        /// `log` or `slots`.
        layout: String,
    },
    /// The journal of a metadata zone.
    Journal {
        /// Its zone.
        zone: u32,
        /// The superblock's epoch.
        epoch: u64,
        /// Blocks that belong to it.
        blocks: u64,
        /// Notes in them.
        notes: u64,
        /// Notes that name a full zone.
        full_zones: u64,
        /// Tombstones.
        tombstones: u64,
        /// It has all records that were live when it was begun.
        complete: bool,
        /// The offset of its end.
        end_offset: u64,
    },
    /// A superblock of a cache of tiny objects.
    TinySuperblock {
        /// Its zone.
        zone: u32,
        /// It is the current one.
        current: bool,
        /// The cache's identity.
        cache_id: String,
        /// When the cache was formatted, in seconds since 1970.
        created_unix_s: u64,
        /// The superblock with the higher epoch is newer.
        epoch: u64,
        /// The engine's name.
        engine: String,
        /// Bytes of a block.
        block_size: u32,
        /// Number of zones.
        zone_count: u32,
        /// Bytes from one zone's start to the next.
        zone_size: u64,
        /// Writable bytes of a zone.
        zone_capacity: u64,
        /// Pages of an extent: a set-group with its filters.
        set_group_pages: u32,
        /// Sets of a set-group.
        sets: u32,
        /// Candidate sets of an object.
        candidates: u32,
        /// Independent engines.
        instances: u32,
    },
    /// The fences of a metadata zone.
    Fences {
        /// Its zone.
        zone: u32,
        /// The superblock's epoch.
        epoch: u64,
        /// Blocks that belong to it.
        blocks: u64,
        /// Fences in them.
        fences: u64,
        /// Writes were made without fences since the cache was last closed: what is in the
        /// set-groups is discarded when it is opened.
        unfenced: bool,
        /// It has all fences that were in force when it was begun.
        complete: bool,
        /// The offset of its end.
        end_offset: u64,
    },
    /// A set-group; follows the findings in it.
    SetGroup {
        /// Its zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// Its sequence.
        sequence: u64,
        /// No later set-group says that it was evicted.
        live: bool,
        /// Pages of objects that were read; 0 if that was not requested.
        pages: u32,
        /// Objects in them.
        objects: u64,
        /// Tombstones in them.
        tombstones: u64,
        /// Bytes of the objects' values.
        value_bytes: u64,
    },
    /// An index group; follows the findings in it.
    IndexGroup {
        /// Its zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// Sequence of its first set-group.
        sequence: u64,
        /// Any of its set-groups may be live.
        live: bool,
        /// Pages that were read; 0 if that was not requested.
        pages: u32,
        /// Set-groups that it covers.
        columns: u32,
        /// Bits of a filter; for fingerprints, the number of buckets.
        rows: u32,
        /// Bits of a filter that a key sets; for fingerprints, 0.
        probes: u32,
        /// Bytes of the page filter at the end of each page; 0 if there is none.
        page_filter_bytes: u32,
    },
    /// An extent without a set-group or an index group.
    EmptyExtent {
        /// Its zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// Its content.
        what: String,
    },
    /// Pages of tiny objects in a zone, of a volatile engine; follows the findings in them.
    TinyPages {
        /// Its zone.
        zone: u32,
        /// Pages of this life of the cache.
        pages: u64,
        /// Objects in them.
        objects: u64,
        /// Tombstones in them.
        tombstones: u64,
        /// Bytes of the objects' values.
        value_bytes: u64,
        /// Pages of earlier lives, torn or foreign ones: never served.
        other_pages: u64,
    },
    /// A tiny object.
    Object {
        /// Its zone.
        zone: u32,
        /// The offset of its page.
        offset: u64,
        /// Its index in the page.
        slot: u32,
        /// The key, with unprintable bytes escaped; empty for a tombstone.
        key: String,
        /// The key's hash.
        hash: u64,
        /// Sequence of its set-group.
        sequence: u64,
        /// Bytes of the value.
        value_bytes: u64,
        /// Its expiry in seconds since 1970; 0 for never.
        expiry_unix_s: u64,
        /// It is a tombstone for older objects of this hash.
        tombstone: bool,
    },
    /// An empty zone.
    EmptyZone {
        /// Its number.
        zone: u32,
    },
    /// A zone with bytes from before the cache was formatted; it is reset before use.
    Leftover {
        /// Its number.
        zone: u32,
        /// The beginning of its content.
        what: String,
    },
    /// A zone; follows the findings in it.
    Zone {
        /// Its number.
        zone: u32,
        /// The generation of its life.
        generation: u32,
        /// `log` or `slots`.
        layout: String,
        /// The journal's note about it.
        state: ZoneState,
        /// Batches, or taken slots.
        batches: u64,
        /// Records described in it.
        records: u64,
        /// Records that are void or dead.
        dead_records: u64,
        /// Bytes of the values described in it.
        value_bytes: u64,
        /// The offset of the end of written data.
        end_offset: u64,
    },
    /// A record.
    Record {
        /// Its zone.
        zone: u32,
        /// The offset of its value (small) or its descriptor (large).
        offset: u64,
        /// The key, with unprintable bytes escaped; empty if flash does not hold it.
        key: String,
        /// The key's hash.
        hash: u64,
        /// Its sequence.
        sequence: u64,
        /// Bytes of the value.
        value_bytes: u64,
        /// Its expiry in seconds since 1970; 0 for never.
        expiry_unix_s: u32,
        /// It is stored in pieces.
        large: bool,
        /// Its state.
        state: RecordState,
        /// Its value was read and matches its checksum; `None` if that
        /// was not requested or needs the index.
        intact: Option<bool>,
    },
    /// A zone's summary.
    Summary {
        /// Its zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// Its number of records.
        entries: u64,
    },
    /// Bytes between batches without data of this life of the zone, as a failed
    /// append leaves them.
    Gap {
        /// The zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Damage.
    Damage {
        /// The zone.
        zone: u32,
        /// Its offset.
        offset: u64,
        /// The expected structure.
        what: String,
        /// The fault.
        why: String,
    },
}

/// Counts over all findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Zones with values.
    pub zones_used: u64,
    /// Zones without values.
    pub zones_empty: u64,
    /// Set-groups and index groups.
    pub extents_used: u64,
    /// Extents without either.
    pub extents_empty: u64,
    /// Records.
    pub records: u64,
    /// Void or dead records.
    pub dead_records: u64,
    /// Values that match their checksum.
    pub intact: u64,
    /// Values that cannot be checked without the index.
    pub unverifiable: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Gaps.
    pub gaps: u64,
    /// Damaged places.
    pub damage: u64,
}

impl Totals {
    pub(super) fn count(&mut self, finding: &Finding) {
        match finding {
            Finding::Superblock { .. }
            | Finding::Journal { .. }
            | Finding::Summary { .. }
            | Finding::TinySuperblock { .. }
            | Finding::Fences { .. } => {}
            Finding::EmptyExtent { .. } => self.extents_empty += 1,
            Finding::SetGroup { .. } | Finding::IndexGroup { .. } => self.extents_used += 1,
            Finding::Object {
                value_bytes,
                tombstone,
                ..
            } => {
                // The object is intact, because its page is verified.
                self.records += 1;
                self.value_bytes += value_bytes;
                self.dead_records += u64::from(*tombstone);
                self.intact += u64::from(!tombstone);
            }
            Finding::EmptyZone { .. } | Finding::Leftover { .. } => self.zones_empty += 1,
            Finding::Zone { .. } | Finding::TinyPages { .. } => self.zones_used += 1,
            Finding::Gap { .. } => self.gaps += 1,
            Finding::Damage { .. } => self.damage += 1,
            Finding::Record {
                value_bytes,
                state,
                intact,
                ..
            } => {
                self.records += 1;
                self.value_bytes += value_bytes;
                self.dead_records += u64::from(*state != RecordState::Present);
                self.intact += u64::from(*intact == Some(true));
                self.unverifiable += u64::from(intact.is_none());
            }
        }
    }
}

/// A key as text: printable ASCII unchanged, other bytes escaped.
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}
