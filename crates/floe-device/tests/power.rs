//! Power losses: flushed data survives, other data may survive in part, and a
//! zone's write pointer always matches its data.

use std::collections::HashMap;

use floe_core::ByteSize;
use floe_device::config::{DeviceConfig, DeviceKind};
use floe_device::{
    Address, DeviceErrorKind, IoBuf, IoData, MemoryDevice, Placement, PowerSwitch, SharedDevice,
    SimConfig, SimDevice, SimModel, WriteCache, ZoneId, ZoneState, virtual_time,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: usize = 4096;
const ZONES: u32 = 4;
const ZONE_BLOCKS: u64 = 64;

fn config(zoned: bool, volatile_cache: bool) -> DeviceConfig {
    DeviceConfig {
        kind: DeviceKind::Sim,
        size: Some(ByteSize(u64::from(ZONES) * ZONE_BLOCKS * BLOCK as u64)),
        zone_size: Some(ByteSize(ZONE_BLOCKS * BLOCK as u64)),
        max_append: ByteSize(8 * BLOCK as u64),
        sim: SimConfig {
            zoned,
            volatile_cache,
            ..SimConfig::default()
        },
        ..DeviceConfig::default()
    }
}

/// A whole simulated SSD of four zones or more. Its buffer is protected.
fn whole_ssd(model: SimModel) -> DeviceConfig {
    let zone = ByteSize(1536 << 10);
    DeviceConfig {
        kind: DeviceKind::Sim,
        // A superblock of a conventional drive has at least a row.
        size: Some(match model {
            SimModel::Zn540 => ByteSize(4 * zone.bytes()),
            _ => ByteSize::mib(400),
        }),
        zone_size: Some(zone),
        zone_capacity: Some(zone),
        max_append: ByteSize(8 * BLOCK as u64),
        sim: SimConfig {
            model,
            mapping_unit: Some(ByteSize::kib(64)),
            precondition: false,
            ..SimConfig::default()
        },
        ..DeviceConfig::default()
    }
}

/// Allowed values of each block after a power loss, the stable one first.
struct Oracle {
    device: SharedDevice,
    allowed: HashMap<(u32, u64), Vec<u64>>,
    /// Completed writes are stable at once.
    write_through: bool,
    tag: u64,
}

impl Oracle {
    fn data(&mut self, blocks: u64) -> (IoData, Vec<u64>) {
        let mut buf = IoBuf::zeroed(blocks as usize * BLOCK);
        let mut tags = Vec::new();
        for block in buf.chunks_mut(BLOCK) {
            self.tag += 1;
            tags.push(self.tag);
            block[..8].copy_from_slice(&self.tag.to_le_bytes());
            block[BLOCK - 8..].copy_from_slice(&self.tag.to_le_bytes());
        }
        (buf.freeze(), tags)
    }

    fn allow(&mut self, zone: ZoneId, block: u64, tag: u64) {
        let values = self
            .allowed
            .entry((zone.0, block))
            .or_insert_with(|| vec![0]);
        if self.write_through {
            values.clear();
        }
        values.push(tag);
    }

    fn forget_all_but_the_newest(&mut self) {
        for values in self.allowed.values_mut() {
            values.drain(..values.len() - 1);
        }
    }

    /// One random operation, awaited.
    async fn step(&mut self, random: &mut Xoshiro256PlusPlus) {
        let zone = ZoneId(random.random_range(0..ZONES));
        let blocks = random.random_range(1..=8);
        match random.random_range(0..20) {
            0 => {
                self.device.reset(zone).await.unwrap();
                for block in 0..ZONE_BLOCKS {
                    self.allow(zone, block, 0);
                }
            }
            1 => {
                self.device.flush().await.unwrap();
                self.forget_all_but_the_newest();
            }
            2..5 if self.device.geometry().random_writes => {
                let (data, tags) = self.data(blocks);
                let first = random.random_range(0..=ZONE_BLOCKS - blocks);
                let at = Address::new(zone, first * BLOCK as u64);
                self.device.write(at, data, Placement(0)).await.unwrap();
                for (block, tag) in (first..).zip(tags) {
                    self.allow(zone, block, tag);
                }
            }
            _ => {
                let (data, tags) = self.data(blocks);
                let is_durable = self.device.appends_durably() && random.random();
                let append = match is_durable {
                    true => self.device.append_durably(zone, data, Placement(0)),
                    false => self.device.append(zone, data, Placement(0)),
                };
                match append.await {
                    Ok(at) => {
                        for (block, tag) in (at.offset / BLOCK as u64..).zip(tags) {
                            self.allow(zone, block, tag);
                            if is_durable {
                                self.allowed.insert((zone.0, block), vec![tag]);
                            }
                        }
                    }
                    Err(error) => assert!(
                        matches!(error.kind, DeviceErrorKind::ZoneFull { .. }),
                        "{error}"
                    ),
                }
            }
        }
    }

    /// Starts appends that the power loss will interrupt. They may be written in
    /// any order, so each block behind the pointer may have any of their contents.
    async fn start_some(&mut self, random: &mut Xoshiro256PlusPlus) {
        let report = self.device.report().await.unwrap();
        let write_through = std::mem::take(&mut self.write_through);
        for zone in report.into_iter().take(ZONES as usize) {
            if zone.state == ZoneState::Full || zone.state == ZoneState::Unknown {
                continue;
            }
            let mut all = Vec::new();
            for _ in 0..random.random_range(0..3) {
                let (data, tags) = self.data(2);
                drop(self.device.append(zone.zone, data, Placement(0)));
                all.extend(tags);
            }
            let first = zone.write_pointer / BLOCK as u64;
            for block in (first..ZONE_BLOCKS).take(all.len()) {
                for &tag in &all {
                    self.allow(zone.zone, block, tag);
                }
            }
        }
        self.write_through = write_through;
    }

    /// Checks that every surviving block has an allowed value, and takes it as the
    /// only one.
    async fn check(&mut self, device: SharedDevice) {
        self.device = device;
        for report in self.device.report().await.unwrap() {
            let zone = report.zone;
            let mut last = 0;
            for block in 0..ZONE_BLOCKS {
                let at = Address::new(zone, block * BLOCK as u64);
                let buf = self.device.read(at, IoBuf::zeroed(BLOCK)).await.unwrap();
                let tag = u64::from_le_bytes(buf[..8].try_into().unwrap());
                assert_eq!(buf[..8], buf[BLOCK - 8..], "blocks are whole");
                let allowed = self
                    .allowed
                    .entry((zone.0, block))
                    .or_insert_with(|| vec![0]);
                assert!(
                    allowed.contains(&tag),
                    "zone {zone} block {block}: {tag} of {allowed:?}"
                );
                *allowed = vec![tag];
                if !self.device.geometry().random_writes {
                    let is_below = block * (BLOCK as u64) < report.write_pointer;
                    assert_eq!(tag != 0, is_below, "zone {zone} block {block}: {report:?}");
                    assert!(tag == 0 || tag > last, "one life's appends, in order");
                    last = tag;
                }
            }
            check_state(&self.device, zone, report.state, report.write_pointer);
        }
    }
}

fn check_state(device: &SharedDevice, zone: ZoneId, state: ZoneState, write_pointer: u64) {
    let expected = match write_pointer {
        _ if device.geometry().random_writes => ZoneState::Unknown,
        0 => ZoneState::Empty,
        end if end == device.geometry().zone_capacity => ZoneState::Full,
        _ => ZoneState::Closed,
    };
    assert_eq!(state, expected, "zone {zone} after a power loss");
}

async fn survive(seed: u64, device: SharedDevice, power: PowerSwitch, write_through: bool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut oracle = Oracle {
        device,
        allowed: HashMap::new(),
        write_through,
        tag: 0,
    };
    for crash in 0..12 {
        if oracle.device.geometry().random_writes && crash > 0 {
            for zone in (0..ZONES).map(ZoneId) {
                oracle.device.reset(zone).await.unwrap();
            }
            oracle.device.flush().await.unwrap();
            oracle.allowed.clear();
        }
        for _ in 0..random.random_range(1..120) {
            oracle.step(&mut random).await;
        }
        oracle.start_some(&mut random).await;
        power.crash(seed ^ crash);
        assert!(power.is_off());
        let gone = oracle.device.flush().await.unwrap_err();
        assert!(matches!(gone.kind, DeviceErrorKind::Gone), "{gone}");
        oracle.check(power.reopen()).await;
        assert!(!power.is_off());
    }
}

#[test]
fn simulated_ssds_survive() {
    for seed in 0..40 {
        for (zoned, volatile_cache) in [(true, true), (true, false), (false, true), (false, false)]
        {
            virtual_time::run(seed, |clock| async move {
                let config = config(zoned, volatile_cache);
                let (device, power) = SimDevice::with_power(&config, &clock).unwrap();
                survive(seed, device, power, !volatile_cache).await;
            });
        }
    }
}

#[test]
fn whole_simulated_ssds_survive() {
    for seed in 0..4 {
        for model in [SimModel::Zn540, SimModel::Sn540, SimModel::Optane] {
            virtual_time::run(seed, |clock| async move {
                let config = whole_ssd(model);
                let (device, power) = SimDevice::with_power(&config, &clock).unwrap();
                survive(seed, device, power, true).await;
            });
        }
    }
}

#[test]
fn memory_survives() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for seed in 0..40 {
        for cache in [
            WriteCache::None,
            WriteCache::Volatile { bytes_max: 1 << 30 },
        ] {
            let config = config(false, false);
            let geometry = config.geometry(config.size.unwrap()).unwrap();
            let (device, power) = MemoryDevice::with_power(geometry, cache);
            runtime.block_on(survive(seed, device, power, cache == WriteCache::None));
        }
    }
}

