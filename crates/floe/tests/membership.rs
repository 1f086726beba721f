//! Items of a node that may not answer for a key: reads miss, writes are refused, and a write
//! is acknowledged only by the key's owner.

use std::sync::Arc;

use floe::items::{Decision, Expiry, Found, ItemBuffer, ItemError, NewItem};
use floe::membership::{Member, Membership, Refusal, Ring, RingHash, Spread};
use floe::{Cache, ItemCache, ItemConfig, Store, StoreConfig};
use floe_core::{ByteSize, Geometry};
use floe_device::{Clock, MemoryDevice};

async fn store() -> Store {
    let device = Arc::new(MemoryDevice::new(Geometry::in_place(14, 4 << 20)));
    let mut config = StoreConfig::default();
    config.chunk.size = ByteSize::kib(64);
    config.chunk.write_buffer = ByteSize::mib(3);
    Store::open(device, Clock::real(), &config).await.unwrap()
}

async fn items_of(store: &Store) -> ItemCache {
    let config = ItemConfig {
        max_value: ByteSize::kib(1),
    };
    let cache = Cache::over(store.clone());
    ItemCache::open(cache, &config).await.unwrap()
}

fn item() -> NewItem {
    NewItem::new(ItemBuffer::from(&b"value"[..]))
}

fn membership(items: &ItemCache) -> &Membership {
    items.cache().store().membership()
}

fn ring(names: &[&str], own: &str) -> Ring {
    let members: Vec<Member> = names.iter().map(|&name| name.into()).collect();
    let spread = Spread {
        hash: RingHash::Pymemcache,
        ..Spread::default()
    };
    Ring::new(spread, &members, own)
}

