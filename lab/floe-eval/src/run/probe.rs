//! Measures an origin: the time of reads until the first and the last byte, by
//! size.

use std::collections::BTreeMap;
use std::time::Duration;

use floe::latency::{LATENCY_FILE_FORMAT, LatencyClass, LatencyFile, Quantiles};
use floe::origin::{GetRequest, ListRequest, ObjectKey, Origin, OriginError};
use floe_core::ByteSize;
use floe_device::Clock;
use futures::StreamExt as _;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::Planned;
use super::response::{Failure, Response, failed};
use super::{ExtraFigure, WHOLE_OBJECT};
use crate::error::EvalError;
use crate::metrics::{Served, histogram};
use crate::trace::Op;

/// Largest reads of the first class. Each further class is four times as large.
const FIRST_CLASS: ByteSize = ByteSize::kib(4);
const CLASS_FACTOR: u64 = 4;

/// The quantiles written to files.
const SHARES: [f64; 18] = [
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999,
    1.0,
];

/// An origin, and the measured latencies of its reads.
pub struct OriginProbe {
    origin: Origin,
    bucket: String,
    clock: Clock,
    /// The classes by their largest read in bytes.
    classes: Mutex<BTreeMap<u64, Class>>,
}

struct Class {
    first_byte: Histogram<u64>,
    body: Histogram<u64>,
    whole: Histogram<u64>,
    bytes: u64,
}

impl Default for Class {
    fn default() -> Self {
        Class {
            first_byte: histogram(),
            body: histogram(),
            whole: histogram(),
            bytes: 0,
        }
    }
}

impl OriginProbe {
    /// Measures reads of `bucket`.
    pub fn new(origin: Origin, bucket: impl Into<String>, clock: Clock) -> Self {
        OriginProbe {
            origin,
            bucket: bucket.into(),
            clock,
            classes: Mutex::default(),
        }
    }

    /// The first keys of the bucket, at most `most`.
    ///
    /// # Errors
    /// If the origin cannot list them, or there are none.
    pub async fn keys(&self, most: usize) -> Result<Vec<String>, EvalError> {
        let fail = |reason: String| EvalError::Server {
            server: format!("bucket {:?} of the origin", self.bucket),
            reason,
        };
        let mut keys = Vec::new();
        let mut continuation = None;
        while keys.len() < most {
            let request = ListRequest {
                continuation: continuation.take(),
                ..ListRequest::default()
            };
            let page = self.origin.list(&self.bucket, request).await;
            let page = page.map_err(|error| fail(list_cure(&error)))?;
            keys.extend(page.objects.into_iter().map(|object| object.key));
            continuation = page.next;
            if continuation.is_none() {
                break;
            }
        }
        keys.truncate(most);
        match keys.is_empty() {
            true => Err(fail(
                "it has no objects; name keys, or another bucket".into(),
            )),
            false => Ok(keys),
        }
    }

    pub(super) async fn serve(&self, request: &Planned) -> Result<Response, Failure> {
        if request.op != Op::Get {
            return Err(Failure::Failed("an origin is only read".into()));
        }
        let key = ObjectKey::new(self.bucket.as_str(), request.key.as_ref());
        let is_whole = request.length == WHOLE_OBJECT;
        let get = GetRequest {
            range: (!is_whole).then_some(0..request.length),
            ..GetRequest::default()
        };
        let start = self.clock.now();
        let mut read = self.origin.get(&key, get).await.map_err(failed)?;
        let first_byte = self.clock.now().since(start);
        let mut bytes = 0;
        while let Some(piece) = read.body.next().await {
            bytes += piece.map_err(failed)?.len() as u64;
        }
        self.record(bytes, first_byte, self.clock.now().since(start));
        Ok(Response {
            served: Served::Read,
            bytes,
        })
    }

