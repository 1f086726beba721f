//! Decoders reject bytes that are damaged, cut off, foreign, of another cache
//! or misplaced, and never panic.

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::layout::{Note, Structure, Superblock, TINY_FORMAT_VERSION};

const BLOCK: u32 = 512;
const EPOCH: u64 = 21;

/// Decodes everything that can be checked in some bytes. Two results are equal
/// only if everything in them is equal.
type Decode = fn(CacheId, &[u8]) -> Result<String, LayoutError>;

struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
    decode: Decode,
}

impl Sample {
    fn is_framed(&self) -> bool {
        matches!(self.name, "superblock" | "fences")
    }
}

fn decode_page(cache: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    let read = decode_objects(cache, OBJECTS, bytes, SEED)?;
    Ok(format!("{read:?}"))
}

fn decode_index(cache: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    open_index(cache, INDEX, bytes)?;
    Ok(format!("{:?}", &bytes[PAGE_HEADER_BYTES..PAGE_BYTES]))
}

fn decode_filters(cache: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    let pages: Vec<&[u8]> = bytes.chunks(PAGE_BYTES).collect();
    let head = decode_trailer_head(cache, 8, pages.first().unwrap_or(&&[][..]));
    let read = decode_trailer(cache, 8, &pages)?;
    assert_eq!(head, Ok(read.0));
    Ok(format!("{read:?}"))
}

fn decode_index_head(cache: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    Ok(format!("{:?}", IndexHead::decode(cache, bytes)?))
}

fn decode_superblock(_: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    Ok(format!("{:?}", TinySuperblock::decode(bytes)?))
}

fn decode_fences(cache: CacheId, bytes: &[u8]) -> Result<String, LayoutError> {
    let block = JournalChain::new(cache, EPOCH).decode::<TinyNote>(BLOCK, bytes)?;
    Ok(format!("{:?}", block.records))
}

fn sample<S: Strategy>(strategy: S) -> S::Value {
    let mut runner = TestRunner::deterministic();
    strategy.new_tree(&mut runner).unwrap().current()
}

/// One sound sample of each structure.
fn samples() -> [Sample; 6] {
    let mut page = vec![0; PAGE_BYTES];
    let written = that_fit(sample(prop::collection::vec(objects(300), 24)));
    encode_objects(CACHE, OBJECTS, &written, &mut page).unwrap();

    let mut index = sample(prop::collection::vec(any::<u8>(), PAGE_BYTES));
    seal_index(CACHE, INDEX, &mut index).unwrap();

    let head = TrailerHead {
        sequence: 8,
        oldest_live: 2,
        objects: 100,
        sets: 401,
        columns: 64,
        rows: 101,
        probes: 7,
        has_filters: true,
    };
    let filters = encode_trailer(CACHE, &head, &bits(&head, &[1, 2, 4, 8, 200])).concat();

    let mut group = vec![0; PAGE_BYTES];
    index_head(&head).encode(CACHE, &mut group).unwrap();

    let mut superblock = vec![0; 4096];
    let written = sample(superblocks());
    written.encode(&mut superblock).unwrap();
    superblock.truncate(512);

    let mut fence_block = vec![0; 512];
    let written = sample(prop::collection::vec(notes(), 20));
    JournalChain::new(CACHE, EPOCH)
        .encode(BLOCK, &written, &mut fence_block)
        .unwrap();

    let of = |name, bytes, decode| Sample {
        name,
        bytes,
        decode,
    };
    [
        of("page", page, decode_page as Decode),
        of("index", index, decode_index),
        of("filters", filters, decode_filters),
        of("superblock", superblock, decode_superblock),
        of("fences", fence_block, decode_fences),
        of("index head", group, decode_index_head),
    ]
}

