//! The messages of S3 services about changed objects.
//!
//! | message | bucket and key |
//! |---|---|
//! | records of S3 and MinIO | `Records[].s3.bucket.name`, `Records[].s3.object.key` in the encoding of URLs |
//! | EventBridge | `detail.bucket.name`, `detail.object.key` as it is |
//! | SNS | one of these as text, in `Message` |
//!
//! Heartbeats have no objects: nothing, `{}`, S3's test event. Everything else is refused: it
//! may be about a change in a form that is not understood. Must accept any bytes.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Most characters of a URL that an error names.
const URL_CHARACTERS_MAX: usize = 1024;

/// Nesting of messages in messages.
const DEPTH_MAX: usize = 3;

/// Buckets and keys that a message names, with the origin's names of buckets.
///
/// # Errors
/// The bytes are no message about objects; the text says why.
pub(super) fn changed_objects(body: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(found);
    }
    let message = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
    gather(&message, DEPTH_MAX, &mut found)?;
    Ok(found)
}

fn gather(message: &Value, depth: usize, found: &mut Vec<(String, String)>) -> Result<(), String> {
    if depth == 0 {
        return Err("messages are nested too deeply".into());
    }
    if !message.is_object() {
        return Err("the message is no object".into());
    }
    match message["Type"].as_str() {
        Some("Notification") => {
            let text = message["Message"].as_str().unwrap_or_default();
            let inner = serde_json::from_str(text);
            let inner = inner.map_err(|error| format!("`Message` is no JSON: {error}"))?;
            return gather(&inner, depth - 1, found);
        }
        Some("SubscriptionConfirmation") => {
            let url = message["SubscribeURL"].as_str().unwrap_or_default();
            let url: String = url.chars().take(URL_CHARACTERS_MAX).collect();
            return Err(format!(
                "SNS asks for a confirmation: open its SubscribeURL by hand: {url:?}"
            ));
        }
        _ => {}
    }
    if let Some(records) = message.get("Records") {
        let records = records.as_array().ok_or("`Records` is no list")?;
        for record in records {
            let (bucket, key) = named(&record["s3"])?;
            let spaced = key.replace('+', " ");
            if let Ok(decoded) = percent_decode_str(&spaced).decode_utf8() {
                found.push((bucket.clone(), decoded.into_owned()));
            }
            // Some senders do not encode keys.
            found.push((bucket, key));
        }
    } else if message["detail"].get("object").is_some() {
        found.push(named(&message["detail"])?);
    } else if !is_heartbeat(message) {
        return Err("it is neither a notification about objects nor a heartbeat, `{}`".into());
    }
    Ok(())
}

fn is_heartbeat(message: &Value) -> bool {
    let is_empty = message.as_object().is_some_and(serde_json::Map::is_empty);
    is_empty || message["Event"] == "s3:TestEvent"
}

fn named(part: &Value) -> Result<(String, String), String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let bucket = text(&part["bucket"]["name"]);
    let key = text(&part["object"]["key"]);
    bucket
        .zip(key)
        .ok_or_else(|| "a record names no bucket and key".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changed(message: &str) -> Result<Vec<(String, String)>, String> {
        changed_objects(message.as_bytes())
    }

    fn objects(objects: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let owned = |(bucket, key): &(&str, &str)| ((*bucket).to_owned(), (*key).to_owned());
        Ok(objects.iter().map(owned).collect())
    }

    #[test]
    fn messages_of_services_name_their_objects() {
        let minio = r#"{"EventName":"s3:ObjectCreated:Put","Key":"b/a%20b","Records":[
            {"eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":"b","arn":"x"},"object":{"key":"plain"}}},
            {"eventName":"s3:ObjectRemoved:Delete","s3":{"bucket":{"name":"b"},"object":{"key":"a+b%2Fc%C3%A4"}}}]}"#;
        let expected = [
            ("b", "plain"),
            ("b", "plain"),
            ("b", "a b/c\u{e4}"),
            ("b", "a+b%2Fc%C3%A4"),
        ];
        assert_eq!(changed(minio), objects(&expected));
        let bridge = r#"{"detail-type":"Object Created","source":"aws.s3","detail":{"bucket":{"name":"b"},"object":{"key":"a+b%20","size":1}}}"#;
        assert_eq!(changed(bridge), objects(&[("b", "a+b%20")]));
        let sns = serde_json::json!({ "Type": "Notification", "Message": bridge }).to_string();
        assert_eq!(changed(&sns), objects(&[("b", "a+b%20")]));
        let undecodable = r#"{"Records":[{"s3":{"bucket":{"name":"b"},"object":{"key":"%ff"}}}]}"#;
        assert_eq!(changed(undecodable), objects(&[("b", "%ff")]));
        for heartbeat in [
            "",
            " \n",
            "{}",
            r#"{"Service":"Amazon S3","Event":"s3:TestEvent"}"#,
        ] {
            assert_eq!(changed(heartbeat), Ok(Vec::new()));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (wrong, cause) in [
            ("x", "JSON"),
            ("[]", "no object"),
            (r#"{"Records":1}"#, "list"),
            (r#"{"Records":[{}]}"#, "no bucket"),
            (r#"{"records":[]}"#, "neither"),
            (r#"{"detail":{"requestParameters":{"key":"a"}}}"#, "neither"),
            (r#"{"Type":"SubscriptionConfirmation"}"#, "SubscribeURL"),
            (r#"{"Type":"Notification","Message":"x"}"#, "Message"),
        ] {
            let refused = changed(wrong).unwrap_err();
            assert!(refused.contains(cause), "{refused}");
        }
        let mut nested = "{}".to_owned();
        for _ in 0..5 {
            nested = serde_json::json!({ "Type": "Notification", "Message": nested }).to_string();
        }
        assert!(changed(&nested).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = changed_objects(&bytes);
        }
    }
}
