//! `floe volume`: makes, attaches, watches and detaches volumes.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::{Path, absolute};

use clap::ArgMatches;
use floe::backing::BackingTarget;
use floe::config::{Effective, Schema};
use floe::volume::{DirtyData, Resized, ScrubReport, Usage};
use floe_core::ByteSize;
use floe_device::Clock;
use floe_device::block::file::{FileBlocks, FileBlocksConfig};
use floe_server::NodeConfig;
use floe_server::control::{Reply, Request, VolumeReport};

use super::control::{Client, unexpected};
use crate::args::VolumeAction;
use crate::failure::Failure;
use crate::output;
use crate::settings::Request as Settings;
use crate::{logging, volumes};

/// Sizes of backing files are multiples of this.
const SIZE_UNIT_BYTES: u64 = 4096;

pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    action: &VolumeAction,
    json: bool,
) -> Result<(), Failure> {
    if let VolumeAction::Create {
        file,
        size,
        allocate,
    } = action
    {
        create(file, *size, *allocate)?;
        return say(json, &format!("{} has {size}", file.display()));
    }
    let settings = Settings::new(schema, matches)?;
    let effective = settings.load(schema)?;
    let data_dir = &settings.places.data_dir;
    if let VolumeAction::Flush {
        name,
        offline: true,
        ..
    } = action
    {
        logging::start(&effective.section("log")?)?;
        let runtime = super::runtime::small_runtime()?;
        let flushed = flush(&effective, data_dir, name.as_deref());
        let volumes = runtime.block_on(flushed)?;
        return say(json, &format!("{volumes} volumes have no dirty data"));
    }
    let client = Client::new(&settings, &effective)?;
    let reports = match client.call(&request(action)?)? {
        Reply::Volumes(reports) => reports,
        Reply::Scrubbed(report) => return scrubbed(json, &report),
        Reply::Resized(sizes) => return resized(json, action, sizes),
        other => return Err(unexpected(&other)),
    };
    if let VolumeAction::Detach { name, .. } = action {
        return say(json, &format!("volume {name} is detached"));
    }
    match json {
        true => output::print_json(&reports),
        false => output::print(&reports.iter().map(shown).collect::<String>()),
    }
}

fn resized(json: bool, action: &VolumeAction, sizes: Resized) -> Result<(), Failure> {
    let Resized { before, now } = sizes;
    if json {
        let sizes = (before.bytes(), now.bytes());
        return output::print_json(
            &serde_json::json!({ "before_bytes": sizes.0, "now_bytes": sizes.1 }),
        );
    }
    let (before, size) = (output::size(before.bytes()), output::size(now.bytes()));
    let subject = match action {
        VolumeAction::Resize {
            name: Some(name), ..
        } => format!("volume {name} has {size}"),
        _ => format!("the cache has room for {size}"),
    };
    output::print(&match sizes.before == now {
        true => format!("{subject}, as before\n"),
        false => format!("{subject}, before {before}\n"),
    })
}

fn scrubbed(json: bool, report: &ScrubReport) -> Result<(), Failure> {
    let ScrubReport {
        read_bytes,
        dropped_bytes,
        damaged_bytes,
    } = *report;
    match json {
        true => output::print_json(report)?,
        false => output::print(&format!(
            "{} read, {} of damaged clean data left the cache\n",
            output::size(read_bytes),
            output::size(dropped_bytes)
        ))?,
    }
    if damaged_bytes == 0 {
        return Ok(());
    }
    let damaged = output::size(damaged_bytes);
    Err(
        Failure::damage(format!("{damaged} of dirty data are damaged"))
            .cure("see the server's log for the ranges: write them again, or discard them"),
    )
}

fn say(json: bool, what: &str) -> Result<(), Failure> {
    match json {
        true => output::print_json(&serde_json::json!({ "done": what })),
        false => output::print(&format!("{what}\n")),
    }
}

/// The request for `action`, which needs a running server.
fn request(action: &VolumeAction) -> Result<Request, Failure> {
    Ok(match action.clone() {
        VolumeAction::Attach { attached } => {
            let volumes::Volume {
                name,
                mut settings,
                of_cache,
            } = volumes::parse(&attached)?;
            if let Some((setting, _)) = of_cache.first() {
                return Err(Failure::usage(format!(
                    "{setting} is fixed while the server runs: all volumes share the cache"
                )));
            }
            if let BackingTarget::File(path) = &settings.backing.target {
                let path = absolute(path).map_err(|error| {
                    Failure::environment("the working directory is not known").because(error)
                })?;
                settings.backing = path.display().to_string().parse().map_err(|error| {
                    Failure::usage("the backing device has no such path").because(error)
                })?;
            }
            Request::Attach {
                name,
                settings: Box::new(settings),
            }
        }
        VolumeAction::Mode { name, mode } => Request::Mode { name, mode },
        VolumeAction::Detach {
            name,
            keep_dirty,
            discard_dirty,
        } => Request::Detach {
            name,
            dirty: match (keep_dirty, discard_dirty) {
                (true, _) => DirtyData::Keep,
                (_, true) => DirtyData::Discard,
                (false, false) => DirtyData::WriteBack,
            },
        },
        VolumeAction::Flush { name, .. } => Request::Flush { name },
        VolumeAction::Scrub { rate } => Request::Scrub { rate },
        VolumeAction::Resize {
            name, size, shrink, ..
        } => Request::Resize {
            name,
            size,
            allow_loss: shrink,
        },
        VolumeAction::Status { name } => Request::Status { name },
        VolumeAction::Create { .. } => Request::Status { name: None },
    })
}

