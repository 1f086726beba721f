//! Whatever a request asks for is honoured or refused, never dropped.

use crate::support::rig;

/// An entry with a condition is answered with an error, and its object stays.
#[tokio::test]
async fn a_conditional_entry_of_a_batch_deletes_nothing() {
    let rig = rig().await;
    let conditions = [
        "<ETag>\"another\"</ETag>",
        "<ETag>*</ETag>",
        "<Size>999</Size>",
        "<LastModifiedTime>Wed, 21 Oct 2015 07:28:00 GMT</LastModifiedTime>",
        "<VersionId>7</VersionId>",
    ];
    let mut entries = String::from("<Object><Key>plain</Key></Object>");
    for (i, condition) in conditions.iter().enumerate() {
        rig.origin.store("bucket", &format!("key-{i}"), "bytes");
        entries += &format!("<Object><Key>key-{i}</Key>{condition}</Object>");
    }
    rig.origin.store("bucket", "plain", "bytes");
    let body = format!("<Delete>{entries}</Delete>");
    let answer = rig.send("POST", "/bucket?delete", &[], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(rig.origin.bytes("bucket", "plain"), None);
    for (i, condition) in conditions.iter().enumerate() {
        let key = format!("key-{i}");
        assert!(rig.origin.bytes("bucket", &key).is_some(), "{condition}");
    }
    assert_eq!(
        answer.tags("Error").len(),
        conditions.len(),
        "{}",
        answer.text()
    );
    assert_eq!(answer.tags("Deleted").len(), 1, "{}", answer.text());
}
