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

/// Two bins, read back as the papers' scripts read them: times in milliseconds
/// and latencies in nanoseconds (ZNCache's `latstats.py`), throughputs as the
/// difference of counters (OxCache's `plot_throughput.py`).
#[test]
fn exports_are_read_back_as_the_papers_scripts_read_them() {
    let mut later = recorded();
    later.start_s = 2.0;
    let bins = [recorded(), later];
    let mut csv = Vec::new();
    write_metrics_csv(&mut csv, &bins).expect("written");
    let csv = String::from_utf8(csv).expect("text");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("TIMESTAMP,METRIC,VALUE"));
    let of = |metric: &str| -> Vec<(f64, f64)> {
        let rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let number = |text: &str| text.parse::<f64>().expect("a number");
        rows.filter(|row| row.len() == 3 && row[1] == metric)
            .map(|row| (number(row[0]), number(row[2])))
            .collect()
    };
    let mean_ns = bins[0].get.mean_ms * 1e6;
    let [(first_ms, first_ns), (last_ms, _)] = of("GETLATENCY")[..] else {
        panic!("a line for each bin: {csv}");
    };
    assert_eq!((first_ms, last_ms), (2000.0, 4000.0));
    assert!((first_ns - mean_ns).abs() < 1.0, "{first_ns} {mean_ns}");
    assert_eq!(of("CACHETHROUGHPUT")[1], (4000.0, 50_000.0));
    assert_eq!(of("HITRATIO")[0].1, 0.75);
    assert!(of("READLATENCY").is_empty(), "nothing was read");

    let mut jsonl = Vec::new();
    write_metrics_jsonl(&mut jsonl, 1_700_000_000.0, &bins).expect("written");
    let events: Vec<serde_json::Value> = jsonl
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    let of = |metric: &str| -> Vec<(String, f64)> {
        let named = events
            .iter()
            .filter(|event| event["fields"]["name"] == metric);
        let point = |event: &serde_json::Value| {
            let at = event["timestamp"].as_str().expect("a time").to_owned();
            (at, event["fields"]["value"].as_f64().expect("a number"))
        };
        named.map(point).collect()
    };
    let [zero, first, last] = &of("bytes_total")[..] else {
        panic!("a zero and a point for each bin");
    };
    assert_eq!((zero.0.as_str(), zero.1), ("2023-11-14T22:13:20Z", 0.0));
    assert_eq!(first.0, "2023-11-14T22:13:22Z");
    assert_eq!((last.1 - first.1) / 2.0, bins[1].get_bytes_per_s);
    let mean_ms = of("get_total_latency_ms")[1].1;
    assert!((mean_ms / bins[1].get.mean_ms - 1.0).abs() < 1e-12);
    assert_eq!(of("hitratio").len(), 2);
}

#[test]
fn the_process_probe_reports_cpu_and_memory() {
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
