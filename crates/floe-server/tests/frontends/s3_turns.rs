//! Clients of S3 that take turns at the origin.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use floe::origin::{
    Backend, GetRequest, ObjectKey, ObjectMeta, Origin, OriginError, OriginRead, RequestConfig,
};
use floe_device::Clock;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::{MemoryOrigin, Reply, Rig, pattern, reply, request, rig_on};

/// Records the reads that it is asked for, and answers after the test has let it.
struct Slow {
    objects: Arc<MemoryOrigin>,
    begun: Mutex<Vec<String>>,
    answers: Semaphore,
}

#[async_trait]
impl Backend for Slow {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        self.begun.lock().push(key.key().to_owned());
        self.answers.acquire().await.unwrap().forget();
        self.objects.get(key, request).await
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        self.objects.head(key, request).await
    }
}

/// How a client sends a read.
#[derive(Clone, Copy)]
enum Way {
    /// By the short way of plain reads.
    Plain,
    /// Over HTTP/1.1, with a parameter that the short way does not know.
    Full,
    /// Over HTTP/2.
    Http2,
}

const WAYS: [Way; 3] = [Way::Plain, Way::Full, Way::Http2];

async fn stream_from(client: u8, server: SocketAddr) -> TokioIo<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, client), 0));
    socket.bind(address).unwrap();
    TokioIo::new(socket.connect(server).await.unwrap())
}

fn reading(server: SocketAddr, client: u8, way: Way, key: &str) -> JoinHandle<Reply> {
    let key = key.to_owned();
    tokio::spawn(async move {
        let stream = stream_from(client, server).await;
        let read: Request<Full<Bytes>> = match way {
            Way::Plain => request(server, "GET", &format!("/bucket/{key}"), &[], ""),
            Way::Full => request(
                server,
                "GET",
                &format!("/bucket/{key}?x-id=GetObject"),
                &[],
                "",
            ),
            Way::Http2 => {
                let uri = format!("http://{server}/bucket/{key}");
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
                    .await
                    .unwrap();
                tokio::spawn(connection);
                let read = Request::get(uri).body(Full::<Bytes>::default()).unwrap();
                return reply(sender.send_request(read).await.unwrap()).await;
            }
        };
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        reply(sender.send_request(read).await.unwrap()).await
    })
}

/// Waits until requests to the origin are in its queue, and others were refused.
async fn wait_for(rig: &Rig, queued: usize, overloaded: usize) {
    let clock = Clock::real();
    let counts = || {
        let stats = rig.cache.origin().stats();
        (stats.queued as usize, stats.overloaded as usize)
    };
    for _ in 0..2_000 {
        if counts() == (queued, overloaded) {
            return;
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?} instead of {queued}, {overloaded}", counts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_misses_are_slow_and_many_holds_up_no_other() {
    const MANY: usize = 12;
    let clock = Clock::real();
    let objects = Arc::new(MemoryOrigin::default());
    let names: Vec<_> = (0..MANY).map(|number| format!("many{number}")).collect();
    for name in names.iter().map(String::as_str).chain(["0", "1", "2"]) {
        objects.store("bucket", name, pattern(1, 100));
    }
    let origin = Arc::new(Slow {
        objects: Arc::clone(&objects),
        begun: Mutex::default(),
        answers: Semaphore::new(0),
    });
    let requests = RequestConfig {
        max_concurrent: 1,
        max_queued: MANY,
        ..RequestConfig::default()
    };
    let backend: Arc<dyn Backend> = origin.clone();
    let guarded = Origin::from_backend(backend, requests, clock.clone()).unwrap();
    let rig = rig_on(guarded, objects, clock, |_| {}).await;
    let mut slow = Vec::new();
    for (number, name) in names.iter().enumerate() {
        slow.push(reading(rig.s3(), 1, WAYS[number % 3], name));
        while origin.begun.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        wait_for(&rig, number, 0).await;
    }
    // The first one fills the queue, and each of the others takes a place of the first client's.
    let mut prompt = Vec::new();
    for (number, way) in WAYS.into_iter().enumerate() {
        prompt.push(reading(rig.s3(), 2, way, &number.to_string()));
        wait_for(&rig, MANY, number).await;
    }
    origin.answers.add_permits(1_000);
    for read in prompt {
        assert_eq!(read.await.unwrap().status, 200);
    }
    let statuses = futures::future::join_all(slow).await;
    let statuses: Vec<u16> = statuses
        .into_iter()
        .map(|reply| reply.unwrap().status)
        .collect();
    let begun = origin.begun.lock().clone();
    assert_eq!(
        begun[..7],
        ["many0", "many1", "0", "many2", "1", "many3", "2"]
    );
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2);
    assert_eq!(statuses[MANY - 2..], [503, 503]);
}
