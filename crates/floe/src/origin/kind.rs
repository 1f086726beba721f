//! The kinds of origins.

use serde::{Deserialize, Serialize};

/// The kind of origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// Files: `<root>/<bucket>/<key>`.
    #[default]
    Directory,
    /// Amazon S3 and compatible stores.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage; a bucket is a container.
    Azure,
    /// A web server; an object is `<endpoint>/<bucket>/<key>`. Read only.
    Http,
    /// Generated objects with configured latencies; see
    /// [`EmulatedConfig`](super::emulated::EmulatedConfig).
    Emulated,
}

floe_core::parse_by_name!(OriginKind);
