//! Volumes: their settings, and opening them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::future::ready;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe::backing::{BackingTarget, Emulated, NbdBlocks};
use floe::config::{Effective, Overlay, Source, VolumeSettings, VolumesSettings};
use floe::volume::{OpenVolumesError, Reserve, VolumeCache, VolumeError};
use floe_core::layout::volume::WITNESS_BYTES;
use floe_device::block::file::{FileBlocks, FileBlocksConfig};
use floe_device::block::flat::Flat;
use floe_device::block::locked::Locked;
use floe_device::block::refuse_foreign;
use floe_device::config::OpenDeviceError;
use floe_device::{Clock, MemoryBlocks, SharedBlockDevice, nvme};
use floe_server::{NodeConfig, VolumeLocks};

use crate::device;
use crate::failure::Failure;

/// Bytes of a block of an emulated backing device.
const EMULATED_BLOCK_BYTES: u32 = 512;

/// The settings that the values of `--volume` are.
///
/// # Errors
/// A value is malformed, or two contradict each other.
pub(crate) fn overlays(flags: &[String]) -> Result<Vec<Overlay>, Failure> {
    let mut settings = BTreeMap::new();
    for flag in flags {
        let Volume {
            name,
            settings: volume,
            of_cache,
        } = parse(flag)?;
        let table = toml::Value::try_from(&volume)
            .map_err(|error| Failure::bug("a volume cannot be written as TOML").because(error))?;
        if settings
            .insert(format!("volume.{name}"), table.to_string())
            .is_some()
        {
            return Err(Failure::usage(format!(
                "`--volume {flag}` names a volume twice"
            )));
        }
        for (setting, text) in of_cache {
            let before = settings.insert(setting.to_owned(), text.clone());
            if before.is_some_and(|before| before != text) {
                return Err(Failure::usage(format!(
                    "`--volume {flag}` contradicts another one: {setting} is a setting of the cache that all volumes share"
                )));
            }
        }
    }
    let overlay = |(setting, text)| Overlay {
        setting,
        text,
        source: Source::Flag("--volume".to_owned()),
    };
    Ok(settings.into_iter().map(overlay).collect())
}

/// The value of one `--volume`.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) settings: VolumeSettings,
    /// Settings of the cache device, and their values.
    pub(crate) of_cache: Vec<(&'static str, String)>,
}

/// Reads `NAME=BACKING[,OPTION…]`.
///
/// # Errors
/// The text is malformed.
pub(crate) fn parse(text: &str) -> Result<Volume, Failure> {
    let malformed = |why: &str| {
        Failure::usage(format!("the volume `{text}` {why}")).cure(
            "write it as NAME=BACKING[,mode=write-back][,read-only][,allow-data-loss][,reserve=auto][,lock=NAME][,take-from=KEY][,size=SIZE][,sizes=4KiB..1MiB][,cache=4GiB]",
        )
    };
    let (name, rest) = text
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
    let mut settings = VolumeSettings::new(backing);
    let mut of_cache: Vec<(&str, String)> = Vec::new();
    for option in parts {
        match option.split_once('=') {
            Some(("mode", mode)) => {
                settings.mode = mode
                    .parse()
                    .map_err(|error| malformed("has no such mode").because(error))?;
            }
            Some(("reserve", reserve)) => {
                let reserve = reserve.parse();
                settings.reserve =
                    reserve.map_err(|error| malformed("has no such reservation").because(error))?;
            }
            Some(("lock", name)) => settings.lock = Some(name.to_owned()),
            Some(("take-from", key)) => {
                let key = key.parse();
                settings.take_from =
                    Some(key.map_err(|error: String| malformed("has no such key").because(error))?);
            }
            Some(("sizes", sizes)) => of_cache.push(("volumes.sizes", sizes.to_owned())),
            Some(("size", size)) => {
                let size = size.parse();
                settings.size =
                    Some(size.map_err(|error| malformed("has no such size").because(error))?);
            }
            Some(("cache", size)) => of_cache.push(("volumes.size", size.to_owned())),
            None if option == "read-only" => settings.read_only = true,
            None if option == "allow-data-loss" => settings.allow_data_loss = true,
            // Sizes may be a list.
            None if option.starts_with(|first: char| first.is_ascii_digit())
                && let Some(("volumes.sizes", sizes)) = of_cache.last_mut() =>
            {
                sizes.push(',');
                sizes.push_str(option);
            }
            _ => return Err(malformed("has an option that does not exist")),
        }
    }
    Ok(Volume {
        name: name.to_owned(),
        settings,
        of_cache,
    })
}

