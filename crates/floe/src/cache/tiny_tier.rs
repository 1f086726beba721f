//! The tiny engine beside the store.

use std::sync::Arc;

use crate::error::CacheError;
use crate::store::pairing::Pairing;
use crate::store::{Removal, Store};
use crate::tiny::{Tiny, TinyWrite};
use crate::value::{NewValue, PutOptions};

/// The tiny engine and its share of the values.
#[derive(Clone, Debug)]
pub(super) struct TinyTier {
    pub(super) engine: Tiny,
    /// The store's notes of this engine.
    pub(super) pairing: Arc<Pairing>,
    /// Most bytes of key and value together.
    pub(super) threshold: usize,
}

impl TinyTier {
    pub(super) fn takes(&self, key_bytes: usize, value_bytes: usize) -> bool {
        key_bytes + value_bytes <= self.threshold && self.engine.fits(key_bytes, value_bytes)
    }

    /// True if `key` is short enough for the engine.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        self.engine.fits(key.len(), 0)
    }

    /// Removes `key` durably if the engine may hold it.
    pub(super) async fn forget(&self, key: &[u8]) -> Result<(), CacheError> {
        match self.may_hold(key) {
            true => self.engine.delete(key).await,
            false => Ok(()),
        }
    }
}

/// A put into the engine that was begun. It invalidates the store's value of its key.
#[derive(Debug)]
#[must_use]
pub(crate) struct Write {
    put: TinyWrite,
    /// `None` if the put has to wait first. Until then reads get the store's value, if it has
    /// one.
    removal: Option<Removal>,
}

impl Write {
    /// Does what needs no wait; `None` if that is nothing.
    pub(super) fn begin(
        tiny: &TinyTier,
        store: &Store,
        key: &[u8],
        value: &[&[u8]],
        options: PutOptions,
    ) -> Result<Option<Self>, CacheError> {
        let Some(put) = tiny.engine.begin_put(key, options, value)? else {
            return Ok(None);
        };
        let remove = || store.begin_remove(key);
        let removal = put.is_done(&tiny.engine).then(remove).transpose()?;
        Ok(Some(Write { put, removal }))
    }

    /// True if there is nothing to wait for.
    pub(super) fn is_done(&self) -> bool {
        self.removal.as_ref().is_some_and(Removal::is_settled)
    }

    /// Waits until the put may be acknowledged.
    pub(super) async fn finish(
        self,
        tiny: &TinyTier,
        store: &Store,
        key: &[u8],
    ) -> Result<(), CacheError> {
        let removal = match self.removal {
            Some(removal) => removal,
            None => {
                self.put.finish(&tiny.engine).await?;
                store.begin_remove(key)?
            }
        };
        store.settle(removal).await
    }
}

/// A put into the store that was begun. It invalidates the engine's value of its key.
#[derive(Debug)]
#[must_use]
pub(crate) struct StoreWrite {
    replaced: Removal,
    forgotten: Forgotten,
}

/// The engine's value of a key that is put into the store.
#[derive(Debug)]
enum Forgotten {
    /// Nothing is left to do.
    Done,
    Begun(TinyWrite),
    /// The delete has to wait first.
    Later,
}

impl StoreWrite {
    /// Does what needs no wait; `None` if that is nothing.
    pub(super) fn begin(
        tiny: Option<&TinyTier>,
        store: &Store,
        put: &NewValue<'_>,
    ) -> Result<Option<Self>, CacheError> {
        let Some(replaced) = store.begin_put(put)? else {
            return Ok(None);
        };
        let forgotten = match tiny.filter(|tiny| tiny.may_hold(put.key)) {
            None => Forgotten::Done,
            Some(tiny) => match tiny.engine.begin_delete(put.key)? {
                Some(delete) if delete.is_done(&tiny.engine) => Forgotten::Done,
                Some(delete) => Forgotten::Begun(delete),
                None => Forgotten::Later,
            },
        };
        Ok(Some(StoreWrite {
            replaced,
            forgotten,
        }))
    }

    /// True if there is nothing to wait for.
    pub(super) fn is_done(&self) -> bool {
        self.replaced.is_settled() && matches!(self.forgotten, Forgotten::Done)
    }

    /// Waits until the put may be acknowledged.
    pub(super) async fn finish(
        self,
        tiny: Option<&TinyTier>,
        store: &Store,
        key: &[u8],
    ) -> Result<(), CacheError> {
        store.settle(self.replaced).await?;
        match (self.forgotten, tiny) {
            (Forgotten::Begun(delete), Some(tiny)) => delete.finish(&tiny.engine).await,
            (Forgotten::Later, Some(tiny)) => tiny.forget(key).await,
            _ => Ok(()),
        }
    }
}
