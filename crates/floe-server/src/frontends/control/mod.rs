//! Commands of operators to the running server, over a Unix socket that only the
//! server's user can open.
//!
//! A client sends a line of JSON for each request and gets a line for each. Lines,
//! clients and waiting are bounded. Must not depend on: other frontends.

mod config;
mod protocol;
#[cfg(test)]
mod tests;
mod volumes;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use floe::limit::Limit;
use floe_device::Clock;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::commands::{Objects, Page};
use crate::frontend::{Address, Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, ConnectionCounters, Samples};
use crate::net::{self, Activity, Places, Service, UnixSocket};
use volumes::Volumes;

pub use config::ControlConfig;
pub use protocol::{
    CachedObject, CachedState, REQUEST_BYTES_MAX, Reply, Request, VolumeReport, WarmObject,
    WarmedObject, call,
};

/// Most clients; a further one replaces one that is idle, or waits.
const CLIENTS_MAX: usize = 8;

/// The time that a client may take for a request, or to take a reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The frontend of commands.
pub(crate) struct ControlFrontend {
    /// The volumes, if there is a cache of them.
    volumes: Option<Volumes>,
    objects: Objects,
    clock: Clock,
    counters: Arc<ConnectionCounters>,
}

impl Frontend for ControlFrontend {
    type Config = ControlConfig;
    /// None if the socket is optional and could not be bound.
    type Listeners = Option<UnixSocket>;
    const NAME: &'static str = "control";

    async fn bind(config: &ControlConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let prepare = |source: Box<dyn std::error::Error + Send + Sync>| StartError::Prepare {
            frontend: Self::NAME,
            source,
        };
        let bound = match UnixSocket::bind(Self::NAME, &config.path).await {
            Ok(socket) => restrict(&socket)
                .map(|()| socket)
                .map_err(|error| prepare(error.into())),
            Err(error) => Err(error.into()),
        };
        let socket = match bound {
            Err(error) if config.is_optional => {
                tracing::info!(%error, "`floe cache` cannot reach this server");
                None
            }
            bound => Some(bound?),
        };
        Ok(Bound {
            frontend: ControlFrontend {
                volumes: Volumes::new(host),
                objects: Objects::new(host.objects.clone(), host.clock.clone()),
                clock: host.clock.clone(),
                counters: Arc::default(),
            },
            addresses: socket
                .iter()
                .map(|socket| Address::Unix(socket.path().to_owned()))
                .collect(),
            listeners: socket,
        })
    }

    fn serve(self: Arc<Self>, socket: Option<UnixSocket>, serving: Serving) -> Service {
        let drain = serving.shutdown.drain.clone();
        let Some(socket) = socket else {
            return Service::shared(async move { drain.cancelled().await });
        };
        Service::shared(net::accept(
            socket,
            Places::new(&Limit::new(CLIENTS_MAX), &self.clock),
            serving.shutdown,
            Arc::clone(&self.counters),
            move |stream, _, activity| {
                let (frontend, drain) = (Arc::clone(&self), drain.clone());
                async move {
                    if let Err(error) = frontend.connection(stream, activity, drain).await {
                        tracing::debug!(%error, "a control connection broke off");
                    }
                }
            },
        ))
    }
}

/// Waits until the client closes its connection.
async fn has_left(reader: &mut (impl AsyncBufRead + Unpin)) {
    if let Ok([_, ..]) = reader.fill_buf().await {
        // It has sent its next request.
        std::future::pending().await
    }
}

/// Lets only the server's user open the socket.
fn restrict(socket: &UnixSocket) -> io::Result<()> {
    std::fs::set_permissions(socket.path(), std::fs::Permissions::from_mode(0o600))
}

impl Collect for ControlFrontend {
    fn collect(&self, _samples: &mut Samples) {}
}

impl ControlFrontend {
    async fn carry_out(&self, request: Request) -> Reply {
        match request {
            Request::Purge { sets } => {
                let purged = self.objects.purge(sets).await;
                purged.map_or_else(Reply::from, |sets| Reply::Purged { sets })
            }
            Request::Cached {
                bucket,
                prefix,
                after,
                most,
            } => match self.objects.cached(&bucket, prefix, after, most).await {
                Ok(Page { objects, is_last }) => Reply::Cached { objects, is_last },
                Err(failed) => failed.into(),
            },
            Request::Warm {
                bucket,
                objects,
                most_bytes,
            } => Reply::Warmed(self.objects.warm(&bucket, objects, most_bytes).await),
            Request::Pin {
                bucket,
                prefix,
                cap,
            } => {
                let pin = self.objects.pin(&bucket, &prefix, cap).await;
                pin.map_or_else(Reply::from, |pin| Reply::Pins(vec![pin]))
            }
            Request::Unpin { bucket, prefix } => {
                let unpinned = self.objects.unpin(&bucket, &prefix).await;
                unpinned.map_or_else(Reply::from, |was_pinned| Reply::Unpinned { was_pinned })
            }
            Request::Pins => Reply::Pins(self.objects.pins()),
            request => match &self.volumes {
                Some(volumes) => volumes.carry_out(request).await,
                None => Reply::Failed {
                    is_usage: true,
                    message: "the server has no cache of volumes; start it with a volume, or with volumes.path".into(),
                },
            },
        }
    }

    async fn connection(
        &self,
        stream: UnixStream,
        activity: Arc<Activity>,
        drain: CancellationToken,
    ) -> io::Result<()> {
        // Until its mode was set, others could open the socket.
        let user = stream.peer_cred()?.uid();
        if user != rustix::process::geteuid().as_raw() && user != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut reader).take(REQUEST_BYTES_MAX as u64);
            tokio::select! {
                biased;
                read = bounded.read_until(b'\n', &mut line) => read?,
                () = self.clock.sleep(CLIENT_TIMEOUT) => return Err(io::ErrorKind::TimedOut.into()),
                () = drain.cancelled() => return Ok(()),
            };
            if line.is_empty() {
                return Ok(());
            }
            let busy = activity.begin();
            let request = match line.ends_with(b"\n") {
                true => serde_json::from_slice(&line).map_err(|error| error.to_string()),
                false => Err(format!("it has no end within {REQUEST_BYTES_MAX} bytes")),
            };
            let is_whole = line.ends_with(b"\n");
            let reply = match request {
                // These may take long, and change nothing by halves.
                Ok(
                    request @ (Request::Scrub { .. }
                    | Request::Cached { .. }
                    | Request::Warm { .. }),
                ) => tokio::select! {
                    reply = self.carry_out(request) => reply,
                    () = has_left(&mut reader) => return Ok(()),
                    () = drain.cancelled() => return Ok(()),
                },
                Ok(request) => self.carry_out(request).await,
                Err(error) => Reply::Failed {
                    is_usage: true,
                    message: format!("the request is malformed: {error}"),
                },
            };
            let mut reply = serde_json::to_vec(&reply)?;
            reply.push(b'\n');
            tokio::select! {
                biased;
                sent = writer.write_all(&reply) => sent?,
                () = self.clock.sleep(CLIENT_TIMEOUT) => return Err(io::ErrorKind::TimedOut.into()),
            }
            drop(busy);
            if !is_whole {
                return Ok(());
            }
        }
    }
}
