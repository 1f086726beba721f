//! Queues of SQS, in its JSON protocol
//! (docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-json.html).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::client::{S3Client, SignedBy, body_of};
use super::sign::Scope;
use crate::origin::error::OriginError;
use crate::origin::hexadecimal;
use crate::origin::queue::{MessageQueue, QueueMessage};

const X_AMZ_TARGET: HeaderName = HeaderName::from_static("x-amz-target");

/// Seconds that the queue may wait for messages, the most that SQS has.
const WAIT_SECONDS: u32 = 20;

/// Messages of one response, the most that SQS has.
const MESSAGES: u32 = 10;

/// Most bytes of a response: those of ten messages, of 1 MiB together, as JSON.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

pub(in crate::origin::remote) struct SqsQueue {
    client: Arc<S3Client>,
    /// Its name to SQS.
    url: String,
    endpoint: Uri,
    region: String,
}

impl SqsQueue {
    /// The queue at `url`, with the credentials of the client.
    ///
    /// # Errors
    /// The text is no URL of a queue.
    pub(in crate::origin::remote) fn new(
        client: &Arc<S3Client>,
        url: &str,
    ) -> Result<Self, OriginError> {
        let wrong = |reason: String| OriginError::Protocol(format!("{url}: {reason}"));
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| wrong(error.to_string()))?;
        let mut parts = uri.into_parts();
        let path = parts.path_and_query.take();
        let has_name = path.is_some_and(|path| path.path().trim_matches('/').len() > 1);
        let (Some(authority), Some(_), true) = (&parts.authority, &parts.scheme, has_name) else {
            return Err(wrong(
                "the URL of a queue is https://sqs.REGION.amazonaws.com/ACCOUNT/NAME".into(),
            ));
        };
        let region = region_of(authority.host()).unwrap_or(client.region());
        let region = region.to_owned();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        Ok(SqsQueue {
            client: Arc::clone(client),
            url: url.to_owned(),
            endpoint: Uri::from_parts(parts).map_err(|error| wrong(error.to_string()))?,
            region,
        })
    }

    async fn call(&self, action: &str, mut request: Value) -> Result<Value, OriginError> {
        request["QueueUrl"] = json!(self.url);
        let body = Bytes::from(request.to_string());
        let hash = hexadecimal::encode(&Sha256::digest(&body));
        let target = HeaderValue::try_from(format!("AmazonSQS.{action}"))
            .map_err(|error| OriginError::Protocol(error.to_string()))?;
        let headers = HeaderMap::from_iter([
            (X_AMZ_TARGET, target),
            (
                CONTENT_TYPE,
                HeaderValue::from_static("application/x-amz-json-1.0"),
            ),
        ]);
        let request = (Method::POST, self.endpoint.clone(), headers);
        let body = Full::new(body).map_err(|never| match never {});
        let scope = Scope {
            service: "sqs",
            region: &self.region,
        };
        let response = self
            .client
            .send_in(
                scope,
                request,
                &hash,
                body.boxed_unsync(),
                SignedBy::Settings,
            )
            .await?;
        let status = response.status();
        let mut pieces = body_of(response.into_body());
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > RESPONSE_BYTES_MAX {
                return Err(OriginError::Protocol(format!(
                    "{action}: a response too long"
                )));
            }
        }
        if status.is_success() {
            return serde_json::from_slice(&bytes)
                .map_err(|error| OriginError::Protocol(format!("{action}: {error}")));
        }
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let reason = format!("{action}: {status} {} {}", text("__type"), text("message"));
        Err(match status.as_u16() {
            401 | 403 => OriginError::AccessDenied(reason),
            500.. => OriginError::Unreachable(reason),
            _ => OriginError::Protocol(reason),
        })
    }
}

#[async_trait]
impl MessageQueue for SqsQueue {
    async fn receive(&self) -> Result<Vec<QueueMessage>, OriginError> {
        let request = json!({ "MaxNumberOfMessages": MESSAGES, "WaitTimeSeconds": WAIT_SECONDS });
        let response = self.call("ReceiveMessage", request).await?;
        let messages = response["Messages"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let message = |value: &Value| {
            let text = |name: &str| value[name].as_str().map(str::to_owned);
            let parts = text("Body").zip(text("ReceiptHandle"));
            let (body, receipt) = parts.ok_or_else(|| {
                OriginError::Protocol("ReceiveMessage: a message without a body".into())
            })?;
            Ok(QueueMessage { body, receipt })
        };
        messages.iter().map(message).collect()
    }

    async fn delete(&self, messages: &[QueueMessage]) -> Result<(), OriginError> {
        for messages in messages.chunks(MESSAGES as usize) {
            let entry = |(number, message): (usize, &QueueMessage)| json!({ "Id": number.to_string(), "ReceiptHandle": message.receipt });
            let entries: Vec<Value> = messages.iter().enumerate().map(entry).collect();
            let request = json!({ "Entries": entries });
            let response = self.call("DeleteMessageBatch", request).await?;
            if let Some(failed) = response["Failed"].as_array().and_then(|all| all.first()) {
                return Err(OriginError::Protocol(format!(
                    "DeleteMessageBatch: {failed}"
                )));
            }
        }
        Ok(())
    }

    async fn send(&self, body: &str) -> Result<(), OriginError> {
        let request = json!({ "MessageBody": body });
        self.call("SendMessage", request).await.map(drop)
    }
}

/// The region in the host name of a queue of AWS.
fn region_of(host: &str) -> Option<&str> {
    let (name, domain) = host.split_once(".amazonaws.com")?;
    let is_aws = domain.is_empty() || domain == ".cn";
    let mut labels = name.split('.').filter(|_| is_aws);
    match (labels.next()?, labels.next()?, labels.next()) {
        ("sqs" | "sqs-fips", region, None) | (region, "queue", None) => Some(region),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_queue_names_its_region() {
        for (host, region) in [
            ("sqs.eu-central-1.amazonaws.com", Some("eu-central-1")),
            (
                "sqs-fips.us-gov-west-1.amazonaws.com",
                Some("us-gov-west-1"),
            ),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("us-west-2.queue.amazonaws.com", Some("us-west-2")),
            ("sqs.eu-central-1.amazonaws.com.example.org", None),
            ("queue.amazonaws.com", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
    }
}
