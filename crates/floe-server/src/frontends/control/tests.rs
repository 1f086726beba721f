//! The socket: its permissions, its bounds, its messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floe::volume::{Mode, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe_core::ByteSize;
use floe_device::MemoryBlocks;
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

/// A server with the volume `disk`.
fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let runtime = Runtime::new().unwrap();
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
            volumes: Volumes::over(cache.clone()),
            clock: Clock::real(),
            counters: Arc::default(),
        });
        let serving = Serving {
            shutdown: shutdown.clone(),
            metrics: Arc::from([]),
        };
        let service = frontend.serve(socket, serving);
        service.start("control", &shutdown.tasks).unwrap();
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
