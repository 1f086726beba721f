//! A cache over several files: whole, with one missing, and formatted anew.

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Serving, floe, get, run};

const PATHS: &str = "a.floe,b.floe,c.floe";
const HELLO: &str = "/demo/hello.txt";

fn serve(folder: &Path) -> Serving {
    let serving = Serving::spawn(floe(folder).env("FLOE_DEVICE_PATHS", PATHS));
    assert_eq!(get(serving.s3, HELLO).0, 200);
    serving
}

fn drives(serving: &Serving, state: &str) -> u32 {
    let (status, metrics) = get(serving.admin, "/metrics");
    assert_eq!(status, 200);
    let metrics = String::from_utf8(metrics).unwrap();
    let name = format!("floe_device_drives{{state=\"{state}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("an array has drives").parse::<f64>().unwrap() as u32
}

#[track_caller]
fn expect_drives(serving: &Serving, live: u32, dropped: u32) {
    let began = Instant::now();
    while drives(serving, "joining") > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "it joins");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        (drives(serving, "live"), drives(serving, "dropped")),
        (live, dropped)
    );
}

#[test]
fn an_array_of_files_is_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let serving = serve(folder);
    expect_drives(&serving, 3, 0);
    serving.kill();
    let all = ["--device-paths", PATHS];
    run(folder, &[&["check"], &all[..]].concat()).expect(0, &["no damage"]);
    run(folder, &[&["inspect"], &all[..]].concat()).expect(0, &["38 zones of 1MiB"]);

    // One that is missing may know more than the others.
    let file = |name: &str| folder.join(name);
    fs::rename(file("b.floe"), file("old")).unwrap();
    let refused = [
        &["serve", "--s3-listen", "off", "--admin-listen", "off"],
        &all[..],
    ]
    .concat();
    run(folder, &refused).expect(
        3,
        &["2 of the array's 3 drives", "b.floe", "format --force"],
    );
    assert!(!file("b.floe").exists());
    // The list must name all.
    let some = ["check", "--device-paths", "a.floe,c.floe"];
    run(folder, &some).expect(3, &["the array has 3 drives", "name all of them"]);
    fs::rename(file("old"), file("b.floe")).unwrap();
    let serving = serve(folder);
    expect_drives(&serving, 3, 0);
    assert_eq!(serving.stop(), 0);

    // Alone, a drive is no cache.
    run(folder, &["check", "--device-path", "a.floe"])
        .expect(3, &["one drive of an array", "--device-paths"]);
    let both = ["check", "--device-path", "a.floe", "--device-paths", PATHS];
    run(folder, &both).expect(2, &["exclude each other"]);

    let sizes = ["--device-size", "16MiB", "--device-zone-size", "1MiB"];
    let format = [&["format", "--force"], &sizes[..]].concat();
    run(folder, &[&format[..], &all[..]].concat()).expect(0, &["new, empty cache"]);
    expect_drives(&serve(folder), 3, 0);
}
