//! A small cache of tiny objects.

use std::sync::Arc;

use floe::Tiny;
use floe::tiny::TinyConfig;
use floe_core::ByteSize;
use floe_core::tiny::nemo::NemoConfig;
use floe_device::{Clock, SharedDevice};

pub(crate) fn tiny_config() -> TinyConfig {
    TinyConfig {
        seed: Some(1),
        ram: ByteSize(0),
        // Fences hold for as many set-groups as memory has.
        nemo: NemoConfig {
            memory_set_groups: 1,
            ..NemoConfig::default()
        },
        ..TinyConfig::default()
    }
}

pub(crate) async fn open_tiny(device: &SharedDevice, clock: &Clock) -> Tiny {
    Tiny::open(Arc::clone(device), clock.clone(), &tiny_config())
        .await
        .expect("opens")
}
