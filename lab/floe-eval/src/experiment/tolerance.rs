//! Tolerances of measured values against published or derived ones: one per
//! kind of metric, none per row.

/// A tolerance, and the metrics that it applies to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The kind of metric.
    pub kind: &'static str,
    /// Tolerance as a share of the published value.
    pub share: f64,
    /// Tolerance in the metric's unit. The greater of both counts.
    pub margin: f64,
    /// Endings of the metrics' names. The first entry of [`TOLERANCES`] with a
    /// matching ending applies.
    endings: &'static [&'static str],
}

/// Every tolerance. `experiments/README.md` repeats the numbers; a test compares.
pub const TOLERANCES: &[Tolerance] = &[
    Tolerance {
        kind: "slowest or fastest bins of a throughput",
        share: 0.25,
        margin: 0.0,
        endings: &["_bin"],
    },
    Tolerance {
        kind: "throughput",
        share: 0.15,
        margin: 0.0,
        endings: &["_throughput", "request_rate"],
    },
    Tolerance {
        kind: "mean latency",
        share: 0.15,
        margin: 0.0,
        endings: &["_latency_mean"],
    },
    Tolerance {
        kind: "memory",
        share: 0.1,
        margin: 0.0,
        endings: &[
            "bits_per_object",
            "rss_mean",
            "rss_p50",
            "rss_p95",
            "rss_p99",
            "rss_max",
        ],
    },
    Tolerance {
        kind: "tail latency",
        share: 0.25,
        margin: 0.0,
        endings: &["_p50", "_p99", "_p99.9", "_p99.99", "_max"],
    },
    Tolerance {
        kind: "change after garbage collection",
        share: 0.0,
        margin: 0.05,
        endings: &["throughput_drop", "latency_rise", "tail_rise"],
    },
    Tolerance {
        kind: "hit ratio",
        share: 0.0,
        margin: 0.03,
        endings: &["hit_ratio"],
    },
    Tolerance {
        kind: "miss ratio",
        share: 0.25,
        margin: 0.0,
        endings: &["miss_ratio"],
    },
    Tolerance {
        kind: "write amplification",
        share: 0.15,
        margin: 0.0,
        endings: &[
            "write_amplification",
            "alwa",
            "l2swa",
            "l2swa_passive",
            "_over_eq6",
            "_over_eq8",
            "_in_full",
            "_active_over_passive",
        ],
    },
    Tolerance {
        kind: "share",
        share: 0.0,
        margin: 0.05,
        endings: &[
            "passive_share",
            "fill_rate",
            "set_accesses_top_30",
            "index_searches_per_get",
        ],
    },
    Tolerance {
        kind: "pages read",
        share: 0.25,
        margin: 0.0,
        endings: &["_per_search", "_per_index_search", "_per_lookup"],
    },
    Tolerance {
        kind: "size of a write",
        share: 0.15,
        margin: 0.0,
        endings: &["write_command_bytes"],
    },
    Tolerance {
        kind: "count",
        share: 0.0,
        margin: 0.0,
        endings: &["misses", "miss_bytes"],
    },
];

impl Tolerance {
    /// No tolerance.
    pub(super) const NONE: Tolerance = Tolerance {
        kind: "none",
        share: 0.0,
        margin: 0.0,
        endings: &[],
    };
}

/// The tolerance of a metric.
pub(super) fn of(metric: &str) -> Option<&'static Tolerance> {
    let holds = |tolerance: &&Tolerance| tolerance.endings.iter().any(|end| metric.ends_with(end));
    TOLERANCES.iter().find(holds)
}

/// The least and the greatest value of a metric. For the CPU, the greatest is
/// one processor's; a higher bound would depend on the machine.
pub(super) fn range(metric: &str) -> (f64, f64) {
    match metric {
        "throughput_drop" => (f64::NEG_INFINITY, 1.0),
        "latency_rise" | "tail_rise" => (-1.0, f64::INFINITY),
        "cpu" | "cpu_max" | "cpu_p50" | "cpu_p95" | "cpu_p99" => (0.0, 100.0),
        _ => match of(metric).map(|tolerance| tolerance.kind) {
            Some("hit ratio" | "miss ratio" | "share") => (0.0, 1.0),
            _ => (0.0, f64::INFINITY),
        },
    }
}
