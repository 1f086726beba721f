//! Written structures are read back unchanged, with the announced lengths.

use super::*;
use crate::tiny::OBJECT_BYTES_MAX;

fn block_sizes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(512u32), Just(4096)]
}

proptest! {
    #[test]
    fn pages_of_objects_round_trip(
        written in prop::collection::vec(objects(900), 0..40),
        sequence: u64, number: u32,
    ) {
        let written = that_fit(written);
        let id = PageId { kind: PageKind::Objects, sequence, number };
        let mut page = vec![0xee; PAGE_BYTES + 9];
        prop_assert_eq!(encode_objects(CACHE, id, &written, &mut page), Ok(()));
        prop_assert_eq!(&page[PAGE_BYTES..], [0xee; 9]);
        prop_assert_eq!(read_page_id(CACHE, &page), Ok(id));
        prop_assert_eq!(decode_objects(CACHE, id, &page, SEED), Ok(written.clone()));
        // Each object takes its announced length.
        let used = written.iter().map(Object::stored_bytes).sum::<usize>() + PAGE_HEADER_BYTES;
        prop_assert_eq!(u16::from_le_bytes([page[20], page[21]]) as usize, used);

        let opened = ObjectsPage::open(CACHE, id, &page).unwrap();
        prop_assert_eq!(opened.len(), written.len());
        prop_assert_eq!(opened.is_empty(), written.is_empty());
        for object in &written {
            let key = split_record(&object.record).map_or(&b"of the dead"[..], |(key, _)| key);
            let hit = opened.find(object.hash, key).unwrap();
            // The first match wins.
            let first = written.iter().position(|o| o.hash == object.hash).unwrap();
            prop_assert_eq!(hit.slot, first);
            prop_assert_eq!(hit.tombstone, written[first].tombstone);
            prop_assert_eq!(hit.expires, written[first].expires);
            let value = split_record(&written[first].record).map_or(&b""[..], |(_, value)| value);
            prop_assert_eq!(hit.value, value);
        }
        prop_assert_eq!(opened.find(KeyHash(1), b"never written"), None);
    }

    #[test]
    fn records_round_trip(key in prop::collection::vec(any::<u8>(), 0..300), value: Vec<u8>) {
        let record = record(&key, &value);
        if key.len() > KEY_BYTES_MAX {
            prop_assert!(record.is_empty());
        } else {
            prop_assert_eq!(record.len(), 1 + key.len() + value.len());
            prop_assert_eq!(split_record(&record), Some((&key[..], &value[..])));
        }
    }

    #[test]
    fn index_pages_round_trip(id in page_ids(), body in prop::collection::vec(any::<u8>(), PAGE_BYTES)) {
        let mut page = body.clone();
        let sealed = seal_index(CACHE, id, &mut page);
        if id.kind != PageKind::Index {
            prop_assert!(sealed.is_err());
            return Ok(());
        }
        prop_assert_eq!(sealed, Ok(()));
        prop_assert_eq!(open_index(CACHE, id, &page), Ok(()));
        prop_assert_eq!(read_page_id(CACHE, &page), Ok(id));
        prop_assert_eq!(&page[PAGE_HEADER_BYTES..], &body[PAGE_HEADER_BYTES..]);
    }

    #[test]
    fn filters_round_trip(
        head in trailer_heads(), pattern in prop::collection::vec(any::<u8>(), 1..2000),
        behind in 0usize..3,
    ) {
        let bits = bits(&head, &pattern);
        let pages = encode_trailer(CACHE, &head, &bits);
        prop_assert_eq!(pages.len(), trailer_pages(head.sets, head.rows) as usize);
        let mut read: Vec<&[u8]> = pages.iter().map(|page| &page[..]).collect();
        prop_assert_eq!(decode_trailer_head(CACHE, head.sequence, read[0]), Ok(head));
        for (number, page) in (0..).zip(&read) {
            let id = PageId { kind: PageKind::Filters, sequence: head.sequence, number };
            prop_assert_eq!(read_page_id(CACHE, page), Ok(id));
        }
        // Later pages are ignored.
        read.extend(std::iter::repeat_n(&[][..], behind));
        prop_assert_eq!(decode_trailer(CACHE, head.sequence, &read), Ok((head, bits)));
        let too_few = decode_trailer(CACHE, head.sequence, &read[..pages.len() - 1]);
        prop_assert!(matches!(too_few, Err(LayoutError::TooShort { .. })), "{:?}", too_few);
    }

    #[test]
    fn index_heads_round_trip(filters in trailer_heads(), buckets in 1u32..300) {
        let head = index_head(&filters);
        let columns = (head.columns / 8).max(1) * 8;
        let page_filter = match head.page_filter.lines.min(28) {
            0 => PageFilterShape::NONE,
            lines => PageFilterShape { lines, ..head.page_filter },
        };
        let fingerprints = IndexHead {
            columns: columns.min(64),
            rows: buckets,
            probes: 0,
            page_filter,
            ..head
        };
        let mut out = vec![0; PAGE_BYTES];
        prop_assert_eq!(fingerprints.encode(CACHE, &mut out), Ok(()));
        prop_assert_eq!(IndexHead::decode(CACHE, &out), Ok(fingerprints));
        let too_many = IndexHead { rows: 3000, ..fingerprints };
        prop_assert!(too_many.encode(CACHE, &mut out).is_err());
        let none = IndexHead { rows: 0, ..fingerprints };
        prop_assert!(none.encode(CACHE, &mut out).is_err());
        for (lines, probes) in [(64, 7), (1, 0), (0, 1), (1, 8)] {
            let page_filter = PageFilterShape { lines, probes };
            let wrong = IndexHead { page_filter, ..head };
            prop_assert!(wrong.encode(CACHE, &mut out).is_err());
        }
        let mut out = vec![0xee; PAGE_BYTES + 9];
        prop_assert_eq!(head.encode(CACHE, &mut out), Ok(()));
        prop_assert_eq!(&out[PAGE_BYTES..], [0xee; 9]);
        prop_assert_eq!(IndexHead::decode(CACHE, &out), Ok(head));
        let id = PageId { kind: PageKind::IndexHead, sequence: head.sequence, number: 0 };
        prop_assert_eq!(read_page_id(CACHE, &out), Ok(id));
        prop_assert!(head.encode(CACHE, &mut out[..PAGE_BYTES - 1]).is_err());
    }

    #[test]
    fn superblocks_round_trip(superblock in superblocks()) {
        let mut out = vec![0xee; TinySuperblock::encoded_bytes(superblock.plan.block_size)];
        prop_assert_eq!(superblock.encode(&mut out), Ok(out.len()));
        prop_assert_eq!(TinySuperblock::decode(&out), Ok(superblock));
        prop_assert!(superblock.mismatch(&superblock.plan).is_none());
    }

    #[test]
    fn notes_round_trip(
        blocks in prop::collection::vec(prop::collection::vec(notes(), 0..70), 1..12),
        epoch: u64, block_size in block_sizes(),
    ) {
        let mut flash = Vec::new();
        let mut writer = JournalChain::new(CACHE, epoch);
        for notes in &blocks {
            let start = flash.len();
            let bytes = JournalChain::encoded_bytes(notes, block_size);
            flash.resize(start + bytes, 0xee);
            prop_assert_eq!(writer.encode(block_size, notes, &mut flash[start..]), Ok(bytes));
        }
        flash.resize(flash.len() + block_size as usize, 0);
        let mut reader = JournalChain::new(CACHE, epoch);
        let mut at = 0;
        for notes in &blocks {
            let block = reader.decode::<TinyNote>(block_size, &flash[at..]).unwrap();
            prop_assert_eq!(&block.records, notes);
            at += block.encoded_bytes;
        }
        let end = reader.decode::<TinyNote>(block_size, &flash[at..]);
        prop_assert_eq!(end, Err(LayoutError::Blank));
        prop_assert_eq!(reader, writer);
    }
}

