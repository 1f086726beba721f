//! Clients on the host that drive the servers in the guest and keep the ledgers, so
//! that the ledgers outlive the guest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::service::{Service, Site, on_each, prepare_folders};
use super::stage::Stage;
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::sectors::SECTOR_BYTES;
use crate::blackbox::volume_load::Part;
use crate::crash::items::World;

const ITEM_CONNECTIONS: u64 = 3;

const FIXED_ITEMS: usize = 1_500;

const CHANGING_ITEMS: usize = 400;

/// The share of the fixed items that a restart must still have. The three set-groups in
/// memory hold at most 44 % of them.
pub(super) const KEPT_MIN: f64 = 0.55;

/// Together larger than the cache of the volume, which evicts and cleans under the load.
pub(super) const PARTS: u64 = 2;
pub(super) const PART_SECTORS: u64 = (6 << 20) / SECTOR_BYTES as u64;

/// The load of one site: items, and sectors if the site has a volume.
pub(super) struct Load {
    pub(super) site: Site,
    items: World,
    parts: Vec<Mutex<Part>>,
}

impl Load {
    /// A load on an empty cache and a volume of zeros.
    pub(super) fn new(stage: &Stage, site: Site) -> Self {
        let parts = if site.volume.is_some() { PARTS } else { 0 };
        let part = |number| {
            let sectors = number * PART_SECTORS..(number + 1) * PART_SECTORS;
            let server = Endpoint::Tcp(site.nbd(&stage.machine));
            Mutex::new(Part::new(server, sectors))
        };
        Load {
            site,
            items: World::new(u32::from(site.number), FIXED_ITEMS, CHANGING_ITEMS),
            parts: (0..parts).map(part).collect(),
        }
    }

    /// Sets every missing fixed item.
    pub(super) fn fill(&self, stage: &Stage) -> Result<()> {
        self.items.fill(self.site.memcached(&stage.machine))?;
        self.items.verdicts.truthful()
    }

    /// Drives every connection until `stop`, or until it breaks.
    fn drive(&self, stage: &Stage, seed: u64, stop: &AtomicBool) {
        let address = self.site.memcached(&stage.machine);
        thread::scope(|scope| {
            for number in 0..ITEM_CONNECTIONS {
                scope.spawn(move || self.items.drive(address, seed ^ number, stop));
            }
            for (number, part) in (0..).zip(&self.parts) {
                scope.spawn(move || self.drive_part(part, seed ^ number, stop));
            }
        });
    }

    fn drive_part(&self, part: &Mutex<Part>, seed: u64, stop: &AtomicBool) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut part = lock(part);
        let Ok(mut client) = part.connect() else {
            return;
        };
        while !stop.load(Ordering::Relaxed) {
            match part.step(&mut client, &mut random) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return self.items.verdicts.lie(error.to_string());
                }
                Err(_) => return,
            }
        }
    }

    /// Judges every item and sector. Returns the share of the fixed items that is there.
    ///
    /// # Errors
    /// If the cache lied, or the share is less than `kept_min`.
    pub(super) fn judge(&self, stage: &Stage, kept_min: f64) -> Result<f64> {
        let address = self.site.memcached(&stage.machine);
        let kept = self.items.hits(address, &self.items.fixed)?;
        self.items.hits(address, &self.items.changing)?;
        for part in &self.parts {
            lock(part).verify().context("the volume")?;
        }
        self.items.verdicts.truthful()?;
        ensure!(kept >= kept_min, "the restart was not warm: hits {kept:.3}");
        Ok(kept)
    }

    /// The power has failed: of the volume, only what was flushed is promised.
    pub(super) fn lose_power(&self) {
        for part in &self.parts {
            lock(part).lose_power();
        }
    }

    /// Judged answers and acknowledged writes.
    fn counts(&self) -> (u64, u64) {
        let (mut judged, mut acknowledged) = self.items.verdicts.counts();
        for part in &self.parts {
            let counts = lock(part).counts;
            judged += counts.judged;
            acknowledged += counts.writes;
        }
        (judged, acknowledged)
    }
}

/// The counts of all loads.
pub(super) fn totals(loads: &[Load]) -> String {
    let (mut judged, mut acknowledged) = (0, 0);
    for load in loads {
        let counts = load.counts();
        judged += counts.0;
        acknowledged += counts.1;
    }
    format!("{judged} answers judged, {acknowledged} writes acknowledged, no lie")
}

/// Drives all loads with seeds that derive from `seed`. After `moment`, calls `act`, and
/// then stops.
pub(super) fn under_load<R>(
    stage: &Stage,
    loads: &[Load],
    seed: u64,
    moment: Duration,
    act: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for load in loads {
            let stop = &stop;
            let seed = seed.wrapping_mul(31) ^ u64::from(load.site.number) << 8;
            scope.spawn(move || load.drive(stage, seed, stop));
        }
        thread::sleep(moment);
        let acted = act();
        stop.store(true, Ordering::Relaxed);
        acted
    })
}

/// Starts servers on empty disks. If their drives are to fail, writes may end in errors.
pub(super) fn start(
    stage: &Stage,
    sites: &[Site],
    may_fail: bool,
) -> Result<(Vec<Load>, Vec<Service>)> {
    prepare_folders(&stage.machine)?;
    for site in sites {
        site.prepare(&stage.machine)?;
    }
    let mut loads: Vec<_> = sites.iter().map(|site| Load::new(stage, *site)).collect();
    for load in &mut loads {
        load.items.may_fail = may_fail;
    }
    Ok((loads, Service::start_all(stage, sites)?))
}

/// Fills all sites.
pub(super) fn fill_all(stage: &Stage, loads: &[Load]) -> Result<()> {
    on_each(loads, |load| {
        load.fill(stage).with_context(|| load.site.name)
    })
    .map(drop)
}

/// Judges all sites; returns the shares of the fixed items.
pub(super) fn judge_all(stage: &Stage, loads: &[Load], kept_min: f64) -> Result<Vec<f64>> {
    on_each(loads, |load| {
        load.judge(stage, kept_min).with_context(|| load.site.name)
    })
}

/// A panicking thread fails the run where it is joined.
fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
