//! The client against a server that dies, forgets, delays and lies, in virtual time.

mod server;

use std::sync::Arc;
use std::time::Duration;

use floe_device::block::conformance;
use floe_device::virtual_time;
use floe_device::{BlockDevice, Clock, IoBuf, SharedBlockDevice};
use futures::future::join_all;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::wire::flags;
use super::*;
use server::{Habits, Server};

const SLOT: u64 = 4096;

fn config() -> NbdConfig {
    NbdConfig {
        connections: 2,
        timeout_seconds: 5.0,
        retry_seconds: 30.0,
        fence_seconds: 1.0,
    }
}

async fn open(server: &Arc<Server>, config: &NbdConfig, clock: &Clock) -> NbdBlocks {
    let opened = NbdBlocks::open_over(server.connect(), "disk", config, clock.clone()).await;
    opened.expect("the server is there")
}

#[test]
fn an_export_is_a_block_device() {
    for habits in [
        Habits::default(),
        Habits {
            is_structured: true,
            in_pieces: true,
            ..Habits::default()
        },
        Habits {
            flags: flags::HAS_FLAGS | flags::SEND_FLUSH,
            payload_bytes_max: 16 << 10,
            ..Habits::default()
        },
    ] {
        virtual_time::run(1, |clock| async move {
            let server = Server::new(habits, &clock, 1);
            let fenceless = NbdConfig {
                fence_seconds: 0.0,
                ..config()
            };
            let device: SharedBlockDevice = Arc::new(open(&server, &fenceless, &clock).await);
            if habits.payload_bytes_max > 1 << 20 {
                conformance::check(&device).await;
            } else {
                in_parts(&device).await;
            }
        });
    }
}

/// Requests beyond the server's longest are cut.
async fn in_parts(device: &SharedBlockDevice) {
    let mut data = IoBuf::zeroed(100 << 10);
    for (at, byte) in data.iter_mut().enumerate() {
        *byte = (at / 512) as u8;
    }
    let data = data.freeze();
    device
        .write(512, data.clone())
        .await
        .expect("it is written");
    device.write_zeroes(4096..8192).await.expect("it is zeroed");
    device.discard(8192..9216).await.expect("it is discarded");
    let found = device.read(512, IoBuf::zeroed(100 << 10)).await;
    let found = found.expect("it is read");
    assert!(found[..3584] == data[..3584] && found[7680..] == data[7680..]);
    assert!(found[3584..7680].iter().all(|byte| *byte == 0));
}

/// Slots with versions, written and read by tasks of their own.
struct Slots {
    device: NbdBlocks,
    server: Arc<Server>,
    /// Versions that were acknowledged.
    acknowledged: parking_lot::Mutex<Vec<u64>>,
}

impl Slots {
    async fn work(&self, slots: std::ops::Range<u64>, seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for version in 1..120 {
            let slot = random.random_range(slots.clone());
            match random.random_range(0..8) {
                0..4 => {
                    let mut data = IoBuf::zeroed(SLOT as usize);
                    let (words, _) = data.as_chunks_mut::<8>();
                    words.fill(version_u64(version).to_le_bytes());
                    let written = self.device.write(slot * SLOT, data.freeze()).await;
                    written.expect("the server returns in time");
                    self.acknowledged.lock()[slot as usize] = version_u64(version);
                }
                4 => {
                    let range = slot * SLOT..(slot + 1) * SLOT;
                    let zeroed = self.device.write_zeroes(range).await;
                    zeroed.expect("the server returns in time");
                    self.acknowledged.lock()[slot as usize] = 0;
                }
                5 => {
                    let before = self.acknowledged.lock().clone();
                    let flushed = self.device.flush().await;
                    flushed.expect("the server returns in time");
                    for slot in slots.clone() {
                        // Nothing of this task was written meanwhile.
                        let durable = self.server.durable(slot * SLOT..(slot + 1) * SLOT);
                        self.check(slot, before[slot as usize], &durable);
                    }
                }
                _ => {
                    let buf = IoBuf::zeroed(SLOT as usize);
                    let found = self.device.read(slot * SLOT, buf).await;
                    let found = found.expect("the server returns in time");
                    let expected = self.acknowledged.lock()[slot as usize];
                    self.check(slot, expected, &found);
                }
            }
        }
    }

    fn check(&self, slot: u64, expected: u64, found: &[u8]) {
        let (words, _) = found.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            let found = u64::from_le_bytes(*word);
            assert_eq!(found, expected, "slot {slot}, word {at}");
        }
    }
}

fn version_u64(version: i32) -> u64 {
    u64::try_from(version).expect("versions count up")
}

/// Works against a server that dies often. Returns its deaths, and the changes that
/// landed after them.
fn die_often(seed: u64) -> (u64, u64) {
    virtual_time::run(seed, |clock| async move {
        let habits = Habits {
            is_structured: seed.is_multiple_of(2),
            deaths_per_thousand: 15,
            crashes_per_thousand: 8,
            delay_max: Duration::from_millis(300),
            ..Habits::default()
        };
        let server = Server::new(habits, &clock, seed);
        let slots = Slots {
            device: open(&server, &config(), &clock).await,
            server: Arc::clone(&server),
            acknowledged: parking_lot::Mutex::new(vec![0; 32]),
        };
        let tasks = (0..8).map(|task| slots.work(task * 4..task * 4 + 4, seed << 8 | task));
        join_all(tasks).await;
        let flushed = slots.device.flush().await;
        flushed.expect("the server returns in time");
        server.crash();
        for slot in 0..32 {
            let expected = slots.acknowledged.lock()[slot as usize];
            let durable = server.durable(slot * SLOT..(slot + 1) * SLOT);
            slots.check(slot, expected, &durable);
        }
        (server.deaths(), server.late())
    })
}

