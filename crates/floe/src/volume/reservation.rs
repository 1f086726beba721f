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
) -> Result<Standing, OpenVolumesError> {
    if config.read_only || config.reserve == Reserve::Off {
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
            holder: match holder {
                Some(key) => format!("by the key {}", ReservationKey(key)),
                None => "by a key that this kernel does not tell; `nvme resv-report` or `sg_persist --read-reservation` does".to_owned(),
            },
            own,
        }),
        Ok(Reserved::Unsupported) if is_required => {
            Err(OpenVolumesError::NoReservations(backing.describe()))
        }
        Ok(Reserved::Unsupported) => Ok(Standing::NotReserved),
        Err(error) if is_required => Err(VolumeError::backing(error).into()),
        Err(error) => {
            tracing::warn!(volume = name, %error, "the backing device could not be reserved");
            Ok(Standing::NotReserved)
        }
    }
}

/// True if another machine may have written to the backing device of `known`, which was
/// reserved. Who turns reservations off, or names its own key, says that none has.
pub(super) fn is_lost(
    known: &VolumeEntry,
    standing: Standing,
    config: &VolumeConfig,
    own: ReservationKey,
) -> bool {
    let is_confirmed = config.reserve == Reserve::Off || config.take_from == Some(own);
    known.is_reserved && standing != Standing::Kept && !is_confirmed
}

/// Gives the reservation of a backing device up, whose data is all on it.
pub(super) async fn release(name: &str, backing: &SharedBlockDevice, own: ReservationKey) {
    if let Err(error) = backing.release(own.0).await {
        tracing::warn!(volume = name, %error, "the backing device stays reserved for this machine");
    }
}
