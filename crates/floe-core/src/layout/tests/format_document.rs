//! Compares `docs/format.md` with the code.

use super::*;
use crate::tiny::object::{
    EXPIRY_BYTES, OBJECT_BYTES_MAX, OBJECT_HEADER_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES,
    PAGE_ROOM_BYTES, PREDICTION_MAX, TOMBSTONE_BYTES,
};

const DOCUMENT: &str = include_str!("../../../../../docs/format.md");

/// A table of the document: its title, the length it announces, and offset and
/// width of each row that has numbers.
struct Table {
    title: &'static str,
    bytes: usize,
    rows: Vec<(usize, usize)>,
}

fn tables() -> Vec<Table> {
    DOCUMENT
        .split("<!-- table: ")
        .skip(1)
        .map(|text| {
            let (head, body) = text.split_once(" -->").unwrap();
            let (title, bytes) = head.split_once(", ").unwrap();
            let rows = body
                .trim_start()
                .lines()
                .take_while(|line| line.starts_with('|'))
                .filter_map(|line| {
                    let mut cells = line.split('|').skip(1).map(str::trim);
                    let offset = cells.next()?.parse().ok()?;
                    Some((offset, cells.next()?.parse().ok()?))
                })
                .collect();
            Table {
                title,
                bytes: bytes.strip_suffix(" bytes").unwrap().parse().unwrap(),
                rows,
            }
        })
        .collect()
}

