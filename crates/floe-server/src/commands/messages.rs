//! The objects that commands list and warm, as JSON has them.

use floe::object::{ObjectError, PinError};
use floe::origin::OriginError;
use serde::{Deserialize, Serialize};

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The command cannot be carried out as it is; otherwise a device or the origin failed.
    pub(crate) is_usage: bool,
    /// The cause.
    pub(crate) message: String,
}

impl From<ObjectError> for Failed {
    fn from(error: ObjectError) -> Self {
        Failed {
            is_usage: matches!(error, ObjectError::Origin(OriginError::NoSuchBucket(_))),
            message: error.to_string(),
        }
    }
}

impl From<PinError> for Failed {
    fn from(error: PinError) -> Self {
        Failed {
            is_usage: !matches!(error, PinError::Save { .. }),
            message: error.to_string(),
        }
    }
}

/// An object of the origin, and what is cached of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedObject {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Bytes of the cached version that are in the cache.
    pub cached_bytes: u64,
    /// How much is cached.
    pub state: CachedState,
    /// When the origin confirmed the cached version, seconds since 1970.
    pub validated_unix_s: Option<u64>,
}

/// How much of an object is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachedState {
    /// No byte, or nothing that can be found without the origin.
    None,
    /// Some of its bytes.
    Part,
    /// All of its bytes.
    Whole,
    /// Another version than the origin lists.
    Stale,
}

/// An object to warm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmObject {
    /// Its key.
    pub key: String,
    /// The byte to begin with.
    pub position: u64,
    /// The entity tag of the version whose bytes before it are warm.
    pub etag: Option<String>,
}

/// An object that a request warmed, or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmedObject {
    /// Its key.
    pub key: String,
    /// The first byte that is left.
    pub position: u64,
    /// The version's entity tag.
    pub etag: Option<String>,
    /// Bytes that this request fetched.
    pub fetched_bytes: u64,
    /// Nothing is left.
    pub is_done: bool,
    /// Why it cannot be warmed.
    pub error: Option<String>,
}
