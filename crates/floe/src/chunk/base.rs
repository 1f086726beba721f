//! The parts that all others use.

use std::sync::Arc;

use floe_core::layout::{ZoneHeader, ZoneLayout, ZoneLife};
use floe_device::{DeviceError, DeviceErrorKind, IoBuf, Operation};

use super::environment::Environment;
use super::index::Index;
use super::journal::Journal;
use super::write_error::WriteError;
use super::zones::Zones;

/// Handles of the lowest parts; each higher part clones those that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) env: Arc<Environment>,
    pub(crate) index: Arc<Index>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) zones: Arc<Zones>,
}

impl Base {
    /// Starts `life` in a free zone. Returns its header, which the caller
    /// writes with `operation`.
    pub(crate) async fn begin_life(
        &self,
        life: ZoneLife,
        layout: ZoneLayout,
        operation: Operation,
    ) -> Result<IoBuf, WriteError> {
        let env = &self.env;
        // A generation is never reused, whatever is lost: see `Journal::reserve_generation`.
        let reserved = self.journal.reserve_generation(life.generation).await;
        reserved.map_err(|_| DeviceError::new(operation, life.zone, DeviceErrorKind::Gone))?;
        if self.index.states().take_unknown(life.zone) {
            env.device.reset(life.zone).await?;
        }
        let header = ZoneHeader {
            life,
            layout,
            opened_sequence: env.next_sequence(),
        };
        let mut buf = IoBuf::zeroed(ZoneHeader::encoded_bytes(env.block_size()));
        header.encode(env.id, env.block_size(), &mut buf)?;
        Ok(buf)
    }
}
