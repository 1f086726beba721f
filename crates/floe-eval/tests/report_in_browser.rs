//! Opens a report in headless Chromium, where there is one: it must load
//! without a console message, its figures must be drawn, and its legend work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floe_eval::experiment::{ExperimentOptions, run};
use floe_eval::run::Progress;

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
[[curves]]
title = "Get latency"
x = "origin ms"
y = ["get_latency_mean"]
y-label = "Latency"
"#;

/// Clicks a legend's button and leaves what it saw in the document's title.
const PROBE: &str = "<script>
window.addEventListener('load', () => {
  const lines = document.querySelectorAll('.line').length;
  document.querySelector('.legend button').click();
  const off = document.querySelectorAll('.line.off').length;
  const wide = document.documentElement.scrollWidth > window.innerWidth;
  document.title = `lines ${lines} off ${off} wide ${wide}`;
});
</script>";

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
        eprintln!("SKIPPED: no Chromium; name one with FLOE_CHROMIUM");
    }
    found
}

/// What Chromium prints; `None` if it does not end in time.
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
            "--window-size=1400,2200",
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

#[test]
fn a_report_opens_without_console_messages() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("browser.toml");
    std::fs::write(&path, EXPERIMENT).expect("written");
    let results = run(&ExperimentOptions {
        results: folder.path().join("results"),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    })
    .expect("runs");

    let page = results.join("report.html");
    let html = std::fs::read_to_string(&page).expect("a page");
    let probed = results.join("probed.html");
    std::fs::write(&probed, html.replace("</body>", &format!("{PROBE}</body>"))).expect("written");

    let profile = tempfile::tempdir().expect("a folder");
    let dumped = browse(&chromium, profile.path(), &probed, &["--dump-dom"]);
    let Some((document, log)) = dumped else {
        panic!("Chromium did not end");
    };
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
    // Nine series and the percentiles of two cases, less the hit latency and
    // the like where nothing happened, plus the curve.
    assert!(
        title.ends_with("wide false"),
        "{title}: the page scrolls sideways"
    );
    assert!(
        !title.contains("lines 0") && !title.contains("off 0"),
        "{title}"
    );

    // The figures as files are documents of their own.
    let figure = results.join("figures/get-latency.svg");
    let profile = tempfile::tempdir().expect("a folder");
    let dumped = browse(&chromium, profile.path(), &figure, &["--dump-dom"]);
    let (document, log) = dumped.expect("Chromium ends");
    assert!(
        document.contains("<svg") && !document.contains("parsererror"),
        "{document}"
    );
    assert!(!log.contains("CONSOLE"), "{log}");
}
