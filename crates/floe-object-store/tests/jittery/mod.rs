//! A store whose requests yield at random before and after they take effect,
//! and whose writes fail at random before or after that.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded random source that tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(Arc<Mutex<Xoshiro256PlusPlus>>);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Jitter(Arc::new(Mutex::new(random)))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.lock().unwrap().random_range(0..limit)
    }

    pub(crate) async fn wait(&self) {
        for _ in 0..self.below(30) {
            tokio::task::yield_now().await;
        }
    }

    async fn wait_or_fail(&self) -> Result<()> {
        self.wait().await;
        match self.below(20) {
            0 => Err(Error::Generic {
                store: "Jittery",
                source: "a failure by chance".into(),
            }),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Jittery<S> {
    store: Arc<S>,
    jitter: Jitter,
}

impl<S: ObjectStore> Jittery<S> {
    pub(crate) fn new(store: S, jitter: Jitter) -> Self {
        Jittery {
            store: Arc::new(store),
            jitter,
        }
    }
}

impl<S: ObjectStore> fmt::Display for Jittery<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jittery({})", self.store)
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Jittery<S> {
    async fn put_opts(&self, path: &Path, data: PutPayload, o: PutOptions) -> Result<PutResult> {
        self.jitter.wait_or_fail().await?;
        let result = self.store.put_opts(path, data, o).await;
        self.jitter.wait_or_fail().await?;
        result
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.jitter.wait_or_fail().await?;
        self.store.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.jitter.wait().await;
        let result = self.store.get_opts(path, options).await;
        self.jitter.wait().await;
        result
    }

    async fn get_ranges(&self, _: &Path, _: &[Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        unreachable!("the cache reads one range at a time")
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (store, jitter) = (Arc::clone(&self.store), self.jitter.clone());
        let deleted = paths.then(move |path| {
            let (store, jitter) = (Arc::clone(&store), jitter.clone());
            async move {
                jitter.wait_or_fail().await?;
                let paths = futures::stream::iter([path]).boxed();
                let deleted: Vec<_> = store.delete_stream(paths).collect().await;
                jitter.wait_or_fail().await?;
                deleted
                    .into_iter()
                    .collect::<Result<Vec<_>>>()
                    .map(|mut paths| paths.remove(0))
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.jitter.wait_or_fail().await?;
        let result = self.store.copy_opts(from, to, options).await;
        self.jitter.wait_or_fail().await?;
        result
    }
}
