//! The kinds of origins.

use serde::{Deserialize, Serialize};

/// Which kind of store the origin is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// Files: `<root>/<bucket>/<key>`.
    #[default]
    Directory,
    /// Amazon S3 and whatever speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage; a bucket is a container.
    Azure,
    /// A web server; an object is `<endpoint>/<bucket>/<key>`. Read only.
    Http,
    /// Made-up objects with chosen latencies; see [`EmulatedConfig`](super::emulated::EmulatedConfig).
    Emulated,
}

floe_core::parse_by_name!(OriginKind);
