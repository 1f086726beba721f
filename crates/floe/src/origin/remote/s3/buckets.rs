//! The list of buckets.

use std::time::SystemTime;

use futures::TryStreamExt;
use http::{HeaderMap, Method};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::client::{S3Client, Target, body_of};
use crate::origin::error::OriginError;
use crate::origin::types::BucketInfo;

impl S3Client {
    pub(in crate::origin::remote) async fn list_buckets(
        &self,
    ) -> Result<Vec<BucketInfo>, OriginError> {
        let service = Target {
            bucket: None,
            key: None,
            query: None,
        };
        let response = self.read(Method::GET, &service, HeaderMap::new()).await?;
        let body: Vec<_> = body_of(response.into_body()).try_collect().await?;
        parse_buckets(&String::from_utf8_lossy(&body.concat()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListAllMyBucketsResult {
    #[serde(default)]
    buckets: Buckets,
}

#[derive(Default, Deserialize)]
struct Buckets {
    #[serde(default, rename = "Bucket")]
    bucket: Vec<ListedBucket>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedBucket {
    name: String,
    creation_date: Option<String>,
}

fn parse_buckets(document: &str) -> Result<Vec<BucketInfo>, OriginError> {
    let result: ListAllMyBucketsResult = quick_xml::de::from_str(document)
        .map_err(|error| OriginError::Protocol(format!("no list of buckets: {error}")))?;
    let buckets = result.buckets.bucket.into_iter().map(|bucket| BucketInfo {
        created: bucket
            .creation_date
            .and_then(|date| OffsetDateTime::parse(&date, &Rfc3339).ok())
            .map(SystemTime::from),
        name: bucket.name,
    });
    Ok(buckets.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_buckets_are_read() {
        let document = "<ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets>\
            <Bucket><Name>one</Name><CreationDate>2024-01-02T03:04:05.000Z</CreationDate></Bucket>\
            <Bucket><Name>two</Name></Bucket></Buckets></ListAllMyBucketsResult>";
        let buckets = parse_buckets(document).unwrap();
        assert_eq!(buckets.len(), 2);
        assert_eq!(buckets[0].name, "one");
        assert!(buckets[0].created.is_some() && buckets[1].created.is_none());
        assert!(parse_buckets("<html>").is_err());
    }
}
