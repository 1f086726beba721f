//! Changes of the table of names: made by one thread, as many at once as wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use redb::{Database, ReadableTable, ReadableTableMetadata, Table, TableError, WriteTransaction};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::row::Row;
use super::tables::{
    COMPLETED, COUNTERS, IsGone, NAMES, ORDER, PARTS, SIZES, UPLOADS, decoded, failed, part_key,
    table_key,
};
use super::upload::{decode, encode};
use crate::origin::uploads::{CompletedUpload, PendingUpload};
use crate::origin::{DeleteCondition, ObjectKey, OriginError, PutCondition};

/// Most changes of one transaction.
const BATCH_MAX: usize = 512;

/// Rows that a transaction removes for room: a full bucket of small objects has millions that a
/// large one replaces.
const REMOVED_MAX: usize = if cfg!(test) { 4 } else { 4096 };

/// Rows that are looked at for each new one, whether their chunks are still there.
const SWEPT_PER_ROW: usize = 2;

/// Most pending uploads of all buckets.
const UPLOADS_MAX: u64 = 1000;

/// Most abandoned uploads that a new one ends.
const ABANDONED_AT_ONCE: usize = 2;

/// Most answers of completed uploads that are kept.
const COMPLETED_MAX: u64 = 10_000;

/// Rows that stand for nothing any more: their chunks can go.
pub(super) type Removed = Vec<(ObjectKey, Row)>;

/// The results of changes, and the rows that they removed.
type Made = (Vec<Result<(), OriginError>>, Removed);

/// A change and its caller.
pub(super) struct Request {
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<(), OriginError>>,
}

/// The end of the upload that an object comes from.
pub(super) struct Ending {
    pub(super) id: String,
    pub(super) completed: CompletedUpload,
    /// The object has the chunks of the upload's only part.
    pub(super) adopts: bool,
}

/// A change of the tables.
pub(super) enum Change {
    /// Replaces an object, and ends the upload that it comes from.
    Put {
        name: ObjectKey,
        /// Its number is drawn here.
        row: Box<Row>,
        condition: Option<PutCondition>,
        ends: Option<Ending>,
    },
    /// Deletes an object. A missing one is no error.
    Delete {
        name: ObjectKey,
        condition: DeleteCondition,
    },
    /// Forgets an object that is no longer whole, if it is still that of this number.
    Forget { name: ObjectKey, number: u64 },
    /// Removes chunks that got no name.
    Discard { name: ObjectKey, row: Box<Row> },
    /// Begins an upload, and ends abandoned ones, whose ids are below `oldest`.
    Begin {
        id: String,
        upload: PendingUpload,
        oldest: String,
    },
    /// Keeps a part of an upload.
    Part {
        id: String,
        number: u32,
        upload: PendingUpload,
        row: Box<Row>,
    },
    /// Ends an upload without an object.
    Abort { id: String },
}

pub(super) struct Committer {
    pub(super) database: Arc<Database>,
    pub(super) capacity_of: Box<dyn Fn(&str) -> u64 + Send>,
    pub(super) is_gone: Arc<IsGone>,
    pub(super) removed: mpsc::Sender<Removed>,
    /// The row that was looked at last.
    pub(super) swept: Option<(String, u64)>,
    /// Buckets of which more is to be removed.
    pub(super) over: BTreeSet<String>,
}

impl Committer {
    /// Makes changes until all their senders are gone.
    pub(super) fn run(mut self, mut waiting: mpsc::Receiver<Request>) {
        loop {
            let first = match self.over.is_empty() {
                true => waiting.blocking_recv().ok_or(TryRecvError::Disconnected),
                false => waiting.try_recv(),
            };
            let (mut changes, mut answers) = match first {
                Ok(first) => (vec![first.change], vec![first.answer]),
                Err(TryRecvError::Empty) => (Vec::new(), Vec::new()),
                Err(TryRecvError::Disconnected) => return,
            };
            while changes.len() < BATCH_MAX
                && let Ok(next) = waiting.try_recv()
            {
                changes.push(next.change);
                answers.push(next.answer);
            }
            let results = match self.commit(changes) {
                Ok((results, removed)) => {
                    match (removed.is_empty(), answers.is_empty()) {
                        (true, _) => {}
                        // If too many wait, their chunks are evicted in their turn.
                        (false, false) => drop(self.removed.try_send(removed)),
                        // No caller waits for this change. It fails if the cache closes.
                        (false, true) => drop(self.removed.blocking_send(removed)),
                    }
                    results
                }
                Err(error) => {
                    let error = failed(error);
                    tracing::error!(%error, "a change was not made");
                    answers.iter().map(|_| Err(error.clone())).collect()
                }
            };
            for (answer, result) in answers.into_iter().zip(results) {
                // Fails if the caller has left.
                let _ = answer.send(result);
            }
        }
    }

