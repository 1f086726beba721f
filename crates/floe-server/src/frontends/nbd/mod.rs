//! Block devices over the NBD protocol, on TCP and a Unix socket.
//!
//! Each thread serves its connections on its own runtime, with its own listener
//! on the same port. Requests of a connection run concurrently, and their
//! replies are sent in the order in which they end.
//!
//! `protocol` is pure, `negotiation` the handshake's state machine,
//! `connection` the transmission, `export` the blocks. `docs/nbd.md` has the
//! guarantees. The frontend must not depend on how an export keeps its blocks.

mod collect;
mod config;
mod connection;
mod counters;
mod end;
mod export;
mod exports;
mod frontend;
mod handshake;
mod listen;
mod memory;
mod negotiation;
mod output;
mod pace;
pub mod protocol;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use floe::volume::{Volume, VolumeCache};

use crate::config::ServerConfigError;
use crate::frontend::{Bound, Frontend, Host, Serving, StartError};
use crate::net::{Listeners, Service};
use crate::reload::Reload;
use exports::Exports;
use listen::Thread;

pub use config::{ExportConfig, ExportKind, NbdConfig, TlsMode};
pub(crate) use frontend::NbdFrontend;

impl Frontend for NbdFrontend {
    const NAME: &'static str = "nbd";
    type Listeners = Listeners;
    type Config = NbdConfig;

    async fn bind(config: &NbdConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let volumes = host.volumes.as_ref().map(VolumeCache::volumes);
        let names = volumes.as_deref().map(|all| all.iter().map(Volume::name));
        config.check_names(names.map(Vec::from_iter).as_deref())?;
        let threads = config.thread_count();
        let listeners = Listeners::bind(Self::NAME, config.listen, &config.path, threads).await?;
        let exports =
            Exports::open(config, host.volumes.clone()).map_err(|error| StartError::Prepare {
                frontend: Self::NAME,
                source: error.into(),
            })?;
        let (clock, draining) = (host.clock.clone(), host.draining.clone());
        Ok(Bound {
            frontend: NbdFrontend::new(config, exports, clock, draining)?,
            addresses: listeners.addresses(),
            listeners,
        })
    }

    fn serve(self: Arc<Self>, listeners: Listeners, serving: Serving) -> Service {
        let abort = serving.shutdown.abort.clone();
        let threads = self.threads.clone().into_iter();
        listeners.serve(
            threads,
            &serving.shutdown,
            |counters, sockets, connections| {
                let thread = Thread {
                    frontend: self,
                    counters,
                    abort,
                    connections,
                };
                thread.run(sockets)
            },
        )
    }

    fn reload(self: Arc<Self>, config: &NbdConfig) -> Result<Reload, ServerConfigError> {
        let (config, tls) = (config.clone(), frontend::tls(config)?);
        Ok(Box::new(move || self.take(&config, tls.as_ref())))
    }
}
