//! Decoders reject bytes that are damaged, cut off, foreign, of another cache
//! or of an earlier life, and never panic.

use super::*;
use crate::layout::frame::{Frame, seal};
use crate::layout::tiny::TinyNote;
use crate::layout::wire::{first_mut, put_u16};

const BLOCK: u32 = 512;

/// Decodes everything that can be checked in some bytes. Two results are equal
/// only if everything in them is equal.
type Decode = fn(CacheId, ZoneLife, &[u8]) -> Result<String, LayoutError>;

struct Sample {
    structure: Structure,
    bytes: Vec<u8>,
    decode: Decode,
}

fn decode_superblock(_: CacheId, _: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    Ok(format!("{:?}", Superblock::decode(bytes)?))
}

fn decode_zone_header(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let header = ZoneHeader::decode(id, life.zone, bytes)?;
    if header.life != life {
        let (found, wanted) = (header.life, life);
        return Err(LayoutError::Stale { found, wanted });
    }
    Ok(format!("{header:?}"))
}

fn decode_array_label(_: CacheId, _: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    Ok(format!("{:?}", ArrayLabel::decode(bytes)?))
}

fn decode_small(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let batch = SmallBatch::decode(id, life, BLOCK, bytes)?;
    for record in batch.records() {
        let payload = record.payload_in(bytes).ok_or(LayoutError::TooShort {
            needed: batch.header().batch_bytes as usize,
            available: bytes.len(),
        })?;
        if !record.verify(life.generation, payload) {
            return Err(LayoutError::BadChecksum);
        }
    }
    Ok(format!("{batch:?}"))
}

fn decode_piece(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    Ok(format!(
        "{:?}",
        BatchHeader::decode(id, life, BLOCK, bytes)?
    ))
}

fn decode_large(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let (descriptor, checksum) = LargeDescriptor::decode(id, life, BLOCK, bytes)?;
    // Whatever its contents, its reads are finite and a wrong unit is not
    // verified.
    let reads = descriptor.reads(0..u64::MAX, BLOCK).count();
    assert!(reads <= descriptor.piece_blocks.len());
    assert!(!descriptor.verify(life.generation, 0, b"not this"));
    Ok(format!("{descriptor:?} {checksum}"))
}

fn decode_summary(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let shape = SummaryShape::new(5, BLOCK);
    let page = SummaryPage::decode(id, life, shape, 0, bytes)?;
    Ok(format!("{:?}", page.entries().collect::<Vec<_>>()))
}

fn decode_journal(id: CacheId, _: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let block = JournalChain::new(id, 21).decode::<Note>(BLOCK, bytes)?;
    Ok(format!("{:?}", block.records))
}

fn slot_geometry() -> SlotGeometry {
    SlotGeometry::new(64 << 10, BLOCK, 4096).unwrap()
}

fn decode_slots(id: CacheId, life: ZoneLife, bytes: &[u8]) -> Result<String, LayoutError> {
    let slots = decode_slot_block(id, life, &slot_geometry(), 0, bytes)?;
    Ok(format!("{slots:?}"))
}

/// One sound sample of each structure and batch kind.
fn samples() -> Vec<Sample> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let block = || vec![0; BLOCK as usize];

    let mut superblock_bytes = vec![0; 1 << 17];
    let mut superblock = sample(superblocks(), &mut runner);
    superblock.plan.zone_size = superblock.plan.zone_size.next_multiple_of(u64::from(BLOCK));
    let len = superblock.encode(&mut superblock_bytes).unwrap();
    superblock_bytes.truncate(len.min(BLOCK as usize));

    let mut zone_header = block();
    let header = ZoneHeader {
        life: LIFE,
        layout: ZoneLayout::Log,
        opened_sequence: Sequence(99),
    };
    header.encode(ID, BLOCK, &mut zone_header).unwrap();

    let mut label_bytes = vec![0; 1 << 17];
    let len = sample(array_labels(), &mut runner).encode(&mut label_bytes);
    label_bytes.truncate(len.unwrap().min(BLOCK as usize));

    // Payloads of whole blocks, so that they have no padding.
    let mut records = sample(prop::collection::vec(records(1), 3), &mut runner);
    for (i, record) in records.iter_mut().enumerate() {
        record.payload = vec![i as u8; BLOCK as usize];
    }
    let small = small_batch(&records, BLOCK);

    let mut piece = block();
    let header = PieceHeader {
        hash: KeyHash(1),
        sequence: Sequence(2),
        number: 3,
        payload_bytes: 70_000,
    };
    encode_piece_header(ID, LIFE, header, BLOCK, &mut piece).unwrap();

    let descriptor = large_descriptor(&[7; 300_000], b"a key", UNIT_BYTES);
    let mut large = vec![0; descriptor.encoded_bytes(BLOCK)];
    descriptor.encode(ID, LIFE, BLOCK, &mut large).unwrap();

    let entries = sample(prop::collection::vec(summary_entries(), 5), &mut runner);
    let mut summary = vec![0; summary_bytes(5, BLOCK)];
    encode_summary(ID, LIFE, BLOCK, &entries, &mut summary).unwrap();

    let notes = sample(prop::collection::vec(notes(), 9), &mut runner);
    let mut journal = block();
    JournalChain::new(ID, 21)
        .encode(BLOCK, &notes, &mut journal)
        .unwrap();

    let geometry = slot_geometry();
    let in_block = geometry.slots_of_block(0).len();
    let entries = sample(
        prop::collection::vec(prop::option::of(slot_entries()), in_block),
        &mut runner,
    );
    let mut slots = block();
    encode_slot_block(ID, LIFE, &geometry, 0, &entries, &mut slots).unwrap();

    let of = |structure, bytes, decode| Sample {
        structure,
        bytes,
        decode,
    };
    vec![
        of(
            Structure::Superblock,
            superblock_bytes,
            decode_superblock as Decode,
        ),
        of(Structure::ZoneHeader, zone_header, decode_zone_header),
        of(Structure::ArrayLabel, label_bytes, decode_array_label),
        of(Structure::Batch, small, decode_small),
        of(Structure::Batch, piece, decode_piece),
        of(Structure::Batch, large, decode_large),
        of(Structure::Summary, summary, decode_summary),
        of(Structure::Journal, journal, decode_journal),
        of(Structure::SlotTable, slots, decode_slots),
    ]
}

