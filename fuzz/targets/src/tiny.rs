//! The decoders of tiny objects (`floe_core::layout::tiny`).
//!
//! Inputs are decoded unchanged, and once more with valid checksums. Encoding and
//! decoding a decoded structure again must preserve it.

use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::tiny::{
    Content, Fence, IndexHead, ObjectsPage, PageId, PageKind, TinyEngine, TinyFormatPlan, TinyNote,
    TinySuperblock, TrailerHead, decode_objects, decode_trailer, decode_trailer_head,
    encode_objects, encode_trailer, open_index, read_page_id, record, seal_index, split_record,
    trailer_body_bytes,
};
use floe_core::layout::{CacheId, JournalChain, Structure};
use floe_core::tiny::nemo::{PageFilterShape, SetFilters};
use floe_core::tiny::{Expiry, Object, PAGE_BYTES};

use crate::layout::{encoded, journal_of, seed};
use crate::sealed::{sealed, sealed_page};

const ID: CacheId = CacheId(*b"a fuzzed cacheid");
const NO_ID: CacheId = CacheId([0; 16]);
const SEED: HashSeed = HashSeed(5);
const EPOCH: u64 = 21;
const SEQUENCE: u64 = 77;

pub(crate) fn superblock(data: &[u8]) {
    let magic = Structure::TinySuperblock.magic();
    for bytes in [data.to_vec(), sealed(&NO_ID.0, &magic, data)] {
        let Ok(read) = TinySuperblock::decode(&bytes) else {
            continue;
        };
        assert_eq!(read.plan.validate(), Ok(()));
        let mut out = vec![0xee; TinySuperblock::encoded_bytes(read.plan.block_size)];
        assert_eq!(read.encode(&mut out), Ok(out.len()));
        assert_eq!(TinySuperblock::decode(&out), Ok(read));
        assert_eq!(read.mismatch(&read.plan), None);
        let seen = sample_superblock(TinyEngine::Nemo).mismatch(&read.plan);
        let same = sample_superblock(TinyEngine::Nemo).plan == read.plan;
        assert_eq!(seen.is_none(), same);
    }
}

fn sample_superblock(engine: TinyEngine) -> TinySuperblock {
    TinySuperblock {
        cache_id: ID,
        seed: SEED,
        formatted_at: 2,
        epoch: EPOCH,
        plan: TinyFormatPlan {
            engine,
            block_size: 512,
            zone_count: 16,
            zone_size: 64 << 20,
            zone_capacity: 48 << 20,
            set_group_pages: 12_288,
            sets: 12_000,
            candidates: 2,
            instances: 2,
        },
    }
}

pub(crate) fn superblock_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = TinyEngine::ALL
        .map(|engine| {
            let mut out = vec![0; 512];
            encoded(sample_superblock(engine).encode(&mut out));
            out
        })
        .into();
    seeds.push(vec![0; 512]);
    seeds
}

pub(crate) fn fences(data: &[u8]) {
    journal_of::<TinyNote>(data);
}

pub(crate) fn fences_seeds() -> Vec<Vec<u8>> {
    let fence = |hash, below| {
        TinyNote::Fence(Fence {
            hash: KeyHash(hash),
            below,
        })
    };
    let (instance, below) = (1, 7);
    let notes = [
        TinyNote::Gone { instance, below },
        TinyNote::Written { instance, below },
        fence(1, 2),
        fence(u64::MAX, (1 << 56) - 1),
        TinyNote::CheckpointEnd { notes: 4 },
    ];
    let mut chain = JournalChain::new(ID, EPOCH);
    let mut out = vec![0; 1536];
    for block in out.chunks_mut(512) {
        encoded(chain.encode(512, &notes, block));
    }
    vec![seed(&out[..512]), seed(&out)]
}

pub(crate) fn page(data: &[u8]) {
    let magic = PageKind::Objects.magic();
    for bytes in [data.to_vec(), sealed_page(&ID.0, &magic, data)] {
        let Ok(id) = read_page_id(ID, &bytes) else {
            continue;
        };
        let Ok(page) = ObjectsPage::open(ID, id, &bytes) else {
            assert!(decode_objects(ID, id, &bytes, SEED).is_err());
            continue;
        };
        let objects = encoded(decode_objects(ID, id, &bytes, SEED));
        assert!(objects.len() == page.len() && page.objects().count() == page.len());
        for (slot, object) in page.objects().enumerate() {
            let key = match object.content {
                Content::Tombstone(_) => &[][..],
                Content::Object { key, .. } => key,
            };
            // The object itself, or one with the same key before it.
            let hit = page.find(object.hash(SEED), key);
            assert!(hit.is_some_and(|hit| hit.slot <= slot));
        }
        let mut out = vec![0xee; PAGE_BYTES];
        encoded(encode_objects(ID, id, &objects, &mut out));
        assert_eq!(decode_objects(ID, id, &out, SEED), Ok(objects));
    }
    if let Some((key, value)) = split_record(data) {
        assert_eq!(&record(key, value)[..], data);
    }
}

