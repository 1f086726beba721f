//! The names of the objects in cache-only buckets: an ordered table in a file of its own.
//!
//! The index of the store keeps hashes, so it can neither list names nor tell which version of
//! an object is the newest. This table does both. A thread makes changes, as many at once as
//! wait for it, and answers when the file has them durably. Reads take a snapshot and wait for
//! no change.
//!
//! A row whose chunks are no longer in the store stands for nothing. Each change also looks at
//! some rows in turn and removes such ones, so the table stays in proportion to the cache.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::commit::{Change, Committer, Removed, Request};
use super::error::{FORMAT, NamesError};
use super::row::Row;
use super::tables::{
    COMPLETED, COUNTERS, IsGone, NAMES, ORDER, PARTS, SIZES, UPLOADS, beginning, decoded, failed,
    part_key, table_key,
};
use crate::origin::page::Pager;
use crate::origin::{ListPage, ListRequest, ObjectKey, OriginError, UploadInfo};

/// Bytes of the file's pages in memory.
const PAGES_BYTES: usize = 32 << 20;

/// Most changes that wait for the thread; callers of further ones wait.
const CHANGES_WAITING_MAX: usize = 1024;

/// Most transactions whose removed rows wait.
const REMOVALS_WAITING_MAX: usize = 16;

/// Most rows that a page of a listing looks at, beyond those that it lists.
const PASSED_OVER_MAX: usize = 10_000;

/// The table of names.
pub(super) struct Names {
    database: Arc<Database>,
    /// `None` once it is dropped.
    changes: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    is_gone: Arc<IsGone>,
}

