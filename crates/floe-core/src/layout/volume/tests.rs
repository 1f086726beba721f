use proptest::prelude::*;

use super::*;
use crate::hash::HashSeed;
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::volume::VolumeId;
use crate::volume::mode::Sector;

const ID: CacheId = CacheId([7; 16]);

fn plan() -> VolumeFormatPlan {
    VolumeFormatPlan {
        block_size: 4096,
        granule_bytes: 32 << 10,
        classes: 0b1111,
        shards: 2,
        log_offset: 64 << 10,
        log_bytes: 1 << 20,
        table_offset: 2 << 20,
        places_offset: 3 << 20,
        places_bytes: 64 << 20,
        checksums: false,
    }
}

fn superblock() -> VolumeSuperblock {
    VolumeSuperblock {
        cache_id: ID,
        seed: HashSeed(3),
        formatted_at: 4,
        epoch: 5,
        sequence: 6,
        plan: plan(),
        first_batch: 8,
        log_position: 4096,
        boot: [9; 16],
        is_clean: true,
        witness: 12,
        intents: Box::new([0xa5; INTENT_BITS as usize / 8]),
        volumes: vec![VolumeEntry {
            volume: VolumeId(3),
            name: "disk".into(),
            size_bytes: 1 << 40,
            stamp: [1; 32],
            is_reserved: true,
        }],
    }
}

fn records() -> impl Strategy<Value = BlockRecord> {
    let state = prop_oneof![
        Just(Sector::Missing),
        Just(Sector::Clean),
        Just(Sector::Dirty)
    ];
    prop_oneof![
        (any::<u32>(), any::<u16>(), 0..9_u8, any::<u64>()).prop_map(
            |(granule, volume, class, address)| BlockRecord::Map {
                granule,
                block: MappedBlock {
                    volume: VolumeId(volume),
                    class,
                    address
                },
            }
        ),
        any::<u32>().prop_map(|granule| BlockRecord::Unmap { granule }),
        (any::<u32>(), 0..2047_u16, 1..2048_u16, state).prop_map(|(granule, first, len, state)| {
            BlockRecord::Mark {
                granule,
                first,
                end: first.saturating_add(len).min(2048),
                state,
            }
        }),
        (any::<u32>(), 0..2048_u16, any::<(u32, Option<u32>)>()).prop_map(
            |(granule, first, sums)| BlockRecord::Sums {
                granule,
                first,
                sums
            }
        ),
        any::<u32>().prop_map(|bit| BlockRecord::Intent { bit }),
        any::<u32>().prop_map(|bit| BlockRecord::Settled { bit }),
    ]
}