#[test]
fn an_object_that_fills_a_page_fits_it() {
    let value = vec![7; OBJECT_BYTES_MAX - 10];
    let largest = object(b"ten bytes!", &value, Expiry(9), PREDICTION_MAX);
    assert_eq!(largest.stored_bytes(), PAGE_ROOM_BYTES);
    let mut page = [0; PAGE_BYTES];
    encode_objects(CACHE, OBJECTS, std::slice::from_ref(&largest), &mut page).unwrap();
    assert_eq!(
        decode_objects(CACHE, OBJECTS, &page, SEED),
        Ok(vec![largest.clone()])
    );
    let one_more = [largest, object(b"", b"", Expiry::NEVER, 0)];
    assert!(encode_objects(CACHE, OBJECTS, &one_more, &mut page).is_err());
    // The most objects that a page can hold.
    let empty = vec![object(b"", b"", Expiry::NEVER, 0); PAGE_ROOM_BYTES / 4];
    encode_objects(CACHE, OBJECTS, &empty, &mut page).unwrap();
    assert_eq!(decode_objects(CACHE, OBJECTS, &page, SEED), Ok(empty));
}

#[test]
fn unrepresentable_objects_are_rejected() {
    let mut page = [0xee; PAGE_BYTES];
    let sized = [Object::sized(KeyHash(1), 20)];
    assert!(encode_objects(CACHE, OBJECTS, &sized, &mut page).is_err());
    // The buffer does not hold a valid page.
    assert!(read_page_id(CACHE, &page).is_err());
    let mut short = object(b"key", b"value", Expiry::NEVER, 0);
    short.bytes -= 1;
    assert!(encode_objects(CACHE, OBJECTS, &[short], &mut page).is_err());
    assert!(encode_objects(CACHE, INDEX, &[], &mut page).is_err());
    assert!(encode_objects(CACHE, OBJECTS, &[], &mut page[..4095]).is_err());
    assert!(seal_index(CACHE, INDEX, &mut page[..4095]).is_err());
    assert_eq!(split_record(b""), None);
    assert_eq!(split_record(b"\x03ab"), None);
}

