//! The contracts of the engine's parts: what each owns, and what it promises on an
//! error, on a drop and on concurrent use.

mod large_values;
mod reclaimer;
mod removals;
mod small_writer;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe_core::chunk::{ChunkConfig, Plan};
use floe_core::policy::admission::AdmissionConfig;
use floe_core::{ByteSize, Geometry};
use floe_device::virtual_time::VirtualTime;
use floe_device::{Clock, Faults, Faulty, MemoryDevice, SharedDevice};

use super::{AdmissionControl, Engine, EngineStats, OpenOptions, RamPlan};
use crate::value::{PutOptions, PutOutcome};

/// Longer than a small value may be.
const LARGE_BYTES: usize = 600_000;

/// A blank engine on a device of 14 zones of 4 MiB that can fail.
struct Fixture {
    engine: Arc<Engine>,
    device: Arc<Faulty>,
}

/// Runs `test` in virtual time. One that hangs fails.
fn with_engine(test: impl AsyncFnOnce(Fixture)) {
    let hour = VirtualTime::new(1).limit(Duration::from_secs(3600));
    let run = hour.run(async |clock: Clock| test(Fixture::open(clock).await).await);
    assert_eq!(run, Ok(()), "it hangs");
}

fn plan() -> Plan {
    let config = ChunkConfig {
        size: ByteSize::mib(1),
        write_buffer: ByteSize::mib(4),
        ..ChunkConfig::default()
    };
    Plan::new(&config, &geometry()).expect("the plan fits")
}

fn geometry() -> Geometry {
    Geometry {
        max_append_bytes: 512 << 10,
        ..Geometry::in_place(14, 4 << 20)
    }
}

impl Fixture {
    async fn open(clock: Clock) -> Fixture {
        let below: SharedDevice = Arc::new(MemoryDevice::new(geometry()));
        let device = Arc::new(Faulty::new(below, clock.clone(), 1, Faults::default()));
        let ram = RamPlan {
            bytes: 0,
            value_bytes_max: 0,
        };
        let admission = AdmissionControl::new(&AdmissionConfig::default(), 1);
        let options = OpenOptions {
            format: true,
            seed: Some(7),
        };
        let opened = Engine::open(
            device.clone(),
            clock,
            plan(),
            ram,
            admission.expect("everything is admitted"),
            options,
        );
        let (engine, _) = opened.await.expect("the engine opens");
        Fixture { engine, device }
    }

    async fn put(&self, key: &[u8], value: Bytes) -> PutOutcome {
        let put = self.engine.put(key, value, PutOptions::default());
        put.await.expect("a put succeeds")
    }

    async fn get(&self, key: &[u8]) -> Option<Bytes> {
        let found = self.engine.get(key).await.expect("a get succeeds");
        found.map(|(bytes, _)| bytes)
    }

    fn stats(&self) -> EngineStats {
        self.engine.stats()
    }
}
