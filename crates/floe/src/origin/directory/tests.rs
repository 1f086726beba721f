use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bytes::Bytes;
use futures::{FutureExt, TryStreamExt};

use super::*;
use crate::origin::{LateHeaders, PutCondition, UploadedPart};

struct Fixture {
    directory: tempfile::TempDir,
    origin: DirectoryOrigin,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("root/bucket")).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    let origin = DirectoryOrigin::open(&directory.path().join("root")).unwrap();
    Fixture { directory, origin }
}

fn key(key: &str) -> ObjectKey {
    ObjectKey::new("bucket", key)
}

impl Fixture {
    async fn put(&self, name: &str, bytes: &str) -> Result<PutResponse, OriginError> {
        let request = PutRequest::from_bytes(Bytes::copy_from_slice(bytes.as_bytes()));
        self.origin.put(&key(name), request).await
    }

    async fn get(&self, name: &str) -> Result<String, OriginError> {
        let read = self.origin.get(&key(name), GetRequest::default()).await?;
        let pieces: Vec<Bytes> = read.body.try_collect().await?;
        Ok(String::from_utf8(pieces.concat()).unwrap())
    }

    async fn list(&self, request: ListRequest) -> (Vec<String>, Vec<String>, Option<String>) {
        let page = self.origin.list("bucket", request).await.unwrap();
        let keys = page.objects.into_iter().map(|o| o.key).collect();
        (keys, page.common_prefixes, page.next)
    }

    fn leftovers(&self) -> usize {
        let unfinished = self.directory.path().join("root/.floe/unfinished");
        std::fs::read_dir(unfinished).unwrap().count()
    }
}

#[tokio::test]
async fn keys_cannot_leave_their_bucket() {
    let f = fixture();
    let root = f.directory.path().join("root");
    std::fs::create_dir(root.join("other")).unwrap();
    std::fs::write(root.join("other/file"), "other").unwrap();
    symlink("../../secret", root.join("bucket/link")).unwrap();
    symlink(f.directory.path(), root.join("bucket/out")).unwrap();
    symlink("..", root.join("bucket/up")).unwrap();
    for name in [
        "../../secret",
        "../other/file",
        "/etc/passwd",
        "a/../../other/file",
        "link",
        "out/secret",
        "up/other/file",
        "./file",
        "nul\0",
        "",
        "a//b",
        "a/",
        "out/",
        "up/..",
    ] {
        assert!(f.get(name).await.is_err(), "{name:?} was read");
        match name {
            "" | "out/secret" | "up/other/file" => {
                let error = f.put(name, "x").await.unwrap_err();
                assert!(
                    matches!(error, OriginError::InvalidKey { .. }),
                    "{name:?}: {error:?}"
                );
            }
            // A key that is no path is an object of its own, and a link is replaced.
            name => {
                f.put(name, name).await.unwrap();
                assert_eq!(f.get(name).await.unwrap(), name);
            }
        }
        let _ = f.origin.delete(&key(name)).await;
        assert!(f.get(name).await.is_err(), "{name:?} was read");
    }
    assert_eq!(
        std::fs::read(f.directory.path().join("secret")).unwrap(),
        b"secret"
    );
    assert_eq!(std::fs::read(root.join("other/file")).unwrap(), b"other");
    for bucket in ["..", ".", ".floe", "", "bucket/..", "nul\0"] {
        let key = ObjectKey::new(bucket, "x");
        let read = f.origin.get(&key, GetRequest::default()).await;
        assert!(matches!(read, Err(OriginError::NoSuchBucket(_))));
    }
    assert_eq!(f.leftovers(), 0);
}

/// The path of a key in the escape area.
fn escaped(f: &Fixture, key: &str) -> std::path::PathBuf {
    let area = f.directory.path().join("root/.floe/keys/bucket");
    area.join(escape::path(key).unwrap())
}

#[tokio::test]
async fn an_object_and_a_directory_of_one_name_exist_together() {
    let f = fixture();
    f.put("a", "1").await.unwrap();
    f.put("a/b", "2").await.unwrap();
    f.put("a/b/", "3").await.unwrap();
    f.put("a/", "4").await.unwrap();
    for (name, value) in [("a", "1"), ("a/b", "2"), ("a/b/", "3"), ("a/", "4")] {
        assert_eq!(f.get(name).await.unwrap(), value);
    }
    // With the file gone the path is possible: a write moves the object there.
    f.origin.delete(&key("a")).await.unwrap();
    assert!(matches!(f.get("a").await, Err(OriginError::NotFound(_))));
    assert_eq!(f.get("a/b").await.unwrap(), "2");
    f.put("a/b", "5").await.unwrap();
    assert!(!escaped(&f, "a/b").exists());
    let file = f.directory.path().join("root/bucket/a/b");
    assert_eq!(std::fs::read(&file).unwrap(), b"5");
    // Now the directory is in the way.
    f.put("a", "6").await.unwrap();
    assert!(escaped(&f, "a").exists());
    assert_eq!(f.get("a").await.unwrap(), "6");
    let (keys, ..) = f.list(ListRequest::default()).await;
    assert_eq!(keys, ["a", "a/", "a/b", "a/b/"]);
    for name in ["a", "a/b", "a/b/", "a/"] {
        f.origin.delete(&key(name)).await.unwrap();
        assert!(f.get(name).await.is_err());
    }
    let area = f.directory.path().join("root/.floe/keys/bucket");
    assert_eq!(std::fs::read_dir(area).unwrap().count(), 0);
    assert_eq!(f.leftovers(), 0);
}

