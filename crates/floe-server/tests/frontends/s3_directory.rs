//! S3 in front of a directory.

use floe::OriginConfig;

use crate::origins::rig_over;
use crate::support::Rig;

struct Fixture {
    rig: Rig,
    root: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let rig = rig_over(&OriginConfig::directory(root.path())).await;
    Fixture { rig, root }
}

/// As documented in docs/operations.md.
#[tokio::test]
async fn keys_that_are_no_paths_are_objects() {
    let Fixture { rig, root } = fixture().await;
    let keys = [
        "%2e%2e", "a", "a/", "a//b", "a/../b", "a/b", "a/b/", "%01", "%2e/a", "/lead",
    ];
    for key in keys {
        let path = format!("/bucket/{key}");
        let put = rig.send("PUT", &path, &[], key).await;
        assert_eq!(put.status, 200, "{key}: {}", put.text());
    }
    for key in keys {
        let path = format!("/bucket/{key}");
        for result in ["miss", "hit"] {
            let got = rig.get(&path, &[]).await;
            assert_eq!((got.text(), got.header("x-floe-cache")), (key, result));
        }
    }
    let listed = rig.get("/bucket?list-type=2&encoding-type=url", &[]).await;
    let expected = [
        "%01", "..", "./a", "/lead", "a", "a/", "a/../b", "a//b", "a/b", "a/b/",
    ];
    assert_eq!(listed.tags("Key"), expected, "{}", listed.text());
    let folded = rig.get("/bucket?prefix=a/&delimiter=/", &[]).await;
    assert_eq!(folded.tags("Key"), ["a/", "a/b"]);
    assert_eq!(folded.tags("Prefix"), ["a/", "a/../", "a//", "a/b/"]);
    for key in keys {
        let path = format!("/bucket/{key}");
        assert_eq!(rig.send("DELETE", &path, &[], "").await.status, 204);
        assert_eq!(rig.get(&path, &[]).await.code(), "NoSuchKey", "{key}");
    }
    let deleted = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    assert!(!root.path().join("bucket").exists());
}

#[tokio::test]
async fn a_bucket_with_an_object_stays() {
    let Fixture { rig, root } = fixture().await;
    rig.send("PUT", "/bucket/folder/", &[], "").await;
    let deleted = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!((deleted.status, deleted.code()), (409, "BucketNotEmpty"));
    let versions = rig.get("/bucket?versions", &[]).await;
    assert_eq!(versions.tags("Key"), ["folder/"], "{}", versions.text());
    assert_eq!(versions.tags("VersionId"), ["null"]);
    let deleted = rig.send("DELETE", "/bucket/folder/?versionId=null", &[], "");
    assert_eq!(deleted.await.status, 204);
    assert!(root.path().join("bucket").exists());
    assert_eq!(rig.send("DELETE", "/bucket", &[], "").await.status, 204);
    let gone = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!((gone.status, gone.code()), (404, "NoSuchBucket"));
}

#[tokio::test]
async fn versions_are_listed_in_pages() {
    let Fixture { rig, root: _root } = fixture().await;
    for key in ["a", "b/1", "b/2", "c"] {
        rig.send("PUT", &format!("/bucket/{key}"), &[], "x").await;
    }
    let page = rig
        .get("/bucket?versions&max-keys=2&delimiter=/", &[])
        .await;
    assert_eq!(page.tags("Key"), ["a"]);
    assert_eq!(page.tags("NextKeyMarker"), ["b/"], "{}", page.text());
    let next = "/bucket?versions&delimiter=/&key-marker=b/&version-id-marker=null";
    let page = rig.get(next, &[]).await;
    assert_eq!(
        (page.tags("Key"), page.tags("IsTruncated")),
        (vec!["c"], vec!["false"])
    );
}