#[test]
fn every_flipped_bit_is_rejected_or_in_padding() {
    for Sample {
        name,
        mut bytes,
        decode,
    } in samples()
    {
        let sound = decode(CACHE, &bytes).unwrap();
        let mut rejected = 0;
        // All bits of the first bytes, then one bit of every byte.
        let bits = (0..2048).chain((256..bytes.len()).map(|byte| byte * 8 + byte % 8));
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match decode(CACHE, &bytes) {
                Ok(read) => assert_eq!(read, sound, "{name} bit {bit}"),
                Err(_) => rejected += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(rejected >= 48 * 8, "{name}: only {rejected} were rejected");
    }
}

#[test]
fn every_truncation_is_rejected_or_of_padding() {
    for Sample {
        name,
        bytes,
        decode,
    } in samples()
    {
        let sound = decode(CACHE, &bytes).unwrap();
        for len in 0..bytes.len() {
            match decode(CACHE, &bytes[..len]) {
                Ok(read) => assert_eq!(read, sound, "{name} cut at {len}"),
                Err(LayoutError::TooShort { needed, available }) => {
                    assert!(needed > available, "{name} cut at {len}");
                }
                Err(error) => panic!("{name} cut at {len}: {error}"),
            }
        }
    }
}

#[test]
fn blank_foreign_newer_and_others_are_told_apart() {
    let samples = samples();
    for sample in &samples {
        let decode = |bytes: &[u8]| (sample.decode)(CACHE, bytes);
        assert_eq!(decode(&[0; 4096]), Err(LayoutError::Blank));
        assert_eq!(decode(&[0xee; 4096]), Err(LayoutError::Foreign));
        for structure in Structure::ALL {
            let mut bytes = [0; 4096];
            bytes[..8].copy_from_slice(&structure.magic());
            match (sample.name, structure) {
                ("superblock", Structure::TinySuperblock) | ("fences", Structure::Fences) => {}
                _ => assert_eq!(decode(&bytes), Err(LayoutError::Unexpected(structure))),
            }
        }
        for found in [TINY_FORMAT_VERSION + 1, TINY_FORMAT_VERSION - 1] {
            let supported = TINY_FORMAT_VERSION;
            assert_eq!(
                decode(&of_version(sample, found)),
                Err(LayoutError::UnsupportedVersion { found, supported })
            );
        }
        if sample.name != "superblock" {
            let other = (sample.decode)(OTHER_CACHE, &sample.bytes);
            assert_eq!(other, Err(LayoutError::BadChecksum), "{}", sample.name);
        }
    }
    let mut damaged = samples[3].bytes.clone();
    damaged[18] ^= 1;
    assert_eq!(
        TinySuperblock::decode(&damaged),
        Err(LayoutError::BadChecksum)
    );
    // A chunk cache's decoder rejects a tiny superblock, too.
    assert_eq!(
        Superblock::decode(&samples[3].bytes),
        Err(LayoutError::Unexpected(Structure::TinySuperblock))
    );
}

/// The sample with another version and a matching checksum.
fn of_version(sample: &Sample, version: u16) -> Vec<u8> {
    let mut bytes = sample.bytes.clone();
    let id = if sample.name == "superblock" {
        [0; 16]
    } else {
        CACHE.0
    };
    let (version_at, checked_from, sum_at, end) = if sample.is_framed() {
        let len = u32::from_le_bytes(*bytes[16..].first_chunk().unwrap());
        (12, 12, 8, len as usize)
    } else {
        (
            6,
            4,
            0,
            usize::from(u16::from_le_bytes([bytes[20], bytes[21]])),
        )
    };
    bytes[version_at..version_at + 2].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&id), &bytes[checked_from..end]);
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_page_of_another_place_is_rejected() {
    let samples = samples();
    let elsewhere = [
        PageId {
            sequence: 76,
            ..OBJECTS
        },
        PageId {
            number: 4,
            ..OBJECTS
        },
        PageId {
            kind: PageKind::Index,
            ..OBJECTS
        },
        PageId {
            kind: PageKind::Filters,
            ..OBJECTS
        },
    ];
    for wanted in elsewhere {
        let rejected = Err(LayoutError::Misplaced {
            found: OBJECTS,
            wanted,
        });
        let page = &samples[0].bytes;
        assert_eq!(decode_objects(CACHE, wanted, page, SEED), rejected.clone());
        assert_eq!(
            open_index(CACHE, wanted, page),
            rejected.clone().map(|_| ())
        );
    }
    // The right page, but of a kind for another decoder.
    assert!(open_index(CACHE, OBJECTS, &samples[0].bytes).is_err());
    assert!(decode_objects(CACHE, INDEX, &samples[1].bytes, SEED).is_err());
    // Filters in another order, or of another set-group.
    let pages: Vec<&[u8]> = samples[2].bytes.chunks(PAGE_BYTES).collect();
    assert_eq!(pages.len(), 2);
    for (sequence, pages) in [
        (8, [pages[1], pages[0]]),
        (8, [pages[0]; 2]),
        (7, [pages[0], pages[1]]),
    ] {
        assert!(matches!(
            decode_trailer(CACHE, sequence, &pages),
            Err(LayoutError::Misplaced { .. })
        ));
    }
    let misplaced = LayoutError::Misplaced {
        found: OBJECTS,
        wanted: INDEX,
    };
    assert_eq!(
        misplaced.to_string(),
        "this is page of objects 3 of set-group 77, not page of index 3 of set-group 77"
    );
}