#[tokio::test]
async fn keys_that_are_no_paths_are_objects() {
    let f = fixture();
    let long = format!("{}/{}", "é".repeat(200), "x".repeat(300));
    let longest = "/".repeat(1024);
    let names = [
        "/",
        "//",
        "a//b",
        "/a",
        "a/",
        ".",
        "..",
        "a/../b",
        "./a",
        "\0",
        "line\nend",
        ".floe",
        ".floe/x",
        "%2F",
        &long,
        &longest,
    ];
    for name in names {
        f.put(name, name).await.unwrap();
    }
    for name in names {
        assert_eq!(f.get(name).await.unwrap(), name);
        let meta = f.origin.head(&key(name), GetRequest::default()).await;
        let meta = meta.unwrap();
        // With a file in the path, the kernel's caches do not tell that there is no file.
        if f.origin.shared.is_local && name != ".floe/x" {
            assert!(f.origin.confirms(&key(name), &meta), "{name:?}");
        }
    }
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(f.list(ListRequest::default()).await.0, expected);
    let error = f.put(&"/".repeat(1025), "x").await.unwrap_err();
    assert!(
        error.to_string().contains("longer than 1024 bytes"),
        "{error}"
    );
    for name in names {
        f.origin.delete(&key(name)).await.unwrap();
        assert!(matches!(f.get(name).await, Err(OriginError::NotFound(_))));
    }
    assert!(f.list(ListRequest::default()).await.0.is_empty());
}

/// A write below the bucket was cut off before it removed the older file in the escape area, a
/// delete after that: the file below the bucket is the object.
#[tokio::test]
async fn after_a_crash_between_the_places_the_newer_file_is_the_object() {
    let f = fixture();
    let leave_both = async || {
        f.put("a/b", "other").await.unwrap();
        f.put("a", "old").await.unwrap();
        f.origin.delete(&key("a/b")).await.unwrap();
        assert!(escaped(&f, "a").exists());
        std::fs::write(f.directory.path().join("root/bucket/a"), "new").unwrap();
    };
    leave_both().await;
    assert_eq!(f.get("a").await.unwrap(), "new");
    assert_eq!(f.list(ListRequest::default()).await.0, ["a"]);
    f.put("a", "newer").await.unwrap();
    assert!(!escaped(&f, "a").exists());
    f.origin.delete(&key("a")).await.unwrap();
    leave_both().await;
    f.origin.delete(&key("a")).await.unwrap();
    assert!(!escaped(&f, "a").exists());
    assert!(matches!(f.get("a").await, Err(OriginError::NotFound(_))));
    // A delete that fails below the bucket has removed the older file.
    let root = f.directory.path().join("root");
    symlink(f.directory.path(), root.join("bucket/out")).unwrap();
    let older = escaped(&f, "out/secret");
    std::fs::create_dir_all(older.parent().unwrap()).unwrap();
    std::fs::write(&older, "older").unwrap();
    assert!(f.origin.delete(&key("out/secret")).await.is_err());
    assert!(!older.exists());
    // A write that fails in the escape area has written below the bucket.
    let area = root.join(".floe/keys/bucket");
    std::fs::create_dir_all(&area).unwrap();
    symlink(f.directory.path(), area.join("+d")).unwrap();
    assert!(f.put("d/e", "newer").await.is_err());
    assert_eq!(f.get("d/e").await.unwrap(), "newer");
    // Nothing outside the root was touched.
    let secret = std::fs::read(f.directory.path().join("secret")).unwrap();
    assert_eq!(secret, b"secret");
}

