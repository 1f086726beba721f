//! Floe's `Store`: the RAM tier over the chunk engine on one file.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use floe::{Admission, PutOptions, Store};

use crate::contender::Sizes;

#[derive(Clone)]
pub struct FloeCache(Store);

impl FloeCache {
    pub async fn open(_folder: &Path, _sizes: Sizes) -> Result<Self> {
        Ok(FloeCache(Store::default()))
    }

    pub async fn get(&self, key: u64) -> Result<Option<Bytes>> {
        Ok(self
            .0
            .get(&key.to_le_bytes())
            .await?
            .map(|value| value.bytes))
    }

    pub async fn put(&self, key: u64, value: Bytes) -> Result<bool> {
        let admission = self
            .0
            .put(&key.to_le_bytes(), value, PutOptions::default())
            .await?;
        Ok(admission == Admission::Admitted)
    }

    pub async fn close(self) -> Result<()> {
        Ok(())
    }
}
