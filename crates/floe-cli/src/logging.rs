//! Logs: to standard error, as text or as JSON lines.

use tracing_subscriber::{EnvFilter, reload};

use crate::failure::Failure;
use crate::style::Style;

floe::choices! {
    /// The format of the log.
    pub enum LogFormat, default Text {
        /// One line of text per event.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

floe::section! {
    /// The log on standard error.
    pub struct LogConfig in "log" {
        /// The minimum level: error, warn, info, debug or trace; also per
        /// module, such as `info,floe::chunk=debug`.
        pub level: String = "info".to_owned();
        /// The format of the log.
        pub format: LogFormat = LogFormat::default();
    }
}

/// The crate that the S3 frontend uses.
const CLIENT_ERRORS: &str = "s3s";

/// The filter of the log, which a reload replaces.
pub(crate) struct Logs(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl Logs {
    /// Replaces the filter.
    ///
    /// # Errors
    /// A bug: the subscriber is gone.
    pub(crate) fn set_filter(&self, filter: EnvFilter) -> Result<(), Failure> {
        (self.0)(filter)
            .map_err(|error| Failure::bug("the log level cannot be changed").because(error))
    }
}

/// Starts logging.
///
/// # Errors
/// The level is invalid.
pub(crate) fn start(config: &LogConfig) -> Result<Logs, Failure> {
    let filter = filter(config)?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let (started, logs) = match config.format {
        LogFormat::Text => {
            let logs = logs
                .with_ansi(Style::stderr().colour())
                .with_filter_reloading();
            let handle = logs.reload_handle();
            let set = Logs(Box::new(move |filter| handle.reload(filter)));
            (logs.try_init(), set)
        }
        LogFormat::Json => {
            let logs = logs.json().with_filter_reloading();
            let handle = logs.reload_handle();
            let set = Logs(Box::new(move |filter| handle.reload(filter)));
            (logs.try_init(), set)
        }
    };
    started.map_err(|error| Failure::bug("logging was started twice").because(error))?;
    Ok(logs)
}

/// The filter that `log.level` describes.
///
/// # Errors
/// The level is invalid.
pub(crate) fn filter(config: &LogConfig) -> Result<EnvFilter, Failure> {
    let mut level = config.level.clone();
    // This crate logs clients' errors as errors of the server, so any client
    // could fill the disk.
    if !level.contains(CLIENT_ERRORS) {
        level.push_str(&format!(",{CLIENT_ERRORS}=off"));
    }
    EnvFilter::try_new(&level).map_err(|error| {
        Failure::usage(format!("`log.level` = \"{}\" is not a level", config.level))
            .because(error)
            .cure("use error, warn, info, debug or trace, or per module such as info,floe::chunk=debug")
    })
}
