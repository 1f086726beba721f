//! Opens reports in headless Chromium, where there is one: they must load
//! without a console message, their figures must be drawn (a picture is taken
//! and looked at), no text may lie over other text, and legends must work.

use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floe_eval::experiment::{ExperimentOptions, run};
use floe_eval::report::Comparison;
use floe_eval::run::Progress;
use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

const EXPERIMENT: &str = r#"
name = "browser"
title = "A report in a browser"
time = "virtual"
[bench]
items = 200
requests = 1000
bin-s = 0.5
pacing = { mode = "closed", clients = 2 }
workload = { kind = "zipf" }
[bench.cache]
origin-latency = { rule = "constant", ms = 5.0 }
device = { kind = "memory", size = "32MiB", zone_size = "1MiB" }
chunk = { size = "64KiB" }
[[vary]]
key = "bench.cache.origin-latency.ms"
label = "origin ms"
values = [1.0, 5.0]
[[vary]]
key = "bench.cache.target"
label = "target"
values = ["store", "object"]
[[curves]]
title = "Get latency"
x = "origin ms"
x-even = true
y = ["get_latency_mean"]
y-label = "Latency"
[[panels]]
kind = "time"
series = ["get_throughput", "hit_ratio"]
lines = ["target"]
[[panels]]
kind = "cdf"
series = ["get_latency"]
lines = ["origin ms"]
[[panels]]
kind = "box"
series = ["get_latency", "get_throughput"]
lines = ["origin ms", "target"]
[[published]]
kind = "goal"
case = "origin ms 5.0, target store"
metric = "miss_latency_p50"
value = 5.0
source = "the configuration"
tolerance = 0.05
[[published]]
kind = "goal"
case = "origin ms 1.0, target store"
metric = "miss_latency_p50"
value = 5.0
source = "the configuration"
tolerance = 0.05
"#;

/// Opens what is folded, looks for texts of a figure that lie over each other
/// or outside of it, clicks a legend's button, and leaves what it saw in the
/// document's title.
const PROBE: &str = "<script>
window.addEventListener('load', () => {
  for (const folded of document.querySelectorAll('details')) folded.open = true;
  const faults = [];
  for (const figure of document.querySelectorAll('figure > svg')) {
    const frame = figure.getBoundingClientRect();
    const texts = [...figure.querySelectorAll('text')];
    const boxes = texts.map(text => text.getBoundingClientRect());
    boxes.forEach((a, i) => {
      const label = figure.getAttribute('aria-label') + ': ' + texts[i].textContent;
      if (a.left < frame.left - 1 || a.right > frame.right + 1 ||
          a.top < frame.top - 1 || a.bottom > frame.bottom + 1) faults.push('outside: ' + label);
      boxes.slice(i + 1).forEach((b, j) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Lines of letters have some air above and below them.
        if (wide > 1 && high > 3) faults.push('over each other: ' + label + ' / ' + texts[i + 1 + j].textContent);
      });
    });
  }
  const lines = document.querySelectorAll('.line').length;
  const off = () => document.querySelectorAll('.line.off').length;
  const buttons = document.querySelectorAll('.legend button');
  for (const button of buttons) button.click();
  const hidden = off();
  for (const button of buttons) button.click();
  const wide = document.documentElement.scrollWidth > window.innerWidth;
  document.title = JSON.stringify({ lines, hidden, shown: off() === 0, wide, faults });
});
</script>";

/// The probe's observations.
#[derive(serde::Deserialize)]
struct Seen {
    lines: usize,
    hidden: usize,
    shown: bool,
    wide: bool,
    faults: Vec<String>,
}

fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("FLOE_CHROMIUM").map(PathBuf::from);
    let usual = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let found = named
        .into_iter()
        .chain(usual.map(PathBuf::from))
        .find(|path| path.is_file());
    if found.is_none() {
        // Past the test harness, which hides what passing tests print.
        let _ = writeln!(
            stderr(),
            "skipped: no Chromium; name one with FLOE_CHROMIUM"
        );
    }
    found
}