    fn record(&self, bytes: u64, first_byte: Duration, whole: Duration) {
        let mut classes = self.classes.lock();
        let class = classes.entry(class_of(bytes)).or_default();
        for (latencies, latency) in [
            (&mut class.first_byte, first_byte),
            (&mut class.body, whole.saturating_sub(first_byte)),
            (&mut class.whole, whole),
        ] {
            let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            // The histogram resizes to hold any value.
            let _ = latencies.record(ns);
        }
        class.bytes += bytes;
    }

    /// Drops all measurements so far.
    pub(super) fn restart(&self) {
        self.classes.lock().clear();
    }

    /// The measured latencies as a file for emulated origins to replay; `None`
    /// before the first.
    pub fn latencies(&self, about: impl Into<String>) -> Option<LatencyFile> {
        let classes = self.classes.lock();
        let class: Vec<LatencyClass> = classes
            .iter()
            .map(|(at_most, class)| LatencyClass {
                at_most: ByteSize(*at_most),
                requests: class.whole.len(),
                mean_bytes: class.bytes / class.whole.len().max(1),
                first_byte: quantiles(&class.first_byte),
                body: quantiles(&class.body),
                whole: quantiles(&class.whole),
            })
            .collect();
        (!class.is_empty()).then(|| LatencyFile {
            format: LATENCY_FILE_FORMAT,
            about: about.into(),
            class,
        })
    }

    /// Figures by class of size: `first_byte_p50 ≤ 64KiB` and the like.
    pub(super) fn figures(&self) -> Vec<ExtraFigure> {
        let classes = self.classes.lock();
        let mut figures = Vec::new();
        for (at_most, class) in classes.iter() {
            let size = ByteSize(*at_most);
            figures.push(ExtraFigure {
                metric: format!("requests of up to {size}"),
                unit: "count".into(),
                value: class.whole.len() as f64,
            });
            for (name, latencies) in [
                ("first_byte", &class.first_byte),
                ("body", &class.body),
                ("whole", &class.whole),
            ] {
                for (suffix, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
                    figures.push(ExtraFigure {
                        metric: format!("{name}_{suffix} of up to {size}"),
                        unit: "ms".into(),
                        value: at(latencies, share),
                    });
                }
            }
        }
        figures
    }
}

fn list_cure(error: &OriginError) -> String {
    let cure = match error {
        OriginError::Unsupported(_) => "name its keys, in a file or by their number",
        OriginError::NoSuchBucket(_) | OriginError::NotFound(_) => "name another bucket",
        OriginError::AccessDenied(_) => "give the origin's credentials, or name keys",
        _ => "is the origin there?",
    };
    format!("{error}; {cure}")
}

fn class_of(bytes: u64) -> u64 {
    let mut at_most = FIRST_CLASS.bytes();
    while at_most < bytes {
        at_most = at_most.saturating_mul(CLASS_FACTOR);
    }
    at_most
}

fn quantiles(latencies: &Histogram<u64>) -> Quantiles {
    SHARES.map(|share| (share, at(latencies, share))).to_vec()
}