proptest! {
    #[test]
    fn batches_come_back(
        records in prop::collection::vec(records(), 0..300),
        epoch in 0..=COUNT_MAX, number in 0..=COUNT_MAX, stable in 0..=COUNT_MAX,
    ) {
        let batch = BlockBatch { epoch, number, stable, records };
        let mut bytes = vec![0; batch_bytes(batch.records.len(), 512)];
        batch.encode(ID, &mut bytes).unwrap();
        prop_assert_eq!(BlockBatch::decode(ID, &bytes), Ok(batch));
        prop_assert_eq!(
            BlockBatch::decode(CacheId([8; 16]), &bytes),
            Err(LayoutError::BadChecksum)
        );
    }

    #[test]
    fn witnesses_come_back(
        number in 1..u32::MAX, sequence in 0..=COUNT_MAX,
        stale in prop::collection::vec(any::<u16>().prop_map(VolumeId), 0..VOLUMES_MAX),
    ) {
        let witness = VolumeWitness { cache_id: ID, number, sequence, stale };
        let mut bytes = vec![0xee; WITNESS_BYTES];
        witness.encode(&mut bytes).unwrap();
        prop_assert_eq!(VolumeWitness::decode(&bytes), Ok(witness));
    }

    #[test]
    fn decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..8192)) {
        let shape = TableShape::new(4096);
        prop_assert!(VolumeSuperblock::decode(&bytes).is_err());
        prop_assert!(VolumeWitness::decode(&bytes).is_err());
        prop_assert!(BlockBatch::decode(ID, &bytes).is_err());
        prop_assert!(TablePage::decode(ID, shape, 0, &bytes).is_err());
    }

    /// A page with checksums, and a model of those of one granule.
    #[test]
    fn a_mark_makes_checksums_unknown_and_records_of_them_known(
        unit_bits in 9_u32..=12, granule_bits in 12_u32..=18,
        steps in prop::collection::vec((0_u8..9, 0_u16..512, 1_u16..64, any::<u32>()), 1..60),
    ) {
        let plain = TableShape::new(1 << granule_bits);
        let shape = plain.with_sums(1 << unit_bits).unwrap();
        prop_assert_eq!(shape.sums(), 1 << (granule_bits - unit_bits));
        let mut page = TablePage::empty(shape, 0);
        let mut model = vec![NO_SUM; shape.sums() as usize];
        let block = MappedBlock { volume: VolumeId(1), class: 0, address: 5 };
        for (kind, first, len, sum) in steps {
            let granule = shape.entries() - 1;
            let unit = usize::from(first) % model.len();
            let record = match kind {
                0 => {
                    model.fill(NO_SUM);
                    BlockRecord::Map { granule, block }
                }
                1 => {
                    model.fill(NO_SUM);
                    BlockRecord::Unmap { granule }
                }
                2..5 => {
                    let sectors = shape.sectors() as u16;
                    let first = first % sectors;
                    let end = (first + len).min(sectors);
                    let unit = |sector: u16| usize::from(sector) >> (unit_bits - 9);
                    model[unit(first)..=unit(end - 1)].fill(NO_SUM);
                    BlockRecord::Mark { granule, first, end, state: Sector::Clean }
                }
                _ => {
                    let other = (kind > 6).then_some(!sum);
                    for (place, sum) in model[unit..].iter_mut().zip([Some(sum), other]) {
                        *place = sum.unwrap_or(*place);
                    }
                    BlockRecord::Sums { granule, first: unit as u16, sums: (sum, other) }
                }
            };
            page.apply_record(&record);
            page.apply_record(&record);
        }
        let mut bytes = [0; TABLE_PAGE_BYTES];
        page.encode(ID, &mut bytes).unwrap();
        let page = TablePage::decode(ID, shape, 0, &bytes).unwrap();
        for (unit, sum) in (0..).zip(model) {
            prop_assert_eq!(page.sum(shape.entries() - 1, unit), sum);
        }
    }

    /// A table of pages, and a model of sectors, after the same records.
    #[test]
    fn a_table_is_what_its_records_say(
        granule_bits in 12_u32..=20,
        steps in prop::collection::vec((0_u32..16, 0_u8..3, 0_u16..2048, 1_u16..2048), 1..60),
    ) {
        let shape = TableShape::new(1 << granule_bits);
        let pages = shape.pages(64);
        let mut table: Vec<_> = (0..pages).map(|page| TablePage::empty(shape, page)).collect();
        let mut model = vec![(None, Sector::Missing); 64 * shape.sectors() as usize];
        let sectors = shape.sectors();
        for (at, kind, first, len) in steps {
            let class = (kind + at as u8) % 3;
            let granule = (at * 4) >> class << class;
            let of_block = u64::from(sectors << class).min(2048) as u16;
            let (first, end) = (first % of_block, (first % of_block + len).min(of_block));
            let from = (granule * sectors) as usize;
            let block = MappedBlock { volume: VolumeId(1), class, address: u64::from(at) };
            let record = match kind {
                0 => BlockRecord::Map { granule, block },
                1 => BlockRecord::Unmap { granule },
                _ => BlockRecord::Mark { granule, first, end, state: Sector::Dirty },
            };
            let len = if kind == 0 { sectors << class } else { sectors };
            match kind {
                0 | 1 => model[from..from + len as usize].fill((None, Sector::Missing)),
                _ => {
                    let range = from + usize::from(first)..from + usize::from(end);
                    model[range].iter_mut().for_each(|sector| sector.1 = Sector::Dirty);
                }
            }
            if kind == 0 {
                model[from].0 = Some(block);
            }
            // Twice: recovery may apply a record again.
            for _ in 0..2 {
                record.edits(shape, |granule, edit| {
                    let (page, entry) = shape.locate(granule);
                    table[page as usize].apply(entry, edit);
                });
            }
        }
        for page in &mut table {
            let mut bytes = [0; TABLE_PAGE_BYTES];
            page.encode(ID, &mut bytes).unwrap();
            let read = TablePage::decode(ID, shape, page.number, &bytes);
            prop_assert_eq!(read.as_ref(), Ok(&*page));
            let other = TablePage::decode(ID, shape, page.number + 1, &bytes);
            prop_assert!(other.is_err());
        }
        for granule in 0..64 {
            let (page, entry) = shape.locate(granule);
            let (page, from) = (&table[page as usize], (granule * sectors) as usize);
            prop_assert_eq!(page.block(entry), model[from].0);
            for sector in 0..sectors {
                prop_assert_eq!(page.sector(entry, sector), model[from + sector as usize].1);
            }
        }
    }
}

