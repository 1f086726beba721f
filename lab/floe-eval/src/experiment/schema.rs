//! The keys of an experiment file.

use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::policy::object::ObjectPolicyKind;
use floe_device::DeviceConfig;
use serde::{Deserialize, Serialize};

use super::cache::CacheSpec;
use super::published::{Published, PublishedTable};
use crate::fleet::FleetCase;
use crate::run::Pacing;
use crate::shared::TraceCase;
use crate::tiny::TinyCase;
use crate::volume::{VolumeBench, VolumeSpec};
use crate::workload::Distribution;

/// An experiment file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The title of the report.
    pub title: String,
    /// Its description; an empty line begins a new paragraph.
    #[serde(default)]
    pub about: String,
    /// The seed of everything random.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Real or virtual time.
    #[serde(default)]
    pub time: TimeKind,
    /// Drives a cache.
    pub bench: Option<BenchCase>,
    /// Replays a trace against pure policies.
    pub replay: Option<ReplayCase>,
    /// Drives an engine for tiny objects.
    pub tiny: Option<TinyCase>,
    /// Replays a block trace against a cache of volumes.
    pub volume: Option<VolumeSpec>,
    /// Drives a cache of volumes.
    pub volume_bench: Option<VolumeBench>,
    /// Drives many nodes, in virtual time.
    pub fleet: Option<FleetCase>,
    /// Settings that vary: every combination is a case.
    #[serde(default)]
    pub vary: Vec<Vary>,
    /// Settings that differ for some of the cases.
    #[serde(default)]
    pub adjust: Vec<Adjust>,
    /// The name of a case, with labels in braces: `{device}-{chunk}`; by
    /// default every label with its value.
    pub case_name: Option<String>,
    /// Charts over the cases.
    #[serde(default)]
    pub curves: Vec<CurveSpec>,
    /// Charts over time, of distributions, and box plots, of groups of cases.
    #[serde(default)]
    pub panels: Vec<PanelSpec>,
    /// Figures to compare with.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Tables of figures to compare with.
    #[serde(default)]
    pub published_table: Vec<PublishedTable>,
}

impl Experiment {
    /// True if cases whose trace is absent are skipped.
    pub(super) fn skips_absent(&self) -> bool {
        self.tiny.is_some() || self.volume.is_some() || self.volume_bench.is_some()
    }

    /// The settings of the cache device, if the cases have one.
    pub(super) fn drive_mut(&mut self) -> Option<&mut DeviceConfig> {
        let of_bench = self.bench.as_mut().map(|bench| &mut bench.cache.device);
        let of_tiny = self.tiny.as_mut().map(|tiny| &mut tiny.device.drive);
        of_bench.or(of_tiny)
    }

    /// The time: real where a cache is on storage.
    pub(super) fn time(&self) -> TimeKind {
        match &self.bench {
            Some(bench) if bench.cache.device.kind.is_storage() => TimeKind::Real,
            _ if self.fleet.is_some() => TimeKind::Virtual,
            _ => self.time,
        }
    }

    /// The trace, if one is replayed.
    pub(super) fn trace(&self) -> Option<&TraceCase> {
        let of_bench = self.bench.as_ref().and_then(|bench| bench.trace.as_ref());
        of_bench
            .or(self.replay.as_ref().map(|replay| &replay.trace))
            .or(self.volume.as_ref().map(|volume| &volume.trace))
            .or(self
                .volume_bench
                .as_ref()
                .and_then(|bench| bench.trace.as_ref()))
    }

    /// All published figures, those of tables included.
    ///
    /// # Errors
    /// If a row's number of values differs from that of its table's metrics.
    pub fn all_published(&self) -> Result<Vec<Published>, String> {
        let mut all = self.published.clone();
        for table in &self.published_table {
            all.extend(table.figures()?);
        }
        Ok(all)
    }
}

fn default_seed() -> u64 {
    42
}

/// The time of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeKind {
    /// The machine's time.
    #[default]
    Real,
    /// Virtual time: deterministic and without waiting. Cases whose device is
    /// neither memory nor simulated take the machine's time all the same.
    Virtual,
}

/// Settings that vary: a key with `values`, or several keys together with `sets`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Vary {
    /// The key, with dots: `bench.cache.chunk.size`.
    pub key: Option<String>,
    /// Its label in the names of cases.
    pub label: String,
    /// Its values.
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// Instead of `key` and `values`: several keys (with dots, in quotes) and
    /// their values for each name.
    #[serde(default)]
    pub sets: Vec<toml::Table>,
    /// Names of the values. Default: the values as written.
    pub names: Option<Vec<String>>,
}

impl Vary {
    /// Number of values.
    pub fn count(&self) -> usize {
        self.values.len().max(self.sets.len())
    }
}

