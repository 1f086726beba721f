//! Volumes: their settings, and opening them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use floe::backing::{BackingTarget, Emulated, NbdBlocks};
use floe::config::{Effective, VolumeSettings, VolumesSettings};
use floe::volume::{OpenVolumesError, VolumeCache};
use floe_core::layout::volume::WITNESS_BYTES;
use floe_device::block::file::{FileBlocks, FileBlocksConfig};
use floe_device::{Clock, MemoryBlocks, SharedBlockDevice};

use crate::device;
use crate::failure::Failure;

/// Bytes of a block of an emulated backing device.
const EMULATED_BLOCK_BYTES: u32 = 512;

/// The values of `--volume` as the value of `volumes.attach`.
///
/// # Errors
/// A value is malformed.
pub(crate) fn attached(flags: &[String]) -> Result<String, Failure> {
    let mut volumes = BTreeMap::new();
    for flag in flags {
        let (name, volume) = attach(flag)?;
        if volumes.insert(name, volume).is_some() {
            return Err(Failure::usage(format!(
                "`--volume {flag}` names a volume twice"
            )));
        }
    }
    let table = toml::Value::try_from(&volumes)
        .map_err(|error| Failure::bug("volumes cannot be written as TOML").because(error))?;
    Ok(table.to_string())
}

fn attach(flag: &str) -> Result<(String, VolumeSettings), Failure> {
    let malformed = |why: &str| {
        Failure::usage(format!("`--volume {flag}` {why}"))
            .cure("write it as --volume NAME=BACKING[,mode=write-back][,read-only][,size=SIZE]")
    };
    let (name, rest) = flag
        .split_once('=')
        .ok_or_else(|| malformed("has no `=`"))?;
    let mut parts = rest.split(',');
    let backing = parts.next().unwrap_or_default();
    if name.is_empty() || backing.is_empty() {
        return Err(malformed("lacks a name or a backing device"));
    }
    let backing = backing
        .parse()
        .map_err(|error| malformed("has no such backing device").because(error))?;
    let mut volume = VolumeSettings::new(backing);
    for option in parts {
        match option.split_once('=') {
            Some(("mode", mode)) => {
                volume.mode = mode
                    .parse()
                    .map_err(|error| malformed("has no such mode").because(error))?;
            }
            Some(("size", size)) => {
                let size = size.parse();
                volume.size =
                    Some(size.map_err(|error| malformed("has no such size").because(error))?);
            }
            None if option == "read-only" => volume.read_only = true,
            _ => {
                return Err(malformed(
                    "has an option other than mode=…, size=… and read-only",
                ));
            }
        }
    }
    Ok((name.to_owned(), volume))
}

/// The settings of volumes; by default their cache is in the data directory.
///
/// # Errors
/// A setting is invalid.
pub(crate) fn settings(
    effective: &Effective<'_>,
    data_dir: &Path,
) -> Result<VolumesSettings, Failure> {
    let mut settings: VolumesSettings = effective.section("volumes")?;
    if settings.path.is_none() {
        settings.path = Some(data_dir.join("volumes.floe"));
    }
    if settings.witness.is_none() {
        settings.witness = Some(data_dir.join("volumes.witness"));
    }
    Ok(settings)
}

/// Opens the cache of volumes, and its volumes; `None` if there are none.
///
/// # Errors
/// The cause and the remedy.
pub(crate) async fn open(
    settings: &VolumesSettings,
    clock: &Clock,
) -> Result<Option<VolumeCache>, Failure> {
    let Some(path) = settings
        .path
        .as_deref()
        .filter(|_| !settings.attach.is_empty())
    else {
        return Ok(None);
    };
    let device = open_cache(path, settings, clock).await?;
    let cache = match &settings.witness {
        Some(witness) => {
            let witness = open_witness(witness, clock).await?;
            VolumeCache::open_with_witness(device, witness, clock.clone(), &settings.cache).await
        }
        None => VolumeCache::open(device, clock.clone(), &settings.cache).await,
    };
    let cache = cache.map_err(|error| explain(path, error))?;
    for (name, volume) in &settings.attach {
        let backing = open_backing(volume, clock).await?;
        let attached = cache.attach(name, backing, &volume.config()).await;
        attached.map_err(|error| explain(path, error))?;
        tracing::info!(
            volume = %name, backing = %volume.backing, mode = %volume.mode,
            "the volume is attached"
        );
    }
    Ok(Some(cache))
}

