//! Written structures are read back unchanged, with the announced lengths.

use super::*;

fn block_sizes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(512u32), Just(4096), Just(16384), Just(131_072)]
}

proptest! {
    #[test]
    fn superblocks_round_trip(superblock in superblocks()) {
        let mut out = vec![0xee; Superblock::encoded_bytes(superblock.plan.block_size)];
        prop_assert_eq!(superblock.encode(&mut out), Ok(out.len()));
        prop_assert_eq!(Superblock::decode(&out), Ok(superblock));
        prop_assert!(superblock.mismatch(&superblock.plan).is_none());
    }

    #[test]
    fn array_labels_round_trip(label in array_labels()) {
        let mut out = vec![0xee; ARRAY_LABEL_BYTES.next_multiple_of(label.block_size as usize)];
        prop_assert_eq!(label.encode(&mut out), Ok(out.len()));
        prop_assert_eq!(ArrayLabel::decode(&out), Ok(label));
    }

    #[test]
    fn zone_headers_round_trip(
        zone: u32, generation in 1u32.., sequence: u64, slots: bool, block_size in block_sizes(),
    ) {
        let header = ZoneHeader {
            life: ZoneLife::new(ZoneId(zone), Generation(generation)),
            layout: if slots { ZoneLayout::Slots } else { ZoneLayout::Log },
            opened_sequence: Sequence(sequence),
        };
        let mut out = vec![0xee; ZoneHeader::encoded_bytes(block_size)];
        prop_assert_eq!(header.encode(ID, block_size, &mut out), Ok(out.len()));
        prop_assert_eq!(ZoneHeader::decode(ID, ZoneId(zone), &out), Ok(header));
    }

    #[test]
    fn small_batches_round_trip(
        written in prop::collection::vec(records(9000), 1..40), block_size in block_sizes(),
    ) {
        let batch = small_batch(&written, block_size);
        let header = BatchHeader::decode(ID, LIFE, block_size, &batch[..BATCH_HEADER_BYTES]).unwrap();
        prop_assert_eq!(header.batch_bytes as usize, batch.len());
        prop_assert_eq!(header.sequence, Sequence(written[0].sequence));
        let region = &batch[..header.descriptor_bytes as usize];
        let read = SmallBatch::decode(ID, LIFE, block_size, region).unwrap();
        prop_assert_eq!(read.records().count(), written.len());
        for (record, written) in read.records().zip(&written) {
            let payload = record.payload_in(&batch).unwrap();
            prop_assert_eq!(payload, &written.payload);
            prop_assert!(record.verify(LIFE.generation, payload));
            prop_assert!(!record.verify(Generation(LIFE.generation.0 + 1), payload));
            prop_assert!(record.payload_offset.is_multiple_of(block_size));
            prop_assert_eq!(record.key, &written.key);
            prop_assert_eq!(record.hash.0, written.hash);
            prop_assert_eq!(record.sequence.0, written.sequence);
            prop_assert_eq!(record.expiry_unix_s, written.expiry_unix_s);
            prop_assert_eq!(record.flags.void, written.void);
        }
    }

    #[test]
    fn a_plan_never_outgrows_its_limit(
        sizes in prop::collection::vec((0usize..3000, 0usize..300_000), 1..60),
        limit in 0u32..4 << 20, block_size in block_sizes(),
    ) {
        let mut plan = SmallBatchPlan::new(block_size, limit);
        for (key_bytes, payload_bytes) in sizes {
            let before = plan;
            let fits = plan.fits(key_bytes, payload_bytes);
            prop_assert_eq!(plan.try_add(key_bytes, payload_bytes), fits);
            if fits {
                prop_assert!(plan.batch_bytes() <= limit as usize);
                prop_assert!(plan.batch_bytes().is_multiple_of(block_size as usize));
            } else {
                prop_assert_eq!(plan, before);
            }
        }
    }

    #[test]
    fn piece_headers_round_trip(
        hash: u64, sequence: u64, number: u32, payload_bytes in 1u32..1 << 30,
        block_size in block_sizes(),
    ) {
        let piece = PieceHeader {
            hash: KeyHash(hash), sequence: Sequence(sequence), number, payload_bytes,
        };
        let mut out = vec![0xee; block_size as usize];
        let region = encode_piece_header(ID, LIFE, piece, block_size, &mut out).unwrap();
        let header = BatchHeader::decode(ID, LIFE, block_size, &out).unwrap();
        prop_assert_eq!(header.kind, BatchKind::Piece(piece));
        prop_assert_eq!(header.descriptor_bytes as usize, region);
        prop_assert_eq!(
            u64::from(header.batch_bytes), piece_batch_bytes(payload_bytes, block_size)
        );
    }

    #[test]
    fn the_largest_piece_fits_its_append(blocks in 0u32..5000, block_size in block_sizes()) {
        let append_bytes = blocks.saturating_mul(block_size);
        if let Some(piece_bytes) = piece_bytes_max(append_bytes, block_size) {
            prop_assert!(piece_batch_bytes(piece_bytes, block_size) <= u64::from(append_bytes));
            let mut plan = superblock_plan();
            (plan.block_size, plan.piece_bytes) = (block_size, piece_bytes);
            prop_assert_eq!(plan.validate(), Ok(()));
        } else {
            prop_assert!(append_bytes < UNIT_BYTES.max(block_size) + block_size);
        }
    }

    #[test]
    fn summaries_round_trip(
        sample in prop::collection::vec(summary_entries(), 1..50),
        count in 0usize..6000, block_size in block_sizes(),
    ) {
        let written: Vec<_> = sample.into_iter().cycle().take(count).collect();
        let shape = SummaryShape::new(count, block_size);
        let mut out = vec![0xee; summary_bytes(count, block_size)];
        prop_assert_eq!(encode_summary(ID, LIFE, block_size, &written, &mut out), Ok(out.len()));
        let mut read = Vec::new();
        for page in 0..shape.pages() {
            let bytes = &out[shape.page_offset(page)..][..shape.page_bytes(page)];
            read.extend(SummaryPage::decode(ID, LIFE, shape, page, bytes).unwrap().entries());
        }
        prop_assert_eq!(read, written);
        prop_assert_eq!(shape.total_bytes(), out.len());
    }

    #[test]
    fn journals_round_trip(
        blocks in prop::collection::vec(prop::collection::vec(notes(), 0..40), 1..12),
        epoch: u64, block_size in block_sizes(),
    ) {
        let mut flash = Vec::new();
        let mut writer = JournalChain::new(ID, epoch);
        for notes in &blocks {
            let start = flash.len();
            flash.resize(start + JournalChain::encoded_bytes(notes, block_size), 0xee);
            writer.encode(block_size, notes, &mut flash[start..]).unwrap();
        }
        flash.resize(flash.len() + block_size as usize, 0);
        let mut reader = JournalChain::new(ID, epoch);
        let (mut at, mut read) = (0, Vec::new());
        let end = loop {
            match reader.decode::<Note>(block_size, &flash[at..]) {
                Ok(block) => {
                    at += block.encoded_bytes;
                    read.push(block.records);
                }
                Err(error) => break error,
            }
        };
        prop_assert_eq!(end, LayoutError::Blank);
        prop_assert_eq!(read, blocks);
        prop_assert_eq!(reader, writer);
    }

    #[test]
    fn slot_tables_round_trip(
        sample in prop::collection::vec(prop::option::of(slot_entries()), 1..20),
        slots in 1u64..400, block_size in block_sizes(), chunk_bytes in 1u64..1 << 20,
    ) {
        let capacity = slots * (chunk_bytes + 16384) + 3 * u64::from(block_size);
        let Some(geometry) = SlotGeometry::new(capacity, block_size, chunk_bytes) else {
            return Ok(());
        };
        for table_block in 0..geometry.table_blocks {
            let slots = geometry.slots_of_block(table_block);
            let written: Vec<_> = sample.iter().copied().cycle().take(slots.len()).collect();
            let mut out = vec![0xee; block_size as usize];
            encode_slot_block(ID, LIFE, &geometry, table_block, &written, &mut out).unwrap();
            let read = decode_slot_block(ID, LIFE, &geometry, table_block, &out).unwrap();
            prop_assert_eq!(read, slots.zip(written).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slots_fill_their_zone_without_overlap(
        capacity in 0u64..1 << 32, block_size in block_sizes(), chunk_bytes in 1u64..8 << 20,
    ) {
        let capacity = capacity - capacity % u64::from(block_size);
        let Some(geometry) = SlotGeometry::new(capacity, block_size, chunk_bytes) else {
            // Not even one slot fits behind the header and one table block.
            prop_assert!(capacity < chunk_bytes + 3 * u64::from(block_size) + 16384);
            return Ok(());
        };
        let table_end = geometry.table_block_offset(geometry.table_blocks);
        prop_assert_eq!(table_end, geometry.slots_offset);
        prop_assert!(geometry.slots <= geometry.table_blocks * geometry.entries_per_block);
        prop_assert!(geometry.slot_offset(geometry.slots) <= capacity);
        let last = geometry.slots - 1;
        prop_assert!(geometry.payload_offset(last) + chunk_bytes <= geometry.slot_offset(last + 1));
        prop_assert!(geometry.slots_of_block(geometry.table_block_of(last)).contains(&last));
        prop_assert!(geometry.slot_offset(last).is_multiple_of(u64::from(block_size)));
        // One more slot would not fit.
        let more = u64::from(geometry.slots) + 1;
        let table = more.div_ceil(u64::from(geometry.entries_per_block));
        let needed = (1 + table) * u64::from(block_size) + more * geometry.slot_bytes;
        prop_assert!(needed > capacity);
    }
}

fn superblock_plan() -> FormatPlan {
    FormatPlan {
        block_size: 4096,
        zone_count: 16,
        zone_size: 64 << 20,
        zone_capacity: 48 << 20,
        chunk_bytes: 1 << 20,
        piece_bytes: 4 * UNIT_BYTES,
        layout: ZoneLayout::Log,
    }
}

#[test]
fn every_setting_of_the_plan_is_compared() {
    let plan = superblock_plan();
    let superblock = Superblock {
        id: ID,
        hash_seed: HashSeed(1),
        created_unix_s: 2,
        epoch: 3,
        plan,
    };
    type Change = fn(&mut FormatPlan);
    let changes: [(&str, Change); 7] = [
        ("block size", |plan| plan.block_size = 512),
        ("zone size", |plan| plan.zone_size += 4096),
        ("zone capacity", |plan| plan.zone_capacity -= 4096),
        ("chunk size", |plan| plan.chunk_bytes += 1),
        ("piece size", |plan| plan.piece_bytes += UNIT_BYTES),
        ("number of zones", |plan| plan.zone_count += 1),
        ("zone layout", |plan| plan.layout = ZoneLayout::Slots),
    ];
    for (field, change) in changes {
        let mut other = plan;
        change(&mut other);
        assert_eq!(superblock.mismatch(&other).unwrap().field, field);
    }
    let mut other = plan;
    other.chunk_bytes = 65536;
    assert_eq!(
        superblock.mismatch(&other).unwrap().to_string(),
        "the chunk size on flash is 1048576 bytes, but 65536 bytes is wanted"
    );
}

#[test]
fn an_encoder_rejects_unplanned_records() {
    let mut plan = SmallBatchPlan::new(512, 1 << 20);
    assert!(plan.is_empty());
    assert!(SmallBatchEncoder::new(&plan, ID, LIFE, &mut []).is_err());
    assert!(plan.try_add(3, 700));
    assert!(!plan.try_add(KEY_MAX_BYTES + 1, 0));
    assert!(!plan.try_add(0, SMALL_MAX_BYTES + 1));
    let mut out = vec![0; plan.batch_bytes()];
    assert!(matches!(
        SmallBatchEncoder::new(&plan, ID, LIFE, &mut out[1..]),
        Err(LayoutError::TooShort { .. })
    ));
    let record = Record {
        hash: 1,
        sequence: 2,
        expiry_unix_s: 0,
        void: false,
        key: b"key".to_vec(),
        payload: vec![9; 700],
    };
    let mut longer = record.clone();
    longer.payload.resize(2000, 0);
    let mut encoder = SmallBatchEncoder::new(&plan, ID, LIFE, &mut out).unwrap();
    assert!(encoder.push(&longer.as_new()).is_err());
    encoder.push(&record.as_new()).unwrap();
    assert!(encoder.push(&record.as_new()).is_err());
    assert!(encoder.finish().is_ok());
    let encoder = SmallBatchEncoder::new(&plan, ID, LIFE, &mut out).unwrap();
    assert!(encoder.finish().is_err());
}

#[test]
fn a_cache_id_prints_as_a_uuid() {
    let id = CacheId([
        0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0,
    ]);
    assert_eq!(id.to_string(), "123e4567-e89b-12d3-a456-426614174000");
}
