//! Large values: written and read in pieces.
//!
//! | file | content |
//! |---|---|
//! | `stream_scheduler.rs` | permits for values to stream in |
//! | `writer.rs` | writes one value |
//! | `reader.rs` | reads one value, or a range of it |
//! | `reads.rs` | reads that readers share |
//! | `descriptors.rs` | descriptors of recently read or written values |
//!
//! A panic during a write or read ends that value: its writer's zone or slot is
//! released as if the writer were dropped, and a reader's value is a miss.

mod descriptors;
mod reader;
mod reads;
mod stream_scheduler;
mod writer;

use std::sync::Arc;

use super::base::Base;
use super::environment::Environment;
use super::index::Index;
use super::placement::Placement;
use super::write_buffer::WriteBuffer;
use super::zones::Zones;
use descriptors::DescriptorCache;
use reads::Reads;
use stream_scheduler::StreamScheduler;

pub(crate) use reader::LargeReader;
pub(crate) use writer::LargeWriter;

/// The shared state of a cache's large values.
#[derive(Debug)]
pub(crate) struct LargeValues {
    env: Arc<Environment>,
    index: Arc<Index>,
    zones: Arc<Zones>,
    placement: Placement,
    buffer: Arc<WriteBuffer>,
    scheduler: Arc<StreamScheduler>,
    descriptors: DescriptorCache,
    reads: Arc<Reads>,
}

impl LargeValues {
    pub(crate) fn new(base: &Base, placement: &Placement, buffer: &Arc<WriteBuffer>) -> Arc<Self> {
        let Base {
            env, index, zones, ..
        } = base.clone();
        Arc::new(LargeValues {
            placement: placement.clone(),
            buffer: Arc::clone(buffer),
            scheduler: StreamScheduler::new(&env.plan),
            descriptors: DescriptorCache::new(),
            reads: Reads::new(&env),
            env,
            index,
            zones,
        })
    }

    /// Ends all streams, and grants no further permits.
    pub(crate) fn stop(&self) {
        self.scheduler.close();
    }

    /// Bytes reserved for streaming values.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.scheduler.promised_bytes()
    }
}