#[test]
fn the_tables_are_as_long_as_the_structures() {
    let expected = [
        ("frame", FRAME_BYTES),
        ("superblock", SUPERBLOCK_BYTES),
        ("journal block", JOURNAL_HEADER_BYTES),
        ("note", NOTE_BYTES),
        ("zone header", ZONE_HEADER_BYTES),
        ("batch", BATCH_HEADER_BYTES),
        ("record", RECORD_FIXED_BYTES),
        ("large descriptor", LARGE_FIXED_BYTES),
        ("summary page", SUMMARY_HEADER_BYTES),
        ("summary entry", SUMMARY_ENTRY_BYTES),
        ("slot table block", SLOT_HEADER_BYTES),
        ("slot entry", SLOT_ENTRY_BYTES),
        ("tiny superblock", tiny::TINY_SUPERBLOCK_BYTES),
        ("tiny note", tiny::TINY_NOTE_BYTES),
        ("page", PAGE_HEADER_BYTES),
        ("object", OBJECT_HEADER_BYTES),
        ("filters", tiny::TRAILER_HEAD_BYTES),
        ("index head", tiny::INDEX_HEAD_BYTES),
        ("volume superblock", volume::VOLUME_FIXED_BYTES),
        ("volume entry", volume::VOLUME_ENTRY_BYTES),
        ("block batch", volume::LOG_HEADER_BYTES),
        ("block record", volume::RECORD_BYTES),
        ("block table page", volume::TABLE_HEADER_BYTES),
        ("block table entry", volume::TABLE_ENTRY_BYTES),
        ("volume witness", volume::WITNESS_HEADER_BYTES),
        ("array label", ARRAY_LABEL_BYTES),
    ];
    let tables = tables();
    let found: Vec<_> = tables.iter().map(|t| (t.title, t.bytes)).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_tables_leave_no_gap() {
    let framed = [
        "superblock",
        "journal block",
        "zone header",
        "batch",
        "summary page",
        "slot table block",
        "tiny superblock",
        "volume superblock",
        "block batch",
        "block table page",
        "volume witness",
        "array label",
    ];
    for table in tables() {
        let mut at = if framed.contains(&table.title) {
            FRAME_BYTES
        } else {
            0
        };
        for (offset, bytes) in table.rows {
            assert_eq!(offset, at, "{}", table.title);
            at += bytes;
        }
        assert_eq!(at, table.bytes, "{}", table.title);
    }
}

#[test]
fn the_magics_are_those_of_the_code() {
    for structure in Structure::ALL {
        let magic = structure.magic();
        let hex: Vec<_> = magic.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = std::str::from_utf8(&magic[..7]).unwrap();
        let row = format!(
            "| {structure} | `{text}` and 0x{:02x} | `{}` |",
            magic[7],
            hex.join(" ")
        );
        assert!(DOCUMENT.contains(&row), "the document lacks {row}");
    }
}

#[test]
fn pages_engines_and_numbers_of_tiny_objects_are_those_of_the_code() {
    let mut sentences = vec![
        format!("**tiny format version {TINY_FORMAT_VERSION}**"),
        format!("tiny format version: {TINY_FORMAT_VERSION} |"),
        format!("; {TINY_FORMAT_VERSION} in the structures of tiny objects |"),
        format!("A page is {} bytes", thousands(PAGE_BYTES as u64)),
        format!(
            "{} bytes each but the last",
            thousands(PAGE_ROOM_BYTES as u64)
        ),
        format!("| 4 | {EXPIRY_BYTES} if bit 20 | expiry"),
        format!("key, at most {} bytes", tiny::KEY_BYTES_MAX),
        format!("followed by {TOMBSTONE_BYTES} bytes, the key hash"),
        format!("0 soon to {PREDICTION_MAX} late"),
        format!(
            "Key and value together are at most {} bytes",
            thousands(OBJECT_BYTES_MAX as u64)
        ),
        format!(
            "up to `(block size − {JOURNAL_HEADER_BYTES}) / {}` of them",
            tiny::TINY_NOTE_BYTES
        ),
    ];
    let engines: Vec<_> = tiny::TinyEngine::ALL
        .map(|engine| format!("{} {engine}", engine.code()))
        .into();
    sentences.push(format!("| engine: {} |", engines.join(", ")));
    for kind in tiny::PageKind::ALL {
        let [first, letter] = kind.magic();
        sentences.push(format!(
            "| {kind} | 0x{first:02x} and `{}` | `{first:02x} {letter:02x}` |",
            char::from(letter)
        ));
    }
    for sentence in sentences {
        assert!(
            DOCUMENT.contains(&sentence),
            "the document lacks: {sentence}"
        );
    }
}

#[test]
fn the_numbers_in_the_text_are_those_of_the_code() {
    let slots = SlotGeometry::new(1 << 30, 4096, 65536).unwrap();
    assert_eq!(slots.entries_per_block, (4096 - 40) / 32);
    let mut plan = SmallBatchPlan::new(4096, u32::MAX);
    for _ in 0..250 {
        assert!(plan.try_add(20, 4096));
    }
    let largest = large_descriptor_bytes(20, LARGE_MAX_BYTES, 15 * UNIT_BYTES, 4096);
    for sentence in [
        format!("**format version {FORMAT_VERSION}**"),
        format!("| format version: {FORMAT_VERSION};"),
        format!(
            "A key is at most {} bytes, a *small* value at most {}, a *large* one at most {}; \
             a *unit* is {}.",
            thousands(KEY_MAX_BYTES as u64),
            thousands(SMALL_MAX_BYTES as u64),
            thousands(LARGE_MAX_BYTES),
            thousands(UNIT_BYTES.into()),
        ),
        format!("*pages* of {} bytes", thousands(SUMMARY_PAGE_BYTES as u64)),
        format!(
            "which is {} in {} bytes",
            thousands(((SUMMARY_PAGE_BYTES - SUMMARY_HEADER_BYTES) / SUMMARY_ENTRY_BYTES) as u64),
            thousands(SUMMARY_PAGE_BYTES as u64)
        ),
        format!("up to `(block size − {JOURNAL_HEADER_BYTES}) / {NOTE_BYTES}` notes"),
        format!("`(block size − {SLOT_HEADER_BYTES}) / {SLOT_ENTRY_BYTES}`, fewer"),
        format!("{BATCH_HEADER_BYTES} + {LARGE_FIXED_BYTES} + 4 × (pieces + units) + key length"),
        format!("that is {} KiB with a key of 20 bytes", largest >> 10),
        format!(
            "{RECORD_FIXED_BYTES} bytes and the key per record, {BATCH_HEADER_BYTES} per batch"
        ),
        format!(
            "takes {} bytes",
            thousands(plan.batch_bytes().div_ceil(250) as u64)
        ),
    ] {
        assert!(
            DOCUMENT.contains(&sentence),
            "the document lacks: {sentence}"
        );
    }
}

/// A number with thousands separators, as in the document.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn every_note_kind_is_documented_by_its_number() {
    let kinds = "kind: 1 zone full, 2 tombstone, 3 checkpoint end, 4 generation floor, 5 zone closed, 6 slot use, 7 use noted, 8 zone dropped, 9 mark |";
    assert!(DOCUMENT.contains(kinds));
    let notes = [
        Note::ZoneFull {
            life: LIFE,
            summary_offset: 0,
            records: 0,
        },
        Note::Tombstone {
            life: LIFE,
            hash: KeyHash(0),
            sequence: Sequence(0),
        },
        Note::CheckpointEnd { notes: 0 },
        Note::GenerationFloor {
            generation: Generation(9),
        },
        Note::ZoneClosed {
            life: LIFE,
            end_offset: 0,
        },
        Note::SlotUse {
            life: LIFE,
            first_slot: 0,
            uses: SlotUses::default(),
        },
        Note::UseNoted {
            sequence: Sequence(0),
        },
        Note::ZoneDropped { life: LIFE },
        Note::Mark(Mark {
            span: Span::Group,
            group: 1,
            id: 2,
            number: 3,
        }),
    ];
    let mut out = [0; 512];
    JournalChain::new(ID, 1)
        .encode(512, &notes, &mut out)
        .unwrap();
    for (number, note) in (1..).zip(out[JOURNAL_HEADER_BYTES..].as_chunks::<NOTE_BYTES>().0) {
        if number <= notes.len() as u8 {
            assert_eq!(note[..4], [number, 0, 0, 0]);
        }
    }
}
