//! A server as one of several nodes: commands of an orchestrator, and what clients see.

use std::net::SocketAddr;

use floe_server::{MemcachedConfig, NodeConfig, Rejoin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Reply, Rig, loopback, request, rig_with, send};

const TOKEN: &str = "a token of the tests";

async fn rig(node: NodeConfig) -> Rig {
    rig_with(|config| {
        config.node = Some(node);
        config.admin.as_mut().unwrap().token = TOKEN.into();
        config.memcached = Some(MemcachedConfig {
            listen: Some(loopback()),
            ..MemcachedConfig::default()
        });
    })
    .await
}

/// Sends one command of memcached, and returns the answer to it.
async fn ask(rig: &Rig, command: &str) -> String {
    let address: SocketAddr = rig.server.addresses().tcp("memcached").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!("{command}\r\nquit\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn tell(rig: &Rig, command: &str) -> Reply {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", bearer.as_str()),
    ];
    let path = format!("/v1/node/{command}");
    let sent = request(rig.admin(), "POST", &path, &headers, "{}");
    send(rig.admin(), sent).await
}

async fn page(rig: &Rig, path: &str) -> Reply {
    send(rig.admin(), request(rig.admin(), "GET", path, &[], "")).await
}

fn status(reply: &Reply) -> serde_json::Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

const SET: &str = "set key 0 0 5\r\nvalue";
const HIT: &str = "VALUE key 0 5\r\nvalue\r\nEND\r\n";
const MISS: &str = "END\r\n";
const UNCONFIRMED: &str = "SERVER_ERROR this node is not confirmed as a member of its ring\r\n";

#[tokio::test]
async fn a_waiting_node_misses_until_it_is_told() {
    let node = NodeConfig {
        rejoin: Rejoin::Wait,
        ..NodeConfig::default()
    };
    let rig = rig(node).await;
    assert_eq!(ask(&rig, SET).await, UNCONFIRMED);
    assert_eq!(ask(&rig, "delete key").await, UNCONFIRMED);
    assert_eq!(ask(&rig, "incr key 1").await, UNCONFIRMED);
    assert_eq!(ask(&rig, "touch key 0").await, UNCONFIRMED);
    assert_eq!(ask(&rig, "ms key 5\r\nvalue").await, UNCONFIRMED);
    assert_eq!(ask(&rig, "get key").await, MISS);
    assert_eq!(ask(&rig, "mg key v").await, "EN\r\n");
    assert_eq!(page(&rig, "/ready").await.status, 200);
    assert_eq!(page(&rig, "/ready/member").await.status, 503);

    assert_eq!(status(&tell(&rig, "confirm").await)["confirmed"], true);
    assert_eq!(ask(&rig, SET).await, "STORED\r\n");
    assert_eq!(ask(&rig, "get key").await, HIT);
    assert_eq!(page(&rig, "/ready/member").await.status, 200);

    // A node that left keeps its items, and is confirmed with them or begins an era.
    assert_eq!(status(&tell(&rig, "leave").await)["confirmed"], false);
    assert_eq!(ask(&rig, "get key").await, MISS);
    tell(&rig, "confirm").await;
    assert_eq!(ask(&rig, "get key").await, HIT);
    tell(&rig, "leave").await;
    let joined = status(&tell(&rig, "join").await);
    assert_eq!(
        (&joined["confirmed"], &joined["eras"]),
        (&true.into(), &1.into())
    );
    assert_eq!(ask(&rig, "get key").await, MISS);
    assert_eq!(ask(&rig, SET).await, "STORED\r\n");
    assert_eq!(ask(&rig, "get key").await, HIT);
    let shown = status(&page(&rig, "/v1/node").await);
    assert_eq!(shown["writes_refused"], 5);
}

#[tokio::test]
async fn a_node_refuses_keys_of_others() {
    let node = |name: &str| NodeConfig {
        name: name.into(),
        ring: vec!["h1:11211:1 a".into(), "h2:11211:1 b".into()],
        ring_hash: floe::membership::RingHash::Nutcracker,
        ..NodeConfig::default()
    };
    let (one, other) = (rig(node("a")).await, rig(node("b")).await);
    let foreign = "SERVER_ERROR another node of the ring owns this key\r\n";
    let (mut of_one, mut of_other) = (0, 0);
    for number in 0..40 {
        let set = format!("set k{number} 0 0 1\r\nx");
        match (
            ask(&one, &set).await.as_str(),
            ask(&other, &set).await.as_str(),
        ) {
            ("STORED\r\n", refused) if refused == foreign => of_one += 1,
            (refused, "STORED\r\n") if refused == foreign => of_other += 1,
            both => panic!("{both:?}"),
        }
    }
    assert!(of_one > 8 && of_other > 8, "{of_one} {of_other}");
    let metrics = page(&one, "/metrics").await;
    let counted = format!("floe_node_refused_total{{operation=\"write\"}} {of_other}");
    assert!(metrics.text().contains(&counted), "{}", metrics.text());
    assert!(metrics.text().contains("floe_node_ring_nodes 2"));
    let info = "floe_node_info{name=\"a\",rejoin=\"warm\",ring=\"fixed\"} 1";
    assert!(metrics.text().contains(info), "{}", metrics.text());
}

#[tokio::test]
async fn commands_to_a_node_need_the_token() {
    let rig = rig(NodeConfig::default()).await;
    let headers = [("content-type", "application/json")];
    for command in ["join", "leave", "confirm"] {
        let path = format!("/v1/node/{command}");
        let sent = request(rig.admin(), "POST", &path, &headers, "{}");
        assert_eq!(send(rig.admin(), sent).await.status, 403, "{command}");
    }
    assert_eq!(status(&page(&rig, "/v1/node").await)["confirmed"], true);
}

#[tokio::test]
async fn without_etcd_the_node_answers_with_misses_and_stops_in_time() {
    let node = NodeConfig {
        rejoin: Rejoin::Wait,
        // Nothing listens there.
        etcd: vec!["http://127.0.0.1:1".into()],
        lease_ms: 600,
        ..NodeConfig::default()
    };
    let rig = rig(node).await;
    assert_eq!(ask(&rig, SET).await, UNCONFIRMED);
    let confirmed = tell(&rig, "confirm").await;
    assert_eq!(confirmed.status, 400, "{}", confirmed.text());
    assert_eq!(ask(&rig, "get key").await, MISS);
    assert_eq!(status(&tell(&rig, "leave").await)["confirmed"], false);
    rig.server.shutdown().await;
}
