//! Drives a running server over its protocol: OxCache's socket, S3, memcached.
//! It may be Floe's or any other server with that protocol.

mod address;
mod ask;
mod memcached;
mod oxcache;
mod pipe;
mod s3;
#[cfg(test)]
mod tests;

use floe::origin::emulated::Content;
use floe::origin::{ObjectKey, OriginConfig};
use floe_device::Clock;
use serde::{Deserialize, Serialize};

use super::response::{BENCH_BUCKET, Check, Failure, Response};
use super::{BenchOptions, Pacing, Planned, RequestSource};
use crate::error::EvalError;
use crate::trace::Op;

pub use address::RemoteAddress;
use ask::Ask;
use memcached::Memcached;
use oxcache::OxCache;
use pipe::Pool;
use s3::S3;

/// Most requests in flight on one connection.
const PIPELINE_MAX: usize = 4096;

/// Settings for driving a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct RemoteSpec {
    /// Requests of each client in flight on one connection. S3 has one.
    pub pipeline: usize,
    /// Connections of an open loop; in a closed loop each client has one.
    pub connections: usize,
    /// The name of an object: `{id}` is its number or the trace's key,
    /// `{size}` its bytes.
    pub key: String,
    /// memcached: whether to set an object after a miss.
    pub set_on_miss: bool,
    /// Seconds after which a request without a response has failed.
    pub timeout_s: f64,
    /// The bucket that a `unix:` server serves, for `verify`.
    pub bucket: String,
    /// S3: credentials, region and so on, with the names of `[origin]`. Missing
    /// ones come from the `AWS_…` variables.
    pub s3: OriginConfig,
}

impl Default for RemoteSpec {
    fn default() -> Self {
        RemoteSpec {
            pipeline: 1,
            connections: 64,
            key: "{id}-{size}".to_owned(),
            set_on_miss: true,
            timeout_s: 120.0,
            bucket: BENCH_BUCKET.to_owned(),
            s3: OriginConfig::default(),
        }
    }
}

/// A running server, and the connections to it.
pub struct RemoteTarget {
    spec: RemoteSpec,
    bucket: String,
    /// Seed of the values that are written.
    seed: u64,
    protocol: Protocol,
}

enum Protocol {
    OxCache(Pool<OxCache>),
    Memcached(Pool<Memcached>),
    S3(S3),
}

impl RemoteTarget {
    /// Connects and sends a test request. `options` have the number of
    /// connections and the requests to come.
    ///
    /// # Errors
    /// If an option does not fit the protocol, nothing listens at the address,
    /// or the server rejects the credentials or the bucket.
    pub async fn connect(
        address: &RemoteAddress,
        spec: &RemoteSpec,
        options: &BenchOptions,
        clock: &Clock,
    ) -> Result<Self, EvalError> {
        spec.validate(address, options, clock)?;
        let connections = match options.pacing {
            Pacing::Closed { clients } => clients,
            Pacing::Open { .. } | Pacing::Recorded { .. } => spec.connections,
        };
        let timeout = std::time::Duration::from_secs_f64(spec.timeout_s);
        let mut bucket = spec.bucket.clone();
        let protocol = match address {
            RemoteAddress::Unix(_) => {
                Protocol::OxCache(Pool::open(OxCache, address, connections, timeout).await?)
            }
            RemoteAddress::Memcached(_) => {
                let protocol = Memcached::from_environment()?;
                Protocol::Memcached(Pool::open(protocol, address, connections, timeout).await?)
            }
            RemoteAddress::S3 { bucket: named, .. } => {
                bucket.clone_from(named);
                Protocol::S3(S3::open(address, &spec.s3, timeout, clock).await?)
            }
        };
        Ok(RemoteTarget {
            spec: spec.clone(),
            bucket,
            seed: options.seed,
            protocol,
        })
    }

    pub(super) fn pipeline(&self) -> usize {
        self.spec.pipeline
    }

    pub(super) fn sets_on_miss(&self) -> bool {
        self.spec.set_on_miss && matches!(self.protocol, Protocol::Memcached(_))
    }

    fn name(&self, request: &Planned) -> ObjectKey {
        let size = request.object_bytes.to_string();
        let key = self.spec.key.replace("{id}", &request.key);
        ObjectKey::new(self.bucket.as_str(), key.replace("{size}", &size))
    }

    pub(super) async fn serve(
        &self,
        client: usize,
        request: &Planned,
        verify_seed: Option<u64>,
    ) -> Result<Response, Failure> {
        let whole;
        let request = match &self.protocol {
            // The protocol has no partial reads.
            Protocol::Memcached(_) => {
                whole = request.whole();
                &whole
            }
            _ => request,
        };
        let name = self.name(request);
        let ask = match request.op {
            Op::Get => Ask::Get {
                offset: request.offset,
                length: request.length,
                whole: request.length == request.object_bytes,
                check: Check::remote(name.clone(), request, verify_seed),
            },
            Op::Put => Ask::Put {
                content: Content::new(self.seed, &name, 0),
                length: request.object_bytes,
            },
            Op::Delete => Ask::Delete,
        };
        match &self.protocol {
            Protocol::S3(s3) => s3.ask(&name, ask).await,
            Protocol::OxCache(pool) => pool.ask(client, name, ask).await,
            Protocol::Memcached(pool) => pool.ask(client, name, ask).await,
        }
    }
}

impl RemoteSpec {
    fn validate(
        &self,
        address: &RemoteAddress,
        options: &BenchOptions,
        clock: &Clock,
    ) -> Result<(), EvalError> {
        let fail = |option, reason: String| Err(EvalError::Option { option, reason });
        if clock.is_virtual() {
            let reason = "a running server needs real time; leave virtual time out";
            return fail("time", reason.into());
        }
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return fail("pipeline", format!("must lie between 1 and {PIPELINE_MAX}"));
        }
        if self.pipeline > 1 && matches!(address, RemoteAddress::S3 { .. }) {
            let reason = "S3 has one request a connection; raise the clients instead";
            return fail("pipeline", reason.into());
        }
        if !(1..=65_536).contains(&self.connections) {
            return fail("connections", "must lie between 1 and 65536".into());
        }
        if !(0.001..=86_400.0).contains(&self.timeout_s) {
            return fail("timeout", "must lie between 1 ms and a day".into());
        }
        if !self.key.contains("{id}") {
            let reason = format!("`{}` names all objects the same; write {{id}}", self.key);
            return fail("key", reason);
        }
        let reads_parts = matches!(&options.source, RequestSource::Synthetic { read_bytes: Some(read), object_bytes, .. } if read < object_bytes);
        match address {
            RemoteAddress::Memcached(_) if reads_parts => fail(
                "read-size",
                "memcached's values are read whole; leave it out".into(),
            ),
            RemoteAddress::Unix(_) if options.writes > 0.0 || options.fill => fail(
                "writes",
                "OxCache's protocol has no writes; its server fetches what it misses".into(),
            ),
            _ => Ok(()),
        }
    }
}
