//! Large descriptors: round trips, and range reads that return and verify
//! exactly the requested range.

use super::*;

/// Cheap deterministic contents.
fn value(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn piece_sizes() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(4096),
        Just(20480),
        Just(UNIT_BYTES),
        Just(3 * UNIT_BYTES),
        Just(16 * UNIT_BYTES)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn descriptors_round_trip(
        len in 1usize..2 << 20, key in prop::collection::vec(any::<u8>(), 0..2048),
        piece_bytes in piece_sizes(),
    ) {
        let written = large_descriptor(&value(len), &key, piece_bytes);
        let mut out = vec![0xee; large_descriptor_bytes(key.len(), len as u64, piece_bytes, 4096)];
        let (bytes, checksum) = written.encode(ID, LIFE, 4096, &mut out).unwrap();
        prop_assert_eq!(bytes, out.len());
        let header = BatchHeader::decode(ID, LIFE, 4096, &out).unwrap();
        prop_assert_eq!(header.batch_bytes as usize, out.len());
        prop_assert_eq!(LargeDescriptor::decode(ID, LIFE, 4096, &out), Ok((written, checksum)));
    }

    #[test]
    fn reads_cover_the_range_in_whole_units(
        len in 1usize..1 << 20, from: prop::sample::Index, to: prop::sample::Index,
        piece_bytes in piece_sizes(),
    ) {
        let value = value(len);
        let descriptor = large_descriptor(&value, b"key", piece_bytes);
        let (a, b) = (from.index(len + 1) as u64, to.index(len + 1) as u64);
        let range = a.min(b)..a.max(b);
        let reads: Vec<_> = descriptor.reads(range.clone(), 4096).collect();
        if range.is_empty() {
            prop_assert!(reads.is_empty());
            return Ok(());
        }
        let unit = u64::from(unit_bytes(piece_bytes));
        let mut at = range.start - range.start % unit;
        for read in &reads {
            prop_assert_eq!(read.value_offset, at);
            prop_assert_eq!(u64::from(read.first_unit) * unit, at);
            prop_assert!(read.zone_offset.is_multiple_of(4096));
            // Within one piece, at that piece's position.
            let piece = (at / u64::from(piece_bytes)) as usize;
            let within = at % u64::from(piece_bytes);
            prop_assert_eq!(
                read.zone_offset, u64::from(descriptor.piece_blocks[piece]) * 4096 + within
            );
            prop_assert!(within + u64::from(read.bytes) <= u64::from(piece_bytes));
            let bytes = &value[at as usize..][..read.bytes as usize];
            prop_assert!(descriptor.verify_read(LIFE.generation, read, bytes));
            prop_assert!(!descriptor.verify_read(Generation(9), read, bytes));
            at += u64::from(read.bytes);
        }
        prop_assert!(at >= range.end);
        prop_assert!(at < range.end + unit);
    }
}

#[test]
fn a_unit_with_one_wrong_bit_is_rejected() {
    let mut value = value(150_000);
    let descriptor = large_descriptor(&value, b"key", UNIT_BYTES);
    let unit = UNIT_BYTES as usize;
    for bit in [0, 8 * unit - 1, 12345] {
        value[unit + bit / 8] ^= 1 << (bit % 8);
        assert!(!descriptor.verify(LIFE.generation, 1, &value[unit..2 * unit]));
        value[unit + bit / 8] ^= 1 << (bit % 8);
    }
    assert!(descriptor.verify(LIFE.generation, 1, &value[unit..2 * unit]));
    // The right bytes at another unit's position, or cut short, are rejected
    // too.
    assert!(!descriptor.verify(LIFE.generation, 0, &value[unit..2 * unit]));
    assert!(!descriptor.verify(LIFE.generation, 1, &value[unit..2 * unit - 1]));
    assert!(!descriptor.verify(LIFE.generation, 3, &[]));
}

#[test]
fn the_largest_value_has_a_descriptor_of_known_length() {
    // 16,384 units, and pieces of one unit less than 1 MiB.
    let piece_bytes = 15 * UNIT_BYTES;
    let pieces = LARGE_MAX_BYTES.div_ceil(piece_bytes.into());
    let used = 72 + 24 + KEY_MAX_BYTES as u64 + 4 * 16384 + 4 * pieces;
    assert_eq!(
        large_descriptor_bytes(KEY_MAX_BYTES, LARGE_MAX_BYTES, piece_bytes, 4096) as u64,
        used.next_multiple_of(4096)
    );
}

#[test]
fn contradictory_descriptors_are_not_written() {
    let sound = large_descriptor(&value(300_000), b"key", UNIT_BYTES);
    let mut out = vec![0; 8192];
    assert!(sound.encode(ID, LIFE, 4096, &mut out).is_ok());
    let changes: [fn(&mut LargeDescriptor); 6] = [
        |d| d.value_bytes = 0,
        |d| d.value_bytes = LARGE_MAX_BYTES + 1,
        |d| d.piece_bytes = UNIT_BYTES + 4096,
        |d| d.piece_blocks.truncate(1),
        |d| d.unit_checksums.push(0),
        |d| d.key = vec![0; KEY_MAX_BYTES + 1],
    ];
    for change in changes {
        let mut wrong = sound.clone();
        change(&mut wrong);
        assert!(wrong.encode(ID, LIFE, 4096, &mut out).is_err());
    }
}
