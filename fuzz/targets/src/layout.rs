//! The decoders of everything on flash (`floe_core::layout`).
//!
//! The first byte of an input chooses the block size. The rest is decoded
//! unchanged, and once more with valid checksums. A decoded structure must lie
//! within its bounds, and encoding and decoding it again must preserve it.

use floe_core::ZoneId;
use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::{
    ARRAY_LABEL_BYTES, ArrayLabel, BatchHeader, BatchKind, CacheId, FormatPlan, Generation,
    JournalChain, JournalRecord, KEY_MAX_BYTES, LARGE_MAX_BYTES, LargeDescriptor, Mark, NewRecord,
    Note, PieceHeader, RecordFlags, Sequence, SlotEntry, SlotGeometry, SlotUses, SmallBatch,
    SmallBatchEncoder, SmallBatchPlan, Span, Structure, SummaryEntry, SummaryPage, SummaryShape,
    Superblock, UNIT_BYTES, ValueKind, ZoneHeader, ZoneLayout, ZoneLife, decode_slot_block,
    encode_piece_header, encode_slot_block, encode_summary, identify, large_descriptor_bytes,
    summary_bytes, unit_checksum,
};

use crate::sealed::{sealed, sealed_batch};

const ID: CacheId = CacheId(*b"a fuzzed cacheid");
const NO_ID: CacheId = CacheId([0; 16]);
const LIFE: ZoneLife = ZoneLife {
    zone: ZoneId(7),
    generation: Generation(3),
};
const EPOCH: u64 = 21;
const SUMMARY_ENTRIES: [usize; 4] = [0, 3, 40, 2000];

/// Splits the block size off the input.
pub(crate) fn block_size(data: &[u8]) -> (u32, &[u8]) {
    match data.split_first() {
        Some((&choice, rest)) => (512 << (choice % 4), rest),
        None => (512, data),
    }
}

/// An input of block size 512 that holds `bytes`.
pub(crate) fn seed(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes].concat()
}

pub(crate) fn superblock(data: &[u8]) {
    let magic = Structure::Superblock.magic();
    for bytes in [data.to_vec(), sealed(&NO_ID.0, &magic, data)] {
        identify(&bytes);
        let Ok(read) = Superblock::decode(&bytes) else {
            continue;
        };
        assert_eq!(read.plan.validate(), Ok(()));
        // Blocks of 2 GiB are valid, but too long to encode here.
        if read.plan.block_size <= 1 << 20 {
            let mut out = vec![0xee; Superblock::encoded_bytes(read.plan.block_size)];
            assert_eq!(read.encode(&mut out), Ok(out.len()));
            assert_eq!(Superblock::decode(&out), Ok(read));
        }
        assert_eq!(read.mismatch(&read.plan), None);
        let seen = sample_superblock().mismatch(&read.plan);
        assert_eq!(seen.is_none(), sample_superblock().plan == read.plan);
    }
}

fn sample_superblock() -> Superblock {
    Superblock {
        id: ID,
        hash_seed: HashSeed(1),
        created_unix_s: 2,
        epoch: EPOCH,
        plan: FormatPlan {
            block_size: 512,
            zone_count: 16,
            zone_size: 64 << 20,
            zone_capacity: 48 << 20,
            chunk_bytes: 1 << 20,
            piece_bytes: 4 * UNIT_BYTES,
            layout: ZoneLayout::Log,
        },
    }
}

pub(crate) fn superblock_seeds() -> Vec<Vec<u8>> {
    let mut out = vec![0; 512];
    encoded(sample_superblock().encode(&mut out));
    vec![out, vec![0; 512]]
}

pub(crate) fn array_label(data: &[u8]) {
    let magic = Structure::ArrayLabel.magic();
    for bytes in [data.to_vec(), sealed(&NO_ID.0, &magic, data)] {
        let Ok(read) = ArrayLabel::decode(&bytes) else {
            continue;
        };
        // Blocks of 2 GiB are valid, but too long to encode here.
        if read.block_size > 1 << 20 {
            continue;
        }
        let mut out = vec![0xee; ARRAY_LABEL_BYTES.next_multiple_of(read.block_size as usize)];
        assert_eq!(read.encode(&mut out), Ok(out.len()));
        assert_eq!(ArrayLabel::decode(&out), Ok(read));
    }
}

