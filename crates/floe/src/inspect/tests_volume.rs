use std::sync::Arc;

use floe_core::ByteSize;
use floe_core::layout::volume::{
    BlockRecord, MappedBlock, TABLE_PAGE_BYTES, TablePage, VOLUME_SUPERBLOCK_BYTES,
    VolumeSuperblock,
};
use floe_core::volume::VolumeId;
use floe_device::{Clock, IoBuf, MemoryBlocks, SharedBlockDevice};

use super::*;
use crate::volume::{Mode, VolumeCache, VolumeCacheConfig, VolumeConfig};

const BLOCK: usize = 4096;
const PAGE: u64 = TABLE_PAGE_BYTES as u64;
const COPY: u64 = VOLUME_SUPERBLOCK_BYTES as u64;

/// A closed cache with dirty blocks, whose table and log both have records.
struct Cache {
    device: SharedBlockDevice,
    superblock: VolumeSuperblock,
}

fn memory(mib: u64) -> SharedBlockDevice {
    Arc::new(MemoryBlocks::new(ByteSize::mib(mib), 512).unwrap())
}

async fn cache() -> Cache {
    let device = memory(4);
    let backing = memory(8);
    let config = VolumeCacheConfig {
        sizes: "4KiB".parse().unwrap(),
        // Blocks lie in the first page of the table.
        shards: 1,
        ..VolumeCacheConfig::default()
    };
    let volume = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    for round in 0..2 {
        let opened = VolumeCache::open(Arc::clone(&device), Clock::real(), &config).await;
        let cache = opened.unwrap();
        let volume = cache.attach("disk", Arc::clone(&backing), &volume);
        let volume = volume.await.unwrap();
        for block in 0..4 {
            let data = IoBuf::zeroed(BLOCK).freeze();
            let at = (round * 4 + block) * BLOCK as u64;
            volume.write_at(at, data, true).await.unwrap();
        }
        cache.close().await.unwrap();
    }
    let head = device.read(0, IoBuf::zeroed(COPY as usize)).await.unwrap();
    let superblock = VolumeSuperblock::decode(&head).unwrap();
    Cache { device, superblock }
}

impl Cache {
    async fn flip(&self, at: u64) {
        let block = at / 512 * 512;
        let mut bytes = self.device.read(block, IoBuf::zeroed(512)).await.unwrap();
        bytes[(at - block) as usize] ^= 0x40;
        self.device.write(block, bytes.freeze()).await.unwrap();
    }

    /// Applies `record` to both copies of the first page of the table.
    async fn edit_table(&self, record: BlockRecord) {
        let (id, plan) = (self.superblock.cache_id, self.superblock.plan);
        let shape = plan.shape().unwrap();
        let buf = IoBuf::zeroed(PAGE as usize);
        let bytes = self.device.read(plan.table_offset, buf).await.unwrap();
        let page = TablePage::decode(id, shape, 0, &bytes);
        let mut page = page.unwrap_or_else(|_| TablePage::empty(shape, 0));
        page.sequence += 1;
        page.apply_record(&record);
        for copy in 0..2 {
            let mut out = IoBuf::zeroed(PAGE as usize);
            page.encode(id, &mut out).unwrap();
            let at = plan.table_offset + copy * PAGE;
            self.device.write(at, out.freeze()).await.unwrap();
        }
    }

    async fn inspect(&self) -> Result<(Vec<VolumeFinding>, VolumeTotals), InspectError> {
        let mut findings = Vec::new();
        let totals = inspect_volumes(&self.device, |it| findings.push(it.clone())).await?;
        Ok((findings, totals))
    }

    /// The faults that are found.
    async fn damage(&self) -> Vec<String> {
        let (findings, totals) = self.inspect().await.unwrap();
        let damage = findings.iter().filter_map(|finding| match finding {
            VolumeFinding::Damage { what, why, .. } => Some(format!("{what}: {why}")),
            _ => None,
        });
        let damage: Vec<_> = damage.collect();
        assert_eq!(totals.damage, damage.len() as u64);
        damage
    }
}