/// A reader that looked below the bucket first and then in the escape area must not miss an
/// object that a write moves from the one to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_object_that_moves_between_the_places_is_always_there() {
    let f = fixture();
    f.put("a", "0").await.unwrap();
    let (readable, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let moves = async {
        for turn in 0..200 {
            // The directory is in the way of the key.
            f.origin.delete(&key("a")).await.unwrap();
            f.put("a/b", "x").await.unwrap();
            f.put("a", "escaped").await.unwrap();
            readable.store(true, SeqCst);
            f.origin.delete(&key("a/b")).await.unwrap();
            f.put("a", &turn.to_string()).await.unwrap();
            readable.store(false, SeqCst);
        }
        done.store(true, SeqCst);
    };
    let reads = async {
        while !done.load(SeqCst) {
            let before = readable.load(SeqCst);
            let read = f.get("a").await;
            let after = readable.load(SeqCst);
            assert!(read.is_ok() || !before || !after, "{read:?}");
        }
    };
    futures::join!(moves, reads);
}

#[tokio::test]
async fn listings_merge_both_places_in_order() {
    let f = fixture();
    let long = "x".repeat(300);
    let mut names = Vec::new();
    for part in [
        "a", "a/", "a//", "a/b", "a/b/", "a/b/c", "a-b", "a0", "é/", "é//é", "z/z/", &long,
    ] {
        names.push(part.to_owned());
    }
    for tail in ["", "/", "!", "/y", "y"] {
        names.push(format!("{}{tail}", "x".repeat(80)));
        names.push(format!("{}é{tail}/", "x".repeat(79)));
    }
    for name in &names {
        f.put(name, name).await.unwrap();
    }
    // A program's own directory is no key.
    std::fs::create_dir_all(f.directory.path().join("root/bucket/empty/deep")).unwrap();
    names.sort_unstable();
    names.dedup();
    for delimiter in [None, Some("/"), Some("b"), Some("//")] {
        for prefix in ["", "a", "a/", "a//", "x", "é/"] {
            for after in ["", "a", "a/", "a/b", "x"] {
                for max_keys in [1, 2, 1000] {
                    let expected = model(&names, prefix, delimiter, after);
                    let mut seen = Vec::new();
                    let mut continuation = None;
                    loop {
                        let (keys, prefixes, next) = f
                            .list(ListRequest {
                                prefix: prefix.to_owned(),
                                delimiter: delimiter.map(str::to_owned),
                                start_after: Some(after.to_owned()),
                                max_keys,
                                continuation,
                            })
                            .await;
                        let mut page = [keys, prefixes].concat();
                        page.sort();
                        assert!(page.len() <= max_keys);
                        seen.extend(page);
                        continuation = next;
                        if continuation.is_none() {
                            break;
                        }
                    }
                    assert_eq!(
                        seen, expected,
                        "{delimiter:?} {prefix:?} {after:?} {max_keys}"
                    );
                }
            }
        }
    }
}

/// The keys and common prefixes of a listing, in order.
fn model(names: &[String], prefix: &str, delimiter: Option<&str>, after: &str) -> Vec<String> {
    let mut listed: Vec<String> = Vec::new();
    let wanted = |name: &&String| name.starts_with(prefix) && name.as_str() > after;
    for name in names.iter().filter(wanted) {
        let end = delimiter.and_then(|delimiter| {
            let at = name[prefix.len()..].find(delimiter)?;
            Some(prefix.len() + at + delimiter.len())
        });
        let entry = name[..end.unwrap_or(name.len())].to_owned();
        if listed.last() != Some(&entry) {
            listed.push(entry);
        }
    }
    listed
}

#[tokio::test]
async fn buckets_are_deleted_without_objects_only() {
    let f = fixture();
    let root = f.directory.path().join("root");
    let delete = || f.origin.delete_bucket("bucket");
    for name in ["a/b", "marker/"] {
        f.put(name, "x").await.unwrap();
        assert!(matches!(
            delete().await,
            Err(OriginError::BucketNotEmpty(_))
        ));
        assert_eq!(f.get(name).await.unwrap(), "x");
        f.origin.delete(&key(name)).await.unwrap();
    }
    // A link is no object, and keeps the bucket and what it leads to.
    symlink("../other", root.join("bucket/link")).unwrap();
    std::fs::create_dir_all(root.join("other/inner")).unwrap();
    assert!(matches!(
        delete().await,
        Err(OriginError::BucketNotEmpty(_))
    ));
    std::fs::remove_file(root.join("bucket/link")).unwrap();
    std::fs::create_dir_all(root.join("bucket/empty/deep")).unwrap();
    let u = key("u");
    let upload = f.origin.create_upload(&u, Attributes::default());
    let upload = upload.await.unwrap();
    delete().await.unwrap();
    assert!(root.join("other/inner").exists());
    assert!(matches!(delete().await, Err(OriginError::NoSuchBucket(_))));
    f.origin.create_bucket("bucket").await.unwrap();
    let gone = f.origin.list_parts(&u, &upload).await;
    assert!(matches!(gone, Err(OriginError::NoSuchUpload(_))));
    // Another program removes the bucket: its other objects do not come back.
    f.put("marker/", "x").await.unwrap();
    std::fs::remove_dir_all(root.join("bucket")).unwrap();
    f.origin.create_bucket("bucket").await.unwrap();
    assert!(f.list(ListRequest::default()).await.0.is_empty());
    assert!(f.get("marker/").await.is_err());
}

