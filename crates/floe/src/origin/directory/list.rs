//! Lists the files of a bucket in the byte order of their keys.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::bucket::Bucket;
use super::escape;
use super::file::{content_meta, raw_stat_meta};
use super::path::{FILE, open_beneath};
use crate::origin::error::OriginError;
use crate::origin::page::Pager;
use crate::origin::types::{ListPage, ListRequest, ListedObject};

/// Entries of a directory in memory at first. One with more is read again for those that follow,
/// twice as many each time, up to [`ENTRIES_MAX`].
const ENTRIES: usize = if cfg!(test) { 3 } else { 4096 };

const ENTRIES_MAX: usize = ENTRIES * 16;

/// Lists one page. Only directories that may contain keys of the page are read.
pub(super) fn list(bucket: &Bucket<'_>, request: &ListRequest) -> Result<ListPage, OriginError> {
    let mut pager = Pager::new(request)?;
    if request.max_keys > 0 {
        let escaped = bucket.escaped().map_err(std::io::Error::from)?;
        let mut files = Walk::new(Some(&bucket.files), Tree::Files);
        let mut escaped = Walk::new(escaped.as_ref(), Tree::Escaped);
        let (mut file, mut other) = (files.next(&pager)?, escaped.next(&pager)?);
        while !pager.is_full() {
            let is_file_next = match (&file, &other) {
                (Some(file), Some(other)) => file.key <= other.key,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let (walk, next) = match is_file_next {
                true => (&mut files, &mut file),
                false => (&mut escaped, &mut other),
            };
            // The page may have listed or folded it since the walk found it: a file below the
            // bucket wins over that of its key in the escape area.
            if let Some(object) = next.take()
                && pager.wants_key(&object.key)
            {
                pager.offer(object);
            }
            *next = walk.next(&pager)?;
        }
    }
    Ok(pager.into_page())
}

/// How a directory's names stand for keys.
#[derive(Clone, Copy, PartialEq)]
enum Tree {
    Files,
    Escaped,
}

/// Visits the objects of one place in the order of their keys.
struct Walk<'a> {
    root: Option<&'a OwnedFd>,
    tree: Tree,
    frames: Vec<Frame>,
}

/// A directory that is being visited.
struct Frame {
    path: String,
    /// The beginning of its keys. In the escape area it may end within a character.
    key: Vec<u8>,
    entries: Entries,
    /// Of the innermost directory only, so that deep keys do not use up descriptors.
    opened: Option<OwnedFd>,
}

/// The next entries of a directory, in the order of their keys, with their names.
struct Entries {
    found: BTreeMap<Place, String>,
    most: usize,
    /// There were more.
    is_cut: bool,
    /// The last one that was visited.
    last: Option<Place>,
}

/// The place of an entry among the others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The bytes that it adds to a key; a directory's end in a slash, because its keys sort there.
    order: Vec<u8>,
    is_directory: bool,
}

impl<'a> Walk<'a> {
    /// Visits nothing without a root.
    fn new(root: Option<&'a OwnedFd>, tree: Tree) -> Self {
        Walk {
            root,
            tree,
            frames: Vec::new(),
        }
    }

    /// The next object that the page may want.
    fn next(&mut self, pager: &Pager<'_>) -> Result<Option<ListedObject>, OriginError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        if self.frames.is_empty() {
            self.enter(root, String::new(), Vec::new(), pager)?;
        }
        while let Some(frame) = self.frames.last_mut() {
            let Some((place, name)) = frame.entries.found.pop_first() else {
                let opened = match frame.entries.is_cut {
                    true => open_directory(root, &frame.path)?,
                    false => None,
                };
                match opened {
                    Some(opened) => {
                        let path = (&*frame.path, &*frame.key);
                        frame.entries.read(root, path, &opened, self.tree, pager)?;
                    }
                    None => drop(self.frames.pop()),
                }
                continue;
            };
            let key = [&frame.key[..], &place.order].concat();
            let is_directory = place.is_directory;
            frame.entries.last = Some(place);
            let path = join(&frame.path, &name);
            if is_directory {
                if pager.wants_below(&key) {
                    frame.opened = None;
                    self.enter(root, path, key, pager)?;
                }
                continue;
            }
            // Always UTF-8: the page wanted it.
            let Ok(key) = String::from_utf8(key) else {
                continue;
            };
            if !pager.wants_key(&key) {
                continue;
            }
            if frame.opened.is_none() {
                frame.opened = open_directory(root, &frame.path)?;
            }
            if let Some(directory) = &frame.opened
                && let Some(object) = object(root, directory, &name, &path, key)?
            {
                return Ok(Some(object));
            }
        }
        self.root = None;
        Ok(None)
    }

    fn enter(
        &mut self,
        root: &OwnedFd,
        path: String,
        key: Vec<u8>,
        pager: &Pager<'_>,
    ) -> Result<(), OriginError> {
        let Some(opened) = open_directory(root, &path)? else {
            return Ok(());
        };
        let mut entries = Entries {
            found: BTreeMap::new(),
            most: ENTRIES,
            is_cut: false,
            last: None,
        };
        entries.read(root, (&path, &key), &opened, self.tree, pager)?;
        self.frames.push(Frame {
            path,
            key,
            entries,
            opened: Some(opened),
        });
        Ok(())
    }
}