fn create(path: &Path, size: ByteSize, allocate: bool) -> Result<(), Failure> {
    if size.bytes() == 0 || !size.bytes().is_multiple_of(SIZE_UNIT_BYTES) {
        return Err(Failure::usage(format!(
            "{size} is no multiple of 4KiB, so that a volume cannot have it"
        )));
    }
    let failed = |error: &dyn std::fmt::Display| {
        Failure::environment(format!("cannot create `{}`", path.display()))
            .because(error.to_string())
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(|error| failed(&error))?;
    let made = file
        .set_len(size.bytes())
        .map_err(|error| failed(&error))
        .and_then(|()| match allocate {
            true => {
                let device = FileBlocks::open(&FileBlocksConfig::new(path));
                let device = device.map_err(|error| failed(&error))?;
                device.fill_holes().map_err(|error| failed(&error))
            }
            false => Ok(()),
        });
    if made.is_err() {
        // The first error is more useful than one of removing the file.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Opens the cache and the backing devices of the settings, writes the dirty data of one
/// volume or of all of them back, and closes. Returns the number of volumes.
async fn flush(
    effective: &Effective<'_>,
    data_dir: &Path,
    name: Option<&str>,
) -> Result<usize, Failure> {
    let mut settings = volumes::settings(effective, data_dir)?;
    settings
        .attach
        .retain(|volume, _| name.is_none_or(|name| name == volume));
    let path = settings
        .path
        .clone()
        .filter(|_| !settings.attach.is_empty());
    let Some(path) = path else {
        return Err(Failure::usage("the settings have no such volume")
            .cure("name the configuration of the server with --config, or the volume with --volume NAME=BACKING"));
    };
    if !path.exists() {
        return Err(
            Failure::usage(format!("there is no cache `{}`", path.display()))
                .cure("name the data directory with --data-dir, or the cache with --volumes-path"),
        );
    }
    let failed = |error| Failure::environment("the dirty data is not all written").because(error);
    let node: NodeConfig = effective.section("node")?;
    let clock = Clock::real();
    let locks = volumes::locks(Some(&node), &clock)?;
    let cache = volumes::open(&settings, locks.as_ref(), &clock).await?;
    let Some(cache) = cache else {
        return Ok(0);
    };
    let volumes = cache.volumes();
    for volume in &volumes {
        volume.clean().await.map_err(failed)?;
    }
    cache.close().await.map_err(failed)?;
    Ok(volumes.len())
}

/// A volume for people.
fn shown(report: &VolumeReport) -> String {
    let VolumeReport { status, usage } = report;
    let Usage { reads, writes, .. } = usage;
    let state = match (&status.poisoned, &status.cache_lost) {
        _ if status.is_taken_away => {
            "LOST, every request fails: another machine may have the backing device".to_owned()
        }
        (Some(reason), _) => format!("POISONED, reads go on and writes are refused: {reason}"),
        (None, Some(reason)) => format!("DEGRADED, it goes on without the cache device: {reason}"),
        (None, None) if status.unread_bytes > 0 => format!(
            "serving, while blocks of {} of the cache are being read: dirty and cached lack them",
            output::size(status.unread_bytes)
        ),
        (None, None) if status.is_read_only => "read-only".to_owned(),
        (None, None) => "good".to_owned(),
    };
    let mut out = String::new();
    let _ = writeln!(out, "volume {}", status.name);
    for (name, value) in [
        ("size", output::size(status.size_bytes)),
        ("mode", status.mode.name().to_owned()),
        ("state", state),
        ("dirty", output::size(usage.dirty_bytes)),
        (
            "cached",
            format!("{} in {} blocks", output::size(usage.bytes), usage.blocks),
        ),
        (
            "hits",
            format!(
                "{:.1} % of {} reads, {:.1} % of {} writes",
                reads.hit_ratio() * 100.0,
                reads.requests,
                writes.hit_ratio() * 100.0,
                writes.requests
            ),
        ),
        ("backing", status.backing.clone()),
    ] {
        let _ = writeln!(out, "  {name:<8} {value}");
    }
    out
}
