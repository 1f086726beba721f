//! Creates clients of remote stores from the configuration.

use std::sync::Arc;

use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredentialProvider};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::bucket::Bucket;
use super::redirect::Redirects;
use super::service::{Connector, meaning};
use crate::origin::config::OriginConfig;
use crate::origin::error::OriginError;
use crate::origin::kind::OriginKind;

const DEFAULT_REGION: &str = "us-east-1";

/// The client of one bucket.
pub(super) fn bucket(config: &OriginConfig, name: &str) -> object_store::Result<Bucket> {
    Ok(match config.kind {
        OriginKind::Gcs => whole(gcs(config, name).build()?),
        OriginKind::Azure => whole(azure(config, name).build()?),
        OriginKind::Http => {
            let root = config.endpoint.as_deref().unwrap_or_default();
            let url = format!("{}/{name}", root.trim_end_matches('/'));
            let builder = HttpBuilder::new()
                .with_url(url)
                .with_client_options(client_options(config))
                .with_retry(no_retries())
                .with_http_connector(connector(config));
            Bucket {
                objects: Arc::new(builder.build()?),
                lists: None,
                uploads: None,
            }
        }
        // The other kinds are not remote.
        OriginKind::S3 | OriginKind::Directory | OriginKind::Emulated => whole(s3(config, name)?),
    })
}

/// The bucket of a store that can list and take multipart uploads.
fn whole(store: impl ObjectStore + PaginatedListStore + MultipartStore) -> Bucket {
    let store = Arc::new(store);
    Bucket {
        lists: Some(store.clone()),
        uploads: Some(store.clone()),
        objects: store,
    }
}

/// The guard waits and retries, not the client.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn client_options(config: &OriginConfig) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_timeout_disabled()
        .with_read_timeout_disabled()
}

fn connector(config: &OriginConfig) -> Connector {
    let requests = &config.requests;
    Connector {
        redirects: Redirects::new(&config.redirects),
        connect_timeout: requests.connect_timeout(),
        max_idle_per_host: requests.max_concurrent + requests.max_uploads,
    }
}

fn s3(config: &OriginConfig, bucket: &str) -> object_store::Result<AmazonS3> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_region(region(config))
        .with_allow_http(config.allow_http)
        .with_virtual_hosted_style_request(config.virtual_host_style)
        .with_skip_signature(config.anonymous)
        .with_disable_bulk_delete(true)
        .with_client_options(client_options(config))
        .with_retry(no_retries())
        .with_http_connector(connector(config));
    if let Some(endpoint) = &config.endpoint {
        let endpoint = endpoint.trim_end_matches('/');
        builder = builder.with_endpoint(match endpoint.split_once("://") {
            // `object_store` takes the endpoint for the bucket's own.
            Some((scheme, rest)) if config.virtual_host_style => {
                format!("{scheme}://{}", host_of_bucket(rest, bucket))
            }
            _ => endpoint.to_owned(),
        });
    }
    if let Some(key) = &config.access_key {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &config.secret_key {
        builder = builder.with_secret_access_key(secret.reveal());
    }
    if let Some(token) = &config.session_token {
        builder = builder.with_token(token.reveal());
    }
    builder.build()
}

/// The credentials of an S3 origin; `None` for unsigned requests.
pub(super) fn credentials(
    config: &OriginConfig,
) -> object_store::Result<Option<AwsCredentialProvider>> {
    if config.anonymous {
        return Ok(None);
    }
    // The bucket's name does not matter for its credentials.
    let store = s3(config, "bucket")?;
    Ok(Some(Arc::clone(store.credentials())))
}

/// An error of the services that issue credentials.
pub(super) fn credential_error(error: object_store::Error) -> OriginError {
    meaning(error, "credentials")
}

/// The URL of an S3 service.
pub(super) fn endpoint(config: &OriginConfig) -> String {
    match &config.endpoint {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None => std::env::var("AWS_ENDPOINT_URL")
            .unwrap_or_else(|_| format!("https://s3.{}.amazonaws.com", region(config))),
    }
}

/// The host of a bucket below that of its service.
pub(super) fn host_of_bucket(host: &str, bucket: &str) -> String {
    format!("{bucket}.{host}")
}

pub(super) fn region(config: &OriginConfig) -> String {
    config
        .region
        .clone()
        .or_else(|| std::env::var("AWS_REGION").ok())
        .or_else(|| std::env::var("AWS_DEFAULT_REGION").ok())
        .unwrap_or_else(|| DEFAULT_REGION.to_owned())
}

fn gcs(config: &OriginConfig, bucket: &str) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_skip_signature(config.anonymous)
        .with_client_options(client_options(config))
        .with_retry(no_retries())
        .with_http_connector(connector(config));
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(path) = &config.service_account {
        builder = builder.with_service_account_path(path.to_string_lossy());
    }
    builder
}

fn azure(config: &OriginConfig, container: &str) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_allow_http(config.allow_http)
        .with_skip_signature(config.anonymous)
        .with_client_options(client_options(config))
        .with_retry(no_retries())
        .with_http_connector(connector(config));
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if let Some(account) = &config.access_key {
        builder = builder.with_account(account);
    }
    if let Some(key) = &config.secret_key {
        builder = builder.with_access_key(key.reveal());
    }
    builder
}
