//! Runs of a small exact engine, whose figures can be computed.

use std::collections::BTreeMap;
use std::path::Path;

use floe_core::hash::KeyHash;
use floe_core::tiny::{
    Accepted, Cause, Engine, Flash, Found, Insert, Memory, Object, Outcome as TaskOutcome,
    PAGE_BYTES, PAGE_ROOM_BYTES, Page, PageAddress, Search, Statistics, Step, Stripe, Task, TaskId,
    Work,
};

use super::case::TinyCase;
use super::driver::Driver;
use super::figures;
use crate::results::run_figures;
use crate::run::RunResult;

/// A log of pages with an exact index, written page by page, zone after zone.
struct Exact {
    flash: Flash,
}

/// The engine's whole state, because every write changes the index.
#[derive(Debug, Default)]
struct Pages {
    index: BTreeMap<KeyHash, PageAddress>,
    on_page: BTreeMap<PageAddress, Vec<KeyHash>>,
    open: Vec<Object>,
    open_bytes: usize,
    /// The page that is written next.
    next: u32,
    tasks: Vec<Work>,
    statistics: Statistics,
}

impl Stripe for Pages {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        self.open.iter().find(|object| object.hash == hash)
    }
}

impl Exact {
    fn new(flash: Flash) -> Self {
        Exact { flash }
    }

    fn write(&self, pages: &mut Pages) {
        let first = PageAddress(pages.next);
        if first.0.is_multiple_of(self.flash.zone_pages) {
            let zone = self.flash.zone_of(first);
            for page in first.0..first.0 + self.flash.zone_pages {
                for hash in pages.on_page.remove(&PageAddress(page)).unwrap_or_default() {
                    if pages.index.get(&hash) == Some(&PageAddress(page)) {
                        pages.index.remove(&hash);
                        pages.statistics.evicted += 1;
                    }
                }
            }
            pages.tasks.push(Work::Reset(zone));
            pages.statistics.resets += 1;
        }
        let objects = std::mem::take(&mut pages.open);
        let hashes: Vec<KeyHash> = objects.iter().map(|object| object.hash).collect();
        for hash in &hashes {
            pages.index.insert(*hash, first);
        }
        pages.on_page.insert(first, hashes);
        pages
            .statistics
            .count_written(Cause::Log, PAGE_BYTES as u64);
        pages.statistics.object_pages_written += 1;
        pages.statistics.bytes_filled += pages.open_bytes as u64;
        pages.open_bytes = 0;
        let content = vec![Page::Objects(objects)];
        pages.tasks.push(Work::Append {
            first,
            pages: content,
        });
        pages.next = (first.0 + 1) % self.flash.pages() as u32;
    }
}

impl Engine for Exact {
    type Stripe = Pages;
    type Scratch = ();

    fn stripe(&self) -> Pages {
        Pages::default()
    }

    fn insert(&self, pages: &mut Pages, object: Object, _: u32) -> Insert {
        let supersedes_flash = pages.index.remove(&object.hash).is_some();
        if let Some(at) = pages.open.iter().position(|open| open.hash == object.hash) {
            pages.open_bytes -= pages.open.remove(at).stored_bytes();
        }
        if pages.open_bytes + object.stored_bytes() > PAGE_ROOM_BYTES {
            self.write(pages);
        }
        if !object.tombstone {
            pages.statistics.objects_in += 1;
            pages.statistics.bytes_in += u64::from(object.bytes);
            pages.open_bytes += object.stored_bytes();
            pages.open.push(object);
        }
        Insert::Accepted(Accepted {
            supersedes_flash,
            ..Accepted::default()
        })
    }

    fn begin_search(
        &mut self,
        pages: &mut Pages,
        hash: KeyHash,
        search: &mut Search,
        _: &mut (),
    ) -> Step {
        search.restart(hash);
        if pages.in_memory(hash).is_some() {
            return Step::Memory;
        }
        let Some(page) = pages.index.get(&hash) else {
            return Step::Absent;
        };
        search.pages.push(*page);
        pages.statistics.searches += 1;
        pages.statistics.pages_searched += 1;
        Step::Pages
    }

    fn end_search(&mut self, _: &mut Pages, _: &mut Search, _: &mut (), _: Found) {}

    fn next_task(&mut self, pages: &mut Pages) -> Option<Task> {
        (!pages.tasks.is_empty()).then(|| Task {
            id: TaskId(0),
            work: pages.tasks.remove(0),
        })
    }

    fn complete(&mut self, _: &mut Pages, _: TaskId, _: TaskOutcome, _: u32) {}

    fn statistics(&self, pages: &Pages) -> Statistics {
        pages.statistics.clone()
    }

