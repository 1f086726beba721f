//! Stand-ins are context: their cases say so, and no figure is compared with them.

use super::*;
use crate::report::read_data;

const STAND_IN: &str = r#"
name = "stand-in"
title = "A cache of volumes"

[volume]
trace = { path = "standin:vd740,requests=2000" }
cache = "capacity=10%"

[[vary]]
label = "trace"
names = ["vd740 synthetic stand-in", "bursts"]
sets = [
    { "volume.trace.path" = "standin:vd740,requests=2000" },
    { "volume.trace.path" = "synthetic:bursts,requests=2000" },
]

[[curves]]
title = "Traffic"
x = "trace"
y = ["backing_io"]
y-label = "Backing I/O"
"#;

fn goal(case: &str, relative_to: &str) -> String {
    format!(
        "{STAND_IN}\n[[published]]\nkind = \"goal\"\ncase = \"{case}\"\n{relative_to}\n\
         metric = \"backing_io\"\nvalue = 1.0\nsource = \"ours\"\nexpect = \"at-most\"\n"
    )
}

#[test]
fn a_value_beside_a_stand_in_is_rejected() {
    let context = "nothing is compared with `trace vd740 synthetic stand-in`";
    for (case, relative_to) in [
        ("trace vd740 synthetic stand-in", ""),
        (
            "trace bursts",
            "relative-to = \"trace vd740 synthetic stand-in\"",
        ),
    ] {
        let message = rejected(&goal(case, relative_to));
        assert!(message.contains(context), "{message}");
    }
    parse(Path::new("x.toml"), &goal("trace bursts", "")).expect("a workload may be judged");
}

#[test]
fn a_case_that_hides_a_stand_in_is_rejected() {
    let message = rejected(&STAND_IN.replace("vd740 synthetic stand-in", "vd740"));
    assert!(message.contains("its name must say so"), "{message}");
    let replay = STAND_IN
        .replace("[volume]", "[replay]")
        .replace("volume.", "replay.");
    let message = rejected(&replay.replace("cache = \"capacity=10%\"", ""));
    assert!(message.contains("use [volume]"), "{message}");
}

/// Rows and figures name the stand-in, and curves show caches of volumes.
#[test]
fn reports_name_stand_ins() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("stand-in.toml");
    std::fs::write(&path, STAND_IN).expect("write");
    let results = run(&options(&path, folder.path())).expect("it runs");
    let is_named = |row: &Row| row.case == "trace vd740 synthetic stand-in";
    let rows = rows(&results);
    assert!(
        rows.iter()
            .any(|row| is_named(row) && row.metric == "requests")
    );
    assert!(rows.iter().all(|row| row.verdict.is_none()));
    let data = read_data(&results).expect("data");
    let [curve] = &data.curves[..] else {
        panic!("one curve: {:?}", data.curves);
    };
    assert_eq!(curve.x_ticks[0].1, "vd740 synthetic stand-in");
    assert_eq!(curve.lines[0].points.len(), 2);
    assert_eq!(curve.y_label, "Backing I/O (MiB)");
    let page = std::fs::read_to_string(results.join("report.html")).expect("a page");
    assert!(page.contains("synthetic stand-in"));
}
