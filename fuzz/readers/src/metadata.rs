//! The metadata records of objects. A record has one encoding: encoding a decoded
//! record gives the same bytes.

use std::time::{Duration, UNIX_EPOCH};

use floe::object::{Attributes, MetadataRecord, ObjectMeta, RecordedObject};

pub(crate) fn object_metadata(data: &[u8]) {
    if let Ok(record) = MetadataRecord::decode(data) {
        let written = record.encode();
        assert_eq!(&written[..], data, "{record:?}");
        assert_eq!(MetadataRecord::decode(&written), Ok(record));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let full = ObjectMeta {
        size: 1 << 40,
        etag: Some("\"an entity tag\"".into()),
        content_etag: Some("\"another\"".into()),
        last_modified: UNIX_EPOCH.checked_add(Duration::new(1_700_000_000, 123_456_789)),
        attributes: Attributes {
            content_type: Some("text/plain".into()),
            content_encoding: Some("zstd".into()),
            content_language: Some("eo".into()),
            content_disposition: Some("attachment".into()),
            cache_control: Some("no-cache".into()),
            storage_class: Some(String::new()),
            user: vec![("a".into(), "1".into()), ("b".into(), "é".into())],
            headers: vec![("expires".into(), "never".into())],
        },
    };
    let ancient = ObjectMeta {
        last_modified: UNIX_EPOCH.checked_sub(Duration::from_millis(1500)),
        ..ObjectMeta::default()
    };
    let object = |meta, instance| Some(RecordedObject { meta, instance });
    [
        None,
        object(ObjectMeta::default(), u128::MAX),
        object(ancient, 0),
        object(full, 0),
    ]
    .map(|object| MetadataRecord {
        validated_unix_s: 1_700_000_000,
        purge: 3,
        session: 4,
        object,
    })
    .map(|record| record.encode().to_vec())
    .to_vec()
}