#[test]
fn a_tombstone_outlives_its_expiry_and_a_prediction_has_an_end() {
    let mut dead = Object::tombstone(KeyHash(9));
    dead.expires = Expiry(4);
    let late = object(b"k", b"v", Expiry::NEVER, u8::MAX);
    let mut page = [0; PAGE_BYTES];
    encode_objects(CACHE, OBJECTS, &[dead, late], &mut page).unwrap();
    let read = decode_objects(CACHE, OBJECTS, &page, SEED).unwrap();
    assert_eq!(read[0], Object::tombstone(KeyHash(9)));
    assert_eq!(read[1].prediction, PREDICTION_MAX);
}

#[test]
fn filters_of_another_length_than_their_head_says_are_rejected() {
    let head = TrailerHead {
        sequence: 8,
        oldest_live: 2,
        objects: 100,
        sets: 30,
        columns: 64,
        rows: 101,
        probes: 7,
        has_filters: true,
    };
    let bits = bits(&head, &[0xa5]);
    let rejected = |head: TrailerHead, bits: &[u8]| {
        let pages = encode_trailer(CACHE, &head, bits);
        let pages: Vec<&[u8]> = pages.iter().map(|page| &page[..]).collect();
        decode_trailer(CACHE, head.sequence, &pages).is_err()
    };
    assert!(!rejected(head, &bits));
    assert!(rejected(head, &bits[1..]));
    assert!(rejected(head, &[&bits[..], &[0]].concat()));
    assert!(rejected(head, &[0xff].repeat(bits.len())));
    type Change = fn(&mut TrailerHead);
    let changes: [Change; 6] = [
        |head| head.sets = 0,
        |head| head.rows = 0,
        |head| head.columns = 0,
        |head| head.probes = 0,
        |head| head.columns = u32::MAX,
        |head| head.oldest_live = 9,
    ];
    for change in changes {
        let mut head = head;
        change(&mut head);
        assert!(rejected(head, &bits), "{head:?}");
    }
    // Filters without room are left out as a whole.
    let pages = encode_trailer(CACHE, &head, &[]);
    let (read, none) = decode_trailer(CACHE, head.sequence, &[&pages[0]]).expect("is whole");
    assert!(none.is_empty() && !read.has_filters);
    assert_eq!((pages.len(), read.pages()), (1, 1));
    let mut page = vec![0; PAGE_BYTES];
    // Without probes the head would be one of fingerprints.
    for change in [changes[0], changes[1], changes[2], changes[4]] {
        let mut head = head;
        change(&mut head);
        assert!(index_head(&head).encode(CACHE, &mut page).is_err());
    }
    assert_eq!(trailer_pages(u32::MAX, u32::MAX), u32::MAX);
    assert!(decode_trailer(CACHE, 8, &[]).is_err());
}

