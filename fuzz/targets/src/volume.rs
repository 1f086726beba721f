//! The decoders of caches of volumes (`floe_core::layout::volume`).
//!
//! Inputs are decoded unchanged, and once more with valid checksums. Encoding and
//! decoding a decoded structure again must preserve it.

use floe_core::hash::HashSeed;
use floe_core::layout::volume::{
    BATCH_BYTES_MAX, BlockBatch, BlockRecord, INTENT_BITS, MappedBlock, TABLE_PAGE_BYTES,
    TablePage, TableShape, VOLUME_SUPERBLOCK_BYTES, VolumeEntry, VolumeFormatPlan,
    VolumeSuperblock, VolumeWitness, WITNESS_BYTES, batch_bytes,
};
use floe_core::layout::{CacheId, FRAME_BYTES, Identified, Structure, identify};
use floe_core::volume::VolumeId;
use floe_core::volume::mode::Sector;

use crate::layout::{block_size, encoded, seed};
use crate::sealed::sealed;

const ID: CacheId = CacheId(*b"a fuzzed cacheid");
const NO_ID: CacheId = CacheId([0; 16]);

pub(crate) fn superblock(data: &[u8]) {
    let resealed = sealed(&NO_ID.0, &Structure::VolumeSuperblock.magic(), data);
    let decoded = [data, &resealed].map(VolumeSuperblock::decode);
    for read in decoded.into_iter().flatten() {
        assert_eq!(read.plan.validate(), Ok(()));
        let mut out = vec![0xee; VOLUME_SUPERBLOCK_BYTES];
        encoded(read.encode(&mut out));
        assert_eq!(VolumeSuperblock::decode(&out), Ok(read));
    }
}

pub(crate) fn witness(data: &[u8]) {
    let resealed = sealed(&NO_ID.0, &Structure::VolumeWitness.magic(), data);
    let decoded = [data, &resealed].map(VolumeWitness::decode);
    for read in decoded.into_iter().flatten() {
        let mut out = vec![0xee; WITNESS_BYTES];
        encoded(read.encode(&mut out));
        assert_eq!(VolumeWitness::decode(&out), Ok(read));
    }
}

pub(crate) fn witness_seeds() -> Vec<Vec<u8>> {
    let witness = VolumeWitness {
        cache_id: ID,
        number: 7,
        sequence: 3,
        stale: vec![VolumeId(0), VolumeId(9)],
    };
    let mut out = vec![0; WITNESS_BYTES];
    encoded(witness.encode(&mut out));
    vec![out]
}

pub(crate) fn superblock_seeds() -> Vec<Vec<u8>> {
    let superblock = |volumes: u16| VolumeSuperblock {
        witness: 12,
        cache_id: ID,
        seed: HashSeed(3),
        formatted_at: 4,
        epoch: 5,
        sequence: 6,
        plan: VolumeFormatPlan {
            places_bytes: 64 << 20,
            places_offset: 3 << 20,
            table_offset: 2 << 20,
            log_bytes: 1 << 20,
            log_offset: 64 << 10,
            shards: 2,
            classes: 0b1111,
            granule_bytes: 32 << 10,
            block_size: 4096,
            checksums: volumes == 1,
        },
        first_batch: 8,
        log_position: 4096,
        boot: [9; 16],
        is_clean: true,
        intents: Box::new([0; INTENT_BITS as usize / 8]),
        volumes: (0..volumes)
            .map(|number| VolumeEntry {
                volume: VolumeId(number),
                name: format!("disk {number}"),
                size_bytes: 1 << 40,
                stamp: [1; 32],
                is_reserved: number == 0,
            })
            .collect(),
    };
    [0, 1, 3]
        .map(|volumes| {
            let mut out = vec![0; VOLUME_SUPERBLOCK_BYTES];
            encoded(superblock(volumes).encode(&mut out));
            out
        })
        .into()
}

