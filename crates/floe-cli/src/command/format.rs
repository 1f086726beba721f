//! `floe format`: makes a device a new, empty cache.

use std::path::Path;

use clap::ArgMatches;
use floe::config::Schema;
use floe::store::{OpenError, Store, StoreConfig};
use floe_device::{Clock, DeviceConfig};

use crate::args::FormatArgs;
use crate::device;
use crate::failure::Failure;
use crate::output;
use crate::settings::{Plan, Request};

/// Formats a blank device, or with `--force` any.
pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    args: &FormatArgs,
    json: bool,
) -> Result<(), Failure> {
    let request = Request::new(schema, matches)?;
    let effective = request.load(schema)?;
    let plan = Plan::new(&request, &effective)?;
    if plan.size_is_ours && !device::path_of(&plan.device).is_some_and(|path| path.exists()) {
        return Err(Failure::usage("there is no device to format, and no size to make one of")
            .cure("name a device with --device-path, or a size with --device-size; `floe serve` makes a new cache by itself"));
    }
    let config = StoreConfig {
        chunk: plan.chunk.clone(),
        ram: plan.ram.clone(),
        format: args.force,
        ..StoreConfig::default()
    };
    let runtime = super::small_runtime()?;
    let description = runtime.block_on(async {
        let clock = Clock::real();
        let device = device::open(&plan.device, &clock)?;
        plan.check_chunks(device.geometry())?;
        let description = device.describe();
        let store = Store::open(device, clock, &config)
            .await
            .map_err(|error| explain_open(error, &plan.device))?;
        let formatted = store.recovery().formatted || args.force;
        store
            .close()
            .await
            .map_err(|error| Failure::environment("the new cache was not closed").because(error))?;
        if !formatted {
            return Err(Failure::usage(format!(
                "{description} holds a Floe cache already; nothing was changed"
            ))
            .cure("forget what it holds with --force"));
        }
        Ok(description)
    })?;
    if json {
        return output::print_json(&serde_json::json!({ "formatted": description }));
    }
    output::print(&format!("{description} is a new, empty cache\n"))
}

/// Whether it is the settings or the device that is in the way, with the
/// command that formats where one would help.
pub(crate) fn explain_open(error: OpenError, device: &DeviceConfig) -> Failure {
    let path = device.path.as_deref().unwrap_or(Path::new("DEVICE"));
    let format = format!("floe format --force --device-path {}", path.display());
    let what = "the cache cannot be opened";
    match &error {
        OpenError::Config(_) => {
            Failure::usage("the cache cannot work on this device").because(error)
        }
        OpenError::ForeignData { .. } | OpenError::OtherKind { .. } => {
            Failure::environment(what).because(error).cure(format!(
                "another --device-path; or wipe what is there, for ever, with `{format}`"
            ))
        }
        OpenError::OtherPlan { .. } => Failure::usage(what).because(error).cure(format!(
            "change the setting back; or forget what is cached with `{format}`"
        )),
        OpenError::OtherFormat { .. } => Failure::environment(what).because(error).cure(format!(
            "the version of floe that wrote it; or forget what is cached with `{format}`"
        )),
        _ => Failure::environment(what).because(error),
    }
}