#[test]
fn a_superblock_comes_back_and_every_byte_of_it_counts() {
    let superblock = superblock();
    let mut bytes = vec![0; VOLUME_SUPERBLOCK_BYTES];
    let mut summed = superblock.clone();
    (summed.plan.checksums, summed.is_clean) = (true, false);
    for superblock in [summed, superblock] {
        superblock.encode(&mut bytes).unwrap();
        assert_eq!(VolumeSuperblock::decode(&bytes), Ok(superblock));
    }
    for at in (0..bytes.len()).step_by(97) {
        bytes[at] ^= 1;
        assert!(VolumeSuperblock::decode(&bytes).is_err(), "byte {at}");
        bytes[at] ^= 1;
    }
}

#[test]
fn a_superblock_of_an_invalid_plan_is_not_written() {
    let mut bytes = vec![0; VOLUME_SUPERBLOCK_BYTES];
    let mut overlapping = superblock();
    overlapping.plan.table_offset = 1 << 20;
    let mut nameless = superblock();
    nameless.volumes[0].name = "x".repeat(113);
    for superblock in [overlapping, nameless] {
        let result = superblock.encode(&mut bytes);
        assert!(matches!(result, Err(LayoutError::Malformed(_))));
    }
}

#[test]
fn a_plan_that_could_not_run_is_refused() {
    let plans = [
        VolumeFormatPlan {
            log_bytes: 256 << 10,
            ..plan()
        },
        VolumeFormatPlan {
            log_bytes: 1 << 40,
            table_offset: 2 << 40,
            places_offset: 3 << 40,
            ..plan()
        },
        VolumeFormatPlan {
            // Blocks of 32 KiB to 4 MiB.
            classes: 0b1000_0001,
            ..plan()
        },
        VolumeFormatPlan {
            places_bytes: 1 << 40,
            ..plan()
        },
        VolumeFormatPlan {
            // 2,048 checksums for each entry.
            block_size: 512,
            granule_bytes: 1 << 20,
            classes: 1,
            checksums: true,
            ..plan()
        },
    ];
    assert_eq!(plan().validate(), Ok(()));
    for plan in plans {
        assert!(plan.validate().is_err(), "{plan:?}");
    }
}

#[test]
fn superblocks_with_two_volumes_of_one_name_or_counts_at_their_end_are_refused() {
    let refused = |change: fn(&mut VolumeSuperblock)| {
        let mut superblock = superblock();
        change(&mut superblock);
        let mut bytes = vec![0; VOLUME_SUPERBLOCK_BYTES];
        superblock.encode(&mut bytes).unwrap();
        assert!(VolumeSuperblock::decode(&bytes).is_err());
    };
    refused(|superblock| superblock.volumes.push(superblock.volumes[0].clone()));
    refused(|superblock| superblock.epoch = u64::MAX);
    refused(|superblock| superblock.sequence = u64::MAX);
    refused(|superblock| superblock.first_batch = u64::MAX);
    refused(|superblock| superblock.log_position = 1);
}

#[test]
fn a_page_with_an_entry_that_is_no_block_is_refused() {
    let shape = TableShape::new(4096);
    let mut page = TablePage::empty(shape, 0);
    page.apply(
        3,
        Edit::Head(Some(MappedBlock {
            volume: VolumeId(0),
            class: 9,
            address: 0,
        })),
    );
    let mut bytes = vec![0; TABLE_PAGE_BYTES];
    page.encode(ID, &mut bytes).unwrap();
    assert!(TablePage::decode(ID, shape, 0, &bytes).is_err());
}
