//! A device that forgets: what was written in place since the last flush may,
//! after a power loss, be there or not, block by block and in any order.

use floe_device::{
    Address, Counters, Device, Geometry, IoBuf, IoData, MemoryDevice, OpFuture, Placement, ZoneId,
    ZoneReport,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

/// What a block held before it was written.
#[derive(Debug)]
struct Undo {
    at: Address,
    before: Vec<u8>,
}

#[derive(Debug)]
pub struct Volatile {
    below: Arc<MemoryDevice>,
    unflushed: Mutex<Vec<Undo>>,
}

impl Volatile {
    pub fn new(below: Arc<MemoryDevice>) -> Self {
        Volatile {
            below,
            unflushed: Mutex::default(),
        }
    }

    /// Takes back some of what was not flushed, chosen by `seed`.
    pub fn lose_power(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        // Everything, nothing, or any mixture.
        let share = [0.0, 0.2, 0.5, 0.9, 1.0][random.random_range(0..5)];
        for undo in self.unflushed.lock().drain(..).rev() {
            if random.random::<f64>() >= share {
                continue;
            }
            let mut block = undo.before;
            if random.random::<f64>() < 0.1 {
                let len = block.len();
                random.fill(&mut block[len / 2..]);
            }
            let data = IoBuf::copy_of(&block, block.len()).freeze();
            drop(self.below.write(undo.at, data, Placement(0)));
        }
    }

    /// Operations in memory are over when their method returns.
    fn read_now(&self, at: Address, len: usize) -> Option<Vec<u8>> {
        let mut read = self.below.read(at, IoBuf::zeroed(len));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        match std::pin::Pin::new(&mut read).poll(&mut context) {
            std::task::Poll::Ready(Ok(buf)) => Some(buf.to_vec()),
            _ => None,
        }
    }
}

impl Device for Volatile {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn describe(&self) -> String {
        "volatile memory".to_owned()
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(at, buf)
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.below.append(zone, data, placement)
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let block = self.geometry().block_size as usize;
        if let Some(before) = self.read_now(at, data.len()) {
            let mut unflushed = self.unflushed.lock();
            for (number, before) in before.chunks(block).enumerate() {
                unflushed.push(Undo {
                    at: Address::new(at.zone, at.offset + (number * block) as u64),
                    before: before.to_vec(),
                });
            }
        }
        self.below.write(at, data, placement)
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.unflushed.lock().retain(|undo| undo.at.zone != zone);
        self.below.reset(zone)
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        self.below.finish(zone)
    }

    fn flush(&self) -> OpFuture<()> {
        self.unflushed.lock().clear();
        self.below.flush()
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        self.below.report()
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}
