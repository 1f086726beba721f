//! Emulated backing devices: rates, latencies, settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_core::ByteSize;
use floe_device::block::conformance;
use floe_device::{Clock, IoBuf, MemoryBlocks, SharedBlockDevice, virtual_time};

use floe::backing::{Emulated, EmulatedConfig, EmulatedError, EmulatedPreset};
use floe::latency::LatencyRule;

const BLOCK: u64 = 4096;
const SIZE: u64 = 1 << 30;

fn emulated(clock: &Clock, config: &EmulatedConfig) -> SharedBlockDevice {
    let memory = MemoryBlocks::new(ByteSize(SIZE), BLOCK as u32).expect("whole blocks");
    let emulated = Emulated::new(Arc::new(memory), clock.clone(), config);
    Arc::new(emulated.expect("the settings make sense"))
}

/// Offsets of blocks that are spread over the device.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SIZE / BLOCK) * BLOCK)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// Time that operations of `len` bytes at `offsets` take in virtual time, so many at once.
fn time(
    config: EmulatedConfig,
    kind: Kind,
    len: u64,
    offsets: impl Iterator<Item = u64>,
    at_once: usize,
) -> Duration {
    virtual_time::run(1, |clock| async move {
        let device = emulated(&clock, &config);
        let data = IoBuf::zeroed(len as usize).freeze();
        let mut in_flight = std::collections::VecDeque::new();
        for at in offsets {
            if in_flight.len() == at_once {
                let oldest: tokio::task::JoinHandle<()> = in_flight.pop_front().expect("full");
                oldest.await.expect("it does not panic");
            }
            let (device, data) = (Arc::clone(&device), data.clone());
            in_flight.push_back(tokio::spawn(async move {
                match kind {
                    Kind::Read => drop(device.read(at, device.allocate(data.len())).await),
                    Kind::Write => device.write(at, data).await.expect("it writes"),
                }
            }));
        }
        for last in in_flight {
            last.await.expect("it does not panic");
        }
        clock.now().since(floe_core::Tick::ZERO)
    })
}

/// Random operations of 4 KiB per second, with 512 in flight.
fn rate(config: impl Into<EmulatedConfig>, kind: Kind) -> f64 {
    const COUNT: u64 = 20_000;
    let took = time(config.into(), kind, BLOCK, scattered(COUNT), 512);
    COUNT as f64 / took.as_secs_f64()
}

/// Mean latency of random operations of 4 KiB, one at a time.
fn latency(config: impl Into<EmulatedConfig>, kind: Kind) -> Duration {
    const COUNT: u32 = 2000;
    time(config.into(), kind, BLOCK, scattered(COUNT.into()), 1) / COUNT
}

fn assert_near(found: f64, expected: f64, tolerance: f64) {
    let ratio = found / expected;
    assert!((ratio - 1.0).abs() < tolerance, "{found}, not {expected}");
}

#[test]
fn a_drive_has_its_published_rates_and_latency() {
    assert_near(rate(EmulatedPreset::Nvdimm, Kind::Read), 1.9e6, 0.05);
    assert_near(rate(EmulatedPreset::Nvdimm, Kind::Write), 560e3, 0.05);
    assert_near(rate(EmulatedPreset::CloudVolume, Kind::Read), 3e3, 0.05);
    let one = EmulatedConfig {
        drives: Some(1),
        parity: Some(false),
        ..EmulatedPreset::Raid5SataSsd.into()
    };
    assert_near(rate(one.clone(), Kind::Read), 93e3, 0.05);
    assert_near(rate(one.clone(), Kind::Write), 30e3, 0.05);
    let micros = latency(one, Kind::Read).as_secs_f64() * 1e6;
    assert_near(micros, 150.0 + 4096.0 / 540.0, 0.05);
}

