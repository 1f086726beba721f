//! The messages: a line of JSON each, a reply for each request.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use floe::config::VolumeSettings;
use floe::object::Purge;
use floe::volume::{DirtyData, Mode, Resized, ScrubReport, Usage, VolumeStatus};
use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

/// Most bytes of a request, its end of line included.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a reply that a client reads.
const REPLY_BYTES_MAX: u64 = 4 << 20;

/// A command to the running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Reports a volume, or all of them.
    Status {
        /// Its name.
        name: Option<String>,
    },
    /// Writes the dirty data of a volume, or of all of them, to the backing devices.
    Flush {
        /// Its name.
        name: Option<String>,
    },
    /// Changes the cache mode of a volume.
    Mode {
        /// Its name.
        name: String,
        /// The mode.
        mode: Mode,
    },
    /// Reads the data of all blocks of the cache, until it has or the client leaves.
    Scrub {
        /// Bytes a second at most; 0 does not limit it.
        rate: ByteSize,
    },
    /// Gives a volume, or the cache, another size: that of its device by now, or `size`.
    Resize {
        /// The name of the volume; none for the cache.
        name: Option<String>,
        /// Its bytes.
        size: Option<ByteSize>,
        /// Data past the new end of the volume may be lost.
        allow_loss: bool,
    },
    /// Attaches a volume, and exports it.
    Attach {
        /// Its name.
        name: String,
        /// How to open and to cache it. A path of a backing device is absolute.
        settings: Box<VolumeSettings>,
    },
    /// Purges sets of objects: nothing that is cached of them is used again.
    Purge {
        /// The sets.
        sets: Vec<Purge>,
    },
    /// Lists a page of the origin's objects, with what is cached of each.
    Cached {
        /// Their bucket.
        bucket: String,
        /// A prefix of their keys.
        prefix: String,
        /// Only keys after this one, in byte order.
        after: Option<String>,
        /// Most objects; the server has a limit of its own.
        most: usize,
    },
    /// Fetches what is not cached of objects, for about a second.
    Warm {
        /// Their bucket.
        bucket: String,
        /// The objects.
        objects: Vec<WarmObject>,
        /// Stop after this many bytes.
        most_bytes: u64,
    },
    /// Detaches a volume, and disconnects its clients.
    Detach {
        /// Its name.
        name: String,
        /// The fate of its dirty data.
        dirty: DirtyData,
    },
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The volumes that the request was about, as they are now.
    Volumes(Vec<VolumeReport>),
    /// The cache was scrubbed.
    Scrubbed(ScrubReport),
    /// A volume, or the blocks of the cache, had and has this size.
    Resized(Resized),
    /// So many sets of objects were purged.
    Purged {
        /// The sets.
        sets: u64,
    },
    /// A page of objects.
    Cached {
        /// The objects, in byte order of their keys.
        objects: Vec<CachedObject>,
        /// There is no further page.
        is_last: bool,
    },
    /// The objects of the request, as far as they were warmed.
    Warmed(Vec<WarmedObject>),
    /// The request failed.
    Failed {
        /// The request cannot be carried out as it is; otherwise a device failed.
        is_usage: bool,
        /// The cause.
        message: String,
    },
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

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its state.
    #[serde(flatten)]
    pub status: VolumeStatus,
    /// Its requests since it was attached, and its blocks.
    pub usage: Usage,
}

/// Sends `request` to the server that listens at `path`, and waits for its reply.
///
/// # Errors
/// No server listens there, or it went away; its reply is no reply.
pub fn call(path: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reply = Vec::new();
    let mut reader = BufReader::new(stream.take(REPLY_BYTES_MAX));
    reader.read_until(b'\n', &mut reply)?;
    if reply.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&reply)?)
}