fn sample<S: Strategy>(strategy: S, runner: &mut proptest::test_runner::TestRunner) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

use proptest::strategy::ValueTree;

#[test]
fn every_flipped_bit_is_rejected_or_in_padding() {
    for Sample {
        structure,
        mut bytes,
        decode,
    } in samples()
    {
        let sound = decode(ID, LIFE, &bytes).unwrap();
        let mut rejected = 0;
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match decode(ID, LIFE, &bytes) {
                Ok(read) => assert_eq!(read, sound, "{structure} bit {bit}"),
                Err(_) => rejected += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(
            rejected >= 48 * 8,
            "{structure}: only {rejected} flips were rejected"
        );
    }
}

#[test]
fn every_truncation_is_rejected_or_of_padding() {
    for Sample {
        structure,
        bytes,
        decode,
    } in samples()
    {
        let sound = decode(ID, LIFE, &bytes).unwrap();
        for len in 0..bytes.len() {
            match decode(ID, LIFE, &bytes[..len]) {
                Ok(read) => assert_eq!(read, sound, "{structure} cut at {len}"),
                Err(LayoutError::TooShort { needed, available }) => {
                    assert_eq!(available, len);
                    assert!(
                        needed > len && needed <= bytes.len(),
                        "{structure}: {needed}"
                    );
                }
                Err(error) => panic!("{structure} cut at {len}: {error}"),
            }
        }
    }
}

#[test]
fn other_caches_other_zones_and_earlier_lives_are_rejected() {
    let earlier = ZoneLife::new(LIFE.zone, Generation(LIFE.generation.0 - 1));
    let elsewhere = ZoneLife::new(ZoneId(LIFE.zone.0 + 1), LIFE.generation);
    for Sample {
        structure,
        bytes,
        decode,
    } in samples()
    {
        if structure.is_superblock() {
            continue;
        }
        assert_eq!(
            decode(OTHER_ID, LIFE, &bytes),
            Err(LayoutError::BadChecksum)
        );
        if structure == Structure::Journal {
            continue;
        }
        for wanted in [earlier, elsewhere] {
            assert!(matches!(
                decode(ID, wanted, &bytes),
                Err(LayoutError::Stale { found: LIFE, .. })
            ));
        }
    }
}

#[test]
fn blank_foreign_and_newer_are_told_apart() {
    let samples = samples();
    for sample in &samples {
        let decode = |bytes: &[u8]| (sample.decode)(ID, LIFE, bytes);
        assert_eq!(decode(&[0; 512]), Err(LayoutError::Blank));
        assert_eq!(decode(&[0xff; 512]), Err(LayoutError::Foreign));
        let mut late = [0; 512];
        late[511] = 1;
        assert_eq!(decode(&late), Err(LayoutError::Foreign));
        for other in samples.iter().filter(|o| o.structure != sample.structure) {
            assert_eq!(
                decode(&other.bytes),
                Err(LayoutError::Unexpected(other.structure))
            );
        }
        // Neither a newer nor an older format is readable.
        let supported = sample.structure.version();
        for found in [supported + 1, supported - 1] {
            assert_eq!(
                decode(&resealed(sample, found)),
                Err(LayoutError::UnsupportedVersion { found, supported })
            );
        }
    }
    // A superblock whose length field is damaged is damaged, not cut off.
    let mut superblock = samples[0].bytes.clone();
    superblock[18] ^= 1;
    assert_eq!(
        Superblock::decode(&superblock),
        Err(LayoutError::BadChecksum)
    );
}

/// The sample with another version and a matching checksum.
fn resealed(sample: &Sample, version: u16) -> Vec<u8> {
    let mut bytes = sample.bytes.clone();
    let len = u32::from_le_bytes(*bytes[16..].first_chunk().unwrap()) as usize;
    let id = match sample.structure {
        structure if structure.is_superblock() => CacheId([0; 16]),
        _ => ID,
    };
    put_u16(first_mut::<24>(&mut bytes).unwrap(), 12, version);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&id.0), &bytes[12..len]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_journal_goes_on_only_with_its_own_next_block() {
    let write = |chain: &mut JournalChain, notes| {
        let mut out = [0; BLOCK as usize];
        let notes = [Note::CheckpointEnd { notes }];
        chain.encode(BLOCK, &notes, &mut out).unwrap();
        out
    };
    let mut chain = JournalChain::new(ID, 5);
    let first = write(&mut chain, 0);
    let after_first = chain;
    let second = write(&mut chain, 1);
    let third = write(&mut chain, 2);
    // A leftover of an earlier attempt in the place of the third block.
    let mut other = after_first;
    write(&mut other, 77);
    let leftover = write(&mut other, 78);

    let mut reader = JournalChain::new(ID, 5);
    let start = reader;
    assert!(reader.decode::<Note>(BLOCK, &second).is_err());
    reader.decode::<Note>(BLOCK, &first).unwrap();
    assert!(reader.decode::<Note>(BLOCK, &first).is_err());
    reader.decode::<Note>(BLOCK, &second).unwrap();
    assert!(reader.decode::<Note>(BLOCK, &leftover).is_err());
    reader.decode::<Note>(BLOCK, &third).unwrap();
    assert_eq!(reader, chain);
    // A copy of the block before and a damaged copy of the next are passed over.
    let flash = [first, first, [0x5a; BLOCK as usize], second].concat();
    let mut reader = start;
    let mut find = |bytes: &[u8]| Some(reader.find::<Note>(BLOCK, bytes)?.0);
    assert_eq!(find(&flash), Some(0));
    assert_eq!(find(&flash[BLOCK as usize..]), Some(2 * BLOCK as usize));
    assert_eq!(find(&flash), None);
    assert!(start.names_epoch(&third) && !start.names_epoch(&flash[2 * BLOCK as usize..]));
    for behind in [&second, &third, &leftover] {
        assert!(start.is_behind_next::<Note>(behind));
    }
    assert!(!start.is_behind_next::<Note>(&first));
    assert!(!start.is_behind_next::<TinyNote>(&third));
    for other in [JournalChain::new(ID, 6), JournalChain::new(OTHER_ID, 5)] {
        assert!({ other }.decode::<Note>(BLOCK, &first).is_err());
        assert!(!other.is_behind_next::<Note>(&third));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// Random contents with a valid checksum reach the deep parts of a decoder,
    /// which must not panic.
    #[test]
    fn sealed_nonsense_never_panics(
        index in 0usize..8, kind in 0u16..5, count in 0u32..20,
        changes in prop::collection::vec((24usize..400, any::<u8>()), 0..12),
        cut in 24usize..1024,
    ) {
        let sample = &samples()[index];
        let mut bytes = sample.bytes.clone();
        for (at, byte) in changes {
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }
        let cut = cut.min(bytes.len());
        let body_bytes = cut.saturating_sub(BATCH_HEADER_BYTES);
        let mut covered = cut;
        if sample.structure == Structure::Batch && cut >= BATCH_HEADER_BYTES {
            covered = BATCH_HEADER_BYTES;
            let (header, body) = bytes.split_at_mut(BATCH_HEADER_BYTES);
            let sum = crc32c::crc32c_append(crc32c::crc32c(&ID.0), &body[..body_bytes]);
            header[64..68].copy_from_slice(&(body_bytes as u32).to_le_bytes());
            header[68..72].copy_from_slice(&sum.to_le_bytes());
        }
        let id = match sample.structure {
            structure if structure.is_superblock() => CacheId([0; 16]),
            _ => ID,
        };
        let frame = Frame { structure: sample.structure, kind, count };
        seal(id, frame, &mut bytes[..covered]).unwrap();
        let _ = (sample.decode)(ID, LIFE, &bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..700), structure in 0usize..7,
    ) {
        let mut bytes = bytes;
        if let (Some(structure), Some(magic)) =
            (Structure::ALL.get(structure), bytes.first_chunk_mut::<8>())
        {
            *magic = structure.magic();
        }
        let decoders: [Decode; 8] = [
            decode_superblock, decode_zone_header, decode_small, decode_piece, decode_large,
            decode_summary, decode_journal, decode_slots,
        ];
        for decode in decoders {
            prop_assert!(decode(ID, LIFE, &bytes).is_err());
        }
        identify(&bytes);
    }
}