#[test]
fn every_setting_of_the_plan_is_compared() {
    let plan = sample_plan();
    let superblock = TinySuperblock {
        cache_id: CACHE,
        seed: SEED,
        formatted_at: 2,
        epoch: 3,
        plan,
    };
    type Change = fn(&mut TinyFormatPlan);
    let changes: [(&str, Change); 9] = [
        ("engine", |plan| plan.engine = TinyEngine::FairyWren),
        ("block size", |plan| plan.block_size = 512),
        ("zone size", |plan| plan.zone_size += 4096),
        ("zone capacity", |plan| plan.zone_capacity -= 4096),
        ("number of zones", |plan| plan.zone_count += 1),
        ("set-group size", |plan| plan.set_group_pages -= 1),
        ("number of sets", |plan| plan.sets -= 1),
        ("number of candidate sets", |plan| plan.candidates = 1),
        ("number of instances", |plan| plan.instances = 2),
    ];
    for (field, change) in changes {
        let mut other = plan;
        change(&mut other);
        assert_eq!(other.validate(), Ok(()), "{field}");
        assert_eq!(superblock.mismatch(&other).unwrap().field, field);
    }
}

#[test]
fn an_inconsistent_plan_is_rejected() {
    type Change = fn(&mut TinyFormatPlan);
    let changes: [Change; 12] = [
        |plan| plan.block_size = 8192,
        |plan| plan.block_size = 0,
        |plan| plan.zone_count = 2,
        |plan| plan.zone_capacity = 2048,
        |plan| plan.zone_capacity = 0,
        |plan| plan.zone_size = u64::MAX,
        |plan| plan.instances = 0,
        |plan| plan.instances = 15,
        |plan| plan.candidates = 0,
        |plan| plan.candidates = 3,
        |plan| plan.sets = 0,
        |plan| plan.sets = plan.set_group_pages + 1,
    ];
    for change in changes {
        let mut plan = sample_plan();
        change(&mut plan);
        assert!(plan.validate().is_err(), "{plan:?}");
    }
    let log = TinyFormatPlan {
        engine: TinyEngine::Log,
        set_group_pages: 0,
        sets: 0,
        candidates: 0,
        ..sample_plan()
    };
    assert_eq!(log.validate(), Ok(()));
}

fn sample_plan() -> TinyFormatPlan {
    TinyFormatPlan {
        engine: TinyEngine::Nemo,
        block_size: 4096,
        zone_count: 16,
        zone_size: 64 << 20,
        zone_capacity: 48 << 20,
        set_group_pages: 12_288,
        sets: 12_000,
        candidates: 2,
        instances: 1,
    }
}
