//! Completed uploads: a client that missed the answer asks again.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

use super::path::forgive_missing;
use crate::origin::error::OriginError;
use crate::origin::types::{CompleteRequest, ObjectKey, PutResponse};
use crate::origin::uploads::{CompletedUpload, is_upload_id};

/// Hours after which an answer is forgotten.
const KEPT_HOURS: u64 = 24;

/// Answers to completions, in one directory for each hour.
pub(super) struct Completions {
    directory: PathBuf,
    running: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Completions {
    pub(super) fn open(directory: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        remove_old(&directory, hour())?;
        Ok(Completions {
            directory,
            running: Mutex::default(),
        })
    }

    /// A lock that a completion of the upload holds to its end, so that a repeated one finds the
    /// answer of the first.
    pub(super) fn lock(&self, upload: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut running = self.running.lock();
        running.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = running.get(upload).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        running.insert(upload.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// The answer to a request that has completed its upload before.
    pub(super) fn find(&self, key: &ObjectKey, request: &CompleteRequest) -> Option<PutResponse> {
        if !is_upload_id(&request.upload) {
            return None;
        }
        let hours = std::fs::read_dir(&self.directory).ok()?;
        let json = hours
            .flatten()
            .find_map(|hour| std::fs::read(hour.path().join(&request.upload)).ok())?;
        let known: CompletedUpload = serde_json::from_slice(&json).ok()?;
        known.answer(key, request)
    }

    /// Keeps the answer to a request, durably.
    pub(super) fn keep(
        &self,
        key: &ObjectKey,
        request: &CompleteRequest,
        response: &PutResponse,
    ) -> Result<(), OriginError> {
        let done = CompletedUpload::new(key, request, response.etag.clone());
        let json =
            serde_json::to_vec(&done).map_err(|error| OriginError::BadUpload(error.to_string()))?;
        let hour = hour();
        let directory = self.directory.join(hour.to_string());
        match std::fs::create_dir(&directory) {
            Ok(()) => {
                File::open(&self.directory)?.sync_all()?;
                self.remove_old_later(hour);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        // A crash leaves it behind until its hour goes; it has the name of no upload.
        let unfinished = directory.join(format!("{}.new", request.upload));
        let mut file = File::create(&unfinished)?;
        file.write_all(&json)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, directory.join(&request.upload))?;
        Ok(File::open(&directory)?.sync_all()?)
    }

    /// Removes old hours while no client waits.
    fn remove_old_later(&self, hour: u64) {
        let directory = self.directory.clone();
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = remove_old(&directory, hour) {
                tracing::warn!(%error, "old answers of completed uploads could not be removed");
            }
        }));
    }
}

fn hour() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |age| age.as_secs() / 3600)
}

fn remove_old(directory: &Path, now: u64) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let hour: Option<u64> = name.to_str().and_then(|name| name.parse().ok());
        if hour.is_some_and(|hour| hour + KEPT_HOURS < now) {
            forgive_missing(std::fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::types::UploadedPart;

    #[tokio::test]
    async fn answers_are_kept_for_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let completions = Completions::open(directory.path().join("completed")).unwrap();
        let (key, other) = (ObjectKey::new("b", "k"), ObjectKey::new("b", "other"));
        let part = |etag: &str| UploadedPart {
            number: 1,
            etag: etag.to_owned(),
        };
        let request = |etag: &str| CompleteRequest {
            upload: "0".repeat(32),
            parts: vec![part(etag)],
            ..CompleteRequest::default()
        };
        let response = PutResponse {
            etag: Some("\"whole\"".into()),
        };
        assert!(completions.find(&key, &request("1")).is_none());
        completions.keep(&key, &request("1"), &response).unwrap();
        let found = completions.find(&key, &request("1")).unwrap();
        assert_eq!(found.etag, response.etag);
        assert!(completions.find(&key, &request("2")).is_none());
        assert!(completions.find(&other, &request("1")).is_none());
        let now = hour();
        remove_old(&completions.directory, now + KEPT_HOURS).unwrap();
        assert!(completions.find(&key, &request("1")).is_some());
        remove_old(&completions.directory, now + KEPT_HOURS + 2).unwrap();
        assert!(completions.find(&key, &request("1")).is_none());
    }
}
