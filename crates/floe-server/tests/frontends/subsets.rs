//! The server serves any subset of frontends, and rejects an empty one.

use floe_core::ByteSize;
use floe_server::nbd::{ExportConfig, ExportKind};
use floe_server::{MemcachedConfig, NbdConfig, Server, ServerConfig, StartError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::support::{loopback, request, rig, rig_with, send};

#[tokio::test]
async fn s3_alone() {
    let rig = rig_with(|config| {
        config.oxcache = None;
        config.admin = None;
    })
    .await;
    assert_eq!(rig.get("/bucket/missing", &[]).await.status, 404);
    assert_eq!(rig.server.addresses().iter().count(), 1);
}

#[tokio::test]
async fn memcached_alone() {
    let rig = rig_with(|config| {
        *config = ServerConfig {
            memcached: Some(MemcachedConfig {
                listen: Some(loopback()),
                ..MemcachedConfig::default()
            }),
            ..ServerConfig::default()
        };
    })
    .await;
    let address = rig.server.addresses().tcp("memcached").unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"get a\r\n").await.unwrap();
    let mut response = [0; 5];
    client.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"END\r\n");
    assert_eq!(rig.server.addresses().iter().count(), 1);
    rig.server.shutdown().await;
}

#[tokio::test]
async fn nbd_alone() {
    let disk = ExportConfig {
        name: "disk".to_owned(),
        kind: ExportKind::Memory,
        size: ByteSize::mib(1),
        read_only: false,
    };
    let nbd = NbdConfig {
        listen: Some(loopback()),
        exports: vec![disk],
        ..NbdConfig::default()
    };
    let alone = ServerConfig {
        nbd: Some(nbd),
        ..ServerConfig::default()
    };
    let rig = rig_with(|config| *config = alone).await;
    let address = rig.server.addresses().tcp("nbd").unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let mut greeting = String::new();
    client.take(16).read_to_string(&mut greeting).await.unwrap();
    assert_eq!(greeting, "NBDMAGICIHAVEOPT");
    assert_eq!(rig.server.addresses().iter().count(), 1);
    rig.server.shutdown().await;
}

#[tokio::test]
async fn the_socket_alone() {
    let rig = rig_with(|config| {
        config.s3 = None;
        config.admin = None;
    })
    .await;
    let path = rig.server.addresses().unix("oxcache").unwrap();
    UnixStream::connect(path).await.unwrap();
    assert_eq!(rig.server.addresses().iter().count(), 1);
}

#[tokio::test]
async fn admin_alone() {
    let rig = rig_with(|config| {
        config.s3 = None;
        config.oxcache = None;
    })
    .await;
    let health = request(rig.admin(), "GET", "/health", &[], "");
    assert_eq!(send(rig.admin(), health).await.status, 200);
    assert_eq!(rig.server.addresses().iter().count(), 1);
}

#[tokio::test]
async fn a_configuration_without_frontends_is_rejected_with_the_sections_to_add() {
    let rig = rig().await;
    let clock = floe_device::Clock::real();
    let none = ServerConfig::default();
    let error = Server::start(none, rig.cache.clone().into(), clock, None)
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Config(_)));
    let text = error.to_string();
    assert!(
        text.contains("[s3], [oxcache], [memcached], [nbd], [peers], [events], [control], [admin]"),
        "{text}"
    );
}
