//! The command line as a whole: help, version, completions, manual, exit codes.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::{clean, outcome, run};

#[test]
fn help_has_examples_and_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["--help"]).expect(0, &["Examples:", "floe serve", "Exit status:"]);
    for command in ["serve", "format", "inspect", "check"] {
        run(folder.path(), &[command, "--help"]).expect(0, &["Examples:", "--device-path"]);
        // The short help omits the settings.
        let short = run(folder.path(), &[command, "-h"]).expect(0, &["--data-dir"]);
        assert!(!short.out.contains("--device-path <PATH>"), "{short:?}");
    }
}

#[test]
fn version_prints_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["--version"]).expect(0, &[concat!("floe ", env!("CARGO_PKG_VERSION"))]);
}

#[test]
fn wrong_usage_is_status_2() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[]).expect(2, &["Usage:"]);
    run(folder.path(), &["sreve"]).expect(2, &["serve"]);
    run(folder.path(), &["serve", "--no-such-flag"]).expect(2, &["--no-such-flag"]);
}

#[test]
fn the_laboratory_is_found_beside_the_program_or_on_the_path() {
    let folder = tempfile::tempdir().unwrap();
    // A fake laboratory that prints its path and arguments.
    let fake = |place: &str| {
        let path = folder.path().join(place);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("floe-lab"), "#!/bin/sh\necho \"$0: $*\"\n").unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path.join("floe-lab"), executable).unwrap();
        path
    };
    let program = folder.path().join("bin/floe");
    fs::create_dir(folder.path().join("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_floe"), &program).unwrap();
    let bench = |path: &Path| {
        let mut command = clean(&program, folder.path());
        command.env_remove("CARGO").env("PATH", path);
        command.args(["--json", "bench", "a.toml", "--jobs", "2", "--help"]);
        outcome(command.output().unwrap())
    };
    let nowhere = folder.path().join("nowhere");
    bench(&nowhere).expect(3, &["cannot run `floe-lab`", "--package floe-lab"]);
    let shell = |place: &Path| format!("{}:/usr/bin:/bin", place.display());
    let on_path = fake("path");
    let arguments = "floe-lab: --json bench a.toml --jobs 2 --help";
    bench(Path::new(&shell(&on_path))).expect(0, &["path/", arguments]);
    fake("bin");
    bench(Path::new(&shell(&on_path))).expect(0, &["bin/", arguments]);
}

#[test]
fn under_cargo_the_laboratory_is_built_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = clean(env!("CARGO_BIN_EXE_floe"), folder.path());
    command.env("CARGO", "/bin/echo").args(["replay", "a.csv"]);
    let manifest = "lab/floe-lab/Cargo.toml -- replay a.csv";
    outcome(command.output().unwrap()).expect(0, &["run --manifest-path", manifest]);
}

#[test]
fn no_colours_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["config", "check"], &["check"]] {
        let outcome = run(folder.path(), arguments);
        assert!(
            !outcome.out.contains('\x1b') && !outcome.err.contains('\x1b'),
            "{outcome:?}"
        );
    }
}

#[test]
fn completions_parse() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        run(folder.path(), &["completions", shell]).expect(0, &["serve", "chunk-size"]);
    }
    let script = run(folder.path(), &["completions", "bash"]).out;
    let path = folder.path().join("floe.bash");
    fs::write(&path, script).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&path).status().unwrap();
    assert!(checked.success());
}

#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["man"]).expect(0, &[".TH", "floe"]);
    run(folder.path(), &["man", "--dir", "man1"]).expect(0, &["man1/floe-serve.1"]);
    for page in ["floe.1", "floe-serve.1", "floe-config-check.1"] {
        let text = fs::read_to_string(folder.path().join("man1").join(page)).unwrap();
        assert!(
            text.contains(".SH SYNOPSIS") || text.contains(".SH NAME"),
            "{page}"
        );
    }
    let serve = fs::read_to_string(folder.path().join("man1/floe-serve.1")).unwrap();
    assert!(
        serve.contains("chunk\\-size"),
        "the page lists the settings"
    );
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("bash")
        .arg("-c")
        .arg(format!(
            "set -o pipefail; {} config default | head -1 >/dev/null",
            env!("CARGO_BIN_EXE_floe")
        ))
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn namespaces_are_listed_and_one_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let list = run(folder.path(), &["device", "list", "--json"]).expect(0, &[]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&list.out).unwrap();
    assert!(all.iter().all(|one| one["path"].is_string()));
    let missing = ["device", "info", "nvme:no-such-serial"];
    run(folder.path(), &missing).expect(3, &["no-such-serial", "floe device list"]);
    run(folder.path(), &["device", "zones", "/dev/null"]).expect(3, &["/dev/null"]);
}

#[test]
fn a_ring_that_ejects_nodes_lies_unless_they_know_it() {
    let folder = tempfile::tempdir().unwrap();
    let pool = "ring:\n  listen: 127.0.0.1:22121\n  auto_eject_hosts: true\n  timeout: 400\n  \
                servers:\n    - 10.0.0.1:11211:1 a\n    - 10.0.0.2:11211:1 b\n";
    fs::write(folder.path().join("nutcracker.yml"), pool).unwrap();
    let check = ["ring", "check", "nutcracker.yml"];
    run(folder.path(), &check).expect(1, &["auto_eject_hosts", "stale values are possible"]);
    let knowing = [&check[..], &["--ring-hash", "nutcracker"]].concat();
    run(folder.path(), &knowing).expect(0, &["nothing lies"]);
    let json = [&["--json"], &check[..]].concat();
    run(folder.path(), &json).expect(1, &["\"lies\"", "auto_eject_hosts"]);
    run(folder.path(), &["ring", "shares", "nutcracker.yml"]).expect(0, &["pool ring", " %"]);
    run(folder.path(), &["ring", "check", "missing.yml"]).expect(3, &["cannot read missing.yml"]);
    fs::write(folder.path().join("x"), "no proxy").unwrap();
    run(folder.path(), &["ring", "check", "x"]).expect(2, &["neither nutcracker's nor HAProxy's"]);
}