pub(crate) fn array_label_seeds() -> Vec<Vec<u8>> {
    let label = ArrayLabel {
        array: [7; 16],
        sequence: 9,
        id: 11,
        parent: 10,
        epoch: 3,
        block_size: 512,
        zone_count: 16,
        zone_size: 64 << 20,
        zone_capacity: 48 << 20,
        drive: 5,
        slots: vec![Some(5), None, Some(6)],
    };
    let mut out = vec![0; 512];
    encoded(label.encode(&mut out));
    vec![out, vec![0; 512]]
}

pub(crate) fn zone_header(data: &[u8]) {
    let (block_size, data) = block_size(data);
    let magic = Structure::ZoneHeader.magic();
    for bytes in [data.to_vec(), sealed(&ID.0, &magic, data)] {
        let Ok(read) = ZoneHeader::decode(ID, LIFE.zone, &bytes) else {
            continue;
        };
        assert_eq!(read.life.zone, LIFE.zone);
        let mut out = vec![0xee; ZoneHeader::encoded_bytes(block_size)];
        assert_eq!(read.encode(ID, block_size, &mut out), Ok(out.len()));
        assert_eq!(ZoneHeader::decode(ID, LIFE.zone, &out), Ok(read));
    }
}

pub(crate) fn zone_header_seeds() -> Vec<Vec<u8>> {
    [ZoneLayout::Log, ZoneLayout::Slots]
        .map(|layout| {
            let mut out = vec![0; 512];
            let header = ZoneHeader {
                life: LIFE,
                layout,
                opened_sequence: Sequence(5),
            };
            encoded(header.encode(ID, 512, &mut out));
            seed(&out)
        })
        .into()
}

pub(crate) fn batch(data: &[u8]) {
    let (block_size, data) = block_size(data);
    let magic = Structure::Batch.magic();
    for bytes in [data.to_vec(), sealed_batch(&ID.0, &magic, data)] {
        let Ok(header) = BatchHeader::decode(ID, LIFE, block_size, &bytes) else {
            continue;
        };
        // A scan hops over a batch by whole blocks, at least one.
        assert!(header.batch_bytes >= header.descriptor_bytes && header.descriptor_bytes > 0);
        assert!(header.batch_bytes.is_multiple_of(block_size));
        if let Ok(batch) = SmallBatch::decode(ID, LIFE, block_size, &bytes) {
            check_small(block_size, &batch, &bytes);
        }
        if let BatchKind::Piece(piece) = header.kind {
            let mut out = vec![0xee; block_size as usize];
            encoded(encode_piece_header(ID, LIFE, piece, block_size, &mut out));
            let again = BatchHeader::decode(ID, LIFE, block_size, &out);
            assert_eq!(again.map(|header| header.kind), Ok(header.kind));
        }
    }
}

fn check_small(block_size: u32, batch: &SmallBatch<'_>, bytes: &[u8]) {
    let header = batch.header();
    let mut plan = SmallBatchPlan::new(block_size, header.batch_bytes);
    let mut payloads = Vec::new();
    for record in batch.records() {
        let end = u64::from(record.payload_offset) + u64::from(record.payload_bytes);
        assert!(record.payload_offset >= header.descriptor_bytes);
        assert!(end <= u64::from(header.batch_bytes));
        match record.payload_in(bytes) {
            Some(payload) => {
                record.verify(LIFE.generation, payload);
                payloads.push(payload);
            }
            None => assert!(end > bytes.len() as u64),
        }
        // Decoders accept a region with spare blocks, which no plan has.
        assert!(plan.try_add(record.key.len(), record.payload_bytes as usize));
    }
    let records = batch.records().count();
    assert_eq!(
        header.kind,
        BatchKind::Small {
            records: records as u32
        }
    );
    if payloads.len() != records {
        return;
    }
    let mut out = vec![0xee; plan.batch_bytes()];
    let mut encoder = encoded(SmallBatchEncoder::new(&plan, ID, LIFE, &mut out));
    for (record, payload) in batch.records().zip(payloads) {
        encoded(encoder.push(&NewRecord {
            hash: record.hash,
            sequence: record.sequence,
            expiry_unix_s: record.expiry_unix_s,
            flags: record.flags,
            key: record.key,
            payload,
        }));
    }
    encoded(encoder.finish());
    let again = encoded(SmallBatch::decode(ID, LIFE, block_size, &out));
    for (before, after) in batch.records().zip(again.records()) {
        assert_eq!((before.hash, before.key), (after.hash, after.key));
        assert_eq!(before.payload_in(bytes), after.payload_in(&out));
    }
}

pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    let records: [(&[u8], &[u8]); 3] = [(b"a", &[1; 700]), (b"key", b""), (&[9; 400], &[2; 512])];
    let mut plan = SmallBatchPlan::new(512, 1 << 20);
    for (key, payload) in records {
        assert!(plan.try_add(key.len(), payload.len()));
    }
    let mut small = vec![0; plan.batch_bytes()];
    let mut encoder = encoded(SmallBatchEncoder::new(&plan, ID, LIFE, &mut small));
    for (sequence, (key, payload)) in (40..).zip(records) {
        encoded(encoder.push(&NewRecord {
            hash: KeyHash::of(HashSeed(1), key),
            sequence: Sequence(sequence),
            expiry_unix_s: 0,
            flags: RecordFlags::default(),
            key,
            payload,
        }));
    }
    encoded(encoder.finish());
    let mut piece = vec![0; 512];
    let header = PieceHeader {
        hash: KeyHash(4),
        sequence: Sequence(5),
        number: 6,
        payload_bytes: UNIT_BYTES,
    };
    encoded(encode_piece_header(ID, LIFE, header, 512, &mut piece));
    vec![seed(&small), seed(&piece)]
}

pub(crate) fn large_descriptor(data: &[u8]) {
    let (block_size, data) = block_size(data);
    let magic = Structure::Batch.magic();
    for bytes in [data.to_vec(), sealed_batch(&ID.0, &magic, data)] {
        let Ok((read, _)) = LargeDescriptor::decode(ID, LIFE, block_size, &bytes) else {
            continue;
        };
        assert!(read.value_bytes <= LARGE_MAX_BYTES && read.key.len() <= KEY_MAX_BYTES);
        let end = read.value_bytes;
        for range in [0..u64::MAX, 0..1, end - 1..end, end..end + 1, end / 2..end] {
            check_reads(&read, range, block_size);
        }
        let len = large_descriptor_bytes(
            read.key.len(),
            read.value_bytes,
            read.piece_bytes,
            block_size,
        );
        let mut out = vec![0xee; len];
        let (written, checksum) = encoded(read.encode(ID, LIFE, block_size, &mut out));
        assert_eq!(written, len);
        let again = LargeDescriptor::decode(ID, LIFE, block_size, &out);
        assert_eq!(again, Ok((read, checksum)));
    }
}

/// The reads of a range are contiguous and cover it.
fn check_reads(descriptor: &LargeDescriptor, range: std::ops::Range<u64>, block_size: u32) {
    let mut next = None;
    for read in descriptor.reads(range.clone(), block_size) {
        let at = next.unwrap_or(read.value_offset);
        assert!(next.is_some() || at <= range.start);
        assert_eq!(read.value_offset, at);
        assert!(read.bytes > 0 && read.zone_offset.is_multiple_of(u64::from(block_size)));
        next = Some(at + u64::from(read.bytes));
        descriptor.verify_read(LIFE.generation, &read, b"not these");
    }
    let wanted = range.end.min(descriptor.value_bytes);
    assert!(next.map_or(range.start >= wanted, |end| end >= wanted));
}

