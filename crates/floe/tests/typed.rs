//! Typed values: round trips, spaces, and bytes of other types.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use floe::{ByteSize, Bytes, Cache, CacheConfig, TypedCache};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Page {
    title: String,
    words: Vec<u32>,
}

async fn cache(folder: &tempfile::TempDir) -> Cache {
    let path = folder.path().join("cache.floe");
    let config = CacheConfig::file(path, ByteSize::mib(64));
    Cache::open(&config).await.expect("opens")
}

#[tokio::test]
async fn values_come_back_in_their_own_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = cache(&folder).await;
    let pages = TypedCache::<str, Page>::new(cache.clone(), "pages").unwrap();
    let sizes = TypedCache::<str, u64>::new(cache, "sizes").unwrap();
    let page = Page {
        title: "flash".into(),
        words: (0..1000).collect(),
    };
    pages.put("a", &page).await.expect("put");
    sizes.put("a", &7).await.expect("put");
    assert_eq!(pages.get("a").await.expect("get"), Some(page));
    assert_eq!(sizes.get("a").await.expect("get"), Some(7));
    pages.delete("a").await.expect("delete");
    assert_eq!(pages.get("a").await.expect("get"), None);
    assert_eq!(sizes.get("a").await.expect("get"), Some(7));
}

#[tokio::test]
async fn a_missing_value_is_fetched_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = TypedCache::<u32, String>::new(cache(&folder).await, "pages").unwrap();
    let fetches = AtomicU32::new(0);
    for _ in 0..3 {
        let fetch = || async {
            fetches.fetch_add(1, Relaxed);
            Ok::<_, std::io::Error>("text".to_owned())
        };
        let page = pages.get_or_fetch(&1, fetch).await.expect("fetched");
        assert_eq!(page, "text");
    }
    assert_eq!(fetches.into_inner(), 1);
}

#[tokio::test]
async fn bytes_that_do_not_decode_are_a_miss_and_are_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = cache(&folder).await;
    let names = TypedCache::<u8, String>::new(cache.clone(), "names").unwrap();
    names.put(&1, &"a name".to_owned()).await.expect("put");
    // A length past the end, and a value with trailing bytes.
    for wrong in [&b"\x7fab"[..], b"\x01ab"] {
        cache
            .put(b"\x05names\x01", Bytes::copy_from_slice(wrong))
            .await
            .expect("put");
        assert_eq!(names.get(&1).await.expect("get"), None, "{wrong:?}");
        let fetch = || async { Ok::<_, std::io::Error>("fetched".to_owned()) };
        let name = names.get_or_fetch(&1, fetch).await.expect("fetched");
        assert_eq!(name, "fetched");
        assert_eq!(names.get(&1).await.expect("get"), Some(name));
    }
}
