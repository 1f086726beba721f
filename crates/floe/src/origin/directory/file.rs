//! Metadata of an object, read from its file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::origin::error::OriginError;
use crate::origin::parts::PartSizes;
use crate::origin::types::{Attributes, ObjectMeta};
use crate::origin::uploads::OF_CHECKSUMS;

/// The extended attribute that holds headers, as JSON.
const XATTR: &str = "user.floe.attributes";
/// Linux limits extended attributes to 64 KiB; most file systems to less.
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Most of a set modification time that a file system may drop. A coarser one could give a later
/// write of another program the same time.
const TIME_DROPPED_MAX: Duration = Duration::from_micros(1);

/// True for headers that hold only of the bytes with which they were stored.
fn is_of_bytes(name: &str) -> bool {
    name.starts_with(OF_CHECKSUMS) || name == PartSizes::HEADER
}

/// The content of the extended attribute.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    #[serde(flatten)]
    attributes: Attributes,
    /// The entity tag of the bytes, as in S3.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// The entity tag of [`stat_meta`] with which `etag` and checksums are true.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<String>,
}

impl Stored {
    fn drop_what_bytes_imply(&mut self) {
        (self.etag, self.stamp) = (None, None);
        let headers = &mut self.attributes.headers;
        headers.retain(|(name, _)| !is_of_bytes(name));
    }
}

/// True if a file system kept a modification time that was set.
fn is_precise(set: SystemTime, kept: Option<SystemTime>) -> bool {
    let dropped = kept.and_then(|kept| set.duration_since(kept).ok());
    dropped.is_some_and(|dropped| dropped < TIME_DROPPED_MAX)
}

/// Reads an object's metadata from its open file.
pub(super) fn meta(file: &File, key: &str) -> Result<ObjectMeta, OriginError> {
    let mut meta = content_meta(file)?;
    let kind = &mut meta.attributes.content_type;
    if kind.is_none() {
        *kind = content_type(key).map(str::to_owned);
    }
    Ok(meta)
}

/// As [`meta`], without the type that the key's ending implies.
pub(super) fn content_meta(file: &File) -> Result<ObjectMeta, OriginError> {
    let meta = stat_meta(&file.metadata()?);
    let mut stored = read_stored(file);
    if stored.stamp.is_none() || stored.stamp != meta.etag {
        // Another program has written to the file since.
        stored.drop_what_bytes_imply();
    }
    Ok(ObjectMeta {
        content_etag: stored.etag,
        attributes: stored.attributes,
        ..meta
    })
}

/// Size, entity tag and modification time. The tag contains the size, the
/// modification time in nanoseconds and the inode. A write through Floe creates
/// a new file with its own modification time; a write past it changes at least
/// the time.
pub(super) fn stat_meta(metadata: &std::fs::Metadata) -> ObjectMeta {
    etag_meta(
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ino(),
    )
}

/// As [`stat_meta`], of a file that is not open.
pub(super) fn raw_stat_meta(stat: &rustix::fs::Stat) -> ObjectMeta {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    etag_meta(size, stat.st_mtime, nanoseconds, stat.st_ino)
}

fn etag_meta(size: u64, mtime_s: i64, mtime_ns: i64, inode: u64) -> ObjectMeta {
    let whole = Duration::from_secs(mtime_s.unsigned_abs());
    let base = match mtime_s < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let nanoseconds = Duration::from_nanos(u64::try_from(mtime_ns).unwrap_or(0));
    ObjectMeta {
        size,
        // Clients send tags of letters, digits and hyphens without quotes, too.
        etag: Some(format!("\"{size:x}-{mtime_s:x}-{mtime_ns:x}-{inode:x}\"")),
        last_modified: base.and_then(|base| base.checked_add(nanoseconds)),
        ..ObjectMeta::default()
    }
}

fn read_stored(file: &File) -> Stored {
    // Most values are short, so that one call reads them.
    let mut buffer = vec![0; 512];
    let read = loop {
        match rustix::fs::fgetxattr(file, XATTR, &mut buffer[..]) {
            Ok(read) => break read,
            Err(Errno::RANGE) if buffer.len() < XATTR_BYTES_MAX => {
                buffer = vec![0; XATTR_BYTES_MAX];
            }
            Err(_) => return Stored::default(),
        }
    };
    // Another program's attribute of this name is ignored.
    serde_json::from_slice(&buffer[..read]).unwrap_or_default()
}