#[tokio::test]
async fn a_write_gives_a_new_validator_and_keeps_its_headers() {
    let f = fixture();
    let mut etags = std::collections::HashSet::new();
    let head = async || {
        let name = key("same.json");
        f.origin.head(&name, GetRequest::default()).await.unwrap()
    };
    for _ in 0..50 {
        f.put("same.json", "same size").await.unwrap();
        assert!(etags.insert(head().await.etag));
    }
    let meta = head().await;
    assert_eq!(
        meta.attributes.content_type.as_deref(),
        Some("application/json")
    );
    let mut request = PutRequest::from_bytes(Bytes::from_static(b"x"));
    request.attributes = Attributes {
        content_type: Some("text/x-own".into()),
        user: vec![("colour".into(), "blue".into())],
        ..Attributes::default()
    };
    let attributes = request.attributes.clone();
    match f.origin.put(&key("own.json"), request).await {
        Ok(_) => {
            let meta = f
                .origin
                .head(&key("own.json"), GetRequest::default())
                .await
                .unwrap();
            assert_eq!(meta.attributes, attributes);
        }
        // The file system has no extended attributes.
        Err(error) => assert!(matches!(error, OriginError::Unsupported(_))),
    }
}

#[tokio::test]
async fn conditions_on_writes_hold_and_wrong_lengths_store_nothing() {
    let f = fixture();
    let k = key("a");
    let put = |condition, length| {
        let mut request = PutRequest::from_bytes(Bytes::from_static(b"12345"));
        request.condition = condition;
        request.length = length;
        f.origin.put(&k, request)
    };
    for length in [4, 6] {
        let error = put(None, Some(length)).await.unwrap_err();
        assert!(matches!(error, OriginError::BadUpload(_)));
    }
    assert!(f.get("a").await.is_err());
    let etag = put(Some(PutCondition::Absent), None)
        .await
        .unwrap()
        .etag
        .unwrap();
    let again = put(Some(PutCondition::Absent), None).await;
    assert!(matches!(again, Err(OriginError::PreconditionFailed)));
    let other = put(Some(PutCondition::Matches("\"x\"".into())), None).await;
    assert!(matches!(other, Err(OriginError::PreconditionFailed)));
    put(Some(PutCondition::Matches(etag.clone())), None)
        .await
        .unwrap();
    put(Some(PutCondition::Exists), None).await.unwrap();
    put(Some(PutCondition::Differs("\"x\"".into())), None)
        .await
        .unwrap();
    let same = put(Some(PutCondition::Differs(etag.clone())), None).await;
    assert!(matches!(same, Err(OriginError::PreconditionFailed)));
    f.origin.delete(&k).await.unwrap();
    for condition in [PutCondition::Exists, PutCondition::Matches(etag.clone())] {
        let missing = put(Some(condition), None).await;
        assert!(matches!(missing, Err(OriginError::NotFound(_))));
    }
    put(Some(PutCondition::Differs(etag)), None).await.unwrap();
    assert_eq!(f.leftovers(), 0);
}

#[tokio::test]
async fn deletes_compare_the_object() {
    let f = fixture();
    let put = f.put("a", "12345").await.unwrap();
    let meta = f
        .origin
        .head(&key("a"), GetRequest::default())
        .await
        .unwrap();
    let modified = meta
        .last_modified
        .unwrap()
        .duration_since(std::time::UNIX_EPOCH);
    let modified_unix_s = modified.unwrap().as_secs() as i64;
    let condition = |tag: Option<&str>, size, modified_unix_s| DeleteCondition {
        etag: tag.map(str::to_owned),
        size,
        modified_unix_s,
    };
    for wrong in [
        condition(Some("\"x\""), None, None),
        condition(None, Some(4), None),
        condition(put.etag.as_deref(), Some(5), Some(modified_unix_s - 1)),
    ] {
        let kept = f.origin.delete_if(&key("a"), &wrong).await;
        assert!(matches!(kept, Err(OriginError::PreconditionFailed)));
        assert_eq!(f.get("a").await.unwrap(), "12345");
        // A missing object is deleted already.
        f.origin.delete_if(&key("b"), &wrong).await.unwrap();
    }
    let right = condition(put.etag.as_deref(), Some(5), Some(modified_unix_s));
    f.origin.delete_if(&key("a"), &right).await.unwrap();
    assert!(f.get("a").await.is_err());
}

