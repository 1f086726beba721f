//! The single-flight kernel under a model checker: the production source with
//! the checker's lock, in many thousands of interleavings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use flight::{Flight, Flights, Landing, Next};
use shuttle::future::block_on;
use shuttle::thread;
use version::ChunkId;

#[allow(dead_code)]
#[path = "../src/object/flight.rs"]
mod flight;

/// The module that the kernel imports.
mod error {
    pub(crate) use floe::object::ObjectError;
}

mod version {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct ChunkId {
        pub(crate) chunk: u64,
    }

    impl ChunkId {
        pub(crate) fn shard(self, shards: usize) -> usize {
            self.chunk as usize % shards
        }
    }
}

/// The module that the kernel imports.
#[allow(dead_code, unused_imports)]
#[path = "common/model_lock.rs"]
mod lock;

const CHUNK: ChunkId = ChunkId { chunk: 3 };
const PIECES: u8 = 5;

/// How the fetch ends.
#[derive(Clone, Copy)]
enum End {
    Complete,
    Fails,
}

/// The shared state of one execution.
struct World {
    flights: Flights,
    /// The store has the chunk if not zero.
    stored: AtomicUsize,
    fetches: AtomicUsize,
    window: u64,
    end: End,
}

impl World {
    /// Fetches the chunk as `fetch.rs` does: bytes, landing, store, retirement.
    fn pump(&self, flight: &Arc<Flight>) {
        self.fetches.fetch_add(1, SeqCst);
        for piece in 0..PIECES {
            if matches!(self.end, End::Fails) && piece == 2 {
                self.flights.retire(flight);
                flight.land(Landing::Failed(floe::object::ObjectError::Stopped));
                return;
            }
            block_on(flight.room(1));
            flight.push(Bytes::copy_from_slice(&[piece]));
        }
        flight.land(Landing::Complete);
        self.stored.store(1, SeqCst);
        self.flights.retire(flight);
    }

    /// Reads `from..PIECES`, or leaves after `most` pieces.
    fn read(self: &Arc<Self>, from: u8, most: usize) -> Option<thread::JoinHandle<()>> {
        if self.stored.load(SeqCst) == 1 {
            return None;
        }
        let (flight, begun) = self.flights.join_or_begin(CHUNK, self.window);
        let mut reader = flight.reader(u64::from(from), u64::from(PIECES));
        let pump = begun.then(|| {
            let (world, flight) = (Arc::clone(self), Arc::clone(&flight));
            thread::spawn(move || {
                // As in the fetch, after new readers can join it.
                if world.stored.load(SeqCst) == 1 {
                    flight.land(Landing::Stored);
                    world.flights.retire(&flight);
                } else {
                    world.pump(&flight);
                }
            })
        });
        let mut expected = from;
        for _ in 0..most {
            match block_on(reader.next()) {
                Next::Bytes(bytes) => {
                    for byte in bytes {
                        assert_eq!(byte, expected, "bytes in order, none lost, none twice");
                        expected += 1;
                    }
                }
                Next::End => {
                    assert_eq!(expected, PIECES);
                    block_on(reader.into_flight().retired());
                    assert_eq!(self.stored.load(SeqCst), 1, "retired when it is stored");
                    break;
                }
                Next::Stored => {
                    assert_eq!(self.stored.load(SeqCst), 1);
                    break;
                }
                Next::Behind => {
                    // A large window holds all pieces, so only a small one can
                    // leave readers behind.
                    assert!(self.window < u64::from(PIECES) || self.stored.load(SeqCst) == 1);
                    break;
                }
                Next::Failed(_) => {
                    assert!(matches!(self.end, End::Fails));
                    break;
                }
            }
        }
        pump
    }
}

/// Runs `test` under the checker, `runs` times.
fn check(runs: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let scheduler = shuttle::scheduler::RandomScheduler::new(runs);
    shuttle::Runner::new(scheduler, config).run(test);
}

fn explore(window: u64, end: End, readers: &'static [(u8, usize)]) {
    check(3_000, move || {
        let world = Arc::new(World {
            flights: Flights::new(),
            stored: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
            window,
            end,
        });
        let threads: Vec<_> = readers
            .iter()
            .map(|&(from, most)| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.read(from, most))
            })
            .collect();
        for thread in threads {
            if let Some(pump) = thread.join().unwrap() {
                pump.join().unwrap();
            }
        }
        assert_eq!(world.flights.len(), 0, "nothing is left behind");
        if matches!(end, End::Complete) {
            assert_eq!(
                world.fetches.load(SeqCst),
                1,
                "one fetch, whoever came when"
            );
        }
    });
}

#[test]
fn all_readers_get_all_bytes_of_one_fetch() {
    explore(100, End::Complete, &[(0, 100), (0, 100), (2, 100)]);
}

#[test]
fn dropped_readers_stop_no_other_reader() {
    explore(100, End::Complete, &[(0, 1), (0, 100), (0, 0)]);
}

#[test]
fn a_small_window_waits_for_the_fastest_reader_and_leaves_others_behind() {
    explore(2, End::Complete, &[(0, 100), (0, 100), (3, 100)]);
}

#[test]
fn a_failure_reaches_every_waiting_reader() {
    explore(100, End::Fails, &[(0, 100), (1, 100), (0, 1)]);
}

/// Bytes whose owner asks its flight when it is dropped.
struct Owner {
    flight: Arc<Flight>,
    dropped: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &[0; 4]
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.flight.shed();
        self.dropped.fetch_add(1, SeqCst);
    }
}

/// Under the lock, the checker would find a deadlock.
#[test]
fn bytes_are_dropped_after_the_lock_of_their_flight() {
    check(1, || {
        let flights = Flights::new();
        let dropped = Arc::<AtomicUsize>::default();
        for (chunk, landing) in [(1, Landing::Complete), (2, Landing::Stored)] {
            let (flight, _) = flights.join_or_begin(ChunkId { chunk }, 4);
            for _ in 0..3 {
                flight.push(Bytes::from_owner(Owner {
                    flight: Arc::clone(&flight),
                    dropped: Arc::clone(&dropped),
                }));
            }
            flight.land(landing);
            flights.retire(&flight);
        }
        assert_eq!(dropped.load(SeqCst), 6);
    });
}
