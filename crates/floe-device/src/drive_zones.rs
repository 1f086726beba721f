//! Checks that NVMe namespaces and block devices with zones share when they open.
//!
//! Must not depend on: how a drive is reached.

use floe_core::{ByteSize, Geometry};

use crate::buffer::IoBuf;
use crate::config::{DeviceConfig, lower};
use crate::contract::ZoneState;
use crate::file::contents::{Contents, cache_in};

/// Floe's superblocks lie in so many zones from the first one on.
const SUPERBLOCK_ZONES: usize = 2;
/// No structure that identifies a cache is longer.
const START_BYTES: usize = 4096;

/// Data in zones, of which neither of those for superblocks begins as a cache does.
pub(crate) const OTHER_ZONE: &str = "a written zone that is not Floe's";

/// A zone of a drive, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriveZone {
    pub(crate) start: u64,
    pub(crate) state: ZoneState,
    /// Bytes written; only known of zones that take more.
    pub(crate) written: u64,
}

impl DriveZone {
    fn has_data(&self) -> bool {
        match self.state {
            ZoneState::Empty | ZoneState::Offline => false,
            ZoneState::Open | ZoneState::Closed => self.written > 0,
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Unknown => true,
        }
    }
}

/// The contents of a drive, of which `read` fills a buffer from a byte on. If neither of
/// the zones for superblocks begins as a cache does, any zone with data is foreign, unless
/// the drive has made it read-only, so that Floe cannot overwrite it.
pub(crate) fn contents<E>(
    zones: &[DriveZone],
    block_bytes: u32,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Contents, E> {
    let mut start = IoBuf::zeroed(START_BYTES.max(block_bytes as usize));
    let mut failure = None;
    let superblock_zones = zones.iter().take(SUPERBLOCK_ZONES);
    for zone in superblock_zones.filter(|zone| zone.has_data()) {
        match read(zone.start, &mut start) {
            Err(error) => failure = Some(error),
            Ok(()) => {
                if let Some(cache) = cache_in(&start) {
                    return Ok(cache);
                }
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let is_foreign = |zone: &&DriveZone| zone.has_data() && zone.state != ZoneState::ReadOnly;
    let foreign = zones.iter().find(is_foreign);
    Ok(foreign.map_or(Contents::Empty, |zone| Contents::Foreign {
        offset: zone.start,
        what: OTHER_ZONE,
    }))
}

/// Checks that the settings of zones are unset, or those of the drive.
///
/// # Errors
/// The reason why they do not fit.
pub(crate) fn check_settings(
    config: &DeviceConfig,
    zone_size: u64,
    zone_capacity: u64,
) -> Result<(), String> {
    for (setting, wanted, found) in [
        ("zone_size", config.zone_size_of_drive(), zone_size),
        ("zone_capacity", config.zone_capacity, zone_capacity),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| wanted.bytes() != found) {
            let found = ByteSize(found);
            return Err(format!(
                "its zones have a {setting} of {found}, not the configured {wanted}; leave it unset"
            ));
        }
    }
    Ok(())
}

/// Lowers the limit of active zones by those that are active behind the zones of
/// `geometry`. The drive allows `most`, and `states` are those of all its zones.
///
/// # Errors
/// The reason, if none may be active.
pub(crate) fn leave_active(
    geometry: &mut Geometry,
    most: Option<u32>,
    states: impl Iterator<Item = ZoneState>,
) -> Result<(), String> {
    let behind = states.skip(geometry.zone_count as usize);
    let is_active = |state: &ZoneState| matches!(state, ZoneState::Open | ZoneState::Closed);
    let active = behind.filter(is_active).count() as u32;
    let left = most.map(|most| most.saturating_sub(active));
    geometry.max_active_zones = lower(geometry.max_active_zones, left);
    match geometry.max_active_zones {
        Some(0) => Err(format!(
            "{active} zones behind the configured size are active, as many as the drive allows; \
             reset or finish them"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u64 = 1 << 20;

    fn zones(states: &[(ZoneState, u64)]) -> Vec<DriveZone> {
        let states = (0..).zip(states);
        states
            .map(|(number, &(state, written))| DriveZone {
                start: number * ZONE,
                state,
                written,
            })
            .collect()
    }

    /// A block that claims to be a superblock.
    fn claim() -> [u8; 8] {
        floe_core::layout::Structure::Superblock.magic()
    }

    /// The contents of zones, of which those in `claims` begin as those of a cache do.
    fn look(states: &[(ZoneState, u64)], claims: &[u64]) -> Contents {
        let found = contents(&zones(states), 4096, |offset, buf| {
            buf.fill(0x5a);
            if claims.contains(&(offset / ZONE)) {
                buf[..8].copy_from_slice(&claim());
            }
            Ok::<(), ()>(())
        });
        found.unwrap()
    }

    #[test]
    fn only_the_zones_of_superblocks_make_a_drive_a_cache() {
        use ZoneState::{Closed, Empty, Full, Offline, Open, ReadOnly};
        let full = (Full, 0);
        for first in [(Empty, 0), (Offline, 0), (ReadOnly, 0), full, (Open, 4096)] {
            let is_cache = |claims: &[u64]| {
                let found = look(&[first, full, full], claims);
                matches!(found, Contents::Cache(_))
            };
            assert!(is_cache(&[1]), "{first:?}");
            assert!(!is_cache(&[2]), "a later zone may be a copy: {first:?}");
        }
        let empty = [
            (Empty, 0),
            (Offline, 0),
            (ReadOnly, 0),
            (Open, 0),
            (Closed, 0),
        ];
        assert_eq!(look(&empty, &[]), Contents::Empty);
        let foreign = look(&[(Empty, 0), (Empty, 0), (Closed, 4096)], &[2]);
        assert!(matches!(foreign, Contents::Foreign { offset, .. } if offset == 2 * ZONE));
    }

    #[test]
    fn one_readable_superblock_is_enough_and_none_is_an_error() {
        let all = zones(&[(ZoneState::Full, 0); 3]);
        let found = contents(&all, 4096, |offset, buf| match offset {
            0 => Err("unreadable"),
            _ => {
                buf[..8].copy_from_slice(&claim());
                Ok(())
            }
        });
        assert!(matches!(found, Ok(Contents::Cache(_))));
        assert_eq!(
            contents(&all, 4096, |_, _| Err("unreadable")),
            Err("unreadable")
        );
    }

    #[test]
    fn active_zones_behind_the_device_lower_the_limit() {
        let mut geometry = Geometry {
            block_size: 4096,
            zone_size: ZONE,
            zone_capacity: ZONE,
            zone_count: 2,
            max_open_zones: None,
            max_active_zones: Some(4),
            max_append_bytes: 4096,
            random_writes: false,
            native_append: true,
            placement_handles: 0,
        };
        let states = [
            ZoneState::Closed,
            ZoneState::Closed,
            ZoneState::Closed,
            ZoneState::Full,
            ZoneState::Open,
        ];
        leave_active(&mut geometry, Some(5), states.into_iter()).unwrap();
        assert_eq!(geometry.max_active_zones, Some(3));
        assert!(leave_active(&mut geometry, Some(2), states.into_iter()).is_err());
        geometry.max_active_zones = None;
        leave_active(&mut geometry, None, states.into_iter()).unwrap();
        assert_eq!(geometry.max_active_zones, None);
    }
}
