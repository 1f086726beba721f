//! Machines that share a lock, in an etcd that is emulated: ranges and transactions of one key.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use floe_core::{ByteSize, Tick};
use floe_device::block::locked::Locked;
use floe_device::{BlockDevice as _, MemoryBlocks, SharedBlockDevice};
use serde_json::{Value, json};

use super::{BlockLock, Clock, Duration, Holder, Mutex, NodeConfig, Reserved, VolumeLocks};

const A: u64 = 0xa;
const B: u64 = 0xb;

const NAME: &str = "rbd/disk";

/// Values and their revisions by key, and the revision of all.
#[derive(Default)]
struct Keys {
    values: HashMap<String, (String, u64)>,
    revision: u64,
    /// So many transactions are carried out and answered as failures of the server.
    loses_answers: u32,
}

type Shared = Arc<Mutex<Keys>>;

fn found(keys: &Keys, key: &str) -> Value {
    let kvs: Vec<Value> = keys
        .values
        .get(key)
        .iter()
        .map(|(value, revision)| {
            let revision = revision.to_string();
            json!({
                "key": key, "value": value,
                "create_revision": revision, "mod_revision": revision,
            })
        })
        .collect();
    json!({ "header": { "revision": keys.revision.to_string() }, "kvs": kvs })
}

async fn range(State(keys): State<Shared>, request: String) -> Json<Value> {
    let request: Value = serde_json::from_str(&request).unwrap();
    Json(found(&keys.lock(), request["key"].as_str().unwrap()))
}