/// Conditional writes of one key, in both places, take turns: no increment is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conditional_writes_are_atomic() {
    for name in ["count", "count/"] {
        let f = std::sync::Arc::new(fixture());
        let first = (0..8).map(|_| {
            let f = Arc::clone(&f);
            tokio::spawn(async move {
                let mut request = PutRequest::from_bytes(Bytes::from_static(b"0"));
                request.condition = Some(PutCondition::Absent);
                f.origin.put(&key(name), request).await.is_ok()
            })
        });
        let first = futures::future::join_all(first).await;
        assert_eq!(
            first
                .into_iter()
                .filter(|one| *one.as_ref().unwrap())
                .count(),
            1
        );
        let counts = (0..4).map(|_| {
            let f = Arc::clone(&f);
            tokio::spawn(async move {
                let mut done = 0;
                while done < 10 {
                    let read = f.origin.get(&key(name), GetRequest::default()).await;
                    let read = read.unwrap();
                    let tag = read.meta.client_etag().unwrap().to_owned();
                    let pieces: Vec<Bytes> = read.body.try_collect().await.unwrap();
                    let count: u32 = String::from_utf8(pieces.concat()).unwrap().parse().unwrap();
                    let next = Bytes::from((count + 1).to_string());
                    let mut request = PutRequest::from_bytes(next);
                    request.condition = Some(PutCondition::Matches(tag));
                    match f.origin.put(&key(name), request).await {
                        Ok(_) => done += 1,
                        Err(error) => assert!(matches!(error, OriginError::PreconditionFailed)),
                    }
                }
            })
        });
        for count in futures::future::join_all(counts).await {
            count.unwrap();
        }
        assert_eq!(f.get(name).await.unwrap(), "40");
    }
}

/// The tag that clients see is made of the bytes, as in S3, until another program writes. The
/// cache's validator is the stamp.
#[tokio::test]
async fn tags_are_made_of_the_bytes_until_another_program_writes() {
    let f = fixture();
    let head = async || {
        f.origin
            .head(&key("a"), GetRequest::default())
            .await
            .unwrap()
    };
    let put = async |bytes: &'static str| {
        let mut request = PutRequest::from_bytes(Bytes::from_static(bytes.as_bytes()));
        let sum = ("x-amz-checksum-crc32".to_owned(), "sum".to_owned());
        request.late_headers.set(vec![sum]).unwrap();
        request.attributes.cache_control = Some("no-cache".into());
        f.origin
            .put(&key("a"), request)
            .await
            .unwrap()
            .etag
            .unwrap()
    };
    let tag = put("hello").await;
    let first = head().await;
    if first.content_etag.is_none() {
        eprintln!("SKIPPED: the file system of temporary files has no extended attributes");
        return;
    }
    assert_eq!(tag, "\"5d41402abc4b2a76b9719d911017c592\"");
    assert_eq!(first.client_etag(), Some(&*tag));
    let listed = async || {
        let page = f
            .origin
            .list("bucket", ListRequest::default())
            .await
            .unwrap();
        page.objects[0].etag.clone()
    };
    assert_eq!(listed().await.as_deref(), Some(&*tag));
    // The same bytes are another version with the same tag.
    assert_eq!(put("hello").await, tag);
    let second = head().await;
    assert!(second.etag != first.etag && second.client_etag() == first.client_etag());
    assert_eq!(second.attributes.headers.len(), 1);
    // A program writes in place, which keeps the attributes: headers of the bytes are gone.
    std::fs::write(f.directory.path().join("root/bucket/a"), "jello").unwrap();
    let third = head().await;
    assert_eq!(third.content_etag, None);
    assert_eq!(third.client_etag(), third.etag.as_deref());
    assert_ne!(third.client_etag(), Some(&*tag));
    assert_eq!(listed().await, third.etag);
    assert!(third.attributes.headers.is_empty());
    assert_eq!(third.attributes.cache_control.as_deref(), Some("no-cache"));
    // It puts the old bytes back: the tag is that of its own write.
    std::fs::write(f.directory.path().join("root/bucket/a"), "hello").unwrap();
    assert_ne!(head().await.client_etag(), Some(&*tag));
    assert_eq!(put("hello").await, tag);
}