/// A small write reads old data and parity, and then writes both.
#[test]
fn small_writes_to_a_raid5_pay_the_write_penalty() {
    let raid = EmulatedPreset::Raid5SataSsd;
    let expected = 9.0 / (2.0 / 93e3 + 2.0 / 30e3);
    assert_near(rate(raid, Kind::Write), expected, 0.15);
    let parts = [Kind::Read, Kind::Write].map(|kind| {
        let without = EmulatedConfig {
            parity: Some(false),
            ..raid.into()
        };
        latency(without, kind)
    });
    // Of two drives, the slower one counts.
    let penalised = latency(raid, Kind::Write);
    assert!(penalised > parts[0] + parts[1], "{penalised:?} {parts:?}");
    let row = 8 * 64 * 1024;
    let whole = time(raid.into(), Kind::Write, row, (0..100).map(|n| n * row), 1) / 100;
    assert!(
        whole < parts[0] + parts[1] + Duration::from_micros(130),
        "{whole:?}"
    );
}

#[test]
fn discs_stream_but_seek_for_every_other_access() {
    let stream = time(
        EmulatedPreset::HddArray.into(),
        Kind::Read,
        1 << 20,
        (0..200).map(|n| n << 20),
        8,
    );
    let bytes_per_second = f64::from(200 << 20) / stream.as_secs_f64();
    assert!(bytes_per_second > 500e6, "{bytes_per_second}");
    let per_disc = rate(EmulatedPreset::HddArray, Kind::Read) / 9.0;
    assert_near(per_disc, 1.0 / 12.66e-3, 0.1);
}

#[test]
fn it_keeps_the_contract_of_block_devices() {
    for preset in EmulatedPreset::ALL {
        virtual_time::run(1, |clock| async move {
            conformance::check(&emulated(&clock, &preset.into())).await;
        });
    }
}

#[test]
fn one_seed_gives_the_same_latencies() {
    let took = |seed| {
        let config = EmulatedConfig {
            seed,
            ..EmulatedPreset::CloudVolume.into()
        };
        time(config, Kind::Read, BLOCK, scattered(100), 4)
    };
    assert_eq!(took(1), took(1));
    assert_ne!(took(1), took(2));
}

#[tokio::test]
async fn it_waits_in_real_time() {
    let config = EmulatedConfig {
        flush: Some(LatencyRule::Constant { ms: 30.0 }),
        ..EmulatedPreset::Nvdimm.into()
    };
    let device = emulated(&Clock::real(), &config);
    let before = Instant::now();
    device.flush().await.expect("it flushes");
    assert!(before.elapsed() >= Duration::from_millis(30));
}

#[test]
fn text_names_a_preset_and_settings() {
    for preset in EmulatedPreset::ALL {
        let parsed: EmulatedConfig = preset.name().parse().expect("a name is enough");
        assert_eq!(parsed, preset.into());
    }
    let text =
        "HDD-Array { read_iops = 200.0, stripe = '128KiB', read = { rule = 'constant', ms = 5 } }";
    let expected = EmulatedConfig {
        read_iops: Some(200.0),
        stripe: Some(ByteSize::kib(128)),
        read: Some(LatencyRule::Constant { ms: 5.0 }),
        ..EmulatedPreset::HddArray.into()
    };
    assert_eq!(text.parse::<EmulatedConfig>().expect("it parses"), expected);
    for (wrong, cause) in [
        ("tape", "choose one of hdd-array, raid5-sata-ssd"),
        ("nvdimm { drive = 2 }", "drive"),
        ("nvdimm { drives = ", "nvdimm"),
    ] {
        let error = wrong
            .parse::<EmulatedConfig>()
            .expect_err(wrong)
            .to_string();
        assert!(error.contains(cause), "{error}");
    }
}

#[test]
fn settings_without_sense_are_rejected() {
    let error = |text: &str| {
        let config: EmulatedConfig = text.parse().expect("it parses");
        let memory = MemoryBlocks::new(ByteSize(SIZE), 512).expect("whole blocks");
        Emulated::new(Arc::new(memory), Clock::real(), &config).expect_err(text)
    };
    for text in [
        "hdd-array { drives = 2 }",
        "nvdimm { drives = 0 }",
        "nvdimm { stripe = 5000 }",
        "nvdimm { read_iops = -1.0 }",
        "nvdimm { write_bandwidth = 0 }",
    ] {
        let error = error(text);
        assert!(matches!(error, EmulatedError::Setting { .. }), "{error}");
    }
    let latency = error("nvdimm { read = { rule = 'constant', ms = -1 } }");
    assert!(matches!(latency, EmulatedError::Latency(_)), "{latency}");
}