    fn memory(&self, pages: &Pages) -> Memory {
        Memory {
            objects_on_flash: pages.index.len() as u64,
            index_bytes: 16 * pages.index.len() as u64,
            ..Memory::default()
        }
    }
}

const CASE: &str = r#"
    engine = "log"
    flash-size = "6MiB"
    zone-size = "384KiB"
    warm-up = 1.2
    measured = 0.5
"#;

fn run(more: &str, seed: u64) -> RunResult {
    let case: TinyCase = toml::from_str(&format!("{CASE}\n{more}")).expect("a good case");
    let flash = case.flash(false).expect("good sizes");
    let driver = Driver::new(&case, Exact::new(flash), flash, seed, Path::new("x.toml"));
    let outcome = driver.and_then(|driver| driver.run(&case, flash, &mut |_| {}));
    figures::result("case", &outcome.expect("runs"), Vec::new())
}

fn figure(run: &RunResult, metric: &str) -> f64 {
    let found = run.extra.iter().find(|figure| figure.metric == metric);
    found.unwrap_or_else(|| panic!("no {metric}")).value
}

const UNIFORM: &str = r#"
    ram = 0.0
    [workload]
    kind = "synthetic"
    distribution = { kind = "uniform" }
    working-set = 2.0
    size = { kind = "fixed", bytes = 200 }
"#;

#[test]
fn the_figures_equal_computed_ones() {
    let run = run(UNIFORM, 1);
    // 19 objects of 204 bytes in a page.
    assert!((figure(&run, "alwa") - 4096.0 / (19.0 * 200.0)).abs() < 0.01);
    assert_eq!(figure(&run, "alwa"), figure(&run, "alwa_log"));
    assert!((figure(&run, "fill_rate") - 19.0 * 204.0 / 4096.0).abs() < 0.001);
    // FIFO over uniform requests: each miss is followed by an insert, so the
    // cached share of all objects is known, less the zone that is being
    // rewritten.
    let cached = 19.0 * 200.0 / 4096.0 / 2.0 * (1.0 - 0.5 / 16.0);
    let miss = figure(&run, "miss_ratio");
    assert!((miss - (1.0 - cached)).abs() < 0.03, "{miss} {cached}");
    assert_eq!(figure(&run, "bits_index"), 128.0);
    assert_eq!(figure(&run, "bits_per_object"), 128.0);
    assert_eq!(figure(&run, "object_bytes"), 200.0);
    assert_eq!(figure(&run, "write_command_bytes"), 4096.0);
    assert!((figure(&run, "flash_reads_per_search") - 1.0).abs() < 1e-9);
    assert_eq!(figure(&run, "dlwa"), 1.0);
    assert!(
        run.series
            .iter()
            .any(|s| s.name == "write_amplification_trend")
    );
    assert!(
        run.series
            .iter()
            .all(|s| s.points.len() <= 200 && s.points.len() >= 5)
    );
    assert_eq!(run.write_amplification, Some(figure(&run, "alwa")));
}

#[test]
fn figures_need_a_measurement() {
    let figures = run_figures(&run(UNIFORM, 1));
    let has = |name: &str| figures.iter().any(|figure| figure.metric == name);
    assert!(has("hit_ratio") && has("write_amplification"));
    for of_time_or_bytes in [
        "get_throughput",
        "read_throughput",
        "request_rate",
        "elapsed",
        "written_per_request",
        "byte_hit_ratio",
    ] {
        assert!(!has(of_time_or_bytes), "{of_time_or_bytes}");
    }
}

#[test]
fn rejected_objects_are_not_written() {
    let scan = |admission: &str| {
        let more = format!("operations-max = 100_000\nadmission = {admission}\n{UNIFORM}");
        run(&more.replace("uniform", "scan"), 1)
    };
    let written = |run: &RunResult| figure(run, "flash_written_per_operation");
    let all = scan("{ kind = \"all\" }");
    let half = scan("{ kind = \"probabilistic\", probability = 0.5 }");
    let seen = scan("{ kind = \"reject-first\", keys = 1024 }");
    // The same requests.
    let share = written(&half) / written(&all);
    assert!((share - 0.5).abs() < 0.1, "{share}");
    // A run without writes has no fill rate, not one of zero.
    let filled = seen.series.iter().find(|s| s.name == "fill_rate_trend");
    let points = filled.map_or(&[][..], |series| &series.points);
    assert!(points.iter().all(|(_, rate)| *rate > 0.5), "{points:?}");
    // No key repeats while the policy remembers it, except for the policy's
    // false positives.
    let share = written(&seen) / written(&all);
    assert!(share < 0.05, "{share}");
    assert!(figure(&seen, "miss_ratio") > 0.95);
}

const TWITTER: &str = r#"
    count-sets = 1024
    [workload]
    kind = "twitter"
"#;

