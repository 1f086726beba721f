//! Queues of SQS, in its JSON protocol
//! (docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-json.html).

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use object_store::aws::AwsCredentialProvider;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::client::{body_of, unanswered};
use super::pools::{HttpClient, HttpClientBuilder};
use super::sign::{Scope, Signer};
use crate::origin::config::OriginConfig;
use crate::origin::error::OriginError;
use crate::origin::hexadecimal;
use crate::origin::queue::{MessageQueue, QueueMessage};
use crate::origin::remote::open;

const X_AMZ_TARGET: HeaderName = HeaderName::from_static("x-amz-target");

/// Seconds that the queue may wait for messages, the most that SQS has.
const WAIT_SECONDS: u32 = 20;

/// Messages of one response, the most that SQS has.
const MESSAGES: u32 = 10;

/// Most bytes of a response. Notifications take about a kilobyte.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

pub(in crate::origin::remote) struct SqsQueue {
    http: HttpClient,
    /// `None` sends requests unsigned.
    credentials: Option<AwsCredentialProvider>,
    url: String,
    endpoint: Uri,
    region: String,
}

impl SqsQueue {
    /// The queue at `url`, with the credentials of an origin.
    ///
    /// # Errors
    /// The text is no URL of such a queue.
    pub(in crate::origin::remote) fn open(
        config: &OriginConfig,
        url: &str,
    ) -> Result<Self, OriginError> {
        let wrong = |reason: String| OriginError::Protocol(reason);
        let form = "the URL of a queue is https://sqs.REGION.amazonaws.com/ACCOUNT/NAME";
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| wrong(format!("{form}: {error}")))?;
        let mut parts = uri.clone().into_parts();
        let path = parts.path_and_query.take();
        let has_name = path.is_some_and(|path| !path.path().trim_matches('/').is_empty());
        let (Some(authority), Some(scheme), true) = (&parts.authority, &parts.scheme, has_name)
        else {
            return Err(wrong(form.into()));
        };
        if authority.as_str().contains('@') {
            return Err(wrong(format!("{form}, without a user")));
        }
        if scheme != "https" && !(scheme == "http" && config.allow_http) {
            return Err(wrong(format!("{form}; http needs origin.allow_http")));
        }
        // Messages to such a queue need a group, and S3 sends none.
        if uri.path().ends_with(".fifo") {
            return Err(wrong("S3 sends no notifications to FIFO queues".into()));
        }
        let region = region_of(authority.host()).map(str::to_owned);
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Ok(SqsQueue {
            http: HttpClientBuilder::new(config, &uri).map_err(wrong)?.build(),
            credentials: open::credentials(config).map_err(open::credential_error)?,
            url: url.to_owned(),
            endpoint: Uri::from_parts(parts).map_err(|error| wrong(error.to_string()))?,
            region: region.unwrap_or_else(|| open::region(config)),
        })
    }

    async fn call(&self, action: &str, mut request: Value) -> Result<Value, OriginError> {
        request["QueueUrl"] = json!(self.url);
        let body = Bytes::from(request.to_string());
        let headers = self.headers(action, &body).await?;
        let body = Full::new(body).map_err(|never| match never {});
        let mut request = Request::new(body.boxed_unsync());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = headers;
        let response = self.http.request(request).await.map_err(unanswered)?;
        let status = response.status();
        let mut pieces = body_of(response.into_body());
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > RESPONSE_BYTES_MAX {
                let problem = format!("{action}: the response is too long");
                return Err(OriginError::Protocol(problem));
            }
        }
        if status.is_success() {
            return serde_json::from_slice(&bytes)
                .map_err(|error| OriginError::Protocol(format!("{action}: {error}")));
        }
        let refusal: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let field = |name: &str| refusal[name].as_str().unwrap_or_default().to_owned();
        let (kind, message) = (field("__type"), field("message") + &field("Message"));
        let reason = format!("{action}: {status} {kind} {message}");
        let is_denial = |part| kind.contains(part);
        Err(match status.as_u16() {
            401 | 403 => OriginError::AccessDenied(reason),
            400 if ["Access", "Signature", "Token", "Client"]
                .into_iter()
                .any(is_denial) =>
            {
                OriginError::AccessDenied(reason)
            }
            500.. => OriginError::Unreachable(reason),
            _ => OriginError::Protocol(reason),
        })
    }

    /// The signed headers of a request.
    async fn headers(&self, action: &str, body: &[u8]) -> Result<HeaderMap, OriginError> {
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|error| OriginError::Protocol(error.to_string()))
        };
        let host = self
            .endpoint
            .authority()
            .map_or("", |authority| authority.as_str());
        let mut headers = HeaderMap::from_iter([
            (HOST, value(host)?),
            (X_AMZ_TARGET, value(&format!("AmazonSQS.{action}"))?),
            (CONTENT_TYPE, value("application/x-amz-json-1.0")?),
        ]);
        if let Some(credentials) = &self.credentials {
            let credential = credentials.get_credential().await;
            let signer = Signer {
                credential: &*credential.map_err(open::credential_error)?,
                scope: Scope {
                    service: "sqs",
                    region: &self.region,
                },
                now: SystemTime::now(),
            };
            let hash = hexadecimal::encode(&Sha256::digest(body));
            signer.sign(&Method::POST, &self.endpoint, &mut headers, &hash)?;
        }
        Ok(headers)
    }
}