    /// Makes all changes durable, or none.
    fn commit(&mut self, changes: Vec<Change>) -> Result<Made, redb::Error> {
        let mut write = self.database.begin_write()?;
        // A damaged file is then refused. Otherwise its newest change could be taken back.
        write.set_two_phase_commit(true);
        // If the file fails, the next object in such a bucket goes on.
        let over = std::mem::take(&mut self.over);
        let (made, over) = self.make(&write, changes, over)?;
        write.commit()?;
        self.over = over;
        Ok(made)
    }

    fn make(
        &mut self,
        write: &WriteTransaction,
        changes: Vec<Change>,
        over: BTreeSet<String>,
    ) -> Result<(Made, BTreeSet<String>), redb::Error> {
        let mut tables = Tables::open(write, &*self.is_gone)?;
        for bucket in over {
            let capacity = (self.capacity_of)(&bucket);
            tables.shrink(&bucket, capacity)?;
        }
        let mut results = Vec::with_capacity(changes.len());
        for change in changes {
            results.push(match tables.make(change, &*self.capacity_of) {
                Ok(()) => Ok(()),
                Err(Refusal::Of(error)) => Err(error),
                Err(Refusal::Failure(error)) => return Err(error),
            });
        }
        tables.sweep(&mut self.swept)?;
        Ok(((results, tables.removed), tables.over))
    }
}

/// Why a change was not made.
enum Refusal {
    /// A condition of it fails; others of the transaction go on.
    Of(OriginError),
    /// The file fails.
    Failure(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Refusal::Failure(error.into())
    }
}

fn refused<T>(error: OriginError) -> Result<T, Refusal> {
    Err(Refusal::Of(error))
}

/// The tables within one transaction.
struct Tables<'t> {
    names: Table<'t, &'static [u8], &'static [u8]>,
    order: Table<'t, (&'static str, u64), &'static str>,
    sizes: Table<'t, &'static str, (u64, u64)>,
    uploads: Table<'t, &'static str, &'static [u8]>,
    parts: Table<'t, (&'static str, u32), &'static [u8]>,
    completed: Table<'t, &'static str, &'static [u8]>,
    counters: Table<'t, &'static str, u64>,
    is_gone: &'t IsGone,
    removed: Removed,
    over: BTreeSet<String>,
    rows_added: usize,
}

impl<'t> Tables<'t> {
    fn open(write: &'t WriteTransaction, is_gone: &'t IsGone) -> Result<Self, TableError> {
        Ok(Tables {
            names: write.open_table(NAMES)?,
            order: write.open_table(ORDER)?,
            sizes: write.open_table(SIZES)?,
            uploads: write.open_table(UPLOADS)?,
            parts: write.open_table(PARTS)?,
            completed: write.open_table(COMPLETED)?,
            counters: write.open_table(COUNTERS)?,
            is_gone,
            removed: Removed::new(),
            over: BTreeSet::new(),
            rows_added: 0,
        })
    }

