//! Quantities that follow from a configuration, and its checks.

use floe_core::ByteSize;
use floe_core::ssd::{ConfigFault, Interface, Ssd, SsdConfig};
use floe_device::sim::kept_ssd;

use super::config::{EvictionPolicy, HostConfig, Placement, StartState};
use crate::error::EvalError;

/// Quantities that follow from the configuration.
pub(super) struct Plan {
    pub(super) requests: u64,
    pub(super) is_zoned: bool,
    pub(super) zone_distance: u64,
    /// Bytes of a zone.
    pub(super) capacity: ByteSize,
    pub(super) chunk: u64,
    pub(super) call: u64,
    pub(super) calls: u32,
    pub(super) slots: u32,
    pub(super) fills_zone: bool,
    pub(super) appends: bool,
}

impl Plan {
    pub(super) fn new(config: &HostConfig, device: &SsdConfig) -> Result<Self, EvalError> {
        let fail = |option, reason: String| Err(EvalError::Option { option, reason });
        let Some(flash) = device.flash() else {
            return fail(
                "device",
                format!("`{}` has no superblocks, hence no zones", device.name),
            );
        };
        let zoned = match &flash.interface {
            Interface::Zoned(zoned) => Some(zoned),
            Interface::Conventional(_) => None,
        };
        let capacity = flash.superblock.bytes();
        let chunk = config.chunk.bytes();
        let block = device.block.bytes();
        if chunk == 0 || !chunk.is_multiple_of(block) || chunk > capacity {
            return fail(
                "chunk",
                format!(
                    "{} is not a multiple of the device's block up to a zone's capacity, {}",
                    config.chunk, flash.superblock
                ),
            );
        }
        let zones_max = match zoned {
            Some(zoned) => u64::from(zoned.zones),
            None => device.capacity_bytes() / capacity,
        };
        if config.zones == 0 || u64::from(config.zones) > zones_max {
            return fail(
                "zones",
                format!(
                    "{} zones are not between 1 and the device's {zones_max}",
                    config.zones
                ),
            );
        }
        let keys = config.keys();
        if keys == 0 || keys >= u64::from(u32::MAX) {
            return fail("ratio", format!("{keys} keys are not between 1 and 2^32"));
        }
        let requests = config.requests();
        if requests == 0 {
            return fail("io", "there must be I/O for at least one chunk".into());
        }
        config.check_behaviour(zoned.map(|zoned| zoned.active_max))?;
        let io = match zoned {
            Some(_) => config.host.io_zoned,
            None => config.host.io_conventional,
        };
        let call = io.map_or(chunk, |io| io.bytes().clamp(block, chunk));
        let call = call - call % block;
        let appends = zoned.is_some() && config.host.placement == Placement::TakenForWrite;
        if appends && zoned.is_some_and(|zoned| call > zoned.append_max.bytes()) {
            let reason = format!("calls of {call} bytes are more than the device appends at once");
            return fail("io_zoned", reason);
        }
        let slots = capacity / chunk;
        let host = &config.host;
        let chunks = slots * u64::from(config.zones);
        if host.policy == EvictionPolicy::Clru
            && (host.evict_chunks_to <= host.evict_chunks_at
                || u64::from(host.evict_chunks_to) >= chunks)
        {
            return fail(
                "evict_chunks_to",
                format!("must be above evict_chunks_at and below the cache's {chunks} chunks"),
            );
        }
        if host.policy == EvictionPolicy::Clru
            && zoned.is_some()
            && (host.evict_at == 0 || host.active_zones_zoned < 2)
        {
            let reason = "CLRU on zones needs evict_at of at least 1 and active_zones_zoned of at least 2: garbage collection writes to a zone of its own";
            return fail("policy", reason.into());
        }
        Ok(Plan {
            requests,
            is_zoned: zoned.is_some(),
            capacity: flash.superblock,
            zone_distance: zoned.map_or(capacity, |zoned| zoned.zone_size.bytes()),
            chunk,
            call,
            calls: chunk.div_ceil(call) as u32,
            slots: slots as u32,
            fills_zone: slots * chunk == capacity,
            appends,
        })
    }
}

/// The device in its initial state.
pub(super) fn prepared(
    config: &HostConfig,
    device: SsdConfig,
    seed: u64,
) -> Result<Ssd, EvalError> {
    let make = |device| {
        let mut ssd = Ssd::new(device, seed)?;
        if config.start == StartState::Preconditioned {
            ssd.precondition();
        }
        Ok(ssd)
    };
    let fail = |option, why: &dyn std::fmt::Display| EvalError::Option {
        option,
        reason: why.to_string(),
    };
    match &config.state {
        None => make(device).map_err(|fault: ConfigFault| fail("device", &fault)),
        Some(path) => kept_ssd(path, device, make).map_err(|error| fail("state", &error)),
    }
}