#[tokio::test]
async fn listings_are_ordered_folded_and_paged() {
    let f = fixture();
    for name in ["a.txt", "a/1", "a/2", "a0", "b/c/1", "b/d", "z"] {
        f.put(name, name).await.unwrap();
    }
    let all = ["a.txt", "a/1", "a/2", "a0", "b/c/1", "b/d", "z"].map(String::from);
    let (keys, prefixes, next) = f.list(ListRequest::default()).await;
    assert_eq!((keys, prefixes.len(), next), (all.to_vec(), 0, None));
    let folded = ListRequest {
        delimiter: Some("/".into()),
        ..ListRequest::default()
    };
    let (keys, prefixes, _) = f.list(folded.clone()).await;
    assert_eq!(
        (keys, prefixes),
        (
            vec!["a.txt".to_owned(), "a0".into(), "z".into()],
            vec!["a/".to_owned(), "b/".into()],
        )
    );
    let below = ListRequest {
        prefix: "b/".into(),
        ..folded.clone()
    };
    let (keys, prefixes, _) = f.list(below).await;
    assert_eq!(
        (keys, prefixes),
        (vec!["b/d".to_owned()], vec!["b/c/".to_owned()])
    );
    for (request, expected) in [
        (ListRequest::default(), all.to_vec()),
        (
            folded,
            ["a.txt", "a/", "a0", "b/", "z"].map(String::from).to_vec(),
        ),
    ] {
        for max_keys in 1..4 {
            let mut seen = Vec::new();
            let mut continuation = None;
            loop {
                let (keys, prefixes, next) = f
                    .list(ListRequest {
                        max_keys,
                        continuation,
                        ..request.clone()
                    })
                    .await;
                assert!(keys.len() + prefixes.len() <= max_keys);
                let mut page = [keys, prefixes].concat();
                page.sort();
                seen.extend(page);
                continuation = next;
                if continuation.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected);
        }
    }
    let after = ListRequest {
        start_after: Some("a/1".into()),
        prefix: "a".into(),
        ..ListRequest::default()
    };
    assert_eq!(f.list(after).await.0, ["a/2", "a0"]);
}

fn complete(upload: &str, parts: Vec<UploadedPart>) -> CompleteRequest {
    CompleteRequest {
        upload: upload.to_owned(),
        parts,
        ..CompleteRequest::default()
    }
}

#[tokio::test]
async fn parts_become_an_object_in_order_or_not_at_all() {
    let f = fixture();
    let k = key("dir/whole.bin");
    let part = |upload: &str, number, bytes: &'static str| {
        let body: UploadBody = Box::pin(futures::stream::iter([Ok(Bytes::from_static(
            bytes.as_bytes(),
        ))]));
        let request = PartRequest {
            upload: upload.to_owned(),
            number,
            length: None,
            body,
            late_headers: LateHeaders::default(),
            turn: None,
        };
        let (origin, k) = (&f.origin, &k);
        async move {
            let etag = origin.upload_part(k, request).await?.etag;
            Ok::<_, OriginError>(UploadedPart {
                number,
                etag: etag.unwrap(),
            })
        }
    };
    let upload = f
        .origin
        .create_upload(&k, Attributes::default())
        .await
        .unwrap();
    let two = part(&upload, 2, "two").await.unwrap();
    let stale = part(&upload, 1, "old").await.unwrap();
    let one = part(&upload, 1, "one").await.unwrap();
    let wrong = f
        .origin
        .complete_upload(&k, complete(&upload, vec![stale, two.clone()]))
        .await;
    assert!(matches!(wrong, Err(OriginError::InvalidPart(_))));
    f.origin
        .complete_upload(&k, complete(&upload, vec![one.clone(), two.clone()]))
        .await
        .unwrap();
    assert_eq!(f.get("dir/whole.bin").await.unwrap(), "onetwo");
    let meta = f.origin.head(&k, GetRequest::default()).await.unwrap();
    let tag = meta.client_etag().unwrap();
    assert!(tag.ends_with("-2\"") && tag.len() == 36, "{tag}");
    // A client that missed the answer asks again, and changes nothing.
    f.put("dir/whole.bin", "newer").await.unwrap();
    let again = complete(&upload, vec![one.clone(), two]);
    let again = f.origin.complete_upload(&k, again).await.unwrap();
    assert_eq!(again.etag.as_deref(), Some(tag));
    assert_eq!(f.get("dir/whole.bin").await.unwrap(), "newer");
    let gone = f
        .origin
        .complete_upload(&k, complete(&upload, vec![one]))
        .await;
    assert!(matches!(gone, Err(OriginError::NoSuchUpload(_))));
    for id in ["../../bucket", "", "zz", &"0".repeat(32)] {
        let error = f.origin.abort_upload(&k, id).await.unwrap_err();
        assert!(matches!(error, OriginError::NoSuchUpload(_)));
    }
    let upload = f
        .origin
        .create_upload(&k, Attributes::default())
        .await
        .unwrap();
    part(&upload, 1, "x").await.unwrap();
    f.origin.abort_upload(&k, &upload).await.unwrap();
    assert!(part(&upload, 1, "x").await.is_err());
    assert_eq!(f.leftovers(), 0);
    let uploads = f.directory.path().join("root/.floe/uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0);
}