#[test]
fn the_power_is_cut_at_the_chosen_operation() {
    virtual_time::run(3, |clock| async move {
        let (device, power) = SimDevice::with_power(&config(true, true), &clock).unwrap();
        power.crash_after(3, 9);
        let data = IoBuf::zeroed(BLOCK).freeze();
        for _ in 0..2 {
            device
                .append(ZoneId(0), data.clone(), Placement(0))
                .await
                .unwrap();
        }
        assert!(device.append(ZoneId(0), data, Placement(0)).await.is_err());
        assert!(power.is_off());
    });
}

#[test]
fn one_seed_always_gives_the_same_surviving_data() {
    let survivor = |seed| {
        virtual_time::run(seed, |clock| async move {
            let (device, power) = SimDevice::with_power(&config(false, true), &clock).unwrap();
            for i in 0..20 {
                let data = IoBuf::copy_of(&[i + 1], 2 * BLOCK).freeze();
                device.append(ZoneId(0), data, Placement(0)).await.unwrap();
            }
            power.crash(seed);
            let device = power.reopen();
            let whole = IoBuf::zeroed(40 * BLOCK);
            device
                .read(Address::new(ZoneId(0), 0), whole)
                .await
                .unwrap()
                .to_vec()
        })
    };
    assert_eq!(survivor(1), survivor(1));
    assert!((2..20).any(|seed| survivor(seed) != survivor(1)));
}