/// The chunk engine's tests cover the rules of the chain.
#[test]
fn a_chunk_journal_does_not_decode_as_tiny_notes() {
    let mut chain = JournalChain::new(CACHE, EPOCH);
    let mut out = [0; BLOCK as usize];
    chain.encode::<Note>(BLOCK, &[], &mut out).unwrap();
    assert_eq!(
        JournalChain::new(CACHE, EPOCH).decode::<TinyNote>(BLOCK, &out),
        Err(LayoutError::Unexpected(Structure::Journal))
    );
}

#[test]
fn notes_have_a_kind_of_their_own_and_sequences_an_end() {
    let hash = KeyHash(u64::MAX);
    let mut out = [0; TINY_NOTE_BYTES];
    for below in [0, (1 << 56) - 1] {
        let fence = TinyNote::Fence(Fence { hash, below });
        fence.encode(&mut out).unwrap();
        assert_eq!(TinyNote::decode(&out), Some((fence, &[][..])));
    }
    let below = 1 << 56;
    let fence = TinyNote::Fence(Fence { hash, below });
    assert!(fence.encode(&mut out).is_err());
    for kind in [0, 6, 255] {
        out[15] = kind;
        assert_eq!(TinyNote::decode(&out), None);
    }
    // An instance's number has at most 32 bits.
    out[15] = 2;
    assert_eq!(TinyNote::decode(&out), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// Random contents with a valid checksum reach the deep parts of a decoder,
    /// which must not panic.
    #[test]
    fn sealed_nonsense_never_panics(
        index in 0usize..6,
        changes in prop::collection::vec((12usize..600, any::<u8>()), 0..12),
    ) {
        let samples = samples();
        let mut changed = Sample { bytes: samples[index].bytes.clone(), ..samples[index] };
        for (at, byte) in changes {
            if let Some(target) = changed.bytes.get_mut(at) {
                *target = byte;
            }
        }
        let bytes = &mut changed.bytes;
        if changed.name == "superblock" || changed.name == "fences" {
            let len = u32::from_le_bytes(*bytes[16..].first_chunk().unwrap()).clamp(24, 512);
            bytes[16..20].copy_from_slice(&len.to_le_bytes());
        } else {
            let used = u16::from_le_bytes([bytes[20], bytes[21]]).clamp(24, 4096);
            bytes[20..22].copy_from_slice(&used.to_le_bytes());
        }
        let bytes = of_version(&changed, TINY_FORMAT_VERSION);
        if let Ok(objects) = decode_objects(CACHE, OBJECTS, &bytes, SEED) {
            // Accepted objects have one representation.
            let mut out = vec![0; PAGE_BYTES];
            encode_objects(CACHE, OBJECTS, &objects, &mut out).unwrap();
            prop_assert_eq!(decode_objects(CACHE, OBJECTS, &out, SEED), Ok(objects));
        }
        let _ = (changed.decode)(CACHE, &bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 4096..4200), claim in 0usize..8,
    ) {
        let mut bytes = bytes;
        match claim {
            0..4 => bytes[4..6].copy_from_slice(&PageKind::ALL[claim].magic()),
            4 => bytes[..8].copy_from_slice(&Structure::TinySuperblock.magic()),
            5 => bytes[..8].copy_from_slice(&Structure::Fences.magic()),
            _ => {}
        }
        for sample in samples() {
            prop_assert!((sample.decode)(CACHE, &bytes).is_err());
        }
        prop_assert!(!JournalChain::new(CACHE, EPOCH).is_behind_next::<TinyNote>(&bytes));
    }
}