/// Opens the backing device of a volume.
async fn open_backing(
    volume: &VolumeSettings,
    clock: &Clock,
) -> Result<SharedBlockDevice, Failure> {
    let address = &volume.backing;
    let is_emulated = matches!(address.target, BackingTarget::Emulated(_));
    if volume.size.is_some() != is_emulated {
        let what = format!(
            "the backing device `{address}` must have a size if it is emulated, and only then"
        );
        return Err(Failure::usage(what).cure("write --volume NAME=emulated:PRESET,size=SIZE"));
    }
    let failed = || format!("the backing device `{address}` cannot be opened");
    match &address.target {
        BackingTarget::File(path) => open_blocks(path, volume.read_only, clock).await,
        BackingTarget::Nbd(export) => {
            let opened = NbdBlocks::open(export, &volume.nbd, clock.clone()).await;
            let device = opened.map_err(|error| Failure::environment(failed()).because(error))?;
            Ok(Arc::new(device))
        }
        BackingTarget::Emulated(config) => {
            let memory = MemoryBlocks::new(volume.size.unwrap_or_default(), EMULATED_BLOCK_BYTES);
            let memory = memory.map_err(|error| Failure::usage(failed()).because(error))?;
            let device = Emulated::new(Arc::new(memory), clock.clone(), config);
            let device = device.map_err(|error| Failure::usage(failed()).because(error))?;
            Ok(Arc::new(device))
        }
    }
}

/// Opens the cache device. A file that does not exist is created, and its blocks are
/// allocated: a file system that is full must not fail writes later.
async fn open_cache(
    path: &Path,
    settings: &VolumesSettings,
    clock: &Clock,
) -> Result<SharedBlockDevice, Failure> {
    let is_new = !path.exists();
    if is_new {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let created = file.and_then(|file| file.set_len(settings.size.bytes()));
        created.map_err(|error| cannot_create(path, error))?;
    }
    let device = open_file(path, false, clock).await?;
    match device.fill_holes() {
        Ok(()) => {}
        Err(error) if is_new && error.kind() == ErrorKind::StorageFull => {
            drop(device);
            // The first error is more useful than one of removing the file.
            let _ = std::fs::remove_file(path);
            return Err(cannot_create(path, error).cure(
                "choose a smaller one with --volumes-size, or another path with --volumes-path",
            ));
        }
        Err(error) => tracing::warn!(
            path = %path.display(), %error,
            "space for the cache cannot be allocated ahead: its writes fail once the file system is full"
        ),
    }
    Ok(Arc::new(device))
}

async fn open_witness(path: &Path, clock: &Clock) -> Result<SharedBlockDevice, Failure> {
    if !path.exists() {
        let written = std::fs::write(path, [0; 2 * WITNESS_BYTES]);
        written.map_err(|error| {
            Failure::environment(format!("cannot create `{}`", path.display()))
                .because(error)
                .cure("choose another path with --volumes-witness")
        })?;
    }
    open_blocks(path, false, clock).await
}

fn cannot_create(path: &Path, error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot create the cache `{}`", path.display()))
        .because(error)
        .cure(
            "choose another path with --volumes-path, or give this user permission to write there",
        )
}

async fn open_blocks(
    path: &Path,
    read_only: bool,
    clock: &Clock,
) -> Result<SharedBlockDevice, Failure> {
    Ok(Arc::new(open_file(path, read_only, clock).await?))
}

async fn open_file(path: &Path, read_only: bool, clock: &Clock) -> Result<FileBlocks, Failure> {
    let config = FileBlocksConfig {
        read_only,
        ..FileBlocksConfig::new(path)
    };
    let opened = device::patiently(clock, || FileBlocks::open(&config)).await;
    opened.map_err(|error| {
        Failure::environment(format!("`{}` cannot be opened", path.display())).because(error)
    })
}

fn explain(path: &Path, error: OpenVolumesError) -> Failure {
    let what = format!("the cache of volumes `{}` cannot be opened", path.display());
    match error {
        OpenVolumesError::Config(_)
        | OpenVolumesError::TooSmall { .. }
        | OpenVolumesError::PlanDiffers { .. }
        | OpenVolumesError::TooManyVolumes(_) => Failure::usage(what).because(error),
        error => Failure::environment(what).because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_a_name_a_backing_device_and_options() {
        let flags = [
            "disk=/dev/sdb,mode=write-back".into(),
            "b=x.img,read-only".into(),
            "c=emulated:hdd-array,size=1GiB".into(),
        ];
        let text = attached(&flags).expect("both are well formed");
        let table: toml::Table = format!("v = {text}").parse().expect("it is TOML");
        let disk = &table["v"]["disk"];
        assert_eq!(disk["backing"].as_str(), Some("/dev/sdb"));
        assert_eq!(disk["mode"].as_str(), Some("write-back"));
        assert_eq!(table["v"]["b"]["read_only"].as_bool(), Some(true));
        assert_eq!(table["v"]["c"]["size"].as_str(), Some("1GiB"));
    }

    #[test]
    fn malformed_volumes_are_usage_errors() {
        for flag in [
            "disk",
            "=x",
            "disk=",
            "disk=x,mode=fast",
            "disk=x,rw",
            "disk=nbd://",
            "disk=emulated:tape,size=1GiB",
        ] {
            let failure = attach(flag).expect_err(flag);
            assert!(failure.is_usage(), "{flag}");
        }
        let twice = ["a=x".to_owned(), "a=y".to_owned()];
        assert!(attached(&twice).is_err());
    }
}