/// Chromium's output; `None` if it does not end in time.
fn browse(
    chromium: &Path,
    profile: &Path,
    page: &Path,
    arguments: &[&str],
) -> Option<(String, String)> {
    let (out, err) = (profile.join("out"), profile.join("err"));
    let file = |path: &Path| std::fs::File::create(path).expect("a log");
    let mut child = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--v=0",
            "--force-device-scale-factor=1",
            "--blink-settings=preferredColorScheme=1",
            "--window-size=1400,6000",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .expect("Chromium starts");
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        match child.try_wait().expect("its state") {
            Some(_) => break,
            None if Instant::now() > deadline => {
                // Only the process started here.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    let text =
        |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("a log")).into_owned();
    Some((text(&out), text(&err)))
}

/// Opens a page with the probe in it, and takes a picture of it.
fn look(chromium: &Path, page: &Path) -> (Seen, Pixmap) {
    let html = std::fs::read_to_string(page).expect("a page");
    let probed = page.with_file_name("probed.html");
    std::fs::write(&probed, html.replace("</body>", &format!("{PROBE}</body>"))).expect("written");
    let profile = tempfile::tempdir().expect("a folder");
    let dumped = browse(chromium, profile.path(), &probed, &["--dump-dom"]);
    let (document, log) = dumped.expect("Chromium ends");
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(console.is_empty(), "{console:#?}");
    let title = document
        .split("<title>")
        .nth(1)
        .and_then(|rest| rest.split("</title>").next())
        .unwrap_or_default();
    let title = title.replace("&quot;", "\"").replace("&amp;", "&");
    let seen = serde_json::from_str(&title).unwrap_or_else(|error| panic!("{error}: {title}"));

    let profile = tempfile::tempdir().expect("a folder");
    let picture = profile.path().join("picture.png");
    let into = format!("--screenshot={}", picture.display());
    browse(chromium, profile.path(), &probed, &[&into]).expect("Chromium ends");
    let png = std::fs::read(&picture).expect("a picture");
    (seen, Pixmap::decode_png(&png).expect("a picture"))
}

/// Pixels of exactly this colour.
fn pixels_of(picture: &Pixmap, (red, green, blue): (u8, u8, u8)) -> usize {
    let is_it = |p: &&PremultipliedColorU8| (p.red(), p.green(), p.blue()) == (red, green, blue);
    picture.pixels().iter().filter(is_it).count()
}

fn experiment(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("browser.toml");
    std::fs::write(&path, text).expect("written");
    run(&ExperimentOptions {
        results: folder.join("results"),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    })
    .expect("runs")
}

#[track_caller]
fn assert_good(seen: &Seen, picture: &Pixmap) {
    assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
    assert!(!seen.wide, "the page scrolls sideways");
    assert!(seen.lines > 0 && seen.shown);
    // The first two lines' colours, and titles.
    for colour in [(0x1f, 0x6f, 0xd6), (0xd9, 0x63, 0x1e), (0x1c, 0x24, 0x30)] {
        let count = pixels_of(picture, colour);
        assert!(count > 300, "{count} pixels of {colour:x?}");
    }
}

#[test]
fn a_report_renders_without_overlaps_or_console_messages() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let results = experiment(folder.path(), EXPERIMENT);
    let (seen, picture) = look(&chromium, &results.join("report.html"));
    assert_good(&seen, &picture);
    // All lines but those of box plots can be hidden.
    assert!(
        seen.hidden > 20 && seen.hidden < seen.lines,
        "{}",
        seen.hidden
    );
    // A verdict that holds, and one that does not.
    assert!(pixels_of(&picture, (0x18, 0x8a, 0x5b)) > 20);
    assert!(pixels_of(&picture, (0xc2, 0x2f, 0x44)) > 20);

    // The figures as files are documents of their own.
    for figure in ["get-latency", "curve-1", "box-get-latency"] {
        let figure = results.join(format!("figures/{figure}.svg"));
        let profile = tempfile::tempdir().expect("a folder");
        let dumped = browse(&chromium, profile.path(), &figure, &["--dump-dom"]);
        let (document, log) = dumped.expect("Chromium ends");
        assert!(
            document.contains("<svg") && !document.contains("parsererror"),
            "{document}"
        );
        assert!(!log.contains("CONSOLE"), "{log}");
    }
}

#[test]
fn a_comparison_renders_without_overlaps_or_console_messages() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let first = experiment(folder.path(), EXPERIMENT);
    let slower = EXPERIMENT.replace("clients = 2", "clients = 1");
    let second = experiment(folder.path(), &slower);
    let comparison = Comparison::read(&first, &second).expect("both are there");
    let page = comparison.write(&folder.path().join("comparison"));
    let (seen, picture) = look(&chromium, &page.expect("written"));
    assert_good(&seen, &picture);
}