#[track_caller]
fn expect_refused<T: std::fmt::Debug>(result: Result<T, ItemError>, expected: Refusal) {
    match result {
        Err(ItemError::Refused(refusal)) => assert_eq!(refusal, expected),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reads_miss_and_writes_are_refused_until_the_node_is_confirmed() {
    let items = items_of(&store().await).await;
    items.put(b"key", item()).await.unwrap();
    membership(&items).withdraw();
    assert_eq!(items.get(b"key").await.unwrap(), None);
    assert_eq!(items.get_ram(b"key").unwrap(), Found::Miss);
    let unconfirmed = Refusal::Unconfirmed;
    expect_refused(items.put(b"key", item()).await, unconfirmed);
    expect_refused(items.delete(b"key").await, unconfirmed);
    let keep = items.update(b"key", |_| Decision::Keep(())).await;
    expect_refused(keep, unconfirmed);
    membership(&items).confirm();
    assert!(items.get(b"key").await.unwrap().is_some());
}

#[tokio::test]
async fn a_write_is_not_acknowledged_once_the_node_has_lost_the_key() {
    let items = items_of(&store().await).await;
    let lose = |_: Option<&floe::Item>| {
        membership(&items).withdraw();
        Decision::Put(item(), ())
    };
    expect_refused(items.update(b"key", lose).await, Refusal::Unconfirmed);

    // A put and a delete that wait for their turn meanwhile.
    for deletes in [false, true] {
        membership(&items).confirm();
        let items = &items;
        let mut late = Box::pin(async {
            match deletes {
                false => items.put(b"key", item()).await.map(|_| ()),
                true => items.delete(b"key").await.map(|_| ()),
            }
        });
        let first = items.update(b"key", |_| {
            let waker = std::task::Waker::noop();
            let mut context = std::task::Context::from_waker(waker);
            assert!(late.as_mut().poll(&mut context).is_pending());
            membership(items).withdraw();
            Decision::Keep(())
        });
        expect_refused(first.await, Refusal::Unconfirmed);
        membership(items).confirm_until(floe_core::Tick(1));
        expect_refused(late.await, Refusal::Unconfirmed);
    }
}

#[tokio::test]
async fn another_ring_begins_without_items() {
    let store = store().await;
    store.membership().fix(ring(&["a", "b"], "a"));
    let items = items_of(&store).await;
    let keys: Vec<Vec<u8>> = (0..40u32).map(|n| n.to_string().into_bytes()).collect();
    let mut owned = 0;
    for key in &keys {
        match items.put(key, item()).await {
            Ok(_) => owned += 1,
            refused => expect_refused(refused, Refusal::Foreign),
        }
    }
    assert!((10..30).contains(&owned), "{owned}");
    let held = async |items: &ItemCache| {
        let mut held = 0;
        for key in &keys {
            held += usize::from(items.get(key).await.unwrap().is_some());
        }
        held
    };
    assert_eq!(held(&items).await, owned);
    store.flush().await.unwrap();
    drop(items);

    // The same ring, listed in another order, is warm.
    store.membership().fix(ring(&["b", "a"], "a"));
    let items = items_of(&store).await;
    assert_eq!(held(&items).await, owned);
    drop(items);
    store.membership().fix(ring(&["a", "b", "c"], "a"));
    let items = items_of(&store).await;
    assert_eq!(held(&items).await, 0);
}

#[tokio::test]
async fn a_touched_item_from_before_a_gain_stays_away() {
    let store = store().await;
    store.membership().await_ring();
    let items = items_of(&store).await;
    store.membership().announce(ring(&["a", "b"], "a"));
    items.settle_ring().await.unwrap();
    let key = moving_key();
    items.put(&key, item()).await.unwrap();
    // Amended, it keeps its version.
    let touch = |present: Option<&floe::Item>| {
        let mut kept = NewItem::copy_of(present.unwrap());
        kept.expiry = Expiry::Never;
        Decision::Amend(kept, ())
    };
    items.update(&key, touch).await.unwrap();
    store.membership().announce(ring(&["a", "b", "c"], "a"));
    expect_refused(items.put(&key, item()).await, Refusal::Foreign);
    items.settle_ring().await.unwrap();
    store.membership().announce(ring(&["a", "b"], "a"));
    items.settle_ring().await.unwrap();
    assert_eq!(items.get(&key).await.unwrap(), None);
    assert!(!items.delete(&key).await.unwrap());
    items.put(&key, item()).await.unwrap();
    assert!(items.get(&key).await.unwrap().is_some());
}

#[derive(serde::Deserialize)]
struct Observed {
    /// With spaces between.
    keys: String,
    rings: Vec<ObservedRing>,
}

#[derive(serde::Deserialize)]
struct ObservedRing {
    name: String,
    hash: RingHash,
    tag: String,
    servers: Vec<String>,
    /// For each key the last digit of its owner's host.
    owners: String,
}

/// The owners of 1,000 keys, as nutcracker 0.5.0 sent them to three servers that logged them,
/// and as the `RendezvousHash` of pymemcache 4.0.0 and emcache 1.3.3 name them.
#[test]
fn owners_are_those_of_nutcracker_and_clients() {
    let observed: Observed = serde_json::from_str(include_str!("data/rings.json")).unwrap();
    for ring in observed.rings {
        let parse = |entry: &String| Member::parse(entry, ring.hash).unwrap();
        let members: Vec<Member> = ring.servers.iter().map(parse).collect();
        let spread = Spread {
            hash: ring.hash,
            tag: ring.tag.as_bytes().try_into().ok(),
            generation: 0,
        };
        let rings: Vec<(u8, Ring)> = members
            .iter()
            .zip(&ring.servers)
            .map(|(member, server)| {
                let host = server.split(':').next().unwrap();
                let digit = *host.as_bytes().last().unwrap();
                (digit, Ring::new(spread, &members, &member.name))
            })
            .collect();
        for (key, &owner) in observed.keys.split(' ').zip(ring.owners.as_bytes()) {
            let owners = rings.iter().filter(|(_, ring)| ring.owns(key.as_bytes()));
            let owners: Vec<u8> = owners.map(|(digit, _)| *digit).collect();
            assert_eq!(owners, [owner], "{key} of {}", ring.name);
        }
    }
}

/// An update that waited for its turn while its key went to another node and came back.
#[tokio::test]
async fn an_update_takes_nothing_from_before_its_key_went_and_came_back() {
    let store = store().await;
    store.membership().fix(ring(&["a", "b"], "a"));
    let items = items_of(&store).await;
    let key = moving_key();
    items.put(&key, item()).await.unwrap();
    let seen = std::cell::Cell::new(None);
    let mut late = Box::pin(items.update(&key, |present| {
        seen.set(Some(present.is_some()));
        Decision::Put(item(), ())
    }));
    let first = items.update(&key, |_| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        // Another node had it for a while.
        store.membership().announce(ring(&["a", "b", "c"], "a"));
        store.membership().settle(u64::MAX / 2);
        store.membership().announce(ring(&["a", "b"], "a"));
        store.membership().settle(u64::MAX / 2 + 1);
        Decision::Put(item(), ())
    });
    // It saw the value from before, so it must not be acknowledged.
    expect_refused(first.await, Refusal::Foreign);
    late.await.unwrap();
    assert_eq!(seen.get(), Some(false));
}

/// Items that another ring forgot stay away when the first one is back, even if nothing was
/// stored meanwhile.
#[tokio::test]
async fn a_ring_that_is_back_begins_without_items() {
    let store = store().await;
    for (names, holds) in [
        (&["a", "b"][..], false),
        (&["a", "b"], true),
        (&["a", "b", "c"], false),
        (&["a", "b"], false),
    ] {
        store.membership().fix(ring(names, "a"));
        let items = items_of(&store).await;
        let key = staying_key();
        assert_eq!(items.get(&key).await.unwrap().is_some(), holds, "{names:?}");
        if names.len() == 2 {
            items.put(&key, item()).await.unwrap();
            store.flush().await.unwrap();
        }
    }
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..).map(|n: u32| n.to_string().into_bytes())
}

/// A key that `a` loses to `c`.
fn moving_key() -> Vec<u8> {
    let (two, three) = (ring(&["a", "b"], "a"), ring(&["a", "b", "c"], "a"));
    let mut moving = keys().filter(|key| two.owns(key) && !three.owns(key));
    moving.next().unwrap()
}

/// A key that `a` keeps.
fn staying_key() -> Vec<u8> {
    let (two, three) = (ring(&["a", "b"], "a"), ring(&["a", "b", "c"], "a"));
    let mut staying = keys().filter(|key| two.owns(key) && three.owns(key));
    staying.next().unwrap()
}

/// A delete under other settings is not taken back when the first ones return, though it found
/// nothing and stored nothing.
#[tokio::test]
async fn a_delete_without_a_ring_lasts() {
    let store = store().await;
    store.membership().fix(ring(&["a", "b"], "a"));
    let key = staying_key();
    let items = items_of(&store).await;
    items.put(&key, item()).await.unwrap();
    store.flush().await.unwrap();
    drop(items);
    store.membership().set_identity(0);
    let items = items_of(&store).await;
    assert!(!items.delete(&key).await.unwrap());
    drop(items);
    store.membership().fix(ring(&["a", "b"], "a"));
    let items = items_of(&store).await;
    assert_eq!(items.get(&key).await.unwrap(), None);
}
