//! The formats and their names.

use std::fmt;
use std::str::FromStr;

/// A trace format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// Meta CDN, CSV with a header.
    MetaCdn,
    /// Meta key-value, CSV with a header.
    MetaKv,
    /// Twitter cache-trace, CSV without a header.
    Twitter,
    /// SPC block traces.
    Spc,
    /// Tencent Photo.
    TencentPhoto,
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// cache2k: 32-bit big-endian keys.
    Cache2k,
    /// Corda: 64-bit big-endian keys.
    Corda,
    /// ZNCache workload files: 32-bit little-endian ids.
    Zncache,
    /// LIRS: a key per line.
    Lirs,
    /// ARC: runs of blocks.
    Arc,
}

const NAMES: [(TraceFormat, &str); 11] = [
    (TraceFormat::MetaCdn, "meta-cdn"),
    (TraceFormat::MetaKv, "meta-kv"),
    (TraceFormat::Twitter, "twitter"),
    (TraceFormat::Spc, "spc"),
    (TraceFormat::TencentPhoto, "tencent-photo"),
    (TraceFormat::OracleGeneral, "oracle-general"),
    (TraceFormat::Cache2k, "cache2k"),
    (TraceFormat::Corda, "corda"),
    (TraceFormat::Zncache, "zncache"),
    (TraceFormat::Lirs, "lirs"),
    (TraceFormat::Arc, "arc"),
];

impl TraceFormat {
    /// Every format.
    pub fn all() -> impl Iterator<Item = TraceFormat> {
        NAMES.into_iter().map(|(format, _)| format)
    }

    /// The name it parses from.
    pub fn name(self) -> &'static str {
        // Every variant is in the table; a test walks it.
        NAMES
            .iter()
            .find(|(format, _)| *format == self)
            .map_or("unknown", |(_, name)| name)
    }

    /// All names, separated by commas.
    pub fn names() -> String {
        NAMES.map(|(_, name)| name).join(", ")
    }

    /// Whether requests are ranges of a few devices, so that a cache of them
    /// works on blocks rather than on whole keys.
    pub fn is_block_trace(self) -> bool {
        self == TraceFormat::Spc
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a trace format; choose one of {names}", names = TraceFormat::names())]
pub struct UnknownFormat(String);

impl FromStr for TraceFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let wanted = text.trim().to_ascii_lowercase().replace('_', "-");
        NAMES
            .iter()
            .find(|(_, name)| *name == wanted || name.replace('-', "") == wanted)
            .map(|(format, _)| *format)
            .ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}