#[test]
fn connections_and_servers_that_die_lose_nothing() {
    let is_full = std::env::var_os("FLOE_FULL").is_some();
    let (mut deaths, mut late) = (0, 0);
    for seed in 0..if is_full { 2000 } else { 24 } {
        let (of_seed, late_of_seed) = die_often(seed);
        deaths += of_seed;
        late += late_of_seed;
    }
    assert!(deaths > 10 && late > 10, "{deaths} deaths, {late} late");
}

#[test]
fn a_server_that_does_not_answer_fails_requests_in_time() {
    virtual_time::run(1, |clock| async move {
        let habits = Habits {
            is_silent: true,
            ..Habits::default()
        };
        let server = Server::new(habits, &clock, 1);
        let device = open(&server, &config(), &clock).await;
        let begun = clock.now();
        let read = device.read(0, IoBuf::zeroed(512)).await;
        let error = read.expect_err("no answer comes").to_string();
        assert!(error.contains("has not answered for 5s"), "{error}");
        let write = device.write(0, IoBuf::zeroed(512).freeze()).await;
        write.expect_err("no answer comes");
        assert!(clock.now().since(begun) < Duration::from_secs(90));
    });
}

#[test]
fn a_server_that_returns_with_another_export_gets_no_requests() {
    virtual_time::run(1, |clock| async move {
        let server = Server::new(Habits::default(), &clock, 1);
        let device = open(&server, &config(), &clock).await;
        server.resize(2 << 20);
        server.crash();
        let read = device.read(0, IoBuf::zeroed(512)).await;
        let error = read.expect_err("it is another export").to_string();
        assert!(error.contains("after a connection was lost"), "{error}");
    });
}

#[test]
fn an_export_that_is_resized_has_its_new_size_when_it_is_asked() {
    virtual_time::run(1, |clock| async move {
        let server = Server::new(Habits::default(), &clock, 1);
        let device = open(&server, &config(), &clock).await;
        for size in [6 << 20, 2 << 20] {
            let before = device.size_bytes();
            server.resize(size);
            assert_eq!(device.size_bytes(), before);
            assert_eq!(device.refresh_size().await.expect("it answers"), size);
            assert_eq!(device.size_bytes(), size);
            let data = IoBuf::zeroed(512).freeze();
            let written = device.write(size - 512, data.clone()).await;
            written.expect("it lies within");
            let past = device.write(size, data).await;
            past.expect_err("it lies past the end");
            device.flush().await.expect("it flushes");
        }
        assert_eq!(server.past_end(), 0);
        let larger = device.set_size(8 << 20, false).await;
        larger.expect_err("only the server can resize it");
    });
}

#[test]
fn a_flush_that_fails_fails_all_later_ones() {
    virtual_time::run(1, |clock| async move {
        let server = Server::new(Habits::default(), &clock, 1);
        let device = open(&server, &config(), &clock).await;
        server.fail_flushes(true);
        device.flush().await.expect_err("the server says so");
        server.fail_flushes(false);
        device.flush().await.expect_err("what it lost stays lost");
        device
            .read(0, IoBuf::zeroed(512))
            .await
            .expect("reads go on");
    });
}

#[test]
fn unflushed_changes_are_bounded() {
    virtual_time::run(1, |clock| async move {
        let habits = Habits {
            size_bytes: 64 << 20,
            ..Habits::default()
        };
        let server = Server::new(habits, &clock, 1);
        let device = open(&server, &config(), &clock).await;
        let data = IoBuf::zeroed(1 << 20).freeze();
        let overwrite = async |places: u64| {
            for at in (0..128).map(|number| (number % places) << 20) {
                device.write(at, data.clone()).await.expect("it is written");
            }
        };
        overwrite(4).await;
        assert_eq!(server.flushes(), 0, "only the newest data is kept");
        overwrite(64).await;
        assert!(server.flushes() > 0, "the client flushes by itself");
    });
}

#[test]
fn junk_is_an_error() {
    for (junk, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "newstyle"),
        (b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\0\0", "newstyle"),
        (b"NBDMAGICIHAVEOPT\0\0", "fixed newstyle"),
        (
            b"NBDMAGICIHAVEOPT\0\x03aaaaaaaaaaaaaaaaaaaa",
            "another option",
        ),
        (b"NBDMAG", "early eof"),
    ] {
        virtual_time::run(1, |clock| async move {
            let connect: Box<NbdConnect> = Box::new(move || {
                let stream = tokio::io::join(junk, tokio::io::sink());
                Box::pin(async move { Ok(Box::new(stream) as Box<dyn NbdStream>) })
            });
            let opened = NbdBlocks::open_over(connect, "x", &config(), clock).await;
            let error = opened.expect_err("junk is no export").to_string();
            assert!(error.contains(expected), "{error}");
        });
    }
}
