//! What an inspection finds.

use std::fmt::Write as _;

use serde::Serialize;

/// What is known about a record without an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    /// Nothing on flash says that it is dead; a newer one may exist.
    Present,
    /// It was dead before it was written.
    Void,
    /// The journal says that it is dead.
    Dead,
}

/// What the journal says about a zone that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneState {
    /// Nothing: it was being written.
    Open,
    /// It is full and has a summary.
    Full,
    /// It was open when the cache was recovered, and takes no more.
    Closed,
}

/// One thing found on flash. Offsets are bytes from the zone's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// A superblock.
    Superblock {
        /// Its zone.
        zone: u32,
        /// Whether it is the one that holds.
        current: bool,
        /// The cache's identity.
        cache_id: String,
        /// When the cache was formatted, in seconds since 1970.
        created_unix_s: u64,
        /// Of two superblocks the higher one is newer.
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
        /// Whether everything that was live when it was begun is in it.
        complete: bool,
        /// Where it ends.
        end_offset: u64,
    },
    /// A superblock of a cache of tiny objects.
    TinySuperblock {
        /// Its zone.
        zone: u32,
        /// Whether it is the one that holds.
        current: bool,
        /// The cache's identity.
        cache_id: String,
        /// When the cache was formatted, in seconds since 1970.
        created_unix_s: u64,
        /// Of two superblocks the higher one is newer.
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
        /// Sets that an object may lie in.
        candidates: u32,
        /// Independent engines.
        instances: u32,
    },
    /// The fences of a metadata zone: hashes that are dead in older set-groups.
    Fences {
        /// Its zone.
        zone: u32,
        /// The superblock's epoch.
        epoch: u64,
        /// Blocks that belong to it.
        blocks: u64,
        /// Fences in them.
        fences: u64,
        /// Whether everything that counted when it was begun is in it.
        complete: bool,
        /// Where it ends.
        end_offset: u64,
    },
    /// A set-group that was walked; comes after what was found in it.
    SetGroup {
        /// Its zone.
        zone: u32,
        /// Where it starts.
        offset: u64,
        /// Its place in the order of set-groups.
        sequence: u64,
        /// Whether no later one says that it is gone.
        live: bool,
        /// Pages of objects that were read; zero where that was not asked for.
        pages: u32,
        /// Objects in them.
        objects: u64,
        /// Tombstones in them.
        tombstones: u64,
        /// Bytes of the objects' values.
        value_bytes: u64,
    },
    /// An index group; comes after what was found in it.
    IndexGroup {
        /// Its zone.
        zone: u32,
        /// Where it starts.
        offset: u64,
        /// Sequence of its first set-group.
        sequence: u64,
        /// Whether any of its set-groups may live.
        live: bool,
        /// Pages that were read; zero where that was not asked for.
        pages: u32,
        /// Set-groups that it answers for.
        columns: u32,
        /// Bits of a filter. Of fingerprints, their buckets.
        rows: u32,
        /// Bits of it that a key sets. Of fingerprints, zero.
        probes: u32,
    },
    /// Room for a set-group or an index group that holds neither.
    EmptyExtent {
        /// Its zone.
        zone: u32,
        /// Where it starts.
        offset: u64,
        /// What is there.
        what: String,
    },
    /// Pages of tiny objects in a zone, of an engine whose index is in memory
    /// only; comes after what was found in them.
    TinyPages {
        /// Which zone.
        zone: u32,
        /// Pages of this life of the cache.
        pages: u64,
        /// Objects in them.
        objects: u64,
        /// Tombstones in them.
        tombstones: u64,
        /// Bytes of the objects' values.
        value_bytes: u64,
        /// Pages of earlier lives, torn ones and other ones: never served.
        other_pages: u64,
    },
    /// A tiny object.
    Object {
        /// Its zone.
        zone: u32,
        /// Where its page starts.
        offset: u64,
        /// Which of the page's objects it is.
        slot: u32,
        /// The key, with unprintable bytes escaped; empty for a tombstone.
        key: String,
        /// The key's hash.
        hash: u64,
        /// Sequence of its set-group.
        sequence: u64,
        /// Bytes of the value.
        value_bytes: u64,
        /// When it expires, in seconds since 1970; 0 for never.
        expiry_unix_s: u64,
        /// Whether it only says that older objects of this hash are dead.
        tombstone: bool,
    },
    /// A zone that holds nothing.
    EmptyZone {
        /// Which.
        zone: u32,
    },
    /// A zone whose bytes are from before the cache was made; it is reset before it is used.
    Leftover {
        /// Which.
        zone: u32,
        /// What it starts with.
        what: String,
    },
    /// A zone that was walked; comes after what was found in it.
    Zone {
        /// Which.
        zone: u32,
        /// Which of its lives.
        generation: u32,
        /// `log` or `slots`.
        layout: String,
        /// What the journal says about it.
        state: ZoneState,
        /// Batches, or slots that hold something.
        batches: u64,
        /// Records described in it.
        records: u64,
        /// Records that are void or dead.
        dead_records: u64,
        /// Bytes of the values described in it.
        value_bytes: u64,
        /// Where what is written ends.
        end_offset: u64,
    },
    /// A record.
    Record {
        /// Its zone.
        zone: u32,
        /// Where its value starts (small) or its descriptor (large).
        offset: u64,
        /// The key, with unprintable bytes escaped; empty where flash does not hold it.
        key: String,
        /// The key's hash.
        hash: u64,
        /// Its place in the order of writes.
        sequence: u64,
        /// Bytes of the value.
        value_bytes: u64,
        /// When it expires, in seconds since 1970; 0 for never.
        expiry_unix_s: u32,
        /// Whether it lies in pieces.
        large: bool,
        /// What is known about it.
        state: RecordState,
        /// Whether its value was read and matches its checksum; `None` where
        /// that was not asked for or cannot be known without the index.
        intact: Option<bool>,
    },
    /// A zone's summary.
    Summary {
        /// Its zone.
        zone: u32,
        /// Where it starts.
        offset: u64,
        /// Records it lists.
        entries: u64,
    },
    /// Bytes between batches that hold nothing of this life of the zone, as a
    /// refused append leaves them.
    Gap {
        /// The zone.
        zone: u32,
        /// Where it starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// Something that is not what it must be.
    Damage {
        /// The zone.
        zone: u32,
        /// Where.
        offset: u64,
        /// What was looked for.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Counts over all findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Zones that hold values.
    pub zones_used: u64,
    /// Zones that hold nothing.
    pub zones_empty: u64,
    /// Set-groups and index groups.
    pub extents_used: u64,
    /// Room for such that holds none.
    pub extents_empty: u64,
    /// Records described.
    pub records: u64,
    /// Of them void or dead.
    pub dead_records: u64,
    /// Values that match their checksum.
    pub intact: u64,
    /// Values that cannot be checked without the index.
    pub unverifiable: u64,
    /// Bytes of all values described.
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
                // Its page was verified, and so it was.
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

/// A key as text: printable ASCII as it is, anything else escaped.
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
