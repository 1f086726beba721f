//! A store of `object_store` as an origin.

use std::sync::Arc;

use async_trait::async_trait;
use floe::object::{ObjectKey, ObjectMeta};
use floe::origin::{Backend, GetRequest, OriginError, OriginRead};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};

use crate::convert::{error_to_floe, meta_to_floe};

/// Serves reads only: writes go to the store with all their options.
pub(crate) struct StoreOrigin(pub(crate) Arc<dyn ObjectStore>);

#[async_trait]
impl Backend for StoreOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        let path = path(key)?;
        let wanted = request.range.clone();
        let result = match self.0.get_opts(&path, options(request, false)).await {
            Ok(result) => result,
            Err(error) => {
                // `object_store` has no error for a range past the end.
                if let (object_store::Error::Generic { .. }, Some(range)) = (&error, wanted)
                    && let Ok(meta) = self.0.head(&path).await
                    && range.start >= meta.size
                {
                    return Err(OriginError::RangeNotSatisfiable {
                        size: Some(meta.size),
                    });
                }
                return Err(error_to_floe(error, key.key()));
            }
        };
        let name = key.clone();
        Ok(OriginRead {
            meta: meta_to_floe(result.meta.clone(), &result.attributes),
            range: result.range.clone(),
            from_cache: None,
            body: result
                .into_stream()
                .map_err(move |error| error_to_floe(error, name.key()))
                .boxed(),
        })
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        let result = self.0.get_opts(&path(key)?, options(request, true)).await;
        let result = result.map_err(|error| error_to_floe(error, key.key()))?;
        Ok(meta_to_floe(result.meta, &result.attributes))
    }
}

fn path(key: &ObjectKey) -> Result<Path, OriginError> {
    Path::parse(key.key()).map_err(|error| error_to_floe(error.into(), key.key()))
}

fn options(request: GetRequest, head: bool) -> GetOptions {
    let modified_since = match request.if_none_match {
        Some(_) => None,
        None => request.if_modified_since,
    };
    GetOptions::new()
        .with_if_match(request.if_match)
        .with_if_none_match(request.if_none_match)
        .with_if_modified_since(modified_since)
        .with_range(request.range.filter(|_| !head))
        .with_head(head)
}
