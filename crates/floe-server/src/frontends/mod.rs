//! The frontends, a folder each, and their list. A new one is a module, a field
//! of [`ServerConfig`] and a line of `registered`.

pub(crate) mod admin;
pub mod control;
pub(crate) mod events;
pub mod memcached;
pub mod nbd;
pub mod oxcache;
pub(crate) mod peers;
pub mod s3;

use std::sync::Arc;

use floe::object::{Consistency, ObjectConfig};
use futures::future::{BoxFuture, FutureExt as _};
use serde::{Deserialize, Serialize};

use crate::config::{Exposed, Section, ServerConfigError, positive, problem};
use crate::frontend::{Address, Bound, Frontend, Host, Serving, StartError};
use crate::metrics::Collect;
use crate::net::Service;
use crate::node::NodeConfig;
use crate::reload::Reload;
use admin::{AdminConfig, AdminFrontend};
use control::{ControlConfig, ControlFrontend};
use events::{EventsConfig, EventsFrontend};
use memcached::{MemcachedConfig, MemcachedFrontend};
use nbd::{NbdConfig, NbdFrontend};
use oxcache::{OxCacheConfig, OxCacheFrontend};
use peers::{PeersConfig, PeersFrontend};
use s3::{S3Config, S3Frontend};

/// The settings of the frontends. One without a section is not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The S3 frontend.
    pub s3: Option<S3Config>,
    /// OxCache's protocol on a Unix socket.
    pub oxcache: Option<OxCacheConfig>,
    /// memcached's protocol.
    pub memcached: Option<MemcachedConfig>,
    /// Block devices over the NBD protocol.
    pub nbd: Option<NbdConfig>,
    /// Other nodes, which fill from each other.
    pub peers: Option<PeersConfig>,
    /// Notifications of changes at the origin.
    pub events: Option<EventsConfig>,
    /// Commands of operators to the running server.
    pub control: Option<ControlConfig>,
    /// Metrics, health and statistics over HTTP.
    pub admin: Option<AdminConfig>,
    /// This server as one of several nodes; it is alone without one.
    pub node: Option<NodeConfig>,
    /// Seconds that a shutdown goes on accepting, so that load balancers can learn of it first,
    /// and that it answers their checks after it has sent everything.
    pub leave_seconds: u32,
    /// Seconds that a shutdown waits for pending requests before it aborts them.
    pub drain_timeout_seconds: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            s3: None,
            oxcache: None,
            memcached: None,
            nbd: None,
            peers: None,
            events: None,
            control: None,
            admin: None,
            node: None,
            leave_seconds: 0,
            drain_timeout_seconds: 30,
        }
    }
}

/// All frontends, in the order in which they are opened.
fn registered() -> Vec<Box<dyn Registered>> {
    vec![
        register::<S3Frontend>(|config| config.s3.as_ref()),
        register::<OxCacheFrontend>(|config| config.oxcache.as_ref()),
        register::<MemcachedFrontend>(|config| config.memcached.as_ref()),
        register::<NbdFrontend>(|config| config.nbd.as_ref()),
        register::<PeersFrontend>(|config| config.peers.as_ref()),
        register::<EventsFrontend>(|config| config.events.as_ref()),
        register::<ControlFrontend>(|config| config.control.as_ref()),
        register::<AdminFrontend>(|config| config.admin.as_ref()),
    ]
}

