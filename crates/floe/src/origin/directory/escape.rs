//! The escape area: files of keys that cannot be paths below their bucket.
//!
//! Such keys end in a slash, have `//`, `.` or `..` as a part, a part longer than a file name,
//! NUL, or a file or a directory of another key in their way. Their files are at
//! `<root>/.floe/keys/<bucket>/<path>`, where the path has one or more names for each part of
//! the key:
//!
//! ```text
//! +part    a part before a slash: a directory
//! =part    the part after the last slash, perhaps empty: a file
//! ~piece   the first 80 bytes of a part of 80 or more: a directory with the rest of the part
//! ```
//!
//! ASCII letters, digits, `-`, `_` and `.` stand for themselves, every other byte is `%` and two
//! upper-case hexadecimal digits. Each key has one path, and names in the order of
//! [`Name::order`] are in the order of their keys.
//!
//! **Invariant.** The path below the bucket wins: a write there removes the file here afterwards,
//! and a delete removes the file here first. So after a crash the file that is read is the newest
//! one, or the one before it.

use std::os::fd::OwnedFd;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::path::{invalid, objection, open_beneath};
use crate::origin::error::OriginError;

/// Bytes of the longest key, as in S3. Encoded, it is shorter than a path may be.
const KEY_BYTES_MAX: usize = 1024;

/// Bytes of a part in one name: encoded they are at most 240, and a name has 255.
const PIECE_BYTES: usize = 80;

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Rejects a key that neither place can have.
pub(super) fn require_possible(key: &str) -> Result<(), OriginError> {
    if key.is_empty() {
        return Err(invalid(key, "it is empty"));
    }
    match objection(key) {
        Some(reason) if key.len() > KEY_BYTES_MAX => Err(invalid(
            key,
            format!("{reason}, and it is longer than {KEY_BYTES_MAX} bytes"),
        )),
        _ => Ok(()),
    }
}

/// The path of a key in its bucket's part of the area; `None` for a key that it cannot have.
pub(super) fn path(key: &str) -> Option<String> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return None;
    }
    let mut path = String::with_capacity(3 * key.len());
    let mut parts = key.split('/').peekable();
    while let Some(part) = parts.next() {
        let mut rest = part.as_bytes();
        while let Some((piece, behind)) = rest.split_at_checked(PIECE_BYTES) {
            push(&mut path, '~', piece);
            path.push('/');
            rest = behind;
        }
        let is_last = parts.peek().is_none();
        push(&mut path, if is_last { '=' } else { '+' }, rest);
        if !is_last {
            path.push('/');
        }
    }
    Some(path)
}

fn push(path: &mut String, kind: char, piece: &[u8]) {
    path.push(kind);
    path.extend(percent_encode(piece, ESCAPED));
}

/// A name in the area.
pub(super) struct Name {
    /// The bytes of the key that it stands for, with the slash after a whole part.
    pub(super) order: Vec<u8>,
    pub(super) is_directory: bool,
}

impl Name {
    /// Reads a name. Other programs' names are `None`.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (kind, encoded) = (name.chars().next()?, name.get(1..)?);
        let mut order: Vec<u8> = percent_decode_str(encoded).collect();
        let is_whole = match kind {
            '+' | '=' => order.len() < PIECE_BYTES,
            '~' => order.len() == PIECE_BYTES,
            _ => return None,
        };
        // Only one name stands for these bytes.
        let is_canonical = percent_encode(&order, ESCAPED).to_string() == encoded;
        if !is_whole || !is_canonical || order.contains(&b'/') {
            return None;
        }
        if kind == '+' {
            order.push(b'/');
        }
        Some(Name {
            order,
            is_directory: kind != '=',
        })
    }
}

/// The directory of all buckets' parts of the area.
pub(super) struct Area {
    keys: OwnedFd,
}

impl Area {
    /// Opens `.floe/keys` in `floe`, and creates it.
    pub(super) fn open(floe: &Path) -> std::io::Result<Self> {
        let path = floe.join("keys");
        std::fs::create_dir_all(&path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let keys = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Area { keys })
    }

    pub(super) fn keys(&self) -> &OwnedFd {
        &self.keys
    }

    /// Opens a bucket's part, if it has one.
    pub(super) fn bucket(&self, name: &str) -> Result<Option<OwnedFd>, Errno> {
        match open_beneath(&self.keys, name, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(bucket) => Ok(Some(bucket)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a bucket's part, and creates it.
    pub(super) fn make_bucket(&self, name: &str) -> Result<OwnedFd, Errno> {
        match rustix::fs::mkdirat(&self.keys, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        self.bucket(name)?.ok_or(Errno::NOENT)
    }

    /// Removes a bucket's part, which must be empty.
    pub(super) fn remove_bucket(&self, name: &str) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.keys, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Puts away what a bucket left that another program removed or renamed: its objects must not
    /// come back with a new bucket of that name. They stay on disk, since the program may have kept
    /// the rest.
    pub(super) fn put_away(&self, name: &str) -> Result<(), Errno> {
        // No bucket has a name with a dot in front.
        let away = format!(".{:032x}", rand::random::<u128>());
        match rustix::fs::renameat(&self.keys, name, &self.keys, &away) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a key back from its path, and the order of each name.
    fn decoded(path: &str) -> Vec<Vec<u8>> {
        path.split('/')
            .map(|name| Name::of(name).unwrap().order)
            .collect()
    }

    proptest! {
        #[test]
        fn a_path_has_the_order_of_its_key(one in ".{1,200}", other in ".{1,200}", shared in "[a-c/.é]{0,90}") {
            let (one, other) = (format!("{shared}{one}"), format!("{shared}{other}"));
            let paths = (path(&one).unwrap(), path(&other).unwrap());
            prop_assert!(paths.0.split('/').all(|name| name.len() <= 255));
            prop_assert_eq!(decoded(&paths.0).concat(), one.as_bytes());
            // Directories sort by their names, one level after the other.
            prop_assert_eq!(decoded(&paths.0).cmp(&decoded(&paths.1)), one.as_bytes().cmp(other.as_bytes()));
        }

        #[test]
        fn any_name_is_read_or_ignored(name in ".{0,30}") {
            if let Some(found) = Name::of(&name) {
                prop_assert!(!found.order.is_empty() || name == "=");
            }
        }
    }

    #[test]
    fn the_longest_keys_have_paths() {
        for key in ["é".repeat(512), "/".repeat(1024), "\0".repeat(1024)] {
            assert!(path(&key).unwrap().len() < 4000, "{key:?}");
        }
        assert!(path(&"a".repeat(1025)).is_none());
        assert_eq!(path("a//\u{7f}é/").unwrap(), "+a/+/+%7F%C3%A9/=");
        for name in ["", "x", "=a/", "=%2f", "=%41", "=%2F", "~short", "=é"] {
            assert!(Name::of(name).is_none(), "{name:?}");
        }
    }
}
