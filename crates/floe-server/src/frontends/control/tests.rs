//! The socket: its permissions, its bounds, its messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use floe::object::{ObjectCache, ObjectConfig, Purge};
use floe::origin::{Origin, OriginConfig};
use floe::volume::{Mode, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe::{Store, StoreConfig};
use floe_core::{ByteSize, Geometry};
use floe_device::{MemoryBlocks, MemoryDevice};
use tokio::runtime::Runtime;

use super::*;
use crate::net::Shutdown;

struct Rig {
    path: PathBuf,
    cache: VolumeCache,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

fn memory(mib: u64) -> Arc<MemoryBlocks> {
    Arc::new(MemoryBlocks::new(ByteSize::mib(mib), 512).unwrap())
}

async fn objects(root: &Path) -> ObjectCache {
    let clock = Clock::real();
    let device = Arc::new(MemoryDevice::new(Geometry::in_place(8, 8 << 20)));
    let config = StoreConfig::default();
    let store = Store::open(device, clock.clone(), &config).await.unwrap();
    let origin = OriginConfig {
        root: Some(root.to_owned()),
        ..OriginConfig::default()
    };
    let origin = Origin::open(&origin, clock.clone()).unwrap();
    ObjectCache::new(store, origin, clock, ObjectConfig::default()).unwrap()
}

/// A server with the volume `disk`, and an origin of objects with the bucket `b`.
fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let runtime = Runtime::new().unwrap();
    for number in 0..700 {
        let bucket = folder.path().join("b");
        std::fs::create_dir_all(&bucket).unwrap();
        std::fs::write(bucket.join(format!("{number:04}")), b"object").unwrap();
    }
    let cache = runtime.block_on(async {
        let config = VolumeCacheConfig::default();
        let cache = VolumeCache::open(memory(32), Clock::real(), &config)
            .await
            .unwrap();
        let config = VolumeConfig::default();
        cache.attach("disk", memory(8), &config).await.unwrap();
        let shutdown = Shutdown::default();
        let socket = UnixSocket::bind("control", &path).await.unwrap();
        restrict(&socket).unwrap();
        let frontend = Arc::new(ControlFrontend {
            volumes: Some(Volumes::over(cache.clone())),
            objects: Objects::new(objects(folder.path()).await, Clock::real()),
            clock: Clock::real(),
            counters: Arc::default(),
        });
        let serving = Serving {
            shutdown: shutdown.clone(),
            metrics: Arc::from([]),
        };
        let service = frontend.serve(Some(socket), serving);
        service.start("control", &shutdown).unwrap();
        std::mem::forget(shutdown);
        cache
    });
    Rig {
        path,
        cache,
        runtime,
        _folder: folder,
    }
}

impl Rig {
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        // The server may close before it has read all of it.
        let _ = stream.write_all(bytes);
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }

    fn call(&self, request: &Request) -> Reply {
        call(&self.path, request).unwrap()
    }
}

fn is_usage(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed { is_usage: true, .. })
}

#[test]
fn only_the_owner_can_open_the_socket() {
    let rig = rig();
    let mode = std::fs::metadata(&rig.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn requests_are_carried_out_and_bounded() {
    let rig = rig();
    let status = Request::Status { name: None };
    let Reply::Volumes(volumes) = rig.call(&status) else {
        panic!("it reports");
    };
    assert_eq!(volumes[0].status.name, "disk");
    for junk in [
        &b"{}\n"[..],
        b"\n",
        b"{\"command\":\"status\"",
        b"\xff\xfe\n",
    ] {
        let reply = rig.send(junk);
        assert!(
            junk.last() != Some(&b'\n') || reply.contains("malformed"),
            "{reply}"
        );
    }
    let long = rig.send(&vec![b'x'; REQUEST_BYTES_MAX * 2]);
    assert!(long.is_empty() || long.contains("malformed"), "{long}");
    // Idle clients make room for others.
    let idle: Vec<_> = (0..3 * CLIENTS_MAX)
        .map(|_| UnixStream::connect(&rig.path).unwrap())
        .collect();
    assert!(matches!(rig.call(&status), Reply::Volumes(_)));
    drop(idle);
}

#[test]
fn volumes_are_switched_and_detached() {
    let rig = rig();
    let disk = || "disk".to_owned();
    let volatile = rig.call(&Request::Mode {
        name: disk(),
        mode: Mode::WriteBack,
    });
    assert!(is_usage(&volatile), "{volatile:?}");
    let Reply::Volumes(volumes) = rig.call(&Request::Mode {
        name: disk(),
        mode: Mode::WriteAround,
    }) else {
        panic!("it changes");
    };
    assert_eq!(volumes[0].status.mode, Mode::WriteAround);
    let absent = Request::Flush {
        name: Some("absent".to_owned()),
    };
    assert!(is_usage(&rig.call(&absent)));
    let detach = Request::Detach {
        name: disk(),
        dirty: Default::default(),
    };
    assert_eq!(rig.call(&detach), Reply::Volumes(Vec::new()));
    assert!(is_usage(&rig.call(&detach)));
    assert!(rig.cache.volumes().is_empty());
    rig.runtime.block_on(rig.cache.close()).unwrap();
}

#[test]
fn pages_of_objects_are_bounded_and_follow_each_other() {
    let rig = rig();
    let page = |after: Option<String>, most| {
        let reply = rig.call(&Request::Cached {
            bucket: "b".into(),
            prefix: "0".into(),
            after,
            most,
        });
        match reply {
            Reply::Cached { objects, is_last } => (objects, is_last),
            other => panic!("{other:?}"),
        }
    };
    let (first, is_last) = page(None, usize::MAX);
    assert_eq!((first.len(), is_last), (500, false));
    let (second, is_last) = page(Some(first[499].key.clone()), usize::MAX);
    assert_eq!((second.len(), is_last), (200, true));
    assert_eq!(second[0].key, "0500");
    assert_eq!(page(Some("0699".into()), 10).0, []);
    assert_eq!(page(None, 0).0.len(), 1);
}

#[test]
fn objects_are_warmed_up_to_a_limit_and_purged() {
    let rig = rig();
    let warm = |positions: &[(&str, u64)], most_bytes| {
        let objects = positions.iter().map(|(key, position)| WarmObject {
            key: (*key).into(),
            position: *position,
            etag: None,
        });
        let reply = rig.call(&Request::Warm {
            bucket: "b".into(),
            objects: objects.collect(),
            most_bytes,
        });
        match reply {
            Reply::Warmed(objects) => objects,
            other => panic!("{other:?}"),
        }
    };
    let some = [("0000", 0), ("0001", 0), ("absent", 0), ("0002", 3)];
    let warmed = warm(&some, u64::MAX);
    let done: Vec<bool> = warmed.iter().map(|object| object.is_done).collect();
    // The bytes before a position are of no version that the request names.
    assert_eq!(done, [true, true, false, false]);
    assert_eq!(warmed[3].position, 0);
    assert!(warmed[2].error.is_some());
    assert_eq!(warmed[0].fetched_bytes, 6);
    // Nothing may be fetched: what is missing stays, what is cached is done.
    let none = warm(&[("0003", 0), ("0000", 0)], 0);
    assert!(!none[0].is_done && none[0].error.is_none() && none[1].is_done);
    let sets = vec![Purge::All];
    assert_eq!(
        rig.call(&Request::Purge { sets }),
        Reply::Purged { sets: 1 }
    );
    assert_eq!(warm(&[("0000", 0)], u64::MAX)[0].fetched_bytes, 6);
}
