//! The messages: a line of JSON each, a reply for each request.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use floe::config::VolumeSettings;
use floe::object::{Pin, Purge};
use floe::volume::{DirtyData, Mode, Resized, ScrubReport, Usage, VolumeStatus};
use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::commands::Failed;
pub use crate::commands::{CachedObject, CachedState, WarmObject, WarmedObject};

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
    /// Keeps objects in the cache.
    Pin {
        /// Their bucket.
        bucket: String,
        /// A prefix of their keys.
        prefix: String,
        /// Most bytes; without it, the limit of all pins.
        cap: Option<ByteSize>,
    },
    /// Removes a pin.
    Unpin {
        /// Its bucket.
        bucket: String,
        /// Its prefix.
        prefix: String,
    },
    /// Lists the pins.
    Pins,
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
    /// Pins: the one that was set, or all.
    Pins(Vec<Pin>),
    /// A pin was removed, or there was none.
    Unpinned {
        /// There was one.
        was_pinned: bool,
    },
    /// The request failed.
    Failed {
        /// The request cannot be carried out as it is; otherwise a device failed.
        is_usage: bool,
        /// The cause.
        message: String,
    },
}

impl From<Failed> for Reply {
    fn from(failed: Failed) -> Self {
        let Failed { is_usage, message } = failed;
        Reply::Failed { is_usage, message }
    }
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
