//! `floe device` on real drives.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(600);

/// Runs `floe` in the guest, and returns its JSON.
fn floe(stage: &Stage, words: &[&str]) -> Result<Value> {
    let all = [&[stage.floe()?], words, &["--json"]].concat();
    let output = stage.machine.guest().output(&all, PATIENCE)?;
    // Log lines come before it.
    let start = output.find(['{', '[']).context("no JSON")?;
    Ok(serde_json::from_str(output[start..].trim())?)
}

/// Formats, prepares and measures each kind of drive.
pub(super) fn commands(stage: &Stage) -> Result<()> {
    for (disk, emptied) in [
        ("zns-b-1.char", "reset"),
        ("zns-b-1", "reset"),
        ("fdp-1.char", "discarded"),
        ("conv-2", "discarded"),
    ] {
        println!("vm:   on {disk}");
        let device = format!("/dev/vm/{disk}");
        let format = ["device", "format", &device];
        let forced = [&format[..], &["--force"]].concat();
        floe(stage, &forced)?;
        let prepare = ["device", "prepare", &device, "--share", "0.1", "--state"];
        for state in ["sequential", "random"] {
            let done = floe(stage, &[&prepare[..], &[state, "--force"]].concat())?;
            let written = done["written"]["written_bytes"].as_u64();
            ensure!(written.is_some_and(|bytes| bytes > 0), "{done}");
        }
        ensure!(
            floe(stage, &format).is_err(),
            "{disk} was wiped without --force"
        );
        let formatted = floe(stage, &forced)?;
        // QEMU's drives may return anything for discarded blocks.
        let how = formatted["emptied"].as_str();
        ensure!(how == Some(emptied) || how == Some("zeroed"), "{formatted}");
        ensure!(formatted["held"].is_string(), "{formatted}");
        ensure!(floe(stage, &format)?["held"].is_null());
        let bench = ["device", "bench", &device, "--seconds", "14", "--writes"];
        let found = floe(stage, &bench)?;
        let loads = found["loads"].as_array().context("no loads")?;
        let is_deep = |load: &&Value| load["load"] == "append" && load["depth"] == 16;
        let deep = loads.iter().find(is_deep);
        let appends = deep.and_then(|load| load["operations"].as_u64());
        ensure!(appends.is_some_and(|count| count > 16), "{found}");
        ensure!(floe(stage, &format)?["held"].is_null());
    }
    block_formats(stage)
}

/// A namespace gets another block format, and then its own again.
fn block_formats(stage: &Stage) -> Result<()> {
    let device = "/dev/vm/conv-2.char";
    let info = floe(stage, &["device", "info", device])?;
    let formats = info["block_formats"].as_array().context("no formats")?;
    let of = |bytes: u32| {
        let is_it =
            |format: &Value| format["block_bytes"] == bytes && format["metadata_bytes"] == 0;
        let number = formats.iter().position(is_it);
        number
            .map(|number| number.to_string())
            .context("no such format")
    };
    for bytes in [4096, 512] {
        let number = of(bytes)?;
        let words = [
            "device",
            "format",
            device,
            "--force",
            "--lba-format",
            &number,
        ];
        let formatted = floe(stage, &words)?;
        ensure!(formatted["block_bytes"] == bytes, "{formatted}");
    }
    Ok(())
}