/// An upload of one part.
async fn upload(f: &Fixture, k: &ObjectKey, bytes: &str) -> CompleteRequest {
    upload_with(f, k, bytes, Attributes::default()).await
}

async fn upload_with(
    f: &Fixture,
    k: &ObjectKey,
    bytes: &str,
    attributes: Attributes,
) -> CompleteRequest {
    let created = f.origin.create_upload(k, attributes).await;
    let upload = created.unwrap();
    let body: UploadBody = Box::pin(futures::stream::iter([Ok(Bytes::copy_from_slice(
        bytes.as_bytes(),
    ))]));
    let part = PartRequest {
        upload: upload.clone(),
        number: 1,
        length: None,
        body,
        late_headers: LateHeaders::default(),
        turn: None,
    };
    let etag = f.origin.upload_part(k, part).await.unwrap().etag.unwrap();
    complete(&upload, vec![UploadedPart { number: 1, etag }])
}

/// Parts and checksums only describe the bytes, and file systems keep few bytes beside a file.
#[tokio::test]
async fn an_upload_whose_metadata_just_fits_loses_what_describes_its_bytes() {
    let f = fixture();
    let attributes = |bytes: usize| Attributes {
        user: vec![("note".to_owned(), "n".repeat(bytes))],
        ..Attributes::default()
    };
    let put = async |bytes: usize| {
        let request = PutRequest {
            attributes: attributes(bytes),
            ..PutRequest::from_bytes(Bytes::from_static(b"bytes"))
        };
        f.origin.put(&key("a"), request).await.is_ok()
    };
    if !put(1).await || put(60_000).await {
        return eprintln!("skipped: this file system has no limit that matters here");
    }
    let (mut fits, mut too_many) = (1, 60_000);
    while too_many - fits > 1 {
        let middle = usize::midpoint(fits, too_many);
        match put(middle).await {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    // The tag of a part is longer by the number of parts.
    let stored = attributes(fits - 2);
    let mut request = upload_with(&f, &key("b"), "bytes", stored.clone()).await;
    request.headers = vec![("x-amz-checksum-crc32c".to_owned(), "mnG7TA==".to_owned())];
    f.origin.complete_upload(&key("b"), request).await.unwrap();
    let found = f
        .origin
        .head(&key("b"), GetRequest::default())
        .await
        .unwrap();
    assert_eq!(found.attributes.user, stored.user);
    assert!(
        found.attributes.headers.is_empty(),
        "{:?}",
        found.attributes
    );
    assert!(found.content_etag.is_some());
}

#[tokio::test]
async fn a_completion_that_comes_late_does_not_replace_a_later_write() {
    let f = fixture();
    let (k, shared) = (key("a"), &f.origin.shared);
    let late = Change::default();
    let request = upload(&f, &k, "old").await;
    let whole = shared.join_parts(&k, &request, &late).unwrap();
    let first = f.origin.complete_upload(&k, request.clone()).await.unwrap();
    f.put("a", "newer").await.unwrap();
    let again = shared.commit_upload(&k, &request, whole, &late).unwrap();
    assert_eq!(again.etag, first.etag);
    assert_eq!(f.get("a").await.unwrap(), "newer");
    // Its upload was aborted in the meantime.
    let request = upload(&f, &k, "old").await;
    let whole = shared.join_parts(&k, &request, &late).unwrap();
    f.origin.abort_upload(&k, &request.upload).await.unwrap();
    f.put("a", "newest").await.unwrap();
    let error = shared.commit_upload(&k, &request, whole, &late);
    assert!(matches!(error, Err(OriginError::NoSuchUpload(_))));
    assert_eq!(f.get("a").await.unwrap(), "newest");
    assert_eq!(f.leftovers(), 0);
}

#[tokio::test]
async fn completions_of_one_upload_at_once_are_one_write() {
    let f = fixture();
    let k = key("a");
    for round in 0..20 {
        let request = upload(&f, &k, &"x".repeat(1 << 20)).await;
        let one = f.origin.complete_upload(&k, request.clone());
        let other = f.origin.complete_upload(&k, request);
        let (answer, rest) = futures::future::select(one, other).await.factor_first();
        let newer = format!("newer {round}");
        let (rest, put) = futures::join!(rest, f.put("a", &newer));
        put.unwrap();
        assert_eq!(rest.unwrap().etag, answer.unwrap().etag);
        assert_eq!(f.get("a").await.unwrap(), newer);
    }
    assert!(
        f.origin
            .shared
            .staging
            .completions
            .lock("")
            .try_lock()
            .is_ok()
    );
}

#[tokio::test]
async fn a_change_of_a_dropped_request_never_begins() {
    let f = fixture();
    let k = key("a");
    f.put("a", "kept").await.unwrap();
    let request = upload(&f, &k, "lost").await;
    {
        let _turn = f.origin.shared.turn(&k);
        // Each is dropped while it waits for the turn.
        assert!(f.origin.delete(&k).now_or_never().is_none());
        let completed = f.origin.complete_upload(&k, request.clone());
        assert!(completed.now_or_never().is_none());
    }
    // Until their work has ended.
    while Arc::strong_count(&f.origin.shared) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(f.get("a").await.unwrap(), "kept");
    f.origin.complete_upload(&k, request).await.unwrap();
    assert_eq!(f.get("a").await.unwrap(), "lost");
    assert_eq!(f.leftovers(), 0);
}

#[tokio::test]
async fn a_file_that_changes_under_a_reader_is_not_passed_off_as_one_version() {
    let f = fixture();
    let big = "x".repeat(3 * PIECE_BYTES as usize);
    let begin = async || {
        f.put("a", &big).await.unwrap();
        let read = f.origin.get(&key("a"), GetRequest::default()).await;
        let mut read = read.unwrap();
        read.body.next().await.unwrap().unwrap();
        read
    };
    let mut read = begin().await;
    // A rename does not affect the open file.
    f.put("a", "new").await.unwrap();
    assert!(read.body.next().await.unwrap().is_ok());
    assert_eq!(f.get("a").await.unwrap(), "new");
    let mut read = begin().await;
    std::fs::write(f.directory.path().join("root/bucket/a"), &big).unwrap();
    let next = read.body.next().await.unwrap();
    assert!(matches!(next, Err(OriginError::PreconditionFailed)));
}

#[tokio::test]
async fn buckets_are_directories() {
    let f = fixture();
    std::fs::write(f.directory.path().join("root/file"), "no bucket").unwrap();
    let names: Vec<_> = f.origin.list_buckets().await.unwrap();
    assert_eq!(
        names.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(),
        ["bucket"]
    );
    assert!(f.origin.head_bucket("bucket").await.is_ok());
    assert!(f.origin.head_bucket("file").await.is_err());
    assert!(DirectoryOrigin::open(&f.directory.path().join("missing")).is_err());
}

/// A version is confirmed at once while it is the newest. A file that is not there, or in
/// another file system, or reached by a link out of its bucket, is not.
#[tokio::test]
async fn only_the_newest_version_is_confirmed() {
    let f = fixture();
    if !f.origin.shared.is_local {
        eprintln!("SKIPPED: temporary files are on a file system that may ask others");
        return;
    }
    let root = f.directory.path().join("root");
    let confirms = |name: &str, meta: &ObjectMeta| f.origin.confirms(&key(name), meta);
    let head = async |name: &str| {
        f.origin
            .head(&key(name), GetRequest::default())
            .await
            .unwrap()
    };
    f.put("a/b", "one").await.unwrap();
    let first = head("a/b").await;
    assert!(confirms("a/b", &first));
    f.put("a/b", "two").await.unwrap();
    assert!(!confirms("a/b", &first));
    let second = head("a/b").await;
    assert!(confirms("a/b", &second));
    // Changed past Floe, in place.
    std::fs::write(root.join("bucket/a/b"), "six").unwrap();
    assert!(!confirms("a/b", &second));
    f.origin.delete(&key("a/b")).await.unwrap();
    for name in ["a/b", "a", "", "../secret", "nul\0", "a//b"] {
        assert!(!confirms(name, &second), "{name:?}");
    }
    // In the escape area, and then below the bucket.
    f.put("c/d", "file").await.unwrap();
    f.put("c", "old").await.unwrap();
    let old = head("c").await;
    assert!(confirms("c", &old));
    f.origin.delete(&key("c/d")).await.unwrap();
    f.put("c", "new").await.unwrap();
    assert!(!confirms("c", &old) && confirms("c", &head("c").await));
    symlink("../../secret", root.join("bucket/link")).unwrap();
    let secret = std::fs::metadata(root.join("../secret")).unwrap();
    assert!(!confirms("link", &file::stat_meta(&secret)));
    let of_bucket = ObjectKey::new("..", "secret");
    assert!(!f.origin.confirms(&of_bucket, &file::stat_meta(&secret)));
    let version = std::fs::metadata("/proc/version").unwrap();

    symlink("/proc", root.join("processes")).unwrap();
    let processes = ObjectKey::new("processes", "version");
    assert!(!f.origin.confirms(&processes, &file::stat_meta(&version)));
}