pub(crate) fn page_seeds() -> Vec<Vec<u8>> {
    let object = |key: &[u8], value: &[u8], expires, prediction| Object {
        expires: Expiry(expires),
        prediction,
        record: record(key, value),
        ..Object::sized(KeyHash::of(SEED, key), (key.len() + value.len()) as u32)
    };
    let some = vec![
        object(b"a key", b"a value", 0, 0),
        object(b"another key", &[7; 300], 9_000, 7),
        Object::tombstone(KeyHash(8)),
        object(b"", b"", 0, 3),
    ];
    let full = vec![object(&[1; 255], &[2; 3809], 1, 1)];
    [Vec::new(), some, full]
        .map(|objects| {
            let mut out = vec![0; PAGE_BYTES];
            encoded(encode_objects(
                ID,
                page_id(PageKind::Objects),
                &objects,
                &mut out,
            ));
            out
        })
        .into()
}

fn page_id(kind: PageKind) -> PageId {
    PageId {
        kind,
        sequence: SEQUENCE,
        number: 0,
    }
}

pub(crate) fn index(data: &[u8]) {
    let magics = [PageKind::Index, PageKind::IndexHead].map(PageKind::magic);
    for bytes in [
        data.to_vec(),
        sealed_page(&ID.0, &magics[0], data),
        sealed_page(&ID.0, &magics[1], data),
    ] {
        if let Ok(head) = IndexHead::decode(ID, &bytes) {
            let mut out = vec![0xee; PAGE_BYTES];
            encoded(head.encode(ID, &mut out));
            assert_eq!(IndexHead::decode(ID, &out), Ok(head));
            // Any page names only set-groups that exist.
            out.iter_mut()
                .zip(data.iter().rev())
                .for_each(|(to, from)| *to ^= from);
            let page =
                SetFilters::of_page(head.columns, head.rows, head.probes, head.page_filter, &out);
            assert!(page.is_some());
            if let Some(page) = page {
                let hashes = data.chunks(8).map(|key| KeyHash::of(HashSeed(1), key));
                let named = hashes.map(|hash| page.candidates(hash)).max();
                assert!(named <= Some(head.columns as usize));
            }
        }
        let Ok(id) = read_page_id(ID, &bytes) else {
            continue;
        };
        if open_index(ID, id, &bytes).is_ok() {
            let mut out = bytes[..PAGE_BYTES].to_vec();
            encoded(seal_index(ID, id, &mut out));
            assert_eq!(open_index(ID, id, &out), Ok(()));
        }
    }
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let mut page = vec![0xa5; PAGE_BYTES];
    encoded(seal_index(ID, page_id(PageKind::Index), &mut page));
    let mut out = vec![0; PAGE_BYTES];
    let head = sample_trailer();
    let head = IndexHead {
        sequence: head.sequence,
        oldest_live: head.oldest_live,
        sets: head.sets,
        columns: head.columns,
        rows: head.rows,
        probes: head.probes,
        page_filter: PageFilterShape::NONE,
    };
    encoded(head.encode(ID, &mut out));
    let with = |columns, rows, probes, lines| {
        let mut out = vec![0; PAGE_BYTES];
        let page_filter = match lines {
            0 => PageFilterShape::NONE,
            lines => PageFilterShape { lines, probes: 7 },
        };
        let head = IndexHead {
            columns,
            rows,
            probes,
            page_filter,
            ..head
        };
        encoded(head.encode(ID, &mut out));
        out
    };
    // Fingerprints, a row whose last byte has spare columns, and both with page filters.
    let heads = [
        (180, 20, 0, 0),
        (65, 20, 7, 0),
        (90, 9, 0, 28),
        (88, 200, 8, 28),
    ];
    let heads = heads.map(|(columns, rows, probes, lines)| with(columns, rows, probes, lines));
    [vec![page, out], heads.into()].concat()
}

pub(crate) fn filters(data: &[u8]) {
    let magic = PageKind::Filters.magic();
    let sealed: Vec<u8> = data
        .chunks(PAGE_BYTES)
        .flat_map(|page| sealed_page(&ID.0, &magic, page))
        .collect();
    for bytes in [data, &sealed] {
        let pages: Vec<&[u8]> = bytes.chunks(PAGE_BYTES).collect();
        let Some(Ok(id)) = pages.first().map(|page| read_page_id(ID, page)) else {
            continue;
        };
        let head = decode_trailer_head(ID, id.sequence, pages[0]);
        let Ok((read, bits)) = decode_trailer(ID, id.sequence, &pages) else {
            continue;
        };
        assert_eq!(head, Ok(read));
        let expected = match read.has_filters {
            true => trailer_body_bytes(read.sets, read.rows),
            false => 0,
        };
        assert_eq!(bits.len() as u64, expected);
        let again = encode_trailer(ID, &read, &bits);
        assert_eq!(again.len(), read.pages() as usize);
        let again: Vec<&[u8]> = again.iter().map(|page| &page[..]).collect();
        assert_eq!(decode_trailer(ID, id.sequence, &again), Ok((read, bits)));
    }
}

fn sample_trailer() -> TrailerHead {
    TrailerHead {
        sequence: SEQUENCE,
        oldest_live: 60,
        objects: 100,
        sets: 401,
        columns: 64,
        rows: 104,
        probes: 7,
        has_filters: true,
    }
}

pub(crate) fn filters_seeds() -> Vec<Vec<u8>> {
    [(401, true), (3, true), (401, false)]
        .map(|(sets, has_filters)| {
            let head = TrailerHead {
                sets,
                has_filters,
                ..sample_trailer()
            };
            let bits = match has_filters {
                true => vec![0x5a; trailer_body_bytes(sets, head.rows) as usize],
                false => Vec::new(),
            };
            encode_trailer(ID, &head, &bits).concat()
        })
        .into()
}