/// The settings of volumes. Their cache has a path if it is to be opened; by default it
/// is in the data directory.
///
/// # Errors
/// A setting is invalid.
pub(crate) fn settings(
    effective: &Effective<'_>,
    data_dir: &Path,
) -> Result<VolumesSettings, Failure> {
    let mut settings: VolumesSettings = effective.section("volumes")?;
    settings.attach = effective.named("volume")?;
    if settings.path.is_none() && !settings.attach.is_empty() {
        settings.path = Some(default_path(data_dir));
    }
    if settings.witness.is_none() {
        settings.witness = Some(data_dir.join("volumes.witness"));
    }
    Ok(settings)
}

/// The path of the cache of volumes if none is set.
pub(crate) fn default_path(data_dir: &Path) -> PathBuf {
    data_dir.join("volumes.floe")
}

/// The locks of backing devices in a node's etcd, if it has one.
///
/// # Errors
/// The settings of etcd cannot be used.
pub(crate) fn locks(
    node: Option<&NodeConfig>,
    clock: &Clock,
) -> Result<Option<VolumeLocks>, Failure> {
    let node = node.filter(|node| !node.etcd.is_empty());
    let locks = node.map(|node| VolumeLocks::new(node, clock.clone()));
    let locks = locks.transpose();
    locks.map_err(|error| Failure::usage("etcd cannot be asked").because(error))
}

