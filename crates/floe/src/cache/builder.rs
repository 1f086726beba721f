//! Opens a cache from its settings and, optionally, the caller's devices and clock.

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
    /// Opens a cache with its devices: [`builder`](Cache::builder) without additions.
    ///
    /// # Errors
    /// As [`CacheBuilder::open`].
    pub async fn open(config: &CacheConfig) -> Result<Cache, OpenCacheError> {
        Cache::builder(config).open().await
    }

    /// A builder that opens a cache as `config` says, on the caller's devices or clock.
    pub fn builder(config: &CacheConfig) -> CacheBuilder {
        CacheBuilder::new(config.clone())
    }
}

/// Opens a [`Cache`] on the caller's devices or clock; see [`Cache::builder`].
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

    /// Uses an open device instead of [`CacheConfig::device`].
    #[must_use]
    pub fn device(self, device: SharedDevice) -> Self {
        CacheBuilder {
            device: Some(device),
            ..self
        }
    }

    /// Uses an open device for tiny objects instead of
    /// [`TinyTierConfig::device`]. Without [`CacheConfig::tiny`], its other
    /// settings have their defaults.
    #[must_use]
    pub fn tiny_device(mut self, device: SharedDevice) -> Self {
        self.config.tiny.get_or_insert_default();
        self.tiny_device = Some(device);
        self
    }

    /// Opens the cache without its tiny engine, which cannot be opened;
    /// [`Cache::tiny_is_missing`] reports it. The engine's objects are lost.
    #[must_use]
    pub fn without_tiny(mut self) -> Self {
        self.config.tiny = None;
        self.tiny_device = None;
        self.tiny_is_missing = true;
        self
    }

    /// Uses `clock` instead of the system's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        CacheBuilder { clock, ..self }
    }

    /// Opens the remaining devices and the cache. Values survive a restart,
    /// clean or not. Tiny objects do if the engine is Nemo and the cache was
    /// never opened without it.
    ///
    /// # Errors
    /// [`OpenCacheError`] names the setting or the device's state, and the remedy.
    pub async fn open(self) -> Result<Cache, OpenCacheError> {
        let CacheBuilder { config, clock, .. } = self;
        let device = match self.device {
            Some(device) => device,
            None => {
                let mut device = to_open(&config.device, config.store.format);
                device.value_size = config.store.chunk.size;
                floe_device::open_drives(&device, &clock).await?
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
        None => {
            let mut device = to_open(&tier.device, tier.engine.format);
            tier.engine.size_zones(&mut device);
            floe_device::open_drives(&device, clock).await?
        }
    };
    let mut engine = Tiny::open(Arc::clone(&device), clock.clone(), &tier.engine).await?;
    let is_paired = pairing::is_paired(store, engine.identity())
        .await
        .map_err(|error| OpenError::Metadata(error.to_string()))?;
    if !is_paired && !engine.recovery().begins_empty() {
        tracing::warn!(
            "the cache was used without this tiny engine, so its objects may be stale; \
             the engine starts empty"
        );
        // The next step formats the device, so an error does not matter.
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

/// A device to be formatted may hold anything.
fn to_open(device: &DeviceConfig, format: bool) -> DeviceConfig {
    DeviceConfig {
        accept_foreign: device.accept_foreign || format,
        ..device.clone()
    }
}
