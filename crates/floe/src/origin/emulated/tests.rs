use futures::StreamExt;
use proptest::prelude::*;

use super::*;
use crate::origin::{Origin, OriginConfig, RequestConfig};
use floe_core::ByteSize;

fn key() -> ObjectKey {
    ObjectKey::new("bucket", "some/key")
}

async fn read(origin: &Origin, range: Option<Range<u64>>) -> Result<Vec<u8>, OriginError> {
    let request = GetRequest {
        range,
        ..GetRequest::default()
    };
    let mut body = origin.get(&key(), request).await?.body;
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

fn open(config: EmulatedConfig) -> Origin {
    let mut config = OriginConfig::emulated(config);
    config.requests = RequestConfig {
        max_attempts: 1,
        ..RequestConfig::default()
    };
    Origin::open(&config, Clock::real()).unwrap()
}

proptest! {
    #[test]
    fn any_piece_is_the_same_piece_of_the_whole(offset in 0u64..5000, len in 0usize..3000, seed: u64) {
        let content = Content::new(seed, &key(), 3);
        let mut whole = vec![0; 8000];
        content.fill(0, &mut whole);
        let mut piece = vec![0; len];
        content.fill(offset, &mut piece);
        prop_assert_eq!(&piece[..], &whole[offset as usize..offset as usize + len]);
        prop_assert_eq!(content.mismatch(offset, &piece), None);
        if len > 0 {
            piece[len - 1] ^= 1;
            prop_assert_eq!(content.mismatch(offset, &piece), Some(offset + len as u64 - 1));
        }
    }
}

#[tokio::test]
async fn ranges_are_clipped_and_verify() {
    let origin = open(EmulatedConfig {
        seed: 9,
        size: SizeRule::Fixed {
            bytes: ByteSize(10_000),
        },
        piece_size: ByteSize(512),
        ..EmulatedConfig::default()
    });
    let whole = read(&origin, None).await.unwrap();
    assert_eq!(whole.len(), 10_000);
    verify(9, &key(), 0, &whole).unwrap();
    let end = read(&origin, Some(9_990..20_000)).await.unwrap();
    verify(9, &key(), 9_990, &end).unwrap();
    assert_eq!(end.len(), 10);
    assert!(matches!(
        read(&origin, Some(10_000..10_001)).await,
        Err(OriginError::RangeNotSatisfiable { size: Some(10_000) })
    ));
}

#[tokio::test]
async fn faults_are_of_the_configured_kind() {
    let failing = open(EmulatedConfig {
        error_rate: 1.0,
        ..EmulatedConfig::default()
    });
    assert!(matches!(
        read(&failing, None).await,
        Err(OriginError::Server { status: 503, .. })
    ));
    let cutting = open(EmulatedConfig {
        short_body_rate: 1.0,
        ..EmulatedConfig::default()
    });
    assert!(matches!(
        read(&cutting, None).await,
        Err(OriginError::ShortBody { .. })
    ));
}

#[tokio::test]
async fn a_change_gives_another_etag_and_other_bytes() {
    let emulated = EmulatedOrigin::new(EmulatedConfig::default(), Clock::real()).unwrap();
    let request = GetRequest::default();
    let before = emulated.head(&key(), request.clone()).await.unwrap();
    let (content, size) = emulated.content(&key()).unwrap();
    emulated.change(&key()).unwrap();
    let after = emulated.head(&key(), request).await.unwrap();
    assert_ne!(before.etag, after.etag);
    assert_ne!((content, size), emulated.content(&key()).unwrap());
    let conditional = GetRequest {
        if_match: before.etag,
        ..GetRequest::default()
    };
    assert!(matches!(
        emulated.get(&key(), conditional).await,
        Err(OriginError::PreconditionFailed)
    ));
}

#[tokio::test]
async fn writes_set_the_size_and_deletes_remove() {
    let emulated = EmulatedOrigin::new(EmulatedConfig::default(), Clock::real()).unwrap();
    let put = PutRequest::from_bytes(Bytes::from_static(b"12345"));
    emulated.put(&key(), put).await.unwrap();
    assert_eq!(emulated.content(&key()).unwrap().1, 5);
    emulated.delete(&key()).await.unwrap();
    assert!(matches!(
        emulated.head(&key(), GetRequest::default()).await,
        Err(OriginError::NotFound(_))
    ));
}

#[test]
fn sizes_follow_their_rules() {
    let from_key = Sizes::new(
        &SizeRule::FromKey {
            otherwise: ByteSize(7),
        },
        0,
    )
    .unwrap();
    assert_eq!(
        from_key.of(&ObjectKey::new("b", "photo-17-4096")),
        Some(4096)
    );
    assert_eq!(from_key.of(&ObjectKey::new("b", "photo")), Some(7));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "key,bytes\na,10\nb/c,20\n").unwrap();
    let rule = |otherwise| SizeRule::Table {
        path: file.path().to_owned(),
        otherwise,
    };
    let table = Sizes::new(&rule(None), 0).unwrap();
    assert_eq!(table.of(&ObjectKey::new("x", "a")), Some(10));
    assert_eq!(table.of(&ObjectKey::new("b", "c")), Some(20));
    assert_eq!(table.of(&ObjectKey::new("b", "d")), None);
    std::fs::write(file.path(), "a,ten\n").unwrap();
    assert!(Sizes::new(&rule(None), 0).is_err());
}