pub(crate) fn large_descriptor_seeds() -> Vec<Vec<u8>> {
    let value = vec![7; 300_000];
    let descriptor = |piece_bytes: u32| {
        let pieces = value.len().div_ceil(piece_bytes as usize) as u32;
        let unit = piece_bytes.min(UNIT_BYTES) as usize;
        LargeDescriptor {
            hash: KeyHash(4),
            sequence: Sequence(6),
            stream: Sequence(5),
            key: b"a key".to_vec(),
            value_bytes: value.len() as u64,
            expiry_unix_s: 0,
            flags: RecordFlags::default(),
            piece_bytes,
            piece_blocks: (0..pieces).map(|i| 8 + i * 1000).collect(),
            unit_checksums: (0..)
                .zip(value.chunks(unit))
                .map(|(i, unit)| unit_checksum(LIFE.generation, KeyHash(4), Sequence(5), i, unit))
                .collect(),
        }
    };
    [4096, UNIT_BYTES, 4 * UNIT_BYTES]
        .map(|piece_bytes| {
            let descriptor = descriptor(piece_bytes);
            let mut out = vec![0; descriptor.encoded_bytes(512)];
            encoded(descriptor.encode(ID, LIFE, 512, &mut out));
            seed(&out)
        })
        .into()
}

pub(crate) fn summary(data: &[u8]) {
    let (block_size, data) = block_size(data);
    let magic = Structure::Summary.magic();
    for bytes in [data.to_vec(), sealed(&ID.0, &magic, data)] {
        for count in SUMMARY_ENTRIES {
            let shape = SummaryShape::new(count, block_size);
            for page in 0..shape.pages() {
                let Ok(read) = SummaryPage::decode(ID, LIFE, shape, page, &bytes) else {
                    continue;
                };
                let entries: Vec<_> = read.entries().collect();
                assert_eq!(entries.len(), shape.page_entries(page).len());
                rewrite_summary(block_size, &entries);
            }
        }
    }
}

fn rewrite_summary(block_size: u32, entries: &[SummaryEntry]) {
    let shape = SummaryShape::new(entries.len(), block_size);
    let mut out = vec![0xee; summary_bytes(entries.len(), block_size)];
    encoded(encode_summary(ID, LIFE, block_size, entries, &mut out));
    let again = encoded(SummaryPage::decode(ID, LIFE, shape, 0, &out));
    assert!(again.entries().eq(entries.iter().copied()));
}

pub(crate) fn summary_seeds() -> Vec<Vec<u8>> {
    let entry = |i: u32| SummaryEntry {
        hash: KeyHash(u64::from(i) << 40),
        sequence: Sequence(u64::from(i)),
        block: i * 8,
        value_bytes: 4000,
        checksum: i,
        expiry_unix_s: 0,
        kind: if i.is_multiple_of(2) {
            ValueKind::Small
        } else {
            ValueKind::Large
        },
        key_bytes: 20,
    };
    let mut seeds = Vec::new();
    for count in SUMMARY_ENTRIES {
        let entries: Vec<_> = (0..count as u32).map(entry).collect();
        let shape = SummaryShape::new(count, 512);
        let mut out = vec![0; summary_bytes(count, 512)];
        encoded(encode_summary(ID, LIFE, 512, &entries, &mut out));
        for page in 0..shape.pages() {
            let bytes = &out[shape.page_offset(page)..][..shape.page_bytes(page)];
            seeds.push(seed(bytes));
        }
    }
    seeds
}

pub(crate) fn journal(data: &[u8]) {
    journal_of::<Note>(data);
}

/// The first byte chooses the block size.
pub(crate) fn journal_of<R: JournalRecord + PartialEq>(data: &[u8]) {
    let (block_size, data) = block_size(data);
    let start = JournalChain::new(ID, EPOCH);
    for bytes in [data.to_vec(), sealed(&ID.0, &R::BLOCK.magic(), data)] {
        if { start }.decode::<R>(block_size, &bytes).is_ok() {
            assert!(!start.is_behind_next::<R>(&bytes));
        }
        let mut reader = start;
        let mut rest = bytes.as_slice();
        while let Ok(block) = reader.decode::<R>(block_size, rest) {
            assert!(block.encoded_bytes >= block_size as usize);
            let records = block.records;
            let mut out = vec![0xee; JournalChain::encoded_bytes(&records, block_size)];
            encoded({ start }.encode(block_size, &records, &mut out));
            let again = encoded({ start }.decode::<R>(block_size, &out));
            assert!(again.records == records);
            rest = rest.get(block.encoded_bytes..).unwrap_or_default();
        }
    }
}

