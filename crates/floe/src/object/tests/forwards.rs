//! Clients' own requests that change objects.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{cache, config, key, settle};
use crate::object::version::name_hash;
use crate::object::{Consistency, ObjectCache};
use crate::origin::{
    Backend, ForwardAnswer, ForwardBody, ForwardHead, ForwardRequest, GetRequest, ObjectKey,
    ObjectMeta, OriginError, OriginRead, PayloadHash, Signing,
};

/// Answers one forwarded request with the pieces that a test sends.
struct Piecewise(Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>);

#[async_trait]
impl Backend for Piecewise {
    async fn get(&self, key: &ObjectKey, _: GetRequest) -> Result<OriginRead, OriginError> {
        Err(OriginError::NotFound(key.to_string()))
    }

    async fn head(&self, key: &ObjectKey, _: GetRequest) -> Result<ObjectMeta, OriginError> {
        Err(OriginError::NotFound(key.to_string()))
    }

    async fn forward(
        &self,
        _: ForwardHead,
        _: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let pieces = self.0.lock().take();
        let body = futures::stream::unfold(pieces, |pieces| async {
            let mut pieces = pieces?;
            let piece = pieces.recv().await?;
            Some((Ok(piece), Some(pieces)))
        });
        Ok(ForwardAnswer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: body.boxed(),
        })
    }
}

async fn changing() -> (ObjectCache, mpsc::UnboundedSender<Bytes>) {
    let (sender, pieces) = mpsc::unbounded_channel();
    let backend = Arc::new(Piecewise(Mutex::new(Some(pieces))));
    let cache = cache(&backend, config(Consistency::Immutable)).await;
    (cache, sender)
}

fn request() -> ForwardRequest {
    ForwardRequest {
        head: ForwardHead {
            method: Method::POST,
            bucket: Some(key().bucket().to_owned()),
            key: Some(key().key().to_owned()),
            query: None,
            headers: HeaderMap::new(),
            payload: PayloadHash::Unsigned,
            signing: Signing::Origin,
        },
        body: None,
    }
}

/// True if a fetch could publish what it found, which it must not during a change.
fn may_publish(cache: &ObjectCache) -> bool {
    let epochs = &cache.inner.epochs;
    let epoch = epochs.current(name_hash(&key()));
    epochs.publish(epoch).now_or_never().flatten().is_some()
}

#[tokio::test]
async fn the_end_of_an_answer_waits_for_the_end_of_its_change() {
    let (cache, pieces) = changing().await;
    let send = |piece: &'static [u8]| pieces.send(Bytes::from_static(piece)).unwrap();
    send(b" ");
    let mut answer = cache.forward(request(), vec![key()]).await.unwrap();
    assert!(!may_publish(&cache));
    // Pieces before the last one pass: they keep the client waiting.
    send(b" ");
    assert_eq!(answer.body.next().await.unwrap().unwrap(), " ");
    send(b"<done/>");
    assert_eq!(answer.body.next().await.unwrap().unwrap(), " ");
    settle().await;
    assert!(!may_publish(&cache), "the origin is still at work");
    drop(pieces);
    assert_eq!(answer.body.next().await.unwrap().unwrap(), "<done/>");
    assert!(may_publish(&cache), "the change has ended");
    assert!(answer.body.next().await.is_none());
}

#[tokio::test]
async fn an_answer_without_a_body_comes_after_the_change() {
    let (cache, pieces) = changing().await;
    let asking = tokio::spawn({
        let cache = cache.clone();
        async move { cache.forward(request(), vec![key()]).await }
    });
    settle().await;
    assert!(!asking.is_finished() && !may_publish(&cache));
    drop(pieces);
    let mut answer = asking.await.unwrap().unwrap();
    assert!(may_publish(&cache));
    assert!(answer.body.next().await.is_none());
}

#[tokio::test]
async fn a_change_goes_on_when_its_client_leaves() {
    let (cache, pieces) = changing().await;
    pieces.send(Bytes::from_static(b" ")).unwrap();
    let answer = cache.forward(request(), vec![key()]).await.unwrap();
    drop(answer);
    settle().await;
    assert!(!may_publish(&cache));
    drop(pieces);
    settle().await;
    assert!(may_publish(&cache));
}