/// Drives a cache with exactly one of `workload`, `workload-file` and `trace`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BenchCase {
    /// The cache.
    #[serde(default)]
    pub cache: CacheSpec,
    /// Drawn ids.
    pub workload: Option<Distribution>,
    /// The ids of a ZNCache workload file.
    pub workload_file: Option<PathBuf>,
    /// The requests of a trace.
    pub trace: Option<TraceCase>,
    /// Number of ids; or give `ratio`.
    pub items: Option<u64>,
    /// Number of ids as a multiple of the objects that the device's zones hold.
    pub ratio: Option<f64>,
    /// Bytes of an object; by default the chunk size.
    pub object_size: Option<ByteSize>,
    /// Bytes read of an object; by default all.
    pub read_size: Option<ByteSize>,
    /// Closed or open loop.
    #[serde(default = "default_pacing")]
    pub pacing: Pacing,
    /// Number of requests after which the run ends.
    pub requests: Option<u64>,
    /// Number of seconds after which the run ends.
    pub duration_s: Option<f64>,
    /// Number of requests before the measurement.
    #[serde(default)]
    pub warm_up_requests: u64,
    /// Share of the reads that become writes of the whole object.
    #[serde(default)]
    pub writes: f64,
    /// Write every object before the measurement.
    #[serde(default)]
    pub fill: bool,
    /// A client waits, before its next request, until the store has written what it
    /// accepted and has emptied the zones that it evicts. With one client, what the store
    /// does then depends on no device's speed.
    #[serde(default)]
    pub settle: bool,
    /// Length of a time bin of the graphs in seconds.
    #[serde(default = "default_bin_s")]
    pub bin_s: f64,
    /// Compare every byte with the origin's.
    #[serde(default = "default_verify")]
    pub verify: bool,
}

fn default_pacing() -> Pacing {
    Pacing::Closed { clients: 64 }
}

fn default_bin_s() -> f64 {
    60.0
}

fn default_verify() -> bool {
    true
}

/// Replays a trace against pure policies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReplayCase {
    /// The trace.
    pub trace: TraceCase,
    /// The policies; by default all.
    #[serde(default = "default_policies")]
    pub policies: Vec<ObjectPolicyKind>,
    /// Cache sizes; or give `shares`.
    pub sizes: Option<Vec<ByteSize>>,
    /// Cache sizes as shares of the working set.
    pub shares: Option<Vec<f64>>,
    /// The chunk size, if the cache stores chunks instead of objects.
    pub chunk: Option<ByteSize>,
}

fn default_policies() -> Vec<ObjectPolicyKind> {
    ObjectPolicyKind::ALL.to_vec()
}

/// Values for some of the cases, which override varied ones.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Adjust {
    /// The cases with these values of these labels.
    pub only: Selection,
    /// Keys, with dots, in quotes, and their values.
    pub set: toml::Table,
}

/// Some of an experiment's cases: by label, the names of values.
pub type Selection = std::collections::BTreeMap<String, Vec<String>>;

/// Charts of groups of cases: for each combination of all labels but `lines`,
/// one chart per series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PanelSpec {
    /// The kind of chart.
    pub kind: PanelKind,
    /// Names among the nine series.
    pub series: Vec<String>,
    /// The labels whose values are the lines (or boxes) of one chart.
    pub lines: Vec<String>,
    /// Only cases whose values of these labels are named here.
    #[serde(default)]
    pub only: Selection,
}

/// The contents of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PanelKind {
    /// A series over time, in bins.
    Time,
    /// The cumulative distribution of latencies, or of a rate over its bins.
    Cdf,
    /// A box per case: quartiles, median, 1st and 99th percentile.
    Box,
}

/// Instead of a label: a chart of the cumulative distribution of the sizes of the
/// requests to a cache of volumes, with a line for each case.
pub const REQUEST_SIZE: &str = "request_size";

/// A chart over the cases. What is varied besides `x` makes lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CurveSpec {
    /// Its title.
    pub title: String,
    /// The label of what is varied along it; or [`REQUEST_SIZE`], without `y`.
    pub x: String,
    /// The label of its horizontal axis; by default `x`.
    pub x_label: Option<String>,
    /// The metrics that are shown, all of one unit.
    #[serde(default)]
    pub y: Vec<String>,
    /// The label of its vertical axis; the unit is added.
    pub y_label: String,
    /// Show values at equal distances by name instead of by size. Always so if one
    /// of them is neither a number nor a size.
    #[serde(default)]
    pub x_even: bool,
    /// Use a logarithmic vertical axis.
    #[serde(default)]
    pub y_log: bool,
    /// Only cases whose values of these labels are named here.
    #[serde(default)]
    pub only: Selection,
}
