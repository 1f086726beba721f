//! Errors of the file of names.

/// The version of the tables.
pub(super) const FORMAT: u64 = 1;

/// The file of names cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::object) enum NamesError {
    #[error("another process has it open")]
    InUse,
    #[error("it is no table of names, or is damaged: {0}")]
    Damaged(String),
    #[error("its format is {0}, and this version of Floe reads {FORMAT}")]
    Format(u64),
    #[error(transparent)]
    Io(std::io::Error),
}

impl From<redb::Error> for NamesError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => NamesError::InUse,
            redb::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => {
                NamesError::Io(error)
            }
            other => NamesError::Damaged(other.to_string()),
        }
    }
}
