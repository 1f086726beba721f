//! Types and checks shared by the frontends' sections.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use floe_core::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The access of clients without a key or a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// None; written `false`.
    #[default]
    Rejected,
    /// Only on a loopback address; written `"loopback"`.
    OnLoopback,
    /// On any address; written `true`.
    Served,
}

impl Anonymous {
    /// True if such requests are served, at least on loopback.
    pub fn is_served(self) -> bool {
        self != Anonymous::Rejected
    }
}

impl Serialize for Anonymous {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Anonymous::Rejected => serializer.serialize_bool(false),
            Anonymous::OnLoopback => serializer.serialize_str("loopback"),
            Anonymous::Served => serializer.serialize_bool(true),
        }
    }
}

impl<'de> Deserialize<'de> for Anonymous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Anonymous;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"loopback\"")
            }
            fn visit_bool<E: de::Error>(self, served: bool) -> Result<Anonymous, E> {
                Ok(if served {
                    Anonymous::Served
                } else {
                    Anonymous::Rejected
                })
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Anonymous, E> {
                match text {
                    "loopback" => Ok(Anonymous::OnLoopback),
                    // The spelling in flags and environment variables.
                    "true" => Ok(Anonymous::Served),
                    "false" => Ok(Anonymous::Rejected),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// An invalid setting of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}; {cure}")]
pub struct ServerConfigError {
    /// The setting's name in the file.
    pub setting: String,
    /// The problem with its value.
    pub problem: String,
    /// The remedy.
    pub cure: String,
}

/// The section of one frontend in the configuration.
pub(crate) trait Section: Send + Sync + 'static {
    /// Checks the settings without opening a file or socket.
    fn validate(&self) -> Result<(), ServerConfigError>;

    /// Describes the access that other machines have without credentials, if
    /// the settings allow any.
    fn exposed(&self) -> Option<Exposed> {
        None
    }
}

/// A frontend that is open to anyone, as its settings allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other machines can reach {address}, and {what}: {setting} is true")]
pub struct Exposed {
    /// The setting that allows it.
    pub setting: &'static str,
    /// The address of the frontend.
    pub address: SocketAddr,
    /// The operations that anyone may execute.
    pub what: &'static str,
}

pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Checks that only a loopback address does without the secret whose setting is `section.name`.
pub(crate) fn guarded(
    section: &str,
    listen: Option<SocketAddr>,
    (name, secret): (&str, &str),
    danger: &str,
) -> Result<(), ServerConfigError> {
    match listen.filter(|address| secret.is_empty() && !is_loopback(*address)) {
        Some(address) => Err(problem(
            &format!("{section}.listen"),
            &format!("other machines can reach {address}, and could {danger}"),
            &format!("listen on 127.0.0.1, or set {section}.{name}"),
        )),
        None => Ok(()),
    }
}

/// Checks that both files are named, or none: the settings `prefix` with `_certificate` and
/// `_key`.
pub(crate) fn both_or_none(
    prefix: &str,
    certificate: &Path,
    key: &Path,
) -> Result<(), ServerConfigError> {
    if certificate.as_os_str().is_empty() == key.as_os_str().is_empty() {
        return Ok(());
    }
    Err(problem(
        &format!("{prefix}_certificate"),
        "a certificate and its key belong together, and one of them is missing",
        &format!("set both {prefix}_certificate and {prefix}_key, or none"),
    ))
}

pub(crate) fn positive(setting: &str, value: u32) -> Result<(), ServerConfigError> {
    if value == 0 {
        return Err(problem(setting, "it is 0", "use at least 1"));
    }
    Ok(())
}

/// Checks that a size is one of `sizes`, whose ends are whole KiB.
pub(crate) fn within(
    setting: &str,
    size: ByteSize,
    sizes: RangeInclusive<u64>,
    cure: &str,
) -> Result<(), ServerConfigError> {
    let bytes = size.bytes();
    if sizes.contains(&bytes) {
        return Ok(());
    }
    let [least, most] = [sizes.start(), sizes.end()].map(|end| ByteSize(*end));
    let why = format!("{bytes} bytes is not within {least} and {most}");
    Err(problem(setting, &why, cure))
}

pub(crate) fn problem(setting: &str, problem: &str, cure: &str) -> ServerConfigError {
    ServerConfigError {
        setting: setting.into(),
        problem: problem.into(),
        cure: cure.into(),
    }
}

/// Checks that a frontend has an address or a Unix socket.
pub(crate) fn validate_sockets(
    section: &str,
    listen: Option<SocketAddr>,
    path: &Path,
) -> Result<(), ServerConfigError> {
    if listen.is_some() || !path.as_os_str().is_empty() {
        return Ok(());
    }
    Err(problem(
        &format!("{section}.listen"),
        &format!("it is off, and {section}.path is empty"),
        "name an address or a path, or remove the section",
    ))
}

/// Checks that `memory` holds two of the largest messages, whose size is the
/// setting `name` of `section`. The cure names a size that does.
pub(crate) fn validate_memory(
    section: &str,
    memory: ByteSize,
    (name, size): (&str, ByteSize),
    enough: &str,
) -> Result<(), ServerConfigError> {
    if memory.bytes() >= 2 * size.bytes() {
        return Ok(());
    }
    Err(problem(
        &format!("{section}.memory"),
        &format!("{memory} has no room for two of {size}"),
        &format!("use {enough}, or allow less with {section}.{name}"),
    ))
}

/// Most threads of one frontend.
const THREADS_MAX: u32 = 1024;

/// Checks a number of threads, where 0 is one per core.
pub(crate) fn validate_threads(setting: &str, threads: u32) -> Result<(), ServerConfigError> {
    if threads > THREADS_MAX {
        let many = format!("{threads} threads are more than {THREADS_MAX}");
        return Err(problem(setting, &many, "use 0 for one per core"));
    }
    Ok(())
}

/// The threads of a frontend; 0 is one per core.
pub(crate) fn thread_count(threads: u32) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        threads => threads as usize,
    }
}

/// An address, or the word `off`.
pub(crate) mod address_or_off {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer, Serializer, de};

    const OFF: &str = "off";

    pub(crate) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_str(OFF),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == OFF {
            return Ok(None);
        }
        let expected = &"an address with a port, or `off`";
        text.parse()
            .map(Some)
            .map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), expected))
    }
}