pub(crate) fn journal_seeds() -> Vec<Vec<u8>> {
    let notes = [
        Note::ZoneFull {
            life: LIFE,
            summary_offset: 40 << 20,
            records: 500,
        },
        Note::Tombstone {
            life: LIFE,
            hash: KeyHash(1),
            sequence: Sequence(2),
        },
        Note::CheckpointEnd { notes: 2 },
        Note::GenerationFloor {
            generation: Generation(90),
        },
        Note::ZoneClosed {
            life: LIFE,
            end_offset: 1 << 20,
        },
        Note::SlotUse {
            life: LIFE,
            first_slot: 64,
            uses: SlotUses { low: 5, high: 6 },
        },
        Note::UseNoted {
            sequence: Sequence(7),
        },
        Note::ZoneDropped { life: LIFE },
        Note::Mark(Mark {
            span: Span::Group,
            group: 1,
            id: 2,
            number: 3,
        }),
    ];
    let mut chain = JournalChain::new(ID, EPOCH);
    let mut out = vec![0; 1536];
    for block in out.chunks_mut(512) {
        encoded(chain.encode(512, &notes, block));
    }
    vec![seed(&out[..512]), seed(&out)]
}

fn slot_geometry(block_size: u32) -> SlotGeometry {
    match SlotGeometry::new(4 << 20, block_size, 64 << 10) {
        Some(geometry) => geometry,
        None => panic!("4 MiB hold slots of 64 KiB"),
    }
}

pub(crate) fn slot_table(data: &[u8]) {
    let (block_size, data) = block_size(data);
    slot_geometry_of(data);
    let geometry = slot_geometry(block_size);
    let magic = Structure::SlotTable.magic();
    for bytes in [data.to_vec(), sealed(&ID.0, &magic, data)] {
        for table_block in 0..geometry.table_blocks {
            let Ok(read) = decode_slot_block(ID, LIFE, &geometry, table_block, &bytes) else {
                continue;
            };
            let entries: Vec<_> = read.iter().map(|(_, entry)| *entry).collect();
            let mut out = vec![0xee; block_size as usize];
            let written = encode_slot_block(ID, LIFE, &geometry, table_block, &entries, &mut out);
            assert_eq!(written, Ok(out.len()));
            let again = decode_slot_block(ID, LIFE, &geometry, table_block, &out);
            assert_eq!(again, Ok(read));
        }
    }
}

/// Any numbers make a valid slot geometry or none.
fn slot_geometry_of(data: &[u8]) {
    let mut numbers = data
        .as_chunks::<8>()
        .0
        .iter()
        .map(|n| u64::from_le_bytes(*n));
    let mut next = || numbers.next().unwrap_or(4096);
    let (capacity, block_size, chunk_bytes) = (next(), next() as u32, next());
    if let Some(geometry) = SlotGeometry::new(capacity, block_size, chunk_bytes) {
        assert!(geometry.slots > 0);
        assert!(geometry.slot_offset(geometry.slots) <= capacity);
        assert!(geometry.table_block_offset(geometry.table_blocks) <= geometry.slots_offset);
    }
}

pub(crate) fn slot_table_seeds() -> Vec<Vec<u8>> {
    let geometry = slot_geometry(512);
    let entry = |slot: u32| SlotEntry {
        hash: KeyHash(u64::from(slot) << 50),
        sequence: Sequence(9),
        value_bytes: 65536,
        checksum: slot,
        expiry_unix_s: 0,
        kind: ValueKind::Small,
        key_bytes: 3,
    };
    (0..geometry.table_blocks)
        .map(|table_block| {
            let entries: Vec<_> = geometry
                .slots_of_block(table_block)
                .map(|slot| (!slot.is_multiple_of(3)).then(|| entry(slot)))
                .collect();
            let mut out = vec![0; 512];
            encoded(encode_slot_block(
                ID,
                LIFE,
                &geometry,
                table_block,
                &entries,
                &mut out,
            ));
            seed(&out)
        })
        .collect()
}

/// The result of encoding a decoded structure. An error is a finding.
#[track_caller]
pub(crate) fn encoded<T>(result: Result<T, floe_core::layout::LayoutError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("what was decoded cannot be encoded: {error}"),
    }
}
