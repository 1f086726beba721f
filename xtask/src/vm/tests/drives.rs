//! `floe device` and `floe bench` on real drives.

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

/// `floe bench` records how it used drives, and the drives agree.
pub(super) fn bench(stage: &Stage) -> Result<()> {
    for (disk, open_max, active_max) in [("zns-b-1.char", 4.0, 6.0), ("zns-a-1.char", 10.0, 14.0)] {
        let rows = bench_on(stage, disk)?;
        let figure = |metric| figure(&rows, metric);
        let in_flight = figure("device_zone_writes_in_flight_max")?;
        println!("vm:   {disk}: at most {in_flight} appends in flight in a zone");
        ensure!(in_flight > 1.0, "one append at a time");
        ensure!(figure("device_zone_errors")? == 0.0);
        ensure!(
            figure("device_zone_reports")? > 0.0,
            "the drive was never asked"
        );
        for (ours, reported, limit) in [
            (
                "device_open_zones_max",
                "device_reported_open_zones_max",
                open_max,
            ),
            (
                "device_active_zones_max",
                "device_reported_active_zones_max",
                active_max,
            ),
        ] {
            let (ours, reported) = (figure(ours)?, figure(reported)?);
            println!("vm:   {disk}: {ours} zones at most, {reported} by its report, of {limit}");
            ensure!(0.0 < ours && ours <= limit && reported <= limit);
        }
    }
    let rows = bench_on(stage, "fdp-1.char")?;
    let of = |metric| figure(&rows, metric);
    let (ours, host) = (of("device_written")?, of("device_host_written")?);
    let media = of("device_media_written")?;
    println!("vm:   fdp: Floe wrote {ours} bytes, by the drive {host}, to its medium {media}");
    // QEMU counts the part of a write that fills a reclaim unit of 16 MiB twice.
    let twice = (host / f64::from(16 << 20)).ceil() * f64::from(512 << 10);
    ensure!(
        host > 0.0 && (host..=host + twice).contains(&media),
        "QEMU's drives collect nothing"
    );
    // A write may be in flight when the counts are read.
    ensure!(
        (host - ours).abs() <= 0.01 * ours,
        "{ours} bytes written, {host} by the drive"
    );
    Ok(())
}

/// The rows of a bench that writes and reads.
fn bench_on(stage: &Stage, disk: &str) -> Result<Value> {
    let device = format!("/dev/vm/{disk}");
    floe(stage, &["device", "format", &device, "--force"])?;
    let rows = floe(
        stage,
        &[
            "bench",
            "--wipe",
            "--device-path",
            &device,
            "--chunk-size",
            // It and its record fit an append of each drive.
            "64KiB",
            "--items",
            "2000",
            "--requests",
            "4000",
            "--writes",
            "0.3",
            "--clients",
            "32",
        ],
    )?;
    let described = rows[0]["device"].as_str().unwrap_or_default();
    for part in ["serial …", "firmware ", "zones of"] {
        ensure!(described.contains(part), "no `{part}` in `{described}`");
    }
    Ok(rows)
}

fn figure(rows: &Value, metric: &str) -> Result<f64> {
    let all = rows.as_array().context("no rows")?;
    let row = all.iter().find(|row| row["metric"] == metric);
    let value = row.and_then(|row| row["measured"].as_f64());
    value.with_context(|| format!("no figure {metric}"))
}
