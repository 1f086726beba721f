//! `floe bench --target` with Floe's own server, and `floe bench --origin`.

mod common;

use std::fs;
use std::path::Path;

use common::{SMALL_CACHE, Serving, floe, get, lab, run};

/// Objects whose contents and sizes derive from their keys.
const EMULATED: &str = "\
[origin]
kind = \"emulated\"
[origin.emulated]
seed = 42
size = { rule = \"from_key\", otherwise = \"64KiB\" }
latency = { rule = \"constant\", ms = 4.0 }
[s3]
anonymous = true
[object]
consistency = \"immutable\"
";

fn figures(json: &str) -> impl Fn(&str) -> Option<f64> + use<> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).expect("rows");
    move |metric| {
        let row = rows.iter().find(|row| row["metric"] == metric)?;
        row["measured"].as_f64()
    }
}

fn sample(metrics: &str, line: &str) -> f64 {
    let found = metrics.lines().find_map(|text| text.strip_prefix(line));
    let number = found.unwrap_or_else(|| panic!("no {line} in {metrics}"));
    number.trim().parse().expect("a number")
}

/// The count of reads through a frontend that had this result.
fn reads(metrics: &str, frontend: &str, result: &str) -> f64 {
    let labels = format!("{{frontend=\"{frontend}\",result=\"{result}\"}}");
    sample(
        metrics,
        &format!("floe_read_duration_seconds_count{labels}"),
    )
}

fn serve(folder: &Path, variable: &str, value: &str) -> Serving {
    Serving::spawn(floe(folder).env(variable, value))
}

fn metrics(serving: &Serving) -> String {
    String::from_utf8(get(serving.admin, "/metrics").1).expect("text")
}

#[test]
fn a_bench_of_the_s3_server_reports_hits_and_misses() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("floe.toml"), EMULATED).unwrap();
    let serving = serve(folder.path(), "FLOE_CONFIG", "floe.toml");
    let target = format!("s3:http://{}/pictures", serving.s3);
    let anonymous = ["--set", "origin.anonymous=true"];
    let arguments = |more: &[&'static str]| {
        let base = [
            "bench",
            "--target",
            &target,
            "--items",
            "40",
            "--clients",
            "4",
        ];
        let base = base.map(str::to_owned).to_vec();
        let more = anonymous.iter().chain(more).map(|text| (*text).to_owned());
        base.into_iter().chain(more).collect::<Vec<String>>()
    };
    let bench = |more: &[&'static str]| {
        let arguments = arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(folder.path(), &arguments)
    };
    let load = ["--requests", "400", "--object-size", "20KiB", "--verify"];
    let outcome = bench(&[&load[..], &["--json"]].concat()).expect(0, &[]);
    let figure = figures(&outcome.out);
    assert_eq!(figure("requests"), Some(400.0));
    assert_eq!(figure("failed"), Some(0.0));
    let misses = figure("hit_ratio").map(|ratio| (1.0 - ratio) * 400.0);
    // Readers that wait for another reader's miss count as misses, too.
    assert!((39.0..200.0).contains(&misses.unwrap()), "{misses:?}");
    assert!(figure("miss_latency_p50").unwrap() >= 4.0);
    assert!(figure("hit_latency_p50").unwrap() < figure("miss_latency_p50").unwrap());
    bench(&[&load[..], &["--out", "results"]].concat()).expect(
        0,
        &[
            "hit ratio 100.00 %",
            "compared",
            "report: results/report.html",
        ],
    );
    let metrics = metrics(&serving);
    let count = |result: &str| reads(&metrics, "s3", result);
    assert_eq!(count("hit") + count("miss") + count("joined"), 800.0);
    assert_eq!(count("miss") + count("joined"), misses.unwrap().round());
    let seconds = "floe_read_first_byte_seconds_sum{frontend=\"s3\",result=\"miss\"}";
    assert!(sample(&metrics, seconds) >= 0.004 * count("miss"));
    let all = "floe_request_duration_seconds_count{frontend=\"s3\",method=\"get\"}";
    assert!(sample(&metrics, all) >= 800.0);
    // Not the bytes of these objects.
    bench(&[
        "--requests",
        "40",
        "--object-size",
        "20KiB",
        "--verify",
        "--seed",
        "43",
    ])
    .expect(3, &["WRONG VALUE: pictures/", "with this seed"]);
    bench(&["--object-size", "20KiB", "--ram-size", "1MiB"])
        .expect(2, &["`ram.size` has no effect"]);
    bench(&["--clock", "virtual"]).expect(2, &["real time"]);
    assert_eq!(serving.stop(), 0);
    bench(&load).expect(3, &["cannot be reached", "start the server"]);
}