/// `None` for a directory that another program removed or keeps to itself.
fn open_directory(root: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, OriginError> {
    let path = if path.is_empty() { "." } else { path };
    match open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => missing(errno),
    }
}

/// `None` for an error that says that a file is gone, or that its link leads nowhere. Any other
/// is one of the listing: a client that copies a bucket would delete what a listing leaves out.
fn missing<T>(errno: Errno) -> Result<Option<T>, OriginError> {
    match errno {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::XDEV
        | Errno::LOOP
        | Errno::NXIO
        | Errno::NAMETOOLONG => Ok(None),
        errno => Err(std::io::Error::from(errno).into()),
    }
}

impl Entries {
    /// Reads the entries that follow the last one, and that the page may want. A name that is not
    /// UTF-8 cannot be a key.
    fn read(
        &mut self,
        root: &OwnedFd,
        (path, key): (&str, &[u8]),
        directory: &OwnedFd,
        tree: Tree,
        pager: &Pager<'_>,
    ) -> Result<(), OriginError> {
        if std::mem::take(&mut self.is_cut) {
            self.most = (self.most * 2).min(ENTRIES_MAX);
        }
        for entry in Dir::read_from(directory).map_err(std::io::Error::from)? {
            let entry = entry.map_err(std::io::Error::from)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                // The target of a link is looked up last, since that takes a system call.
                FileType::RegularFile | FileType::Symlink | FileType::Unknown => false,
                _ => continue,
            };
            let order = match (tree, is_directory) {
                (Tree::Files, true) => format!("{name}/").into_bytes(),
                (Tree::Files, false) => name.as_bytes().to_vec(),
                (Tree::Escaped, _) => match escape::Name::of(name) {
                    Some(found) if found.is_directory == is_directory => found.order,
                    _ => continue,
                },
            };
            let key = [key, &order].concat();
            let is_wanted = match is_directory {
                true => pager.wants_below(&key),
                false => str::from_utf8(&key).is_ok_and(|key| pager.wants_key(key)),
            };
            let place = Place {
                order,
                is_directory,
            };
            if !is_wanted || self.last.as_ref().is_some_and(|last| place <= *last) {
                continue;
            }
            let is_sure = is_directory || entry.file_type() == FileType::RegularFile;
            if !is_sure && !is_file(root, &join(path, name))? {
                continue;
            }
            self.found.insert(place, name.to_owned());
            if self.found.len() > self.most {
                self.found.pop_last();
                self.is_cut = true;
            }
        }
        Ok(())
    }
}

/// True for a regular file, and a symbolic link to one. Links to directories are not followed,
/// since they could form a cycle.
fn is_file(root: &OwnedFd, path: &str) -> Result<bool, OriginError> {
    let target = match open_beneath(root, path, OFlags::PATH) {
        Ok(target) => target,
        // The path of its target has a directory of another user.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        Err(errno) => return Ok(missing::<()>(errno)?.is_some()),
    };
    let stat = rustix::fs::fstat(&target).map_err(std::io::Error::from)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn object(
    root: &OwnedFd,
    directory: &OwnedFd,
    name: &str,
    path: &str,
    key: String,
) -> Result<Option<ListedObject>, OriginError> {
    let flags = FILE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => open_beneath(root, path, FILE),
        result => result,
    };
    let meta = match opened {
        Ok(file) => content_meta(&File::from(file))?,
        // Its tag is that of its stamp, as long as it cannot be read, or has another's lease.
        Err(Errno::ACCESS | Errno::PERM | Errno::AGAIN) => {
            match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => raw_stat_meta(&stat),
                Err(errno) => return missing(errno),
            }
        }
        Err(errno) => return missing(errno),
    };
    Ok(Some(ListedObject {
        key,
        size: meta.size,
        etag: meta.client_etag().map(str::to_owned),
        last_modified: meta.last_modified,
    }))
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_file_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        let listed = |name: &str| object(&root, &root, name, name, name.to_owned());
        assert!(listed("gone").unwrap().is_none());
        std::fs::write(directory.path().join("a"), "1").unwrap();
        assert_eq!(listed("a").unwrap().unwrap().size, 1);
        std::os::unix::fs::symlink("loop", directory.path().join("loop")).unwrap();
        assert!(listed("loop").unwrap().is_none());
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::IO,
            Errno::STALE,
        ] {
            assert!(missing::<()>(errno).is_err(), "{errno}");
        }
    }
}