    fn make(&mut self, change: Change, capacity_of: &dyn Fn(&str) -> u64) -> Result<(), Refusal> {
        match change {
            Change::Put {
                name,
                row,
                condition,
                ends,
            } => {
                let found = self.find(&name)?;
                if let Some(condition) = condition {
                    let current = found.as_ref().filter(|row| !(self.is_gone)(&name, row));
                    let checked = condition.check(name.key(), current.map(|row| &row.meta));
                    checked.map_err(Refusal::Of)?;
                }
                if let Some(ending) = ends {
                    let kept = row.meta.etag.as_deref();
                    if ending.adopts && !self.has_part(&ending.id, kept)? {
                        let error = "a part was sent again; complete the upload with its new tag";
                        return refused(OriginError::InvalidPart(error.into()));
                    }
                    self.end_upload(&ending.id, kept)?;
                    self.keep(&ending.id, &ending.completed)?;
                }
                if let Some(found) = found {
                    self.remove(&name, found)?;
                }
                self.insert(&name, *row)?;
                self.shrink(name.bucket(), capacity_of(name.bucket()))?;
            }
            Change::Delete { name, condition } => {
                let Some(found) = self.find(&name)? else {
                    return Ok(());
                };
                if !(self.is_gone)(&name, &found) {
                    condition.check(&found.meta).map_err(Refusal::Of)?;
                }
                self.remove(&name, found)?;
            }
            Change::Forget { name, number } => {
                if let Some(found) = self.find(&name)?
                    && found.number == number
                {
                    self.remove(&name, found)?;
                }
            }
            Change::Discard { name, row } => self.removed.push((name, *row)),
            Change::Begin { id, upload, oldest } => self.begin(&id, &upload, &oldest)?,
            Change::Part {
                id,
                number,
                upload,
                row,
            } => {
                if self.uploads.get(&*id)?.is_none() {
                    return refused(OriginError::NoSuchUpload(id));
                }
                let key = part_key(&id, number);
                let replaced = self.parts.insert((&*id, number), &*row.encode(&key))?;
                let replaced = replaced.and_then(|old| decoded(&key, old.value()));
                self.removed
                    .extend(replaced.map(|old| (upload.name(), old)));
            }
            Change::Abort { id } => self.end_upload(&id, None)?,
        }
        Ok(())
    }

    fn find(&self, name: &ObjectKey) -> Result<Option<Row>, redb::Error> {
        let key = table_key(name);
        let row = self.names.get(key.as_slice())?;
        Ok(row.and_then(|row| decoded(&key, row.value())))
    }

    fn insert(&mut self, name: &ObjectKey, mut row: Row) -> Result<(), redb::Error> {
        let last = self.counters.get("number")?.map(|last| last.value());
        row.number = last.unwrap_or_default() + 1;
        self.counters.insert("number", row.number)?;
        let key = table_key(name);
        self.names.insert(key.as_slice(), &*row.encode(&key))?;
        self.order.insert((name.bucket(), row.number), name.key())?;
        let (objects, bytes) = self.size(name.bucket())?;
        let size = (objects + 1, bytes.saturating_add(row.meta.size));
        self.sizes.insert(name.bucket(), size)?;
        self.rows_added += 1;
        Ok(())
    }

    fn remove(&mut self, name: &ObjectKey, row: Row) -> Result<(), redb::Error> {
        self.names.remove(table_key(name).as_slice())?;
        self.order.remove((name.bucket(), row.number))?;
        let (objects, bytes) = self.size(name.bucket())?;
        let size = (
            objects.saturating_sub(1),
            bytes.saturating_sub(row.meta.size),
        );
        self.sizes.insert(name.bucket(), size)?;
        self.removed.push((name.clone(), row));
        Ok(())
    }

    fn size(&self, bucket: &str) -> Result<(u64, u64), redb::Error> {
        let size = self.sizes.get(bucket)?.map(|size| size.value());
        Ok(size.unwrap_or_default())
    }

    /// Removes the oldest objects of a bucket until the others fit, or until the transaction has
    /// removed enough.
    fn shrink(&mut self, bucket: &str, capacity: u64) -> Result<(), redb::Error> {
        if capacity == 0 {
            return Ok(());
        }
        let last = self.counters.get("number")?.map(|last| last.value());
        while self.size(bucket)?.1 > capacity
            && let Some((name, number)) = self.oldest(bucket)?
            // The object that was just written fits by itself.
            && Some(number) != last
        {
            if self.removed.len() >= REMOVED_MAX {
                self.over.insert(bucket.to_owned());
                break;
            }
            self.discard(&name, number)?;
        }
        Ok(())
    }

