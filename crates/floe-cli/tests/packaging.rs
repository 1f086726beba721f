//! Files shipped beside the binary.

use std::fs;
use std::process::Command;

#[test]
fn the_systemd_unit_is_valid() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/floe.service"
    );
    let text = fs::read_to_string(unit).unwrap();
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
    let here = folder.path().join("floe.service");
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
            assert!(!messages.contains("floe.service:"), "{messages}");
        }
        // Without systemd, there is no program that verifies the unit.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}
