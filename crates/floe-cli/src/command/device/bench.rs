//! `floe device bench`: measures a drive, and describes a simulated SSD like it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use floe_core::Geometry;
use floe_device::config::DeviceKind;
use floe_device::upkeep::{DriveFacts, Fitted, Load, Measured, ProfileOptions, fit, profile};
use floe_device::virtual_time::VirtualTime;
use floe_device::{ByteSize, Clock, DeviceConfig, DeviceError, SharedDevice};

use super::seen::{Seen, cannot_open, cannot_open_emptied, settings_of};
use crate::args::DeviceBenchArgs;
use crate::command::runtime::small_runtime;
use crate::failure::Failure;
use crate::output::{self, size};
use crate::style::Style;

/// The figures of a device.
struct Benched {
    description: String,
    geometry: Geometry,
    all: Vec<Measured>,
}

/// Measures the device, or the simulated SSD of a file.
pub(super) fn run(args: &DeviceBenchArgs, json: bool) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(args.seconds).ok();
    let time = time.filter(|time| !time.is_zero()).ok_or_else(|| {
        Failure::usage(format!("{} is no number of seconds", args.seconds))
            .cure("write a number above 0")
    })?;
    let options = ProfileOptions {
        time,
        writes: args.writes,
        seed: args.seed,
    };
    // Before the device is touched, since it takes long and may wipe it.
    let mut profile = match &args.profile {
        Some(path) => Some(File::create_new(path).map_err(|error| unwritable(path, error))?),
        None => None,
    };
    let benched = match (&args.device, &args.sim) {
        (Some(path), _) => bench_drive(path, options, args.force, json),
        (None, Some(file)) => bench_simulated(file, options),
        (None, None) => Err(Failure::usage("no device is named")),
    };
    if let (Err(_), Some(path)) = (&benched, &args.profile) {
        // An empty file would be in the way of the next attempt.
        let _ = std::fs::remove_file(path);
    }
    let (facts, benched) = benched?;
    let fitted = fit(&benched.all, &benched.geometry);
    if let Some((file, path)) = profile.as_mut().zip(args.profile.as_deref()) {
        let text = settings(&fitted, &benched.description);
        let written = file.write_all(text.as_bytes());
        written.map_err(|error| unwritable(path, error))?;
    }
    if json {
        return output::print_json(&serde_json::json!({
            "device": facts,
            "description": benched.description,
            "geometry": benched.geometry,
            "loads": benched.all,
            "simulated": fitted.config.sim,
            "measured": fitted.measured,
        }));
    }
    let mut table = table(&benched.all, Style::stdout());
    if !benched.geometry.native_append && !benched.geometry.random_writes {
        table += "one append of each zone is in flight, and the others of a depth wait for it\n";
    }
    if benched.description.contains("buffered") {
        table += "the file is buffered: memory takes part in all figures\n";
    }
    output::print(&format!("{}\n{table}", benched.description))?;
    match &args.profile {
        Some(path) => output::print(&format!(
            "\nsettings of a simulated SSD like it: {}\n",
            path.display()
        )),
        None => Ok(()),
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot write the new file `{}`", path.display())).because(error)
}

fn bench_drive(
    path: &Path,
    options: ProfileOptions,
    force: bool,
    json: bool,
) -> Result<(DriveFacts, Benched), Failure> {
    let seen = Seen::open(path)?;
    let mut config = settings_of(path);
    seen.claimed.check_fit(&config).map_err(cannot_open)?;
    if options.writes {
        seen.require_empty(force)?;
        seen.warn_of_loss();
        seen.empty()?;
    } else {
        if seen.contents.is_none() {
            return Err(Failure::environment(format!(
                "{} holds {}, and reads of blocks that were never written measure nothing",
                seen.text(),
                seen.contents_text()
            ))
            .cure("give --writes, or fill it with `floe device prepare`"));
        }
        // Opening foreign zones that are active would close or finish them.
        config.accept_foreign = !seen.claimed.has_active_zones().map_err(cannot_open)?;
    }
    let released = seen.release()?;
    drop(released.claim_again()?);
    let benched = small_runtime()?.block_on(async {
        let clock = Clock::real();
        let open = floe_device::open(&config, &clock);
        let device = open.map_err(match options.writes {
            true => cannot_open_emptied,
            false => cannot_open,
        })?;
        let show = |load: Load| {
            if !json {
                tracing::info!("measuring {load}");
            }
        };
        let measured = measure(device, &clock, &options, show).await;
        measured.map_err(|error| match options.writes {
            true => Failure::environment(
                "the device failed while it was measured; it was emptied, and holds random data",
            )
            .because(error),
            false => failed(error),
        })
    })?;
    if options.writes {
        // The next cache finds an empty device.
        let again = released.claim_again()?;
        match again.claimed.holds_only_plain_data() {
            Ok(true) => drop(again.empty()?),
            _ => {
                return Err(Failure::environment(format!(
                    "{} holds {} now, which the measurement did not write, and stays as it is",
                    again.text(),
                    again.contents_text()
                )));
            }
        }
    }
    Ok((released.facts, benched))
}

