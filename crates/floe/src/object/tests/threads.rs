//! Reads that a thread with a runtime of its own polls.

use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::origin::GatedOrigin;
use super::*;
use crate::runtimes::Context;

fn home() -> Runtime {
    let mut home = Builder::new_multi_thread();
    home.worker_threads(1).enable_all().build().unwrap()
}

fn own() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_read_asks_the_origin_on_the_thread_that_polls_it() {
    let home = home();
    let origin = GatedOrigin::with(&key(), pattern(5000));
    let backend = Arc::new(origin.clone());
    let (cache, context) = home.block_on(async {
        let cache = cache(&backend, config(Consistency::Etag)).await;
        (cache, Context::here())
    });
    let serve = move || {
        own().block_on(async {
            let _own = Context::here().own_this_thread();
            for _ in 0..2 {
                let bytes = context.run(read(&cache, None)).await.unwrap();
                assert_eq!(bytes, pattern(5000));
            }
            // The store needs tasks of the other runtime.
            cache.store().flush().await.unwrap();
        });
        thread::current().id()
    };
    let thread = thread::spawn(serve).join().unwrap();
    let threads = origin.threads.lock();
    assert!(threads.iter().all(|other| *other == thread), "{threads:?}");
}

#[test]
fn a_fetch_whose_thread_ends_is_begun_again_by_its_other_readers() {
    let home = home();
    let origin = GatedOrigin::with(&key(), pattern(5000));
    origin.pieces.close();
    let backend = Arc::new(origin.clone());
    let cache = home.block_on(cache(&backend, config(Consistency::Etag)));
    let context = home.block_on(async { Context::here() });
    let (end, ended) = oneshot::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let serving = cache.clone();
    let thread = thread::spawn(move || {
        own().block_on(async {
            let _own = Context::here().own_this_thread();
            tokio::select! {
                _ = context.run(read(&serving, None)) => unreachable!("no piece has come"),
                () = async {
                    settle().await;
                    begun.send(()).unwrap();
                    ended.await.unwrap();
                } => {}
            }
        });
    });
    has_begun.recv().unwrap();
    let other = home.spawn({
        let cache = cache.clone();
        async move { read(&cache, None).await.unwrap() }
    });
    while cache.stats().chunks_joined == 0 {
        thread::yield_now();
    }
    end.send(()).unwrap();
    thread.join().unwrap();
    origin.pieces.reopen();
    assert_eq!(home.block_on(other).unwrap(), pattern(5000));
}