/// Opens the cache of volumes, and its volumes; `None` if none is to be opened.
///
/// # Errors
/// The cause and the remedy.
pub(crate) async fn open(
    settings: &VolumesSettings,
    locks: Option<&VolumeLocks>,
    clock: &Clock,
) -> Result<Option<VolumeCache>, Failure> {
    let Some(path) = settings.path.as_deref() else {
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
        let backing = open_backing(volume, locks, clock).await?;
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
///
/// # Errors
/// The cause.
pub(crate) async fn open_backing(
    volume: &VolumeSettings,
    locks: Option<&VolumeLocks>,
    clock: &Clock,
) -> Result<SharedBlockDevice, Failure> {
    let Some(name) = &volume.lock else {
        return open_unlocked(volume, clock).await;
    };
    if volume.reserve != Reserve::Off {
        let what = format!(
            "the volume of `{}` has both a lock and `reserve`",
            volume.backing
        );
        return Err(Failure::usage(what)
            .cure("use reserve=required where the device has reservations, and a lock elsewhere"));
    }
    let Some(locks) = locks else {
        let what = format!("the lock `{name}` of a volume needs etcd, which is not set");
        return Err(Failure::usage(what).cure("name its addresses with --node-etcd"));
    };
    let lock = locks.lock(name);
    let lock = lock.map_err(|error| Failure::usage(error.to_string()))?;
    let device = open_unlocked(volume, clock).await?;
    Ok(Arc::new(Locked::new(device, lock)))
}

async fn open_unlocked(
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
        BackingTarget::File(path) => Ok(Arc::new(open_file(path, volume.read_only, clock).await?)),
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
    if nvme::is_namespace(path) {
        refuse_foreign(path).map_err(|error| cannot_open(path, error))?;
        let opened = device::patiently(clock, || ready(Flat::open_namespace(path))).await;
        return Ok(Arc::new(opened.map_err(|error| cannot_open(path, error))?));
    }
    let is_new = create(path, settings.size.bytes()).map_err(|error| cannot_create(path, error))?;
    let device = open_file(path, false, clock).await?;
    refuse_foreign(path).map_err(|error| cannot_open(path, error))?;
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
    create(path, 2 * WITNESS_BYTES as u64).map_err(|error| {
        cannot_create(path, error).cure("choose another path with --volumes-witness")
    })?;
    Ok(Arc::new(open_file(path, false, clock).await?))
}

/// Creates a file of `bytes` that only this user can read, unless there is something
/// already. True if it was created, or was empty.
fn create(path: &Path, bytes: u64) -> std::io::Result<bool> {
    let is_new = match std::fs::metadata(path) {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if is_new {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(path)?.set_len(bytes)?;
    }
    Ok(is_new)
}

fn cannot_create(path: &Path, error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot create the cache `{}`", path.display()))
        .because(error)
        .cure(
            "choose another path with --volumes-path, or give this user permission to write there",
        )
}

async fn open_file(path: &Path, read_only: bool, clock: &Clock) -> Result<FileBlocks, Failure> {
    let config = FileBlocksConfig {
        read_only,
        ..FileBlocksConfig::new(path)
    };
    let opened = device::patiently(clock, || ready(FileBlocks::open(&config))).await;
    opened.map_err(|error| cannot_open(path, error))
}

fn cannot_open(path: &Path, error: OpenDeviceError) -> Failure {
    Failure::environment(format!("`{}` cannot be opened", path.display())).because(error)
}

fn explain(path: &Path, error: OpenVolumesError) -> Failure {
    let what = format!("the cache of volumes `{}` cannot be opened", path.display());
    match error {
        OpenVolumesError::Config(_)
        | OpenVolumesError::TooSmall { .. }
        | OpenVolumesError::PlanDiffers { .. }
        | OpenVolumesError::InUse(_)
        | OpenVolumesError::NameTooLong(..)
        | OpenVolumesError::Volume(VolumeError::Volatile { .. })
        | OpenVolumesError::TooManyVolumes(_) => Failure::usage(what).because(error),
        error => Failure::environment(what).because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[&str]) -> Result<BTreeMap<String, String>, Failure> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let overlays = overlays(&flags)?.into_iter();
        Ok(overlays
            .map(|overlay| (overlay.setting, overlay.text))
            .collect())
    }

    #[test]
    fn a_volume_has_a_name_a_backing_device_and_options() {
        let given = given(&[
            "disk=/dev/sdb,mode=write-back,sizes=4KiB,64KiB,cache=8GiB,lock=store/disk",
            "b=x.img,read-only,cache=8GiB",
            "c=emulated:hdd-array,size=1GiB",
        ]);
        let given = given.expect("both are well formed");
        let table = |name: &str| -> toml::Table {
            format!("v = {}", given[name]).parse().expect("it is TOML")
        };
        let disk = &table("volume.disk")["v"];
        assert_eq!(disk["backing"].as_str(), Some("/dev/sdb"));
        assert_eq!(disk["mode"].as_str(), Some("write-back"));
        assert_eq!(disk["lock"].as_str(), Some("store/disk"));
        assert_eq!(table("volume.b")["v"]["read_only"].as_bool(), Some(true));
        assert_eq!(table("volume.c")["v"]["size"].as_str(), Some("1GiB"));
        assert_eq!(given["volumes.sizes"], "4KiB,64KiB");
        assert_eq!(given["volumes.size"], "8GiB");
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
            "disk=x,4KiB",
        ] {
            assert!(parse(flag).expect_err(flag).is_usage(), "{flag}");
        }
        for flags in [["a=x", "a=y"], ["a=x,cache=1GiB", "b=y,cache=2GiB"]] {
            assert!(
                given(&flags)
                    .expect_err("they contradict each other")
                    .is_usage()
            );
        }
    }

    #[test]
    fn wrong_names_and_volatile_caches_are_usage_errors() {
        let path = Path::new("volumes.floe");
        let volatile = VolumeError::Volatile {
            mode: floe::volume::Mode::WriteBack,
            device: "memory".to_owned(),
        };
        for error in [
            OpenVolumesError::NameTooLong("x".repeat(200), 112),
            OpenVolumesError::InUse("disk".to_owned()),
            volatile.into(),
        ] {
            assert!(explain(path, error).is_usage());
        }
    }
}
