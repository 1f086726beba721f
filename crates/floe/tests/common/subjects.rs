//! The caches of one engine, as subjects.

use std::ops::Range;

use bytes::Bytes;
use floe::{CacheError, PutOutcome, Store, Tiny};

use super::lives::{Put, Subject};
use super::oracle::Part;

impl Subject for Store {
    const READS_PARTS: bool = true;

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        let found = Store::get(self, key).await?;
        Ok(found.map(|found| found.bytes))
    }

    async fn get_part(&self, key: &[u8], part: Range<u64>) -> Option<Part> {
        let mut reader = self.read(key, part).await.ok()??;
        let mut found = Part::default();
        while let Some(bytes) = reader.next().await {
            match bytes {
                Ok(bytes) => found.bytes.extend_from_slice(&bytes),
                Err(_) => found.is_cut = true,
            }
        }
        Some(found)
    }

    async fn put(&self, put: Put<'_>) -> Result<bool, CacheError> {
        let admission = Store::put(self, put.key, put.value, put.options).await?;
        Ok(admission != PutOutcome::Dropped)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        Store::delete(self, key).await.map(drop)
    }

    async fn close(&self) {
        // Fails if the power is off.
        let _ = Store::close(self).await;
    }
}

impl Subject for Tiny {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        let found = Tiny::get(self, key).await?;
        Ok(found.map(|found| found.bytes))
    }

    async fn put(&self, put: Put<'_>) -> Result<bool, CacheError> {
        Tiny::put(self, put.key, &put.value, put.options).await?;
        Ok(true)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        Tiny::delete(self, key).await
    }

    async fn close(&self) {
        // Fails if the power is off.
        let _ = Tiny::close(self).await;
    }
}
