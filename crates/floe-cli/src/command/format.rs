//! `floe format`: formats a device as a new, empty cache.

use std::path::Path;

use clap::ArgMatches;
use floe::config::Schema;
use floe::store::{OpenError, Store, StoreConfig};
use floe::tiny::{OpenTinyError, TinyConfig};
use floe::{CacheError, Tiny};
use floe_device::{Clock, DeviceConfig};

use crate::args::FormatArgs;
use crate::device::{self, Part};
use crate::failure::Failure;
use crate::output;
use crate::settings::{Plan, Request, unusable_tiny};

/// Formats a blank device, or any device with `--force`.
pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    args: &FormatArgs,
    json: bool,
) -> Result<(), Failure> {
    let request = Request::new(schema, matches)?;
    let effective = request.load(schema)?;
    let plan = Plan::new(&request, &effective)?;
    let runtime = super::runtime::small_runtime()?;
    let description = match args.tiny {
        true => runtime.block_on(format_tiny(&plan, args.force)),
        false => runtime.block_on(format_chunks(&plan, args.force)),
    }?;
    if json {
        return output::print_json(&serde_json::json!({ "formatted": description }));
    }
    output::print(&format!("{description} is a new, empty cache\n"))
}

async fn format_chunks(plan: &Plan, force: bool) -> Result<String, Failure> {
    if plan.size_is_default && !device::path_of(&plan.device).is_some_and(|path| path.exists()) {
        return Err(Failure::usage("the settings name no device to format, and no size for a new file")
            .cure("name a device with --device-path, or a size with --device-size; `floe serve` creates a new cache itself"));
    }
    let config = StoreConfig {
        chunk: plan.chunk.clone(),
        ram: plan.ram.clone(),
        format: force,
        ..StoreConfig::default()
    };
    let clock = Clock::real();
    let device = device::open(Part::Chunks, &to_format(&plan.device, force), &clock).await?;
    plan.check_chunks(device.geometry())?;
    let description = device.describe();
    let store = Store::open(device, clock, &config)
        .await
        .map_err(|error| explain_open(error, &plan.device))?;
    let formatted = store.recovery().formatted || force;
    store.close().await.map_err(not_closed)?;
    require_formatted(formatted, &description)?;
    Ok(description)
}

async fn format_tiny(plan: &Plan, force: bool) -> Result<String, Failure> {
    let Some(tier) = &plan.tiny else {
        return Err(Failure::usage("the settings have no tiny engine")
            .cure("set tiny.enabled = true and an address in memcached.listen"));
    };
    let config = TinyConfig {
        format: force,
        ..tier.engine.clone()
    };
    let clock = Clock::real();
    let device = device::open(Part::Tiny, &to_format(&tier.device, force), &clock).await?;
    let description = device.describe();
    let tiny = Tiny::open(device, clock, &config)
        .await
        .map_err(explain_open_tiny)?;
    let formatted = tiny.recovery().formatted;
    tiny.close().await.map_err(not_closed)?;
    require_formatted(formatted, &description)?;
    Ok(description)
}

/// A device that may hold other data if `--force` is given.
fn to_format(device: &DeviceConfig, force: bool) -> DeviceConfig {
    DeviceConfig {
        accept_foreign: force,
        ..device.clone()
    }
}

fn not_closed(error: CacheError) -> Failure {
    Failure::environment("the new cache was not closed").because(error)
}

fn require_formatted(formatted: bool, description: &str) -> Result<(), Failure> {
    if formatted {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{description} already holds a Floe cache; nothing was changed"
    ))
    .cure("discard its content with --force"))
}

/// Explains whether the settings or the device are at fault, with the command
/// that formats the device if that helps.
pub(crate) fn explain_open(error: OpenError, device: &DeviceConfig) -> Failure {
    let path = device.path.as_deref().unwrap_or(Path::new("DEVICE"));
    let format = Part::Chunks.format_command(path);
    let what = "the cache cannot be opened";
    match &error {
        OpenError::Config(_) => {
            Failure::usage("the cache cannot work on this device").because(error)
        }
        OpenError::ForeignData { .. } | OpenError::OtherKind { .. } => {
            Failure::environment(what).because(error).cure(format!(
                "another --device-path; or wipe the device permanently with `{format}`"
            ))
        }
        OpenError::OtherPlan { .. } => Failure::usage(what).because(error).cure(format!(
            "change the setting back; or discard the cached data with `{format}`"
        )),
        OpenError::OtherFormat { .. } => Failure::environment(what).because(error).cure(format!(
            "the version of floe that wrote it; or discard the cached data with `{format}`"
        )),
        _ => Failure::environment(what).because(error),
    }
}

/// As [`explain_open`], for the cache of tiny objects.
pub(crate) fn explain_open_tiny(error: OpenTinyError) -> Failure {
    let what = "the cache of tiny objects cannot be opened";
    let format = "`floe format --tiny --force`, with the same settings";
    match &error {
        OpenTinyError::Config(_) => unusable_tiny(error),
        OpenTinyError::ForeignData { .. } => Failure::environment(what).because(error).cure(
            format!("another --tiny-path; or wipe the device permanently with {format}"),
        ),
        OpenTinyError::OtherPlan { .. } => Failure::usage(what).because(error).cure(format!(
            "change the setting back; or discard the cached data with {format}"
        )),
        OpenTinyError::OtherFormat { .. } => Failure::environment(what).because(error).cure(
            format!("the version of floe that wrote it; or discard the cached data with {format}"),
        ),
        _ => Failure::environment(what)
            .because(error)
            .cure("--tiny-enabled=false serves without it"),
    }
}
