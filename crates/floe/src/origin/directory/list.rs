//! Lists the files of a bucket in the byte order of their keys.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, OFlags};

use super::file::etag_meta;
use super::path::open_beneath;
use crate::origin::error::OriginError;
use crate::origin::types::{ListPage, ListRequest, ListedObject};

/// Lists one page. Only directories that may contain keys of the page are read.
pub(super) fn list(bucket: &OwnedFd, request: &ListRequest) -> Result<ListPage, OriginError> {
    let mut pager = Pager::new(request)?;
    if request.max_keys > 0 {
        walk(bucket, "", &mut pager)?;
    }
    Ok(pager.page)
}

struct Pager<'a> {
    request: &'a ListRequest,
    /// The page has only keys after this one.
    after: String,
    /// The last common prefix of the page before; keys below it are skipped.
    folded: Option<String>,
    page: ListPage,
    full: bool,
}

impl<'a> Pager<'a> {
    /// A continuation is `k` and the last key, or `p` and the last common prefix.
    fn new(request: &'a ListRequest) -> Result<Self, OriginError> {
        let mut after = request.start_after.clone().unwrap_or_default();
        let mut folded = None;
        if let Some(continuation) = &request.continuation {
            if let Some(prefix) = continuation.strip_prefix('p') {
                folded = Some(prefix.to_owned());
                after = after.max(prefix.to_owned());
            } else if let Some(key) = continuation.strip_prefix('k') {
                after = after.max(key.to_owned());
            } else {
                return Err(OriginError::Rejected {
                    status: 400,
                    message: "the continuation token is not one of this origin's".into(),
                });
            }
        }
        Ok(Pager {
            request,
            after,
            folded,
            page: ListPage::default(),
            full: false,
        })
    }

    /// True if the page may have keys below `path`.
    fn wants_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let prefix = &self.request.prefix;
        (below.starts_with(prefix.as_str()) || prefix.starts_with(&below))
            && (below > self.after || self.after.starts_with(&below))
            && !self.is_folded(&below)
    }

    fn wants_key(&self, key: &str) -> bool {
        key.starts_with(&self.request.prefix) && key > self.after.as_str() && !self.is_folded(key)
    }

    fn is_folded(&self, path: &str) -> bool {
        self.folded
            .as_ref()
            .is_some_and(|folded| path.starts_with(folded))
    }

    fn offer(&mut self, object: ListedObject) {
        if self.page.objects.len() + self.page.common_prefixes.len() == self.request.max_keys {
            self.full = true;
            self.page.next = Some(self.continuation());
            return;
        }
        match self.common_prefix(&object.key) {
            Some(prefix) => {
                self.folded = Some(prefix.clone());
                self.page.common_prefixes.push(prefix);
            }
            None => {
                self.after.clone_from(&object.key);
                self.page.objects.push(object);
            }
        }
    }

    fn common_prefix(&self, key: &str) -> Option<String> {
        let delimiter = self
            .request
            .delimiter
            .as_deref()
            .filter(|d| !d.is_empty())?;
        let behind = key.get(self.request.prefix.len()..)?;
        let end = self.request.prefix.len() + behind.find(delimiter)? + delimiter.len();
        key.get(..end).map(str::to_owned)
    }

    /// Keys and prefixes are in order, so the greater of the two is the last.
    fn continuation(&self) -> String {
        let key = self.page.objects.last().map(|object| object.key.as_str());
        match (key, self.page.common_prefixes.last()) {
            (Some(key), Some(prefix)) if key < prefix.as_str() => format!("p{prefix}"),
            (None, Some(prefix)) => format!("p{prefix}"),
            (key, _) => format!("k{}", key.unwrap_or_default()),
        }
    }
}

struct Entry {
    /// The name; a directory's ends in a slash, because its keys sort there.
    name: String,
    is_directory: bool,
}

fn walk(bucket: &OwnedFd, path: &str, pager: &mut Pager<'_>) -> Result<(), OriginError> {
    let own = if path.is_empty() { "." } else { path };
    let Ok(directory) = open_beneath(bucket, own, OFlags::RDONLY | OFlags::DIRECTORY) else {
        // Removed since the parent was read, or not accessible.
        return Ok(());
    };
    for entry in entries(bucket, path, &directory)? {
        if pager.full {
            return Ok(());
        }
        let name = entry.name.trim_end_matches('/');
        let key = join(path, name);
        if entry.is_directory {
            if pager.wants_directory(&key) {
                walk(bucket, &key, pager)?;
            }
        } else if pager.wants_key(&key)
            && let Some(object) = object(bucket, &directory, name, &key)
        {
            pager.offer(object);
        }
    }
    Ok(())
}

/// A directory's entries in the order of keys. A name that is not UTF-8 cannot be a key.
fn entries(bucket: &OwnedFd, path: &str, directory: &OwnedFd) -> Result<Vec<Entry>, OriginError> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory).map_err(std::io::Error::from)? {
        let entry = entry.map_err(std::io::Error::from)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Symlink | FileType::Unknown => target_type(bucket, &join(path, name)),
            known => Some(known),
        };
        match kind {
            Some(FileType::Directory) => entries.push(Entry {
                name: format!("{name}/"),
                is_directory: true,
            }),
            Some(FileType::RegularFile) => entries.push(Entry {
                name: name.to_owned(),
                is_directory: false,
            }),
            _ => {}
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The type of a symbolic link's target. Links to directories are not followed,
/// since they could form a cycle.
fn target_type(bucket: &OwnedFd, key: &str) -> Option<FileType> {
    let target = open_beneath(bucket, key, OFlags::PATH).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&target).ok()?.st_mode);
    (kind == FileType::RegularFile).then_some(kind)
}

fn object(bucket: &OwnedFd, directory: &OwnedFd, name: &str, key: &str) -> Option<ListedObject> {
    let mut stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        let target = open_beneath(bucket, key, OFlags::PATH).ok()?;
        stat = rustix::fs::fstat(&target).ok()?;
    }
    let size = u64::try_from(stat.st_size).ok()?;
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).ok()?;
    let meta = etag_meta(size, stat.st_mtime, nanoseconds, stat.st_ino);
    Some(ListedObject {
        key: key.to_owned(),
        size,
        etag: meta.etag,
        last_modified: meta.last_modified,
    })
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}
