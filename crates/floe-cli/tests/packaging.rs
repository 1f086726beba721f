//! Files shipped beside the binary.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_systemd_unit_is_valid() {
    let text = shipped("systemd/floe.service");
    for needed in [
        "Type=notify",
        "WatchdogSec=",
        "RestartPreventExitStatus=2",
        "ProtectSystem=strict",
        "io_uring_enter",
    ] {
        assert!(text.contains(needed), "{needed}");
    }
    let folder = tempfile::tempdir().unwrap();
    verify(folder.path(), "floe.service", &text);
}

#[test]
fn the_systemd_template_and_its_drop_in_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let drop_ins = folder.path().join("floe@.service.d");
    fs::create_dir(&drop_ins).unwrap();
    let numa = shipped("systemd/floe@.service.d/numa.conf.example");
    fs::write(drop_ins.join("numa.conf"), numa).unwrap();
    let template = shipped("systemd/floe@.service");
    verify(folder.path(), "floe@.service", &template);
}

/// An instance is as confined as the single service.
#[test]
fn the_template_differs_only_in_settings_that_name_the_instance() {
    let (service, template) = (
        shipped("systemd/floe.service"),
        shipped("systemd/floe@.service"),
    );
    let named: Vec<&str> = settings(&template)
        .filter(|line| line.contains("%i"))
        .map(key)
        .collect();
    assert_eq!(
        named,
        [
            "Description",
            "ExecStart",
            "EnvironmentFile",
            "StateDirectory"
        ]
    );
    let shared = |line: &&str| !named.contains(&key(line));
    let of_service: Vec<&str> = settings(&service).filter(shared).collect();
    let of_template: Vec<&str> = settings(&template).filter(shared).collect();
    assert_eq!(of_template, of_service);
}

fn shipped(file: &str) -> String {
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    fs::read_to_string(Path::new(packaging).join(file)).unwrap()
}

/// Section headings and settings, without comments.
fn settings(unit: &str) -> impl Iterator<Item = &str> {
    unit.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn key(setting: &str) -> &str {
    setting.split('=').next().unwrap()
}

/// Asserts that systemd finds no fault with `text` as the unit `name` in `folder`.
fn verify(folder: &Path, name: &str, text: &str) {
    let here = folder.join(name);
    let installed = text.replace("/usr/bin/floe", env!("CARGO_BIN_EXE_floe"));
    fs::write(&here, installed).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&here)
        .output();
    match verified {
        Ok(output) => {
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{messages}");
            // Messages name the unit, its instance or a drop-in.
            assert!(!messages.contains("floe"), "{messages}");
        }
        // Without systemd, there is no program that verifies the unit.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}
