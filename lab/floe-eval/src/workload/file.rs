//! ZNCache's workload files: headerless little-endian 32-bit ids, one per
//! request; the key is the id in decimal.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The reason why a workload file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadFileError {
    /// Input or output failed.
    #[error("workload file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An id does not fit the format.
    #[error("id {id} does not fit the 32 bits of a workload file; use fewer items")]
    IdTooLarge {
        /// The id.
        id: u64,
    },
    /// The file ends inside an id.
    #[error("workload file {path} ends inside an id: its length {bytes} is no multiple of 4")]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

/// Writes `ids` to `path`; returns their number.
///
/// # Errors
/// If an id is above 2^32 - 1 or the file cannot be written.
pub fn write_ids(path: &Path, ids: impl Iterator<Item = u64>) -> Result<u64, WorkloadFileError> {
    let io = |source| WorkloadFileError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = BufWriter::new(std::fs::File::create(path).map_err(io)?);
    let mut count = 0;
    for id in ids {
        let id = u32::try_from(id).map_err(|_| WorkloadFileError::IdTooLarge { id })?;
        file.write_all(&id.to_le_bytes()).map_err(io)?;
        count += 1;
    }
    file.flush().map_err(io)?;
    Ok(count)
}

/// Reads the ids of the file at `path`, in order.
///
/// # Errors
/// If the file cannot be opened or its length is not a multiple of 4.
pub fn read_ids(
    path: &Path,
) -> Result<impl Iterator<Item = Result<u64, WorkloadFileError>> + use<>, WorkloadFileError> {
    let owned = path.to_owned();
    let io = move |source| WorkloadFileError::Io {
        path: owned.clone(),
        source,
    };
    let file = std::fs::File::open(path).map_err(&io)?;
    let bytes = file.metadata().map_err(&io)?.len();
    if !bytes.is_multiple_of(4) {
        return Err(WorkloadFileError::Cut {
            path: path.to_owned(),
            bytes,
        });
    }
    let mut file = BufReader::new(file);
    Ok(std::iter::from_fn(move || {
        let mut id = [0; 4];
        match file.fill_buf() {
            Ok([]) => None,
            Ok(_) => Some(
                file.read_exact(&mut id)
                    .map(|()| u64::from(u32::from_le_bytes(id)))
                    .map_err(&io),
            ),
            Err(source) => Some(Err(io(source))),
        }
    }))
}