/// Milliseconds that a share of the latencies does not exceed.
fn at(latencies: &Histogram<u64>, share: f64) -> f64 {
    let ns = match share {
        // The histogram's value at 0 would be the end of its first bucket.
        0.0 => latencies.min(),
        share => latencies.value_at_quantile(share).min(latencies.max()),
    };
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use floe::latency::LatencyRule;
    use floe::origin::OriginConfig;
    use floe::origin::emulated::{EmulatedConfig, SizeRule};

    use super::*;
    use crate::run::{
        BenchOptions, Pacing, Progress, RequestSource, Stop, Target, bench, in_virtual_time,
    };

    const SMALL: u64 = 60_000;
    const LARGE: u64 = 3_000_000;

    /// Measures 4,000 reads of small and of large objects of an emulated origin.
    fn measured(latency: LatencyRule, bandwidth: Option<ByteSize>) -> LatencyFile {
        let found: Result<_, EvalError> = in_virtual_time(3, async |clock| {
            let mut config = OriginConfig::emulated(EmulatedConfig {
                size: SizeRule::FromKey {
                    otherwise: ByteSize(SMALL),
                },
                latency,
                bandwidth_per_stream: bandwidth,
                piece_size: ByteSize::kib(64),
                ..EmulatedConfig::default()
            });
            config.requests.max_concurrent = 64;
            let origin = Origin::open(&config, clock.clone())?;
            let probe = std::sync::Arc::new(OriginProbe::new(origin, "b", clock.clone()));
            let keys = (0..100).flat_map(|id| [SMALL, LARGE].map(|size| format!("{id}-{size}")));
            let source = RequestSource::Keys {
                keys: keys.collect(),
                read_bytes: None,
                seed: 1,
            };
            let options = BenchOptions {
                pacing: Pacing::Closed { clients: 8 },
                stop: Stop {
                    requests: Some(8_000),
                    duration: None,
                },
                progress: Progress::Off,
                ..BenchOptions::new("origin", source)
            };
            let run = bench(&Target::Origin(probe.clone()), &clock, None, &options).await?;
            assert_eq!((run.requests, run.failed), (8_000, 0));
            assert_eq!(run.whole.get.count, 8_000);
            Ok(probe.latencies("a test").expect("something was measured"))
        });
        found.expect("it runs")
    }

    fn value(quantiles: &Quantiles, share: f64) -> f64 {
        let found = quantiles.iter().find(|(at, _)| *at == share);
        found.expect("it is written down").1
    }

    fn assert_close(what: &str, measured: f64, expected: f64, share: f64) {
        let off = (measured - expected).abs() / expected;
        assert!(off < share, "{what}: {measured} instead of {expected}");
    }

    #[test]
    fn an_origin_is_measured_and_its_file_replays_it() {
        // Quantiles of a distribution that is known exactly.
        let quantiles = vec![(0.0, 5.0), (0.5, 15.0), (0.9, 30.0), (1.0, 60.0)];
        let rule = LatencyRule::Empirical { quantiles };
        let first = measured(rule, Some(ByteSize::mib(10)));
        assert_eq!(first.class.len(), 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.toml");
        std::fs::write(&path, first.to_text().unwrap()).unwrap();
        assert_eq!(LatencyFile::read(&path).unwrap(), first);
        let again = measured(LatencyRule::File { path }, None);
        for (file, which) in [(&first, "measured"), (&again, "replayed")] {
            for (class, bytes) in file.class.iter().zip([SMALL, LARGE]) {
                assert_eq!(
                    (class.requests, class.mean_bytes),
                    (4_000, bytes),
                    "{which}"
                );
                assert!(class.at_most.bytes() >= bytes);
                let first_byte = |share| value(&class.first_byte, share);
                for (share, ms) in [(0.2, 9.0), (0.5, 15.0), (0.8, 26.25), (0.99, 57.0)] {
                    assert_close(which, first_byte(share), ms, 0.08);
                }
                // Within the histograms' resolution of a thousandth, applied
                // twice.
                assert!(first_byte(0.0) >= 4.98 && first_byte(1.0) <= 60.2);
                let body_ms = bytes as f64 / (10 << 20) as f64 * 1e3;
                assert_close(which, value(&class.body, 0.5), body_ms, 0.02);
                let whole = value(&class.whole, 0.5);
                assert_close(which, whole, 15.0 + body_ms, 0.08);
            }
        }
    }

    #[test]
    fn files_that_cannot_be_replayed_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.toml");
        let rejected = |path: &Path| LatencyFile::read(path).unwrap_err().to_string();
        assert!(
            rejected(&path).contains("cannot be read"),
            "{}",
            rejected(&path)
        );
        for (text, part) in [
            ("format = 2\nclass = []", "its format is 2"),
            ("format = 1\nclass = []", "classes that ascend"),
            ("format = 1", "missing field `class`"),
            (
                "format = 1\n[[class]]\nat_most = 4096\nrequests = 1\nmean_bytes = 1\n\
                 first_byte = [[0.0, 1.0]]\nbody = [[0.0, 0.0], [1.0, 0.0]]",
                "first_byte of at_most",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(rejected(&path).contains(part), "{}", rejected(&path));
        }
    }
}