    fn oldest(&self, bucket: &str) -> Result<Option<(ObjectKey, u64)>, redb::Error> {
        let mut order = self.order.range((bucket, 0)..=(bucket, u64::MAX))?;
        let Some(oldest) = order.next() else {
            return Ok(None);
        };
        let (at, key) = oldest?;
        Ok(Some((ObjectKey::new(bucket, key.value()), at.value().1)))
    }

    /// Removes the row of a number, or at least its place in the order.
    fn discard(&mut self, name: &ObjectKey, number: u64) -> Result<(), redb::Error> {
        match self.find(name)?.filter(|row| row.number == number) {
            Some(row) => self.remove(name, row),
            None => {
                self.order.remove((name.bucket(), number))?;
                Ok(())
            }
        }
    }

    /// Looks at the rows after the last one that was looked at, and removes those whose objects
    /// are gone.
    fn sweep(&mut self, swept: &mut Option<(String, u64)>) -> Result<(), redb::Error> {
        let count = self.rows_added * SWEPT_PER_ROW;
        if count == 0 {
            return Ok(());
        }
        let (bucket, number) = swept.take().unwrap_or_default();
        let mut looked = Vec::with_capacity(count);
        for row in self.order.range((&*bucket, number + 1)..)?.take(count) {
            let (at, key) = row?;
            let (bucket, number) = at.value();
            looked.push((ObjectKey::new(bucket, key.value()), number));
        }
        // At the end it begins anew.
        *swept = match looked.last() {
            Some((name, number)) if looked.len() == count => {
                Some((name.bucket().to_owned(), *number))
            }
            _ => None,
        };
        for (name, number) in looked {
            let row = self.find(&name)?;
            let is_kept =
                row.is_some_and(|row| row.number == number && !(self.is_gone)(&name, &row));
            if !is_kept {
                self.discard(&name, number)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, id: &str, upload: &PendingUpload, oldest: &str) -> Result<(), Refusal> {
        let mut abandoned = Vec::new();
        for upload in self.uploads.range(..oldest)?.take(ABANDONED_AT_ONCE) {
            abandoned.push(upload?.0.value().to_owned());
        }
        for id in abandoned {
            self.end_upload(&id, None)?;
        }
        if self.uploads.len()? >= UPLOADS_MAX {
            return refused(OriginError::Server {
                status: 503,
                message: format!(
                    "{UPLOADS_MAX} uploads to cache-only buckets are pending; complete or abort some"
                ),
            });
        }
        self.uploads.insert(id, &*encode(upload))?;
        Ok(())
    }

    fn has_part(&self, id: &str, etag: Option<&str>) -> Result<bool, redb::Error> {
        for part in self.parts.range((id, 0)..=(id, u32::MAX))? {
            let (at, row) = part?;
            let row = decoded(&part_key(id, at.value().1), row.value());
            if row.is_some_and(|row| row.meta.etag.as_deref() == etag) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends an upload. Its parts are removed, but for the one that became an object.
    fn end_upload(&mut self, id: &str, kept: Option<&str>) -> Result<(), Refusal> {
        let upload = self.uploads.remove(id)?;
        let upload: Option<PendingUpload> = upload.and_then(|json| decode(json.value()));
        let Some(upload) = upload else {
            return refused(OriginError::NoSuchUpload(id.to_owned()));
        };
        let parts = self
            .parts
            .extract_from_if((id, 0)..=(id, u32::MAX), |_, _| true)?;
        for part in parts {
            let (at, row) = part?;
            let row = decoded(&part_key(id, at.value().1), row.value());
            let is_kept = |row: &Row| kept.is_some() && row.meta.etag.as_deref() == kept;
            let row = row.filter(|row| !is_kept(row));
            self.removed.extend(row.map(|row| (upload.name(), row)));
        }
        Ok(())
    }

    /// Keeps the answer of a completed upload, for a client that missed it.
    fn keep(&mut self, id: &str, completed: &CompletedUpload) -> Result<(), redb::Error> {
        self.completed.insert(id, &*encode(completed))?;
        while self.completed.len()? > COMPLETED_MAX {
            self.completed.pop_first()?;
        }
        Ok(())
    }
}
