//! Opening the cache that an experiment's case describes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe::Origin;
use floe::latency::LatencyRule;
use floe::object::{Consistency, ObjectCache, ObjectConfig};
use floe::origin::emulated::{EmulatedConfig, SizeRule};
use floe::{RamConfig, Store, StoreConfig};
use floe_core::ByteSize;
use floe_core::chunk::ChunkConfig;
use floe_core::policy::admission::AdmissionConfig;
use floe_device::config::DeviceKind;
use floe_device::upkeep::DriveFacts;
use floe_device::{Clock, Device as _, DeviceConfig, Metered, SharedDevice};
use serde::{Deserialize, Serialize};

use super::host_spec::HostSpec;
use crate::error::EvalError;
use crate::metrics::{DriveWatch, ZONE_ERRORS};
use crate::run::{
    BenchOptions, DeviceRecord, HostCharge, ObjectTarget, RemoteAddress, RemoteSpec, RunResult,
    StoreTarget, Target, bench, emulated_origin,
};

/// The layer of the cache to drive, or a running server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TargetKind {
    /// Keys and values: get, and on a miss fetch and put.
    #[default]
    Store,
    /// Objects, read through: single-flight, chunks, metadata.
    Object,
    /// A model of ZNCache on a simulated SSD; see [`crate::hosts`].
    Zncache,
    /// A model of OxCache on a simulated SSD; see [`crate::hosts`].
    Oxcache,
    /// A running server: `unix:PATH`, `s3:URL/BUCKET`, `memcached:HOST:PORT`.
    Remote(RemoteAddress),
}

impl std::str::FromStr for TargetKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "store" => Ok(TargetKind::Store),
            "object" => Ok(TargetKind::Object),
            "zncache" => Ok(TargetKind::Zncache),
            "oxcache" => Ok(TargetKind::Oxcache),
            address if address.contains(':') => address.parse().map(TargetKind::Remote),
            _ => Err(format!(
                "`{text}` is not a target; use store, object, zncache, oxcache, unix:PATH, s3:URL/BUCKET or memcached:HOST:PORT"
            )),
        }
    }
}

impl TryFrom<String> for TargetKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TargetKind> for String {
    fn from(kind: TargetKind) -> String {
        match kind {
            TargetKind::Store => "store".to_owned(),
            TargetKind::Object => "object".to_owned(),
            TargetKind::Zncache => "zncache".to_owned(),
            TargetKind::Oxcache => "oxcache".to_owned(),
            TargetKind::Remote(address) => address.to_string(),
        }
    }
}

/// A cache with an emulated origin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct CacheSpec {
    /// The layer to drive.
    pub target: TargetKind,
    /// The device. A file without a path is created in the results' folder
    /// while the case runs.
    pub device: DeviceConfig,
    /// The chunk engine.
    pub chunk: ChunkConfig,
    /// The policy that admits values to flash.
    pub admission: AdmissionConfig,
    /// The RAM tier.
    pub ram: RamConfig,
    /// Latency of the origin until an object's first byte.
    pub origin_latency: LatencyRule,
    /// Bytes per second of one origin stream; unlimited if absent.
    pub origin_bandwidth_per_stream: Option<ByteSize>,
    /// For the target `store`: whether a client that requests a key being
    /// fetched waits for that fetch, as in a read-through cache and the papers'
    /// hosts.
    pub coalesce: bool,
    /// For the target `store` in virtual time: the time that the host's work
    /// adds to requests.
    pub charge: Option<HostCharge>,
    /// For the targets `zncache` and `oxcache`, which have neither `device` nor
    /// `ram`.
    pub host: HostSpec,
    /// For the targets `unix:…`, `s3:…` and `memcached:…`, which have neither
    /// `device`, `chunk` nor `ram`: how they are driven.
    pub remote: RemoteSpec,
}

/// An open cache with a metered device.
pub struct CacheUnderTest {
    /// The target of the load.
    pub target: Target,
    /// The device under it.
    pub device: Arc<Metered>,
    /// The paths of its drives.
    pub paths: Vec<PathBuf>,
}

