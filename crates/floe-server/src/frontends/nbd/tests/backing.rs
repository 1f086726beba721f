//! The client for backing devices, against this frontend.

use std::sync::Arc;

use floe::backing::{NbdAddress, NbdBlocks, NbdConfig};
use floe_device::block::conformance;
use floe_device::{Clock, SharedBlockDevice};

use super::support::{Rig, rig};
use super::tls::Identities;
use crate::frontends::nbd::config::TlsMode;

fn check(rig: &Rig, scheme: &str, query: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("{scheme}:///disk?socket={}{query}", rig.path.display());
    let address: NbdAddress = address.parse().unwrap();
    let config = NbdConfig {
        fence_seconds: 0.0,
        ..NbdConfig::default()
    };
    runtime.block_on(async {
        let device = NbdBlocks::open(&address, &config, Clock::real()).await;
        let device: SharedBlockDevice = Arc::new(device.unwrap());
        conformance::check(&device).await;
    });
}

#[test]
fn an_export_passes_the_suite_of_block_devices() {
    check(&rig(), "nbd+unix", "");
}

#[test]
fn an_encrypted_export_passes_the_suite_of_block_devices() {
    let identities = Identities::new();
    let rig = identities.rig(TlsMode::Required, |_| {});
    let query = format!("&tls-certificates={}", identities.path("").display());
    check(&rig, "nbds+unix", &query);
}

#[test]
fn an_address_without_encryption_is_told_to_use_it() {
    let identities = Identities::new();
    let rig = identities.rig(TlsMode::Required, |_| {});
    let address = format!("nbd+unix:///disk?socket={}", rig.path.display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(NbdBlocks::open(
        &address.parse().unwrap(),
        &NbdConfig::default(),
        Clock::real(),
    ));
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("STARTTLS"), "{error}");
}
