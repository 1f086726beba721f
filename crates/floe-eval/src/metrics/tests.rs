use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn recorded() -> Measures {
    let recorder = Recorder::default();
    for client in 0..1000 {
        let served = if client % 4 == 0 {
            Served::Miss
        } else {
            Served::Hit
        };
        recorder.record(client, served, ms(client as u64 + 1), 100);
    }
    recorder.record(7, Served::Other, ms(9999), 100);
    assert_eq!(recorder.live().hits, 750);
    let measures = recorder.take().measures(ms(0), ms(2000));
    assert_eq!(recorder.take().requests(), 0, "taken only once");
    measures
}

#[test]
fn summaries_have_the_right_percentiles() {
    let get = recorded().get;
    assert_eq!(get.count, 1000);
    for (found, expected) in [
        (get.mean_ms, 500.5),
        (get.p50_ms, 500.0),
        (get.p99_ms, 990.0),
        (get.p999_ms, 999.0),
        (get.p9999_ms, 1000.0),
        (get.max_ms, 1000.0),
    ] {
        assert!((found / expected - 1.0).abs() < 0.002, "{found} {expected}");
    }
}

#[test]
fn rates_and_ratios() {
    let measures = recorded();
    assert_eq!(measures.hit_ratio, 0.75);
    assert_eq!(measures.hit.count, 750);
    assert_eq!(measures.miss.count, 250);
    assert_eq!(measures.get_bytes_per_s, 50_000.0);
    assert_eq!(measures.requests_per_s, 500.5);
    let empty = Recorder::default().take().measures(ms(0), ms(0));
    assert_eq!(empty, Measures::default());
}

#[test]
fn exports_have_the_papers_shapes() {
    let bins = [recorded()];
    let mut csv = Vec::new();
    write_metrics_csv(&mut csv, 1_700_000_000.0, &bins).expect("written");
    let csv = String::from_utf8(csv).expect("text");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("TIMESTAMP,METRIC,VALUE"));
    assert!(csv.contains("1700000002.000,HIT_RATIO,0.75"), "{csv}");
    assert!(!csv.contains("READ_LATENCY"), "nothing was read");

    let mut jsonl = Vec::new();
    write_metrics_jsonl(&mut jsonl, 1_700_000_000.0, &bins).expect("written");
    let first = jsonl.split(|&byte| byte == b'\n').next().expect("a line");
    let event: serde_json::Value = serde_json::from_slice(first).expect("JSON");
    assert_eq!(event["timestamp"], "2023-11-14T22:13:22Z");
    assert_eq!(event["fields"]["name"], "get_latency");
    assert!(event["fields"]["value"].is_f64());
}

#[test]
fn the_process_is_seen() {
    let mut probe = ProcessProbe::new();
    if let Some(sample) = probe.sample() {
        assert!(sample.rss_bytes > 1 << 20);
        assert!(sample.cpu_percent >= 0.0);
    }
}

#[tokio::test]
async fn the_device_probe_counts_from_its_start() {
    use floe_core::{ByteSize, ZoneId};
    use floe_device::{Clock, Device, DeviceConfig, Metered, Placement};

    let below = floe_device::open(&DeviceConfig::memory(ByteSize::mib(128)), &Clock::real())
        .expect("a device");
    let device = Metered::new(below, Clock::real());
    let append = || device.append(ZoneId(0), device.allocate(8192).freeze(), Placement(0));
    append().await.expect("appends");
    let mut probe = DeviceProbe::new(&device);
    for _ in 0..3 {
        append().await.expect("appends");
    }
    let mut bin = Measures {
        length_s: 2.0,
        ..Measures::default()
    };
    probe.take().fill(&mut bin);
    assert_eq!(bin.disk_write.count, 3);
    assert_eq!(bin.write_bytes_per_s, 3.0 * 8192.0 / 2.0);
    assert!(bin.disk_write.mean_ms <= bin.disk_write.max_ms);
    append().await.expect("appends");
    let mut more = probe.take();
    assert_eq!(more.written_bytes(), 8192);
    more.add(&probe.take());
    more.fill(&mut bin);
    assert_eq!(bin.disk_write.count, 1);
    assert_eq!(probe.whole().written_bytes(), 4 * 8192);
}