#[test]
fn errors_name_buckets_and_credentials_that_a_server_rejects() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("floe-data/origin/there")).unwrap();
    let serving = serve(folder.path(), "FLOE_S3_KEYS", "me:long-enough");
    let bench = |bucket: &str, key: &str, more: &[&str]| {
        let target = format!("s3:http://{}/{bucket}", serving.s3);
        let mut command = lab(folder.path());
        command
            .env("AWS_ACCESS_KEY_ID", "me")
            .env("AWS_SECRET_ACCESS_KEY", key);
        command.args([
            "bench",
            "--items",
            "20",
            "--requests",
            "60",
            "--object-size",
            "3KiB",
        ]);
        command
            .args(["--target", &target, "--clients", "2"])
            .args(more);
        common::outcome(command.output().unwrap())
    };
    bench("there", "wrong", &[]).expect(3, &["denies access", "AWS_SECRET_ACCESS_KEY"]);
    bench("absent", "long-enough", &[]).expect(3, &["no bucket", "create the bucket"]);
    bench("there", "long-enough", &[])
        .expect(3, &["60 of 60 requests failed", "--fill writes them"]);
    let mix = ["--fill", "--writes", "0.3", "--verify"];
    bench("there", "long-enough", &mix).expect(0, &["60 requests", "put ", "compared"]);
    bench("there", "long-enough", &["--pipeline", "4"]).expect(2, &["pipeline"]);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn a_bench_of_the_memcached_server_reports_hits_and_misses() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = floe(folder.path());
    command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
    command.env("FLOE_TINY_SIZE", "32MiB");
    let serving = Serving::spawn(&mut command);
    let address = serving.announced["memcached"].as_str().expect("it is open");
    let target = format!("memcached:{address}");
    let base = [
        "bench",
        "--target",
        &target,
        "--items",
        "200",
        "--requests",
        "4000",
    ];
    let load = ["--clients", "2", "--pipeline", "8", "--verify", "--json"];
    let outcome = run(folder.path(), &[&base[..], &load].concat()).expect(0, &[]);
    let figure = figures(&outcome.out);
    assert_eq!(
        (figure("requests"), figure("failed")),
        (Some(4000.0), Some(0.0))
    );
    assert!(figure("hit_ratio").unwrap() > 0.85);
    assert!(figure("put_latency_p50").is_some());
    let metrics = metrics(&serving);
    let count = |result: &str| {
        let line = format!("floe_memcached_get_duration_seconds_count{{result=\"{result}\"}}");
        sample(&metrics, &line)
    };
    let hits = count("hit_memory") + count("hit_flash");
    assert_eq!(hits + count("miss"), 4000.0);
    assert_eq!(
        (hits / 4000.0 * 1e6).round(),
        (figure("hit_ratio").unwrap() * 1e6).round()
    );
    let trace = "1,a,1,99,1,get,0\n2,b,1,99,1,get,0\n3,a,1,99,1,get,0\n4,a,1,99,1,delete,0\n";
    fs::write(folder.path().join("trace.csv"), trace).unwrap();
    let traced = ["--trace", "trace.csv", "--clients", "1", "--verify"];
    run(
        folder.path(),
        &[&["bench", "--target", &target][..], &traced].concat(),
    )
    .expect(0, &["4 requests", "hit ratio 33.33 %"]);
    run(folder.path(), &["bench", "--target", &target]).expect(2, &["--items"]);
    run(folder.path(), &["bench", "--target", "object", "--fill"]).expect(2, &["use a warm-up"]);
    run(folder.path(), &["bench", "--pipeline", "2"]).expect(2, &["`pipeline` has no effect"]);
    run(
        folder.path(),
        &["bench", "--target", "memcached:x", "--items", "1"],
    )
    .expect(2, &["names no port"]);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn an_experiment_drives_the_socket_of_oxcache() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{EMULATED}[oxcache]\npath = \"oxcache.sock\"\nbucket = \"bench\"\n");
    fs::write(folder.path().join("floe.toml"), config).unwrap();
    let serving = serve(folder.path(), "FLOE_CONFIG", "floe.toml");
    let experiment = "\
name = \"driven\"
title = \"A server that runs\"
[bench]
items = 50
object-size = \"24KiB\"
read-size = \"8KiB\"
requests = 300
bin-s = 1
pacing = { mode = \"closed\", clients = 2 }
workload = { kind = \"zipf\" }
cache = { target = \"unix:oxcache.sock\", remote = { pipeline = 4 } }
";
    fs::write(folder.path().join("driven.toml"), experiment).unwrap();
    let outcome = run(folder.path(), &["bench", "driven.toml", "--out", "results"]);
    outcome.expect(0, &["report: results/driven-"]);
    let results = fs::read_dir(folder.path().join("results")).unwrap();
    let results = results.map(|entry| entry.unwrap().path()).next().unwrap();
    let rows = fs::read_to_string(results.join("results.jsonl")).unwrap();
    assert!(rows.contains("\"device\":\"unix:oxcache.sock\""), "{rows}");
    assert!(
        !rows.contains("\"hit_ratio\""),
        "the protocol tells no hits"
    );
    let metrics = metrics(&serving);
    let read = |result: &str| reads(&metrics, "oxcache", result);
    assert_eq!(read("hit") + read("miss") + read("joined"), 300.0);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn ctrl_c_prints_the_figures_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = lab(folder.path());
    command.args(["bench", "--device-kind", "memory", "--device-size", "32MiB"]);
    command.args([
        "--device-zone-size",
        "2MiB",
        "--chunk-write-buffer",
        "8MiB",
        "--ram-size",
        "0",
    ]);
    command.args([
        "--clients",
        "2",
        "--origin-latency",
        "1",
        "--duration",
        "10m",
    ]);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let signal = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(signal.unwrap().success());
    let outcome = common::outcome(child.wait_with_output().unwrap());
    outcome.expect(
        0,
        &["interrupted: these are the figures until then", "p99.99"],
    );
}

#[test]
fn an_origin_is_measured_into_a_file_that_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("floe.toml"), EMULATED).unwrap();
    let measure = [
        "bench",
        "--clock",
        "virtual",
        "--bucket",
        "b",
        "--requests",
        "500",
    ];
    let keys = ["--items", "100", "--object-size", "64KiB"];
    let first = [
        "--origin",
        "floe.toml",
        "--latency-file",
        "first.toml",
        "--out",
        "results",
    ];
    run(folder.path(), &[&measure[..], &keys, &first].concat()).expect(
        0,
        &["500 requests", "up to", "4.0", "latencies: first.toml"],
    );
    assert!(folder.path().join("results/report.html").exists());
    let replayed = EMULATED.replace(
        "{ rule = \"constant\", ms = 4.0 }",
        "{ rule = \"file\", path = \"first.toml\" }",
    );
    fs::write(folder.path().join("replayed.toml"), replayed).unwrap();
    let again = ["--origin", "replayed.toml", "--latency-file", "again.toml"];
    run(folder.path(), &[&measure[..], &keys, &again].concat()).expect(0, &[]);
    let read = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        floe::latency::LatencyFile::read(&folder.path().join(name))
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let (first, again) = (read("first.toml"), read("again.toml"));
    assert_eq!((first.class.len(), again.class.len()), (1, 1));
    for (file, class) in [(&first, &first.class[0]), (&again, &again.class[0])] {
        assert_eq!(
            (class.requests, class.mean_bytes),
            (500, 64 << 10),
            "{file:?}"
        );
        assert!(
            class
                .first_byte
                .iter()
                .all(|(_, ms)| (ms - 4.0).abs() < 0.01),
            "{file:?}"
        );
    }
    // As the origin of a bench.
    let bench = ["bench", "--clock", "virtual", "--device-kind", "memory"];
    let latency = [
        "--requests",
        "100",
        "--clients",
        "1",
        "--origin-latency",
        "file:first.toml",
    ];
    let outcome = run(
        folder.path(),
        &[&bench[..], &SMALL_CACHE, &latency, &["--json"]].concat(),
    );
    let figure = figures(&outcome.expect(0, &[]).out);
    assert!((figure("miss_latency_p50").unwrap() - 4.0).abs() < 0.05);
    for (origin, part) in [
        ("floe.toml", "name its keys"),
        ("nothing.toml", "there is no configuration"),
        ("s3:http://127.0.0.1:1", "names no bucket"),
        ("s3:http://127.0.0.1:1/bucket", "is the origin there?"),
    ] {
        let unsigned: &[&str] = match origin.starts_with("s3:") {
            true => &["--set", "origin.anonymous=true"],
            false => &[],
        };
        let outcome = run(
            folder.path(),
            &[&["bench", "--origin", origin][..], unsigned].concat(),
        );
        assert!([2, 3].contains(&outcome.code), "{outcome:?}");
        assert!(outcome.err.contains(part), "{outcome:?}");
    }
}
