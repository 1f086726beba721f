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
    /// Alibaba block traces; times in microseconds.
    Alibaba,
    /// blkparse text, requests as queued (Q); times in seconds.
    BlkparseQueued,
    /// blkparse text, requests as dispatched (D); times in seconds.
    BlkparseDispatched,
    /// CloudPhysics as CSV; times in seconds.
    CloudPhysics,
    /// DiskSim ASCII; times in milliseconds.
    DiskSim,
    /// Event Tracing for Windows as text; times in microseconds.
    Etw,
    /// FIU text; times in nanoseconds.
    Fiu,
    /// HP SRT 1.3; times in seconds and microseconds.
    HpSrt,
    /// fio's iolog, versions 2 and 3; times in microseconds.
    Iolog,
    /// Block numbers, one a line.
    Lbn,
    /// Meta's storage traces, CSV with a header; times in seconds.
    MetaTectonic,
    /// MQSim ASCII; times in nanoseconds.
    MqSim,
    /// MSR Cambridge; times in ticks of 100 ns.
    Msr,
    /// SYSTOR '17, CSV with a header; times in seconds.
    Systor,
    /// Tencent CBS with offset and size in sectors; times in seconds.
    TencentCbs,
    /// Tencent CBS with offset and size in bytes; times in seconds.
    TencentCbsBytes,
    /// VMware vscsi, version 1; times in microseconds.
    VscsiV1,
    /// VMware vscsi, version 2; times in microseconds.
    VscsiV2,
    /// Generated: a plain workload; times in nanoseconds.
    Synthetic,
    /// Generated: a stand-in for a trace that is not public; times in nanoseconds.
    StandIn,
}

const NAMES: [(TraceFormat, &str); 31] = [
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
    (TraceFormat::Alibaba, "alibaba"),
    (TraceFormat::BlkparseQueued, "blkparse-queued"),
    (TraceFormat::BlkparseDispatched, "blkparse-dispatched"),
    (TraceFormat::CloudPhysics, "cloudphysics"),
    (TraceFormat::DiskSim, "disksim"),
    (TraceFormat::Etw, "etw"),
    (TraceFormat::Fiu, "fiu"),
    (TraceFormat::HpSrt, "hp-srt"),
    (TraceFormat::Iolog, "iolog"),
    (TraceFormat::Lbn, "lbn"),
    (TraceFormat::MetaTectonic, "meta-tectonic"),
    (TraceFormat::MqSim, "mqsim"),
    (TraceFormat::Msr, "msr"),
    (TraceFormat::Systor, "systor"),
    (TraceFormat::TencentCbs, "tencent-cbs"),
    (TraceFormat::TencentCbsBytes, "tencent-cbs-bytes"),
    (TraceFormat::VscsiV1, "vscsi-v1"),
    (TraceFormat::VscsiV2, "vscsi-v2"),
    (TraceFormat::Synthetic, "synthetic"),
    (TraceFormat::StandIn, "synthetic stand-in"),
];

impl TraceFormat {
    /// Every format.
    pub fn all() -> impl Iterator<Item = TraceFormat> {
        NAMES.into_iter().map(|(format, _)| format)
    }

    /// The name that parses to it.
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

    /// True if requests are ranges of a few devices, so that their cache holds
    /// blocks instead of whole keys.
    pub fn is_block_trace(self) -> bool {
        match self {
            TraceFormat::MetaCdn
            | TraceFormat::MetaKv
            | TraceFormat::Twitter
            | TraceFormat::TencentPhoto
            | TraceFormat::OracleGeneral
            | TraceFormat::Cache2k
            | TraceFormat::Corda
            | TraceFormat::Zncache
            | TraceFormat::Lirs
            | TraceFormat::Arc
            | TraceFormat::Lbn => false,
            TraceFormat::Spc
            | TraceFormat::Alibaba
            | TraceFormat::BlkparseQueued
            | TraceFormat::BlkparseDispatched
            | TraceFormat::CloudPhysics
            | TraceFormat::DiskSim
            | TraceFormat::Etw
            | TraceFormat::Fiu
            | TraceFormat::HpSrt
            | TraceFormat::Iolog
            | TraceFormat::MetaTectonic
            | TraceFormat::MqSim
            | TraceFormat::Msr
            | TraceFormat::Systor
            | TraceFormat::TencentCbs
            | TraceFormat::TencentCbsBytes
            | TraceFormat::VscsiV1
            | TraceFormat::VscsiV2
            | TraceFormat::Synthetic
            | TraceFormat::StandIn => true,
        }
    }

    /// True if a [`BlockTrace`](super::BlockTrace) reads this format: block
    /// traces, and lists of sectors, which other readers take as objects.
    pub fn has_blocks(self) -> bool {
        self.is_block_trace() || matches!(self, TraceFormat::Arc | TraceFormat::Lbn)
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of a text that names no format.
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