impl Drop for Names {
    /// Waits for the last change, so that the file can be opened again.
    fn drop(&mut self) {
        self.changes = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    /// Opens the table in the file at `path`, or one in memory. The receiver gets the rows that
    /// stand for nothing any more, as many as it takes.
    ///
    /// # Errors
    /// The file is damaged, of another program, or in use.
    pub(super) fn open(
        path: Option<&Path>,
        capacity_of: Box<dyn Fn(&str) -> u64 + Send>,
        is_gone: Arc<IsGone>,
    ) -> Result<(Names, mpsc::Receiver<Removed>), NamesError> {
        let mut builder = Database::builder();
        builder
            .set_cache_size(PAGES_BYTES)
            // Otherwise pages of a damaged file would be believed, and may panic.
            .set_check_integrity_on_open(true);
        let database = match path {
            Some(path) => builder.create(path),
            None => builder.create_with_backend(redb::backends::InMemoryBackend::new()),
        };
        let database = Arc::new(database.map_err(redb::Error::from)?);
        prepare(&database)?;
        let (changes, waiting) = mpsc::channel(CHANGES_WAITING_MAX);
        let (removed, receiver) = mpsc::channel(REMOVALS_WAITING_MAX);
        let committer = Committer {
            database: Arc::clone(&database),
            capacity_of,
            is_gone: Arc::clone(&is_gone),
            removed,
            swept: None,
            over: Default::default(),
        };
        let thread = std::thread::Builder::new()
            .name("floe-names".into())
            .spawn(move || committer.run(waiting))
            .map_err(NamesError::Io)?;
        let names = Names {
            database,
            changes: Some(changes),
            thread: Some(thread),
            is_gone,
        };
        Ok((names, receiver))
    }

    /// True for a row that stands for nothing.
    pub(super) fn is_gone(&self, name: &ObjectKey, row: &Row) -> bool {
        (self.is_gone)(name, row)
    }

    /// Makes a change. When it returns, the change is durable.
    pub(super) async fn change(&self, change: Change) -> Result<(), OriginError> {
        let stopped = || failed("its thread has stopped");
        let (sender, answer) = oneshot::channel();
        let request = Request {
            change,
            answer: sender,
        };
        let changes = self.changes.as_ref().ok_or_else(stopped)?;
        changes.send(request).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Makes a change of no consequence to its caller, unless too many wait.
    pub(super) fn change_later(&self, change: Change) {
        let (answer, _) = oneshot::channel();
        if let Some(changes) = &self.changes {
            let _ = changes.try_send(Request { change, answer });
        }
    }

    /// The row of an object.
    pub(super) fn find(&self, name: &ObjectKey) -> Result<Option<Row>, OriginError> {
        let key = table_key(name);
        let find = || -> Result<Option<Row>, redb::Error> {
            let names = self.database.begin_read()?.open_table(NAMES)?;
            Ok(names
                .get(key.as_slice())?
                .and_then(|row| decoded(&key, row.value())))
        };
        find().map_err(failed)
    }

    /// Lists a page of a bucket.
    pub(super) fn page(
        &self,
        bucket: &str,
        request: &ListRequest,
    ) -> Result<ListPage, OriginError> {
        let mut pager = Pager::new(request)?;
        if request.max_keys > 0 {
            self.fill(bucket, &request.prefix, &mut pager)?;
        }
        Ok(pager.into_page())
    }

    fn fill(&self, bucket: &str, prefix: &str, pager: &mut Pager<'_>) -> Result<(), OriginError> {
        let names = self.database.begin_read().map_err(failed)?;
        let names = names.open_table(NAMES).map_err(failed)?;
        let first = prefix.max(pager.after());
        let mut from = beginning(bucket, first.as_bytes());
        let end = after_all(beginning(bucket, prefix.as_bytes()));
        let mut passed_over = 0;
        while from < end {
            let rows = names
                .range(from.as_slice()..end.as_slice())
                .map_err(failed)?;
            let mut folded = None;
            for row in rows {
                let (key, row) = row.map_err(failed)?;
                let Some(name) = named(key.value()) else {
                    continue;
                };
                let is_below = |folded: &&str| name.key().starts_with(*folded);
                if let Some(prefix) = pager.folded().filter(is_below) {
                    folded = Some(after_all(beginning(bucket, prefix.as_bytes())));
                    break;
                }
                if !pager.wants_key(name.key()) {
                    continue;
                }
                let Some(row) = decoded(key.value(), row.value()) else {
                    continue;
                };
                match (self.is_gone)(&name, &row) {
                    false => pager.offer(row.listed(name.key())),
                    true => {
                        passed_over += 1;
                        let number = row.number;
                        if passed_over == PASSED_OVER_MAX {
                            pager.end_after(name.key());
                        }
                        self.change_later(Change::Forget { name, number });
                    }
                }
                if pager.is_full() {
                    return Ok(());
                }
            }
            match folded {
                // All keys below a common prefix are passed over at once.
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Objects of a bucket and their bytes, those among them that are gone unnoticed.
    pub(super) fn size(&self, bucket: &str) -> Result<(u64, u64), OriginError> {
        let size = || -> Result<(u64, u64), redb::Error> {
            let sizes = self.database.begin_read()?.open_table(SIZES)?;
            Ok(sizes
                .get(bucket)?
                .map(|size| size.value())
                .unwrap_or_default())
        };
        size().map_err(failed)
    }

    /// The JSON of an upload, pending or completed.
    pub(super) fn upload(
        &self,
        table: TableDefinition<'_, &'static str, &'static [u8]>,
        upload: &str,
    ) -> Result<Option<Vec<u8>>, OriginError> {
        let find = || -> Result<_, redb::Error> {
            let uploads = self.database.begin_read()?.open_table(table)?;
            Ok(uploads.get(upload)?.map(|json| json.value().to_vec()))
        };
        find().map_err(failed)
    }

    /// The parts of an upload, in the order of their numbers.
    pub(super) fn parts(&self, upload: &str) -> Result<Vec<(u32, Row)>, OriginError> {
        let find = || -> Result<_, redb::Error> {
            let parts = self.database.begin_read()?.open_table(PARTS)?;
            let mut found = Vec::new();
            for part in parts.range((upload, 0)..=(upload, u32::MAX))? {
                let (at, row) = part?;
                let number = at.value().1;
                if let Some(row) = decoded(&part_key(upload, number), row.value()) {
                    found.push((number, row));
                }
            }
            Ok(found)
        };
        find().map_err(failed)
    }

    /// The pending uploads of a bucket, in byte order of key and id.
    pub(super) fn uploads(&self, bucket: &str) -> Result<Vec<UploadInfo>, OriginError> {
        let find = || -> Result<_, redb::Error> {
            let uploads = self.database.begin_read()?.open_table(UPLOADS)?;
            let mut found = Vec::new();
            for upload in uploads.iter()? {
                let (id, json) = upload?;
                found.extend(super::upload::info(bucket, id.value(), json.value()));
            }
            Ok(found)
        };
        let mut found = find().map_err(failed)?;
        found.sort_unstable_by(|a, b| (&a.key, &a.upload).cmp(&(&b.key, &b.upload)));
        Ok(found)
    }
}

/// Makes the tables of a new file, and checks those of another.
fn prepare(database: &Database) -> Result<(), NamesError> {
    let prepare = || -> Result<u64, redb::Error> {
        let write = database.begin_write()?;
        let format = {
            write.open_table(NAMES)?;
            write.open_table(ORDER)?;
            write.open_table(SIZES)?;
            write.open_table(UPLOADS)?;
            write.open_table(PARTS)?;
            write.open_table(COMPLETED)?;
            let mut counters = write.open_table(COUNTERS)?;
            if counters.is_empty()? {
                counters.insert("format", FORMAT)?;
            }
            let format = counters.get("format")?.map(|format| format.value());
            format.unwrap_or_default()
        };
        write.commit()?;
        Ok(format)
    };
    match prepare()? {
        FORMAT => Ok(()),
        other => Err(NamesError::Format(other)),
    }
}

/// The object of a key of the table.
fn named(key: &[u8]) -> Option<ObjectKey> {
    let (bucket, key) = std::str::from_utf8(key).ok()?.split_once('\0')?;
    Some(ObjectKey::new(bucket, key))
}

/// The least key of the table after all that begin with `beginning`. Its bucket ends in NUL, so
/// there is one.
fn after_all(mut beginning: Vec<u8>) -> Vec<u8> {
    while beginning.last() == Some(&0xFF) {
        beginning.pop();
    }
    if let Some(last) = beginning.last_mut() {
        *last += 1;
    }
    beginning
}
