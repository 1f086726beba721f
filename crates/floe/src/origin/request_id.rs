//! The id of the origin's request behind a read, for the access log of a frontend.

use std::future::Future;
use std::sync::Arc;

use futures::future::Either;
use http::HeaderMap;
use parking_lot::Mutex;

use super::client::Client;

/// The header in which S3 returns it.
const HEADER: &str = "x-amz-request-id";

tokio::task_local! {
    static REQUEST_ID: OriginRequestId;
}

/// The id that an S3 origin gave the request which answered a task: the first one that
/// succeeded, else the last one.
#[derive(Clone, Debug, Default)]
pub struct OriginRequestId(Arc<Mutex<Option<Noted>>>);

#[derive(Debug)]
struct Noted {
    id: String,
    has_succeeded: bool,
}

impl OriginRequestId {
    /// Runs `task`, and notes the ids of the requests that it sends, or that tasks send which
    /// the object cache spawns for it.
    pub fn scope<F: Future>(self, task: F) -> impl Future<Output = F::Output> + use<F> {
        REQUEST_ID.scope(self, task)
    }

    /// The id, if a request has been answered.
    pub fn get(&self) -> Option<String> {
        self.0.lock().as_ref().map(|noted| noted.id.clone())
    }

    /// Notes the id of an answer for the task that calls, if it is asked for.
    pub(super) fn note(headers: &HeaderMap, has_succeeded: bool) {
        // Without a scope no task asks for it.
        let _ = REQUEST_ID.try_with(|noted| {
            let id = headers.get(HEADER).and_then(|id| id.to_str().ok());
            let mut noted = noted.0.lock();
            if let Some(id) = id
                && noted.as_ref().is_none_or(|noted| !noted.has_succeeded)
            {
                *noted = Some(Noted {
                    id: id.to_owned(),
                    has_succeeded,
                });
            }
        });
    }
}

/// Runs a task that is spawned for the task that calls: for its client, and with its note of
/// request ids.
pub(crate) fn for_caller<F: Future>(task: F) -> impl Future<Output = F::Output> + use<F> {
    let task = Client::current().scope(task);
    match REQUEST_ID.try_with(Clone::clone) {
        Ok(noted) => Either::Left(noted.scope(task)),
        Err(_) => Either::Right(task),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn the_first_request_that_succeeds_is_noted() {
        let note = |id: &'static str, has_succeeded| {
            let headers =
                HeaderMap::from_iter([(HEADER.parse().unwrap(), HeaderValue::from_static(id))]);
            OriginRequestId::note(&headers, has_succeeded);
        };
        note("of no task", true);
        let noted = OriginRequestId::default();
        let task = noted.clone().scope(async {
            for (id, has_succeeded, expected) in [
                ("first", false, "first"),
                ("second", false, "second"),
                ("third", true, "third"),
                ("fourth", true, "third"),
                ("fifth", false, "third"),
            ] {
                tokio::spawn(for_caller(async move { note(id, has_succeeded) }))
                    .await
                    .unwrap();
                assert_eq!(noted.get().unwrap(), expected);
            }
            OriginRequestId::note(&HeaderMap::new(), true);
        });
        task.await;
    }
}