impl ServerConfig {
    /// Checks the settings without opening a file or socket.
    ///
    /// # Errors
    /// Names the first invalid setting and the remedy.
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        let frontends = registered();
        let mut sections = frontends
            .iter()
            .filter_map(|one| one.section(self))
            .peekable();
        if sections.peek().is_none() {
            let names: Vec<_> = frontends
                .iter()
                .map(|one| format!("[{}]", one.name()))
                .collect();
            return Err(problem(
                &names.join(", "),
                "no frontend is configured",
                "add at least one of these sections",
            ));
        }
        self.node.iter().try_for_each(NodeConfig::validate)?;
        positive("drain_timeout_seconds", self.drain_timeout_seconds)?;
        sections.try_for_each(Section::validate)
    }

    /// The frontends that other machines can use without credentials.
    pub fn exposed(&self) -> Vec<Exposed> {
        let frontends = registered();
        let sections = frontends.iter().filter_map(|one| one.section(self));
        sections.filter_map(Section::exposed).collect()
    }

    /// Warnings for the operator about these settings, and about those of `objects` beside them.
    pub fn warnings(&self, objects: &ObjectConfig) -> Vec<String> {
        let mut warnings: Vec<_> = self.exposed().iter().map(Exposed::to_string).collect();
        let rules = objects.rules.iter().filter_map(|rule| rule.consistency);
        let mut modes = rules.chain([objects.consistency]);
        if self.peers.is_some() && modes.any(|mode| mode == Consistency::Ttl) {
            warnings.push(
                "object.consistency is `ttl` and there are peers: after a write through one node the \
                 others serve their copies until object.ttl_seconds have passed; `etag` and \
                 `immutable` have no such time"
                    .to_owned(),
            );
        }
        if self
            .node
            .as_ref()
            .is_some_and(NodeConfig::leases_without_ring)
            && self.memcached.is_some()
        {
            warnings.push(
                "node.etcd is set and node.ring_hash is `off`: a proxy that moves memcached's keys \
                 may get old values; say with node.ring_hash how clients spread keys"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Binds every frontend that has a section.
    pub(crate) async fn bind(&self, host: &Host) -> Result<Vec<Opened>, StartError> {
        let mut opened = Vec::new();
        for frontend in registered() {
            opened.extend(frontend.bind(self, host).await?);
        }
        Ok(opened)
    }
}

/// A bound frontend, without its types.
pub(crate) struct Opened {
    pub(crate) name: &'static str,
    pub(crate) ends_last: bool,
    pub(crate) addresses: Vec<Address>,
    pub(crate) metrics: Arc<dyn Collect>,
    pub(crate) serve: Box<dyn FnOnce(Serving) -> Service + Send>,
    pub(crate) reloader: Reloader,
}

/// Reads the frontend's section of a new configuration, if it has one.
pub(crate) type Reloader =
    Box<dyn Fn(&ServerConfig) -> Result<Option<Reload>, ServerConfigError> + Send + Sync>;

/// A frontend of the list, without its types.
trait Registered: Send + Sync {
    fn name(&self) -> &'static str;

    fn section<'a>(&self, config: &'a ServerConfig) -> Option<&'a dyn Section>;

    /// Binds the frontend if it has a section.
    fn bind<'a>(
        &self,
        config: &'a ServerConfig,
        host: &'a Host,
    ) -> BoxFuture<'a, Result<Option<Opened>, StartError>>;
}

struct Registration<F: Frontend> {
    section: fn(&ServerConfig) -> Option<&F::Config>,
}

fn register<F: Frontend>(section: fn(&ServerConfig) -> Option<&F::Config>) -> Box<dyn Registered> {
    Box::new(Registration::<F> { section })
}

impl<F: Frontend> Registered for Registration<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn section<'a>(&self, config: &'a ServerConfig) -> Option<&'a dyn Section> {
        (self.section)(config).map(|section| section as &dyn Section)
    }

    fn bind<'a>(
        &self,
        config: &'a ServerConfig,
        host: &'a Host,
    ) -> BoxFuture<'a, Result<Option<Opened>, StartError>> {
        let section = self.section;
        async move {
            let Some(own) = section(config) else {
                return Ok(None);
            };
            Ok(Some(opened(F::bind(own, host).await?, section)))
        }
        .boxed()
    }
}

fn opened<F: Frontend>(
    bound: Bound<F>,
    section: fn(&ServerConfig) -> Option<&F::Config>,
) -> Opened {
    let frontend = Arc::new(bound.frontend);
    let (serving, reloading) = (Arc::clone(&frontend), Arc::clone(&frontend));
    let listeners = bound.listeners;
    Opened {
        name: F::NAME,
        ends_last: F::ENDS_LAST,
        addresses: bound.addresses,
        metrics: frontend,
        serve: Box::new(move |server| serving.serve(listeners, server)),
        reloader: Box::new(move |config| {
            let own = section(config);
            own.map(|own| Arc::clone(&reloading).reload(own))
                .transpose()
        }),
    }
}

#[cfg(test)]
mod tests;
