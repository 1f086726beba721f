use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn each_thread_keeps_a_future_that_is_not_send() {
    let (stop, shutdown) = (CancellationToken::new(), Shutdown::default());
    let tasks = &shutdown.tasks;
    let served = Arc::new(AtomicUsize::new(0));
    let starts = (0..3).map(|_| {
        let (stop, served) = (stop.clone(), Arc::clone(&served));
        move || async move {
            let local = Rc::new(thread::current().id());
            stop.cancelled().await;
            assert_eq!(*local, thread::current().id());
            let name = thread::current().name().map(str::to_owned);
            assert!(name.is_some_and(|name| name.starts_with("toy-")));
            served.fetch_add(1, Relaxed);
        }
    });
    Service::threads(starts).start("toy", &shutdown).unwrap();
    tasks.close();
    assert_eq!(tasks.len(), 3);
    stop.cancel();
    tasks.wait().await;
    assert_eq!(served.load(Relaxed), 3);
    shutdown.end.cancel();
}

#[tokio::test]
async fn a_shared_service_is_a_task() {
    let shutdown = Shutdown::default();
    let tasks = &shutdown.tasks;
    let service = Service::shared(std::future::ready(()));
    service.start("toy", &shutdown).unwrap();
    tasks.close();
    tasks.wait().await;
}
