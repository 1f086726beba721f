//! The compared caches behind one interface.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use crate::floe_cache::FloeCache;
use crate::foyer_cache::{FoyerCache, FoyerIo};

/// The caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Floe's `Store` with its defaults: a value that an acknowledged put replaced
    /// does not come back, even after a crash.
    Floe,
    /// The same without that guarantee, which foyer does not give.
    FloeRelaxed,
    /// foyer's block engine over its pread/pwrite thread pool.
    FoyerPsync,
    /// foyer's block engine over its io_uring threads.
    FoyerUring,
}

impl Name {
    pub fn label(self) -> &'static str {
        match self {
            Name::Floe => "floe",
            Name::FloeRelaxed => "floe-relaxed",
            Name::FoyerPsync => "foyer-psync",
            Name::FoyerUring => "foyer-uring",
        }
    }
}

/// Sizes of every cache.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub flash_bytes: u64,
    pub ram_bytes: u64,
    pub value_bytes: usize,
}

/// An open cache.
#[derive(Clone)]
pub enum Cache {
    Floe(FloeCache),
    Foyer(FoyerCache),
}

impl Cache {
    /// Opens the cache in `folder`, or creates one.
    pub async fn open(name: Name, folder: &Path, sizes: Sizes) -> Result<Self> {
        Ok(match name {
            Name::Floe => Cache::Floe(FloeCache::open(folder, sizes, false).await?),
            Name::FloeRelaxed => Cache::Floe(FloeCache::open(folder, sizes, true).await?),
            Name::FoyerPsync => {
                Cache::Foyer(FoyerCache::open(folder, sizes, FoyerIo::Psync).await?)
            }
            Name::FoyerUring => {
                Cache::Foyer(FoyerCache::open(folder, sizes, FoyerIo::Uring).await?)
            }
        })
    }

    pub async fn get(&self, key: u64) -> Result<Option<Bytes>> {
        match self {
            Cache::Floe(cache) => cache.get(key).await,
            Cache::Foyer(cache) => cache.get(key).await,
        }
    }

    /// Inserts a value. Returns `false` if the cache reports a rejection.
    pub async fn put(&self, key: u64, value: Bytes) -> Result<bool> {
        match self {
            Cache::Floe(cache) => cache.put(key, value).await,
            Cache::Foyer(cache) => cache.put(key, value),
        }
    }

    /// Writes everything to flash and closes the files.
    pub async fn close(self) -> Result<()> {
        match self {
            Cache::Floe(cache) => cache.close().await,
            Cache::Foyer(cache) => cache.close().await,
        }
    }
}

/// Waits until the process has written nothing more for a while.
pub async fn settle() -> Result<()> {
    const STEP: Duration = Duration::from_millis(250);
    const CALM_STEPS: u32 = 4;
    const STEPS_MAX: u32 = 240;
    let mut calm = 0;
    let mut last = crate::measure::written_bytes()?;
    for _ in 0..STEPS_MAX {
        tokio::time::sleep(STEP).await;
        let now = crate::measure::written_bytes()?;
        calm = if now == last { calm + 1 } else { 0 };
        if calm == CALM_STEPS {
            break;
        }
        last = now;
    }
    Ok(())
}
