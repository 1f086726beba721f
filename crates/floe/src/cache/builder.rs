//! Opens a cache from a configuration and parts that the caller has.

use std::sync::Arc;

use floe_core::ByteSize;
use floe_device::config::DeviceConfig;
use floe_device::{Clock, SharedDevice};

use super::tiny_tier::TinyTier;
use super::{Cache, CacheConfig, OpenCacheError, TinyTierConfig};
use crate::store::pairing::{self, Pairing};
use crate::store::{OpenError, Store};
use crate::tiny::{Tiny, TinyConfig};

impl Cache {
    /// Opens the device and the cache on it; [`builder`](Cache::builder) with
    /// nothing added.
    ///
    /// # Errors
    /// As [`CacheBuilder::open`].
    pub async fn open(config: &CacheConfig) -> Result<Cache, OpenCacheError> {
        Cache::builder(config).open().await
    }

    /// Opens a cache as `config` says, on devices or a clock of the caller's.
    pub fn builder(config: &CacheConfig) -> CacheBuilder {
        CacheBuilder::new(config.clone())
    }
}

/// Opens a [`Cache`] on devices or a clock of one's own; see [`Cache::builder`].
#[derive(Clone, Debug)]
pub struct CacheBuilder {
    config: CacheConfig,
    device: Option<SharedDevice>,
    tiny_device: Option<SharedDevice>,
    clock: Clock,
    tiny_is_missing: bool,
}

impl CacheBuilder {
    pub(super) fn new(config: CacheConfig) -> Self {
        CacheBuilder {
            config,
            device: None,
            tiny_device: None,
            clock: Clock::real(),
            tiny_is_missing: false,
        }
    }

    /// A device that is open, instead of [`CacheConfig::device`].
    #[must_use]
    pub fn device(self, device: SharedDevice) -> Self {
        CacheBuilder {
            device: Some(device),
            ..self
        }
    }

    /// A device for tiny objects that is open, instead of
    /// [`TinyTierConfig::device`]; the other settings of [`CacheConfig::tiny`]
    /// hold, or their defaults.
    #[must_use]
    pub fn tiny_device(mut self, device: SharedDevice) -> Self {
        self.config.tiny.get_or_insert_default();
        self.tiny_device = Some(device);
        self
    }

    /// Leaves out the engine for tiny objects because it cannot be opened, which
    /// [`Cache::tiny_is_missing`] reports. What it holds is forgotten.
    #[must_use]
    pub fn without_tiny(mut self) -> Self {
        self.config.tiny = None;
        self.tiny_device = None;
        self.tiny_is_missing = true;
        self
    }

    /// The clock that everything waits by. The default is the machine's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        CacheBuilder { clock, ..self }
    }

    /// Opens the devices that were not given, and the cache on them. Values of
    /// a previous process are warm, whether it was closed or killed; tiny
    /// objects are if Nemo is their engine and was used whenever the rest was.
    ///
    /// # Errors
    /// [`OpenCacheError`] names the setting or the state of the device, and the cure.
    pub async fn open(self) -> Result<Cache, OpenCacheError> {
        let CacheBuilder { config, clock, .. } = self;
        let device = match self.device {
            Some(device) => device,
            None => {
                let mut device = to_open(&config.device, config.store.format);
                device.value_size = config.store.chunk.size;
                floe_device::open(&device, &clock)?
            }
        };
        let Some(tier) = &config.tiny else {
            let store = Store::open(device, clock, &config.store).await?;
            return Ok(Cache {
                tiny_is_missing: self.tiny_is_missing,
                ..Cache::over(store)
            });
        };
        let store = Store::open_paired(device, clock, &config.store).await?;
        match open_tier(tier, self.tiny_device, &store).await {
            Ok(tiny) => Ok(Cache {
                tiny: Some(tiny),
                ..Cache::over(store)
            }),
            Err(error) => {
                if let Err(error) = store.close().await {
                    tracing::debug!(%error, "the cache was not closed in order");
                }
                Err(error)
            }
        }
    }
}

async fn open_tier(
    tier: &TinyTierConfig,
    device: Option<SharedDevice>,
    store: &Store,
) -> Result<TinyTier, OpenCacheError> {
    let clock = store.clock();
    let device = match device {
        Some(device) => device,
        None => floe_device::open(&to_open(&tier.device, tier.engine.format), clock)?,
    };
    let mut engine = Tiny::open(Arc::clone(&device), clock.clone(), &tier.engine).await?;
    let is_paired = pairing::is_paired(store, engine.identity())
        .await
        .map_err(|error| OpenError::Metadata(error.to_string()))?;
    if !is_paired && !engine.recovery().begins_empty() {
        tracing::warn!(
            "the cache was used without its engine for tiny objects, or with another; \
             the engine begins empty, since newer values may have replaced its own"
        );
        // Whatever it leaves is formatted next.
        let _ = engine.close().await;
        let blank = TinyConfig {
            format: true,
            ..tier.engine.clone()
        };
        engine = Tiny::open(device, clock.clone(), &blank).await?;
    }
    Ok(TinyTier {
        pairing: Pairing::new(store.clone(), engine.identity(), is_paired),
        engine,
        threshold: threshold(tier.max_object_size),
    })
}

fn threshold(size: ByteSize) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

/// A device that may hold anything if it is going to be formatted.
fn to_open(device: &DeviceConfig, format: bool) -> DeviceConfig {
    DeviceConfig {
        accept_foreign: device.accept_foreign || format,
        ..device.clone()
    }
}