#[tokio::test]
async fn a_sound_cache_of_volumes_is_described_without_damage() {
    let cache = cache().await;
    let (findings, totals) = cache.inspect().await.unwrap();
    let bytes = 8 * BLOCK as u64;
    assert_eq!(totals.damage, 0, "{findings:?}");
    assert_eq!((totals.volumes, totals.blocks), (1, 8));
    assert_eq!((totals.valid_bytes, totals.dirty_bytes), (bytes, bytes));
    assert!(totals.batches > 0);
    let head = cache.device.read(0, IoBuf::zeroed(64 << 10)).await.unwrap();
    assert!(is_cache_of_volumes(&head));
    assert!(!is_cache_of_volumes(&[0; 64 << 10]));
    let has = |wanted: fn(&VolumeFinding) -> bool| findings.iter().filter(|f| wanted(f)).count();
    assert_eq!(
        has(|f| matches!(f, VolumeFinding::VolumeSuperblock { is_clean: true, .. })),
        2
    );
    assert_eq!(has(|f| matches!(f, VolumeFinding::BlockLog { .. })), 1);
    assert_eq!(
        has(|f| matches!(f, VolumeFinding::BlockTable { blocks: 8, .. })),
        1
    );
    let volume = |f: &VolumeFinding| match f {
        VolumeFinding::Volume {
            name, has_stamp, ..
        } => name == "disk" && *has_stamp,
        _ => false,
    };
    assert!(findings.iter().any(volume));
}

#[tokio::test]
async fn a_damaged_superblock_is_reported_and_its_copy_used() {
    for copy in [0, COPY] {
        let cache = cache().await;
        cache.flip(copy + 100).await;
        let damage = cache.damage().await;
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert!(damage[0].contains("its other copy is sound"));
        cache.flip(COPY - copy + 100).await;
        let error = cache.inspect().await.unwrap_err();
        assert!(matches!(error, InspectError::NoVolumes { .. }));
    }
}

#[tokio::test]
async fn copies_of_one_superblock_agree() {
    let cache = cache().await;
    let mut other = cache.superblock.clone();
    other.volumes[0].size_bytes += 4096;
    let mut out = IoBuf::zeroed(COPY as usize);
    other.encode(&mut out).unwrap();
    cache.device.write(COPY, out.freeze()).await.unwrap();
    let damage = cache.damage().await;
    assert!(
        damage[0].contains("differs from the first copy"),
        "{damage:?}"
    );
}

#[tokio::test]
async fn a_damaged_page_of_the_table_is_reported() {
    let cache = cache().await;
    // No record of the log changes the last page.
    let plan = cache.superblock.plan;
    let shape = plan.shape().unwrap();
    let number = shape.pages(plan.granules()) - 1;
    let at = plan.table_offset + u64::from(number) * 2 * PAGE;
    for copy in 0..2 {
        let mut page = TablePage::empty(shape, number);
        page.sequence = 1;
        let mut out = IoBuf::zeroed(PAGE as usize);
        page.encode(cache.superblock.cache_id, &mut out).unwrap();
        cache
            .device
            .write(at + copy * PAGE, out.freeze())
            .await
            .unwrap();
    }
    assert_eq!(cache.damage().await, Vec::<String>::new());
    for (copy, why) in [(0, "its other copy is sound"), (1, "in both copies")] {
        cache.flip(at + copy * PAGE + 100).await;
        let damage = cache.damage().await;
        assert_eq!(damage.len(), 1);
        assert!(damage[0].contains(why), "{damage:?}");
    }
}

#[tokio::test]
async fn a_missing_stable_batch_is_reported() {
    let cache = cache().await;
    cache.flip(cache.superblock.plan.log_offset + 40).await;
    let damage = cache.damage().await;
    assert!(
        damage[0].contains("batch 1 of the log is missing"),
        "{damage:?}"
    );
}

#[tokio::test]
async fn blocks_that_contradict_each_other_are_reported() {
    let block = |address| MappedBlock {
        volume: VolumeId(0),
        class: 0,
        address,
    };
    let other = MappedBlock {
        volume: VolumeId(5),
        ..block(0)
    };
    let large = MappedBlock {
        class: 1,
        ..block(40)
    };
    for (block, why) in [
        (block(0), "has an address of the block at granule"),
        (block(1 << 20), "outside of its volume"),
        (other, "has no volume 5"),
        (large, "no blocks of its size"),
    ] {
        let cache = cache().await;
        let granule = 100;
        cache.edit_table(BlockRecord::Map { granule, block }).await;
        let damage = cache.damage().await;
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert!(damage[0].contains(why), "{damage:?}");
    }
}
