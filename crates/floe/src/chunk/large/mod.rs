//! Large values: streamed onto flash in pieces, read back in pieces.
//!
//! | file | for |
//! |---|---|
//! | `stream_scheduler.rs` | which values stream in now |
//! | `writer.rs` | one value on its way to flash |
//! | `reader.rs` | one value, or a range of it, on its way back |
//! | `reads.rs` | reads that readers share |
//! | `descriptors.rs` | descriptors of values that were read or written lately |
//!
//! A panic while a value is written or read ends that value: its writer's place
//! is given back as when the writer is dropped, and a reader's value is a miss.

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
use descriptors::DescriptorCache;
use reads::Reads;
use stream_scheduler::StreamScheduler;

pub(crate) use reader::LargeReader;
pub(crate) use writer::LargeWriter;

/// The common state of a cache's large values.
#[derive(Debug)]
pub(crate) struct LargeValues {
    env: Arc<Environment>,
    index: Arc<Index>,
    placement: Placement,
    buffer: Arc<WriteBuffer>,
    scheduler: Arc<StreamScheduler>,
    descriptors: DescriptorCache,
    reads: Arc<Reads>,
}

impl LargeValues {
    pub(crate) fn new(base: &Base, placement: &Placement, buffer: &Arc<WriteBuffer>) -> Arc<Self> {
        let Base { env, index, .. } = base.clone();
        Arc::new(LargeValues {
            placement: placement.clone(),
            buffer: Arc::clone(buffer),
            scheduler: StreamScheduler::new(&env.plan),
            descriptors: DescriptorCache::new(),
            reads: Reads::new(&env),
            env,
            index,
        })
    }

    /// Lets no value stream in any more.
    pub(crate) fn stop(&self) {
        self.scheduler.close();
    }

    /// Bytes promised to values that are streaming in.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.scheduler.promised_bytes()
    }
}
