//! The conformance suite on every block device.

use std::sync::Arc;

use floe_core::ByteSize;
use floe_device::block::conformance;
use floe_device::{MemoryBlocks, PowerGroup, SharedBlockDevice};

fn run(main: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(main);
}

#[test]
fn memory() {
    for block in [512, 4096] {
        let size = ByteSize(conformance::SIZE_BYTES_MIN + 3 * u64::from(block));
        let plain: SharedBlockDevice = Arc::new(MemoryBlocks::new(size, block).unwrap());
        let powered = PowerGroup::default().add(size, block).unwrap();
        run(async {
            conformance::check(&plain).await;
            conformance::check(&powered).await;
        });
    }
}
