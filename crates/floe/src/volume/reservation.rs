//! Reservations of backing devices that several machines reach: two caches of one device
//! would each serve what the other has overwritten.

use floe_core::layout::volume::VolumeEntry;
use floe_device::{Reserved, SharedBlockDevice};

use super::config::VolumeConfig;
use super::error::{OpenVolumesError, VolumeError};
use super::reservation_key::{ReservationKey, Reserve};

/// The knowledge of this machine about writes of others to a backing device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not reserved.
    NotReserved,
    /// It is reserved now, and was not before: another machine may have written.
    Taken,
    /// It was reserved all the time.
    Kept,
}

/// Reserves the backing device of the volume `name`, as `config` says.
///
/// # Errors
/// Another machine holds it; it cannot be reserved, and must be.
pub(super) async fn reserve(
    name: &str,
    backing: &SharedBlockDevice,
    config: &VolumeConfig,
    own: ReservationKey,
    was_reserved: bool,
) -> Result<Standing, OpenVolumesError> {
    let reserves_nothing = config.read_only && !was_reserved;
    if reserves_nothing || config.reserve == Reserve::Off {
        return Ok(Standing::NotReserved);
    }
    let is_required = config.reserve == Reserve::Required;
    let taken_from = config.take_from.map(|key| key.0);
    match backing.reserve(own.0, taken_from).await {
        Ok(Reserved::Held { was_held }) => {
            tracing::info!(
                volume = name, backing = %backing.describe(), key = %own,
                "the backing device is reserved for this machine"
            );
            Ok(match was_held {
                true => Standing::Kept,
                false => Standing::Taken,
            })
        }
        Ok(Reserved::Elsewhere(holder)) => Err(OpenVolumesError::Reserved {
            name: name.to_owned(),
            holder: match (holder.key, holder.name) {
                (Some(key), Some(name)) => format!("{name}, by the key {}", ReservationKey(key)),
                (Some(key), None) => format!("by the key {}", ReservationKey(key)),
                (None, _) => "by a key that this kernel does not tell; `nvme resv-report` or `sg_persist --read-reservation` does".to_owned(),
            },
            own,
        }),
        Ok(Reserved::Unsupported) if is_required => {
            Err(OpenVolumesError::NoReservations(backing.describe()))
        }
        Ok(Reserved::Unsupported) => Ok(Standing::NotReserved),
        Err(error) => Err(OpenVolumesError::ReservationUnknown {
            name: name.to_owned(),
            error,
        }),
    }
}

/// True if another machine may have written to the backing device of `known`. Who turns
/// reservations off, or names its own key, says that none has.
pub(super) fn is_lost(
    known: &VolumeEntry,
    standing: Standing,
    config: &VolumeConfig,
    own: ReservationKey,
) -> bool {
    let may_be = match standing {
        Standing::Kept => false,
        Standing::Taken => true,
        Standing::NotReserved => known.is_reserved,
    };
    let is_confirmed = config.reserve == Reserve::Off || config.take_from == Some(own);
    may_be && !is_confirmed
}

/// Notes that all that another machine may have changed is known: later, this reservation tells
/// that none has.
pub(super) async fn confirm(
    backing: &SharedBlockDevice,
    standing: Standing,
    own: ReservationKey,
) -> Result<(), OpenVolumesError> {
    match standing {
        Standing::NotReserved | Standing::Kept => Ok(()),
        Standing::Taken => Ok(backing.confirm(own.0).await.map_err(VolumeError::backing)?),
    }
}

/// Gives the reservation of a backing device up, whose data is all on it.
pub(super) async fn release(name: &str, backing: &SharedBlockDevice, own: ReservationKey) {
    if let Err(error) = backing.release(own.0).await {
        tracing::warn!(volume = name, %error, "the backing device stays reserved for this machine");
    }
}