async fn transaction(
    State(keys): State<Shared>,
    request: String,
) -> Result<Json<Value>, StatusCode> {
    let request: Value = serde_json::from_str(&request).unwrap();
    let mut keys = keys.lock();
    let compared = &request["compare"][0];
    let key = compared["key"].as_str().unwrap().to_owned();
    let revision = keys.values.get(&key).map_or(0, |(_, revision)| *revision);
    let expected: u64 = compared["mod_revision"].as_str().unwrap().parse().unwrap();
    let is_same = expected == revision;
    if is_same {
        keys.revision += 1;
        let revision = keys.revision;
        let value = request["success"][0]["request_put"]["value"].as_str();
        keys.values
            .insert(key, (value.unwrap().to_owned(), revision));
        if keys.loses_answers > 0 {
            keys.loses_answers -= 1;
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let header = json!({ "revision": revision.to_string() });
        let answer = json!({ "header": header, "succeeded": true, "responses": [{}] });
        return Ok(Json(answer));
    }
    let found = found(&keys, &key);
    let answer = json!({ "header": found["header"], "responses": [{ "response_range": found }] });
    Ok(Json(answer))
}

/// etcd, and what two machines have of it.
struct Rig {
    keys: Shared,
    machines: [VolumeLocks; 2],
}

async fn rig() -> Rig {
    let keys = Shared::default();
    let routes = Router::new()
        .route("/v3/kv/range", post(range))
        .route("/v3/kv/txn", post(transaction))
        .with_state(Arc::clone(&keys));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let machine = |name: &str| {
        let config = NodeConfig {
            name: name.into(),
            // One that failed is asked again as the other one.
            etcd: vec![format!("http://{address}"), format!("http://{address}/")],
            ..NodeConfig::default()
        };
        let mut locks = VolumeLocks::new(&config, Clock::real()).unwrap();
        locks.watch_time = Duration::from_millis(10);
        locks.learning_time = Duration::from_secs(1);
        locks
    };
    Rig {
        keys,
        machines: ["one", "two"].map(machine),
    }
}

impl Rig {
    fn lock(&self, machine: usize) -> Arc<dyn BlockLock> {
        self.machines[machine].lock(NAME).unwrap()
    }
}

fn started() -> (Clock, Tick) {
    let clock = Clock::real();
    let begun = clock.now();
    (clock, begun)
}

fn held(was_held: bool) -> Reserved {
    Reserved::Held { was_held }
}

#[tokio::test]
async fn a_second_machine_is_told_who_holds_the_lock() {
    let rig = rig().await;
    let (one, two) = (rig.lock(0), rig.lock(1));
    assert_eq!(one.reserve(A, None).await.unwrap(), held(false));
    one.confirm(A).await.unwrap();
    let refused = Reserved::Elsewhere(Holder {
        key: Some(A),
        name: Some("one".into()),
    });
    assert_eq!(two.reserve(B, None).await.unwrap(), refused);
    assert_eq!(two.reserve(B, Some(B)).await.unwrap(), refused);
    assert!(two.confirm(B).await.is_err(), "it holds nothing");
    two.release(B).await.unwrap();
    assert!(rig.machines[0].lock(NAME).is_err(), "a volume has it");
    // A process that ends leaves the lock, which the next one of the same cache has.
    drop(one);
    assert_eq!(two.reserve(B, None).await.unwrap(), refused);
    let one = rig.lock(0);
    assert_eq!(one.reserve(A, None).await.unwrap(), held(true));
    one.release(A).await.unwrap();
    // Nothing is waited for: it is known that it was free.
    let (clock, begun) = started();
    assert_eq!(two.reserve(B, None).await.unwrap(), held(false));
    assert!(clock.now().since(begun) < rig.machines[1].learning_time);
}

#[tokio::test]
async fn a_lock_that_was_taken_away_ends_what_its_holder_does() {
    let rig = rig().await;
    let memory = MemoryBlocks::new(ByteSize::mib(1), 4096).unwrap();
    let memory: SharedBlockDevice = Arc::new(memory);
    let device = Locked::new(Arc::clone(&memory), rig.lock(0));
    assert_eq!(device.reserve(A, None).await.unwrap(), held(false));
    device.confirm(A).await.unwrap();
    let read = || device.read(0, device.allocate(4096));
    assert!(read().await.is_ok());

    let two = rig.lock(1);
    assert_eq!(two.reserve(B, Some(A)).await.unwrap(), held(false));
    // The holder has seen it before the other one begins.
    let refused = read().await.unwrap_err().to_string();
    assert!(refused.contains("lost the lock"), "{refused}");
    let data = device.allocate(4096).freeze();
    assert!(device.write(0, data.clone()).await.is_err());
    assert!(device.flush().await.is_err());
    assert!(device.set_size(4096, false).await.is_err());
    assert!(device.confirm(A).await.is_err());
    // It gives up nothing of the other's.
    device.release(A).await.unwrap();
    two.confirm(B).await.unwrap();
    assert_eq!(two.reserve(B, None).await.unwrap(), held(true));
    assert!(memory.write(0, data).await.is_ok());
}

/// Two halves of a mirrored cache device have one key.
#[tokio::test]
async fn a_copy_of_the_cache_on_another_machine_takes_the_lock_away() {
    let rig = rig().await;
    let (one, two) = (rig.lock(0), rig.lock(1));
    one.reserve(A, None).await.unwrap();
    one.confirm(A).await.unwrap();
    let refused = two.reserve(A, None).await.unwrap();
    assert!(matches!(refused, Reserved::Elsewhere(_)));
    assert!(!one.is_taken_away());
    assert_eq!(two.reserve(A, Some(A)).await.unwrap(), held(true));
    assert!(one.is_taken_away());
    assert!(one.confirm(A).await.is_err());
    one.release(A).await.unwrap();
    assert!(!two.is_taken_away());
}

#[tokio::test]
async fn a_lock_that_vanished_is_lost_and_nothing_else_is_overwritten() {
    let rig = rig().await;
    let one = rig.lock(0);
    assert_eq!(one.reserve(A, None).await.unwrap(), held(false));
    one.confirm(A).await.unwrap();
    rig.keys.lock().values.clear();
    while !one.is_taken_away() {
        Clock::real().sleep(Duration::from_millis(5)).await;
    }
    // Another machine may have it, or have had it meanwhile.
    let (clock, begun) = started();
    assert_eq!(one.reserve(A, None).await.unwrap(), held(false));
    assert!(clock.now().since(begun) >= rig.machines[0].learning_time);
    assert!(!one.is_taken_away());
    for (value, _) in rig.keys.lock().values.values_mut() {
        *value = "c29tZXRoaW5n".into();
    }
    let foreign = one.reserve(A, None).await.unwrap_err().to_string();
    assert!(foreign.contains("not Floe's"), "{foreign}");
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert!(rig.machines[0].lock(name).is_err(), "{name}");
    }
}

/// A transaction that was carried out, whose answer was lost: the client asks again.
#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_lock_with_its_taker() {
    let rig = rig().await;
    let (one, two) = (rig.lock(0), rig.lock(1));
    rig.keys.lock().loses_answers = 1;
    let (clock, begun) = started();
    assert_eq!(one.reserve(A, None).await.unwrap(), held(false));
    assert!(clock.now().since(begun) >= rig.machines[0].learning_time);
    one.confirm(A).await.unwrap();
    rig.keys.lock().loses_answers = 1;
    assert_eq!(two.reserve(B, Some(A)).await.unwrap(), held(false));
    assert!(one.is_taken_away());
    two.confirm(B).await.unwrap();
}