impl CacheSpec {
    /// Formats and opens the cache. A file without a path is created in
    /// `scratch`. The origin's contents follow from `seed`.
    ///
    /// # Errors
    /// If the device, the store or the origin cannot be opened as described.
    pub async fn open(
        &self,
        clock: &Clock,
        seed: u64,
        scratch: &Path,
    ) -> Result<CacheUnderTest, EvalError> {
        let mut device = self.device.clone();
        if device.kind == DeviceKind::File && device.all_paths().next().is_none() {
            device.path = Some(scratch.join("cache.flash"));
        }
        let paths = device.all_paths().map(Path::to_owned).collect();
        let below = floe_device::open_drives(&device, clock).await?;
        let device = Arc::new(Metered::new(below, clock.clone()));
        let config = StoreConfig {
            chunk: self.chunk.clone(),
            admission: self.admission.clone(),
            ram: self.ram.clone(),
            format: true,
            seed: Some(seed),
        };
        let shared: SharedDevice = device.clone();
        let store = Store::open(shared, clock.clone(), &config)
            .await
            .map_err(|error| EvalError::Cache(crate::error::chain(&error)))?;
        let origin = self.origin(clock, seed)?;
        let target = match self.target {
            TargetKind::Store => {
                let target = StoreTarget::new(store, origin);
                let target = match self.charge {
                    Some(charge) => target.charging(charge, clock.clone()),
                    None => target,
                };
                Target::Store(match self.coalesce {
                    true => target.coalescing().into(),
                    false => target.into(),
                })
            }
            TargetKind::Zncache | TargetKind::Oxcache => {
                return Err(EvalError::Option {
                    option: "target",
                    reason:
                        "a paper's host is a model without a cache to open; run it as an experiment"
                            .into(),
                });
            }
            TargetKind::Remote(_) => {
                return Err(EvalError::Option {
                    option: "target",
                    reason: "a running server has no cache to open; connect to it".into(),
                });
            }
            TargetKind::Object => {
                let config = ObjectConfig {
                    chunk_size: self.chunk.size,
                    consistency: Consistency::Immutable,
                    ..ObjectConfig::default()
                };
                let cache = ObjectCache::new(store.clone(), origin, clock.clone(), config)
                    .map_err(|error| EvalError::Cache(crate::error::chain(&error)))?;
                Target::Object(ObjectTarget::new(cache, store).into())
            }
        };
        Ok(CacheUnderTest {
            target,
            device,
            paths,
        })
    }

    fn origin(&self, clock: &Clock, seed: u64) -> Result<Origin, EvalError> {
        let emulated = EmulatedConfig {
            size: SizeRule::FromKey {
                otherwise: ByteSize::kib(64),
            },
            latency: self.origin_latency.clone(),
            bandwidth_per_stream: self.origin_bandwidth_per_stream,
            ..EmulatedConfig::default()
        };
        emulated_origin(emulated, seed, clock)
    }
}

impl CacheUnderTest {
    /// Drives the cache and measures it and its device.
    ///
    /// # Errors
    /// As [`bench`](bench()).
    pub async fn bench(
        &self,
        clock: &Clock,
        options: &BenchOptions,
    ) -> Result<RunResult, EvalError> {
        let watch = DriveWatch::start(&self.paths);
        let run = bench(&self.target, clock, Some(&self.device), options).await;
        let reported = watch.map(DriveWatch::figures);
        let mut run = run?;
        run.extra.extend(reported.into_iter().flatten());
        let drives: Vec<_> = self.paths.iter().map(|path| DriveFacts::of(path)).collect();
        // Only namespaces by passthrough count them, and an array does not sum them.
        let counts_errors = |drive: &DriveFacts| ["zns", "fdp", "nvme"].contains(&&*drive.kind);
        if !matches!(&drives[..], [one] if counts_errors(one)) {
            run.extra.retain(|one| one.metric != ZONE_ERRORS);
        }
        run.device = Some(DeviceRecord {
            description: self.device.describe(),
            drives,
            geometry: self.device.geometry().clone(),
        });
        Ok(run)
    }

    /// Ends the cache's work.
    ///
    /// # Errors
    /// If accepted values could not be written.
    pub async fn close(&self) -> Result<(), EvalError> {
        let Some(store) = self.target.store() else {
            return Ok(());
        };
        store
            .close()
            .await
            .map_err(|error| EvalError::Cache(crate::error::chain(&error)))
    }
}