/// Measures the simulated SSD that `[device]` in `file` describes, in virtual time.
fn bench_simulated(file: &Path, options: ProfileOptions) -> Result<(DriveFacts, Benched), Failure> {
    /// The section of a configuration.
    #[derive(serde::Deserialize)]
    struct Section {
        device: DeviceConfig,
    }
    let unreadable = |error: Box<dyn std::error::Error + Send + Sync>| {
        Failure::usage(format!("`{}` describes no simulated SSD", file.display())).because(error)
    };
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.into()))?;
    let section: Section = toml::from_str(&text).map_err(|error| unreadable(error.into()))?;
    let config = section.device;
    if config.kind != DeviceKind::Sim {
        return Err(unreadable("device.kind is not `sim`".into()));
    }
    let options = ProfileOptions {
        writes: true,
        ..options
    };
    let run = VirtualTime::new(options.seed).run(|clock| async move {
        let device = floe_device::open(&config, &clock).map_err(cannot_open)?;
        measure(device, &clock, &options, |_| {})
            .await
            .map_err(failed)
    });
    let benched =
        run.map_err(|halt| Failure::bug("virtual time came to a halt").because(halt))??;
    Ok((DriveFacts::without_drive("sim"), benched))
}

async fn measure(
    device: SharedDevice,
    clock: &Clock,
    options: &ProfileOptions,
    began: impl FnMut(Load),
) -> Result<Benched, DeviceError> {
    Ok(Benched {
        all: profile(&device, clock, options, began).await?,
        description: device.describe(),
        geometry: device.geometry().clone(),
    })
}

fn failed(error: DeviceError) -> Failure {
    Failure::environment("the device failed while it was measured").because(error)
}

fn table(all: &[Measured], style: Style) -> String {
    let head = format!(
        "{:<28}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>10}",
        "latency, µs", "count", "/s", "MiB/s", "p50", "p90", "p99", "p99.9", "max"
    );
    let mut text = format!("{}\n", style.bold(&head));
    for one in all {
        let mut name = one.load.name().to_owned();
        if one.bytes > 0 {
            let _ = write!(name, " {}, depth {}", size(one.bytes), one.depth);
        }
        if one.zones > 1 {
            let _ = write!(name, ", {} zones", one.zones);
        }
        let per_s = one.operations as f64 / one.seconds.max(1e-9);
        let mib = one.bytes_per_s / f64::from(1 << 20);
        let _ = write!(
            text,
            "{name:<28}{:>10}{per_s:>10.0}{mib:>10.1}",
            one.operations
        );
        let latency = &one.latency;
        for (us, samples) in [
            (latency.p50_us, 1),
            (latency.p90_us, 10),
            (latency.p99_us, 100),
            (latency.p999_us, 1000),
        ] {
            let _ = match one.operations >= samples {
                true => write!(text, "{us:>9.1}"),
                false => write!(text, "{:>9}", "–"),
            };
        }
        let _ = writeln!(text, "{:>10.1}", latency.max_us);
    }
    text
}

/// The settings of a simulated SSD, for a configuration.
fn settings(fitted: &Fitted, description: &str) -> String {
    let config = &fitted.config;
    let mut text = format!("# A simulated SSD with the figures of {description}.\n[device]\n");
    let quoted = |size: ByteSize| format!("{:?}", size.to_string());
    let limits = [
        ("max_open_zones", config.max_open_zones),
        ("max_active_zones", config.max_active_zones),
    ];
    let sizes = [
        ("size", config.size),
        ("zone_size", config.zone_size),
        ("zone_capacity", config.zone_capacity),
        ("block_size", Some(config.block_size)),
        ("max_append", Some(config.max_append)),
    ];
    text += "kind = \"sim\"\n";
    for (name, size) in sizes {
        if let Some(size) = size {
            let _ = writeln!(text, "{name} = {}", quoted(size));
        }
    }
    for (name, limit) in limits {
        if let Some(limit) = limit {
            let _ = writeln!(text, "{name} = {limit}");
        }
    }
    text += "\n[device.sim]\nmodel = \"queues\"\n";
    let sim = &config.sim;
    for (name, value) in [
        ("zoned", sim.zoned.to_string()),
        (
            "native_append",
            sim.native_append.unwrap_or(sim.zoned).to_string(),
        ),
        ("placement_handles", sim.placement_handles.to_string()),
        ("units", sim.units.to_string()),
        ("read_us", format!("{:.3}", sim.read_us)),
        ("write_us", format!("{:.3}", sim.write_us)),
        ("reset_us", format!("{:.3}", sim.reset_us)),
        ("finish_us", format!("{:.3}", sim.finish_us)),
        ("flush_us", format!("{:.3}", sim.flush_us)),
        ("read_bandwidth", sim.read_bandwidth.bytes().to_string()),
        ("write_bandwidth", sim.write_bandwidth.bytes().to_string()),
        ("stripe", quoted(sim.stripe)),
        ("volatile_cache", sim.volatile_cache.to_string()),
        ("volatile_cache_bytes", quoted(sim.volatile_cache_bytes)),
    ] {
        let origin = match fitted.measured.contains(&name) {
            true => "measured",
            false => "assumed",
        };
        let _ = writeln!(text, "{:<36}# {origin}", format!("{name} = {value}"));
    }
    text
}