#[async_trait]
impl MessageQueue for SqsQueue {
    async fn receive(&self) -> Result<Vec<QueueMessage>, OriginError> {
        let request = json!({
            "MaxNumberOfMessages": MESSAGES,
            "WaitTimeSeconds": WAIT_SECONDS,
            "AttributeNames": ["SentTimestamp"],
        });
        let response = self.call("ReceiveMessage", request).await?;
        let messages = response["Messages"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let message = |value: &Value| {
            let field = |name: &str| value[name].as_str().map(str::to_owned);
            let sent = value["Attributes"]["SentTimestamp"].as_str();
            Some(QueueMessage {
                body: field("Body")?,
                receipt: field("ReceiptHandle")?,
                sent_unix_ms: sent.and_then(|text| text.parse().ok()),
            })
        };
        let message = |value| {
            message(value).ok_or_else(|| {
                OriginError::Protocol("ReceiveMessage: a message without a body".into())
            })
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
    let is_region = |label: &&str| {
        let mut parts = label.split('-').rev();
        let number = parts.next().is_some_and(|part| part.parse::<u8>().is_ok());
        number
            && label.contains('-')
            && parts.all(|part| part.bytes().all(|b| b.is_ascii_lowercase()))
    };
    let mut labels = host.split('.');
    let region = labels.find(is_region)?;
    let is_named = host
        .split('.')
        .any(|label| matches!(label, "sqs" | "sqs-fips" | "queue"));
    is_named.then_some(region)
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
            ("sqs.eu-west-1.api.aws", Some("eu-west-1")),
            (
                "vpce-0a1b-c2.sqs.eu-west-1.vpce.amazonaws.com",
                Some("eu-west-1"),
            ),
            ("sqs.local.example.org", None),
            ("queue.amazonaws.com", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
    }
    #[test]
    fn urls_that_are_of_no_usable_queue_are_refused() {
        let mut config = OriginConfig {
            region: Some("eu-south-1".into()),
            anonymous: true,
            ..OriginConfig::default()
        };
        for (url, cause) in [
            ("queue", "https://sqs.REGION"),
            ("https://sqs.eu-central-1.amazonaws.com/", "ACCOUNT/NAME"),
            ("https://me:word@127.0.0.1/1/q", "without a user"),
            ("http://127.0.0.1/1/q", "origin.allow_http"),
            ("ftp://127.0.0.1/1/q", "origin.allow_http"),
            ("https://sqs.eu-central-1.amazonaws.com/1/q.fifo", "FIFO"),
        ] {
            let refused = SqsQueue::open(&config, url).err().unwrap().to_string();
            assert!(
                refused.contains(cause) && !refused.contains("word"),
                "{refused}"
            );
        }
        config.allow_http = true;
        let queue = SqsQueue::open(&config, "http://127.0.0.1:9324/1/q").unwrap();
        assert_eq!(queue.region, "eu-south-1");
        assert_eq!(queue.endpoint, "http://127.0.0.1:9324/");
    }
}