#[test]
fn a_run_is_the_same_for_the_same_seed() {
    let text = |seed| serde_json::to_string(&run(TWITTER, seed)).expect("text");
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn a_twitter_like_run_agrees_with_the_paper() {
    let run = run(TWITTER, 1);
    let bytes = figure(&run, "object_bytes");
    assert!((bytes - 246.0).abs() < 30.0, "{bytes} per object written");
    let alwa = figure(&run, "alwa");
    assert!((1.0..1.2).contains(&alwa), "{alwa}");
    assert!(figure(&run, "ram_hit_ratio") > 0.3);
    let top = figure(&run, "set_accesses_top_30");
    assert!((0.5..0.95).contains(&top), "{top}");
}

#[test]
fn a_zoned_drive_is_timed() {
    let device = r#"
        device = { kind = "zns", rate = 50_000.0, read-page-us = 60.0, command-us = 10.0 }
    "#;
    let run = run(&format!("{device}{TWITTER}"), 1);
    let get = run.whole.get;
    assert!(get.count > 1000);
    assert!((0.07..0.2).contains(&get.p50_ms), "{get:?}");
    assert!(
        get.p50_ms <= get.p99_ms && get.p99_ms <= get.p9999_ms,
        "{get:?}"
    );
    // The unprogrammed rest of the last row of dies counts.
    assert!((figure(&run, "dlwa") - 1.0).abs() < 0.05);
    assert!(
        (run.whole.requests_per_s / 50_000.0 - 1.0).abs() < 0.02,
        "{:?}",
        run.whole
    );
    assert!(run.bins.len() > 5 && run.series.iter().any(|s| s.name == "p99_trend"));
    let again = self::run(&format!("{device}{TWITTER}"), 1);
    assert_eq!(run.whole, again.whole);
}

#[test]
fn a_conventional_drive_counts_what_it_writes() {
    for kind in ["conventional", "fdp"] {
        let device = format!("device = {{ kind = \"{kind}\", over-provisioning = 0.6 }}");
        let run = run(&format!("{device}\n{TWITTER}"), 1);
        let dlwa = figure(&run, "dlwa");
        assert!(
            (0.9..1.3).contains(&dlwa),
            "{kind}: {dlwa} for a log that is trimmed"
        );
        assert_eq!(run.whole.get.count, 0);
    }
}

#[test]
fn invalid_cases_are_rejected() {
    for (more, message) in [
        ("device = { kind = \"zns\", rate = 0.0 }", "rate"),
        (
            "device = { kind = \"conventional\", over-provisioning = 1.5 }",
            "over-provisioning",
        ),
        ("ram = 2.0", "ram"),
        (
            "admission = { kind = \"probabilistic\", probability = 7.0 }",
            "tiny.admission",
        ),
        ("warm-up = -1.0", "warm-up"),
    ] {
        let base: String = CASE
            .lines()
            .filter(|line| !more.starts_with("warm-up") || !line.contains("warm-up"))
            .map(|line| format!("{line}\n"))
            .collect();
        let case: TinyCase = toml::from_str(&format!("{base}\n{more}{TWITTER}")).expect("parses");
        let flash = case.flash(false).expect("good sizes");
        let error = Driver::new(&case, Exact::new(flash), flash, 1, Path::new("x"));
        let error = error.err().expect(more).to_string();
        assert!(error.contains(message), "{error}");
    }
    for (from, to, message) in [
        ("384KiB", "1000", "zone-size"),
        ("6MiB", "6401KiB", "flash-size"),
        ("6MiB", "384KiB", "flash-size"),
    ] {
        let case: TinyCase =
            toml::from_str(&format!("{CASE}{TWITTER}").replace(from, to)).expect("parses");
        let error = case.flash(false).expect_err(to).to_string();
        assert!(error.contains(message), "{error}");
    }
    let unknown = toml::from_str::<TinyCase>(&format!("{CASE}\nfoo = 1\n{TWITTER}"));
    assert!(
        unknown
            .expect_err("unknown key")
            .to_string()
            .contains("foo")
    );
}

/// Figure 12 at a small scale: the order of the engines within wide bounds, not
/// their values. So few zones need more over-provisioning than the paper's 5 %.
/// With 20 %, Kangaroo is no longer far above FairyWREN, whose hot sets have
/// few spare zones.
#[test]
fn nemo_writes_a_third_of_fairywren_and_the_log_least() {
    let measured = |engine: &str| {
        let case = format!(
            "{engine}\nflash-size = \"16MiB\"\nzone-size = \"256KiB\"\nwarm-up = 1.0\nmeasured = 0.25\n\
             [workload]\nkind = \"twitter\"\ndeletes = false\n"
        );
        let case: TinyCase = toml::from_str(&case).expect("a good case");
        let run = super::run(
            &case,
            engine,
            1,
            Path::new("x.toml"),
            Path::new("scratch"),
            &mut |_| {},
        );
        let alwa = run.expect(engine).write_amplification;
        alwa.expect("something was written")
    };
    let log = measured("engine = \"log\"");
    let set = measured("engine = \"set\"\nset = { preset = \"published\" }");
    let kangaroo = measured(
        "engine = \"kangaroo\"\nkangaroo = { set_storage = \"zoned\", over_provisioning_percent = 20 }",
    );
    let fairywren =
        measured("engine = \"fairywren\"\nfairywren = { over_provisioning_percent = 20 }");
    let nemo = measured("engine = \"nemo\"\nnemo = { preset = \"published\" }");
    let ours = measured("engine = \"nemo\"");
    let all = format!(
        "log {log:.2} set {set:.2} kangaroo {kangaroo:.2} fairywren {fairywren:.2} nemo {nemo:.2} floe {ours:.2}"
    );
    eprintln!("{all}");
    assert!((1.0..1.15).contains(&log), "{all}");
    assert!((14.0..19.0).contains(&set), "{all}");
    assert!((10.0..30.0).contains(&fairywren), "{all}");
    assert!((15.0..60.0).contains(&kangaroo), "{all}");
    assert!(nemo < fairywren / 3.0 && ours < nemo, "{all}");
    assert!(ours < 1.25, "{all}");
}

/// Memory is divided by live objects, not by copies.
#[test]
fn memory_per_object_counts_payload_and_only_what_is_found() {
    for engine in ["nemo", "log", "set", "kangaroo", "fairywren"] {
        let sets = match engine {
            "kangaroo" => "kangaroo = { set_storage = \"zoned\", over_provisioning_percent = 20 }",
            "fairywren" => "fairywren = { over_provisioning_percent = 20 }",
            _ => "",
        };
        let case = format!(
            "engine = \"{engine}\"\n{sets}\nflash-size = \"16MiB\"\nzone-size = \"256KiB\"\nwarm-up = 1.0\nmeasured = 0.25\n\
             [workload]\nkind = \"twitter\"\ndeletes = false\n"
        );
        let case: TinyCase = toml::from_str(&case).expect("a good case");
        let (experiment, scratch) = (Path::new("x.toml"), Path::new("scratch"));
        let run = super::run(&case, engine, 1, experiment, scratch, &mut |_| {});
        let run = run.expect(engine);
        let (live, copies) = (
            figure(&run, "live_objects"),
            figure(&run, "objects_on_flash"),
        );
        assert!(live > 1_000.0, "{engine}: {live}");
        let (honest, total) = (
            figure(&run, "memory_bits_per_live_object"),
            figure(&run, "bits_total"),
        );
        if engine == "nemo" {
            // Overwritten copies stay until their set-group is evicted.
            assert!(live < 0.8 * copies, "{live} of {copies}");
            assert!(honest > total, "{honest}, per copy {total}");
        }
        let payload = figure(&run, "bits_payload");
        assert!(payload > 0.0 || engine == "set", "{engine}");
    }
}

/// On a file, engines behave roughly as on modelled flash. Several clients
/// reorder requests, and the RAM tier keeps objects that were found.
#[test]
fn engines_run_on_a_file_as_on_the_model() {
    for (engine, tolerance) in [
        ("engine = \"log\"", 1.1),
        ("engine = \"set\"", 1.3),
        ("engine = \"kangaroo\"", 1.5),
        (
            "engine = \"fairywren\"\nfairywren = { over_provisioning_percent = 40 }",
            1.5,
        ),
        ("engine = \"nemo\"", 1.2),
    ] {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("scratch");
        let measured = |device: &str| {
            let case = format!(
                "{engine}\nflash-size = \"4MiB\"\nzone-size = \"128KiB\"\nram = 0.0\nwarm-up = 1.0\n\
                 measured = 0.5\n[workload]\nkind = \"twitter\"\ndeletes = false\n[device]\n{device}\n"
            );
            let case: TinyCase = toml::from_str(&case).expect("a good case");
            let experiment = Path::new("x.toml");
            super::run(&case, engine, 1, experiment, &folder, &mut |_| {}).expect(engine)
        };
        let real = measured("kind = \"drive\"\nclients = 8");
        let modelled = measured("kind = \"none\"");
        assert!(!folder.exists(), "what was made is removed");
        assert!(!real.is_virtual && real.whole.get.count > 0);
        let write_amplification = |run: &RunResult| run.write_amplification.expect("written");
        let ratio = write_amplification(&real) / write_amplification(&modelled);
        assert!(
            (1.0 / tolerance..tolerance).contains(&ratio),
            "{engine}: {ratio}"
        );
        let written = figure(&real, "flash_written_per_operation");
        assert!(written > 0.0, "{engine}: {written}");
    }
}