pub(crate) fn block_batch(data: &[u8]) {
    let magic = Structure::BlockLog.magic();
    for bytes in [data.to_vec(), sealed(&ID.0, &magic, data)] {
        let Ok(read) = BlockBatch::decode(ID, &bytes) else {
            continue;
        };
        let mut out = vec![0xee; batch_bytes(read.records.len(), 512)];
        encoded(read.encode(ID, &mut out));
        assert_eq!(BlockBatch::decode(ID, &out), Ok(read));
    }
}

fn records() -> Vec<BlockRecord> {
    let block = MappedBlock {
        volume: VolumeId(3),
        class: 2,
        address: 8,
    };
    vec![
        BlockRecord::Map { granule: 4, block },
        BlockRecord::Mark {
            granule: 4,
            first: 3,
            end: 17,
            state: Sector::Dirty,
        },
        BlockRecord::Unmap { granule: 9 },
        BlockRecord::Sums {
            granule: 4,
            first: 1,
            sums: (7, Some(8)),
        },
        BlockRecord::Intent { bit: 77 },
        BlockRecord::Settled { bit: 77 },
    ]
}

pub(crate) fn block_batch_seeds() -> Vec<Vec<u8>> {
    [vec![], records()]
        .map(|records| {
            let mut out = vec![0; batch_bytes(records.len(), 512)];
            let batch = BlockBatch {
                epoch: 5,
                number: 8,
                stable: 7,
                records,
            };
            encoded(batch.encode(ID, &mut out));
            out
        })
        .into()
}

/// The first byte of an input chooses the size of a granule; half of the tables have
/// checksums.
fn shape(choice: u32) -> TableShape {
    let shape = TableShape::new(choice * 8);
    match choice.trailing_zeros() % 2 {
        0 => shape,
        _ => shape.with_sums(choice).unwrap_or(shape),
    }
}

pub(crate) fn block_table(data: &[u8]) {
    let (choice, data) = block_size(data);
    let shape = shape(choice);
    let magic = Structure::BlockTable.magic();
    for bytes in [data.to_vec(), sealed(&ID.0, &magic, data)] {
        let Ok(mut read) = TablePage::decode(ID, shape, 7, &bytes) else {
            continue;
        };
        let blocks = (0..shape.entries()).filter_map(|entry| read.block(entry));
        assert!(blocks.count() <= shape.entries() as usize);
        for record in records() {
            read.apply_record(&record);
        }
        let mut out = vec![0xee; TABLE_PAGE_BYTES];
        encoded(read.encode(ID, &mut out));
        assert_eq!(TablePage::decode(ID, shape, 7, &out), Ok(read));
    }
}

pub(crate) fn block_table_seeds() -> Vec<Vec<u8>> {
    let shape = shape(512);
    let mut page = TablePage::empty(shape, 7);
    let first = 7 * shape.entries();
    for record in records() {
        record.edits(shape, |granule, edit| page.apply(granule, edit));
        page.apply_record(&BlockRecord::Unmap { granule: first });
    }
    [TablePage::empty(shape, 7), page]
        .map(|page| {
            let mut out = vec![0; TABLE_PAGE_BYTES];
            encoded(page.encode(ID, &mut out));
            seed(&out)
        })
        .into()
}

/// Gives every structure on a device of a cache of volumes a valid checksum, so that its
/// content is reached.
pub fn seal_volumes(contents: &mut [u8]) {
    let mut id = NO_ID;
    for at in (0..contents.len()).step_by(512) {
        let (structure, of, bytes_max) = match identify(&contents[at..][..FRAME_BYTES]) {
            Identified::Claims(of @ Structure::VolumeSuperblock) => {
                (of, NO_ID, VOLUME_SUPERBLOCK_BYTES)
            }
            Identified::Claims(of @ Structure::BlockLog) => (of, id, BATCH_BYTES_MAX),
            Identified::Claims(of @ Structure::BlockTable) => (of, id, TABLE_PAGE_BYTES),
            _ => continue,
        };
        let end = contents.len().min(at + bytes_max);
        let bytes = sealed(&of.0, &structure.magic(), &contents[at..end]);
        contents[at..end].copy_from_slice(&bytes[..end - at]);
        if let Ok(superblock) = VolumeSuperblock::decode(&contents[at..end]) {
            id = superblock.cache_id;
        }
    }
}