/// Stores headers and the entity tag of the bytes as an extended attribute. The file must have
/// its last bytes and `stamped`, the time of its [`stamp`]. On a file system with coarse times,
/// tag and checksums are not stored, since they could outlive a write of another program. On one
/// without such attributes, a content type and what the bytes imply are dropped, and other
/// headers are an error.
pub(super) fn write_attributes(
    file: &File,
    key: &str,
    attributes: &Attributes,
    etag: Option<String>,
    stamped: SystemTime,
) -> Result<(), OriginError> {
    let found = stat_meta(&file.metadata()?);
    let mut stored = Stored {
        attributes: attributes.clone(),
        stamp: found.etag,
        etag,
    };
    if !is_precise(stamped, found.last_modified) {
        stored.drop_what_bytes_imply();
    }
    let too_much = [Errno::NOSPC, Errno::TOOBIG, Errno::RANGE];
    let mut written = set(file, &stored)?;
    if written.1.is_err_and(|error| too_much.contains(&error)) {
        // Parts and checksums only describe the bytes: the upload matters more.
        let headers = &mut stored.attributes.headers;
        headers.retain(|(name, _)| !is_of_bytes(name));
        written = set(file, &stored)?;
    }
    let (json_bytes, written) = written;
    match written {
        Ok(()) => Ok(()),
        Err(Errno::NOTSUP) if is_implied(attributes) => Ok(()),
        Err(Errno::NOTSUP) => Err(OriginError::Unsupported(format!(
            "store the headers of {key:?}: its file system has no extended attributes"
        ))),
        Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => Err(OriginError::Rejected {
            status: 400,
            message: format!(
                "the {json_bytes} bytes of metadata of {key:?} are more than the origin's file \
                 system takes"
            ),
        }),
        Err(other) => Err(std::io::Error::from(other).into()),
    }
}

/// Sets the extended attribute. Returns its bytes, and how that went.
fn set(file: &File, stored: &Stored) -> Result<(usize, Result<(), Errno>), OriginError> {
    let json =
        serde_json::to_vec(stored).map_err(|error| OriginError::BadUpload(error.to_string()))?;
    let written = rustix::fs::fsetxattr(file, XATTR, &json, XattrFlags::empty());
    Ok((json.len(), written))
}

/// True if the key and the bytes imply all headers.
fn is_implied(attributes: &Attributes) -> bool {
    let implied = Attributes {
        content_type: attributes.content_type.clone(),
        storage_class: attributes.storage_class.clone(),
        headers: attributes.headers.clone(),
        ..Attributes::default()
    };
    let mut headers = attributes.headers.iter();
    *attributes == implied && headers.all(|(name, _)| is_of_bytes(name))
}

/// Sets a file's modification time in nanoseconds. The kernel's own timestamps
/// advance in milliseconds, so two writes could share one.
pub(super) fn stamp(file: &File) -> Result<SystemTime, OriginError> {
    let now = SystemTime::now();
    file.set_modified(now)?;
    Ok(now)
}

fn content_type(key: &str) -> Option<&'static str> {
    let (_, extension) = key.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "toml" => "application/toml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "zst" => "application/zstd",
        "tar" => "application/x-tar",
        "wasm" => "application/wasm",
        "parquet" => "application/vnd.apache.parquet",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "svg" => "image/svg+xml",
        "ico" => "image/vnd.microsoft.icon",
        "mp3" => "audio/mpeg",
        "flac" => "audio/flac",
        "ogg" => "audio/ogg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_time_is_not_precise() {
        let at = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let set = at(7_123_456_789);
        assert!(is_precise(set, Some(set)));
        assert!(is_precise(set, Some(at(7_123_456_700))));
        for kept in [7_123_000_000, 7_000_000_000, 8_000_000_000] {
            assert!(!is_precise(set, Some(at(kept))));
        }
        assert!(!is_precise(set, None));
    }
}
