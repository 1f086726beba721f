//! SIGHUP: reads the configuration again and takes what needs no restart.

use clap::ArgMatches;
use floe::config::{Effective, Schema};
use floe_server::Server;

use crate::failure::Failure;
use crate::logging::Logs;
use crate::settings::{Plan, Request};

/// Settings that a running server takes.
const RELOADABLE: [&str; 5] = [
    "log.level",
    "s3.keys",
    "memcached.auth_file",
    "memcached.tls_certificate",
    "memcached.tls_key",
];

/// How the settings of the running server were found.
pub(crate) struct Reloader<'a> {
    schema: &'a Schema,
    matches: &'a ArgMatches,
    logs: Logs,
    /// Those that the server was started with.
    effective: Effective<'a>,
}

impl<'a> Reloader<'a> {
    pub(crate) fn new(
        schema: &'a Schema,
        matches: &'a ArgMatches,
        logs: Logs,
        effective: Effective<'a>,
    ) -> Self {
        Reloader {
            schema,
            matches,
            logs,
            effective,
        }
    }

    /// Reads the configuration again. Where anything about it is wrong, all of
    /// the old one stays in force.
    pub(crate) fn reload(&self, server: &Server) {
        match self.try_reload(server) {
            Ok(taken) => tracing::info!(
                reloaded = taken.join(", "),
                "the configuration was read again"
            ),
            Err(failure) => tracing::error!(
                %failure,
                "the new configuration is refused; the old one stays in force"
            ),
        }
    }

    fn try_reload(&self, server: &Server) -> Result<Vec<&'static str>, Failure> {
        let request = Request::new(self.schema, self.matches)?;
        let effective = request.load(self.schema)?;
        let plan = Plan::new(&request, &effective)?;
        let filter = crate::logging::filter(&plan.log)?;
        let mut taken = server.reload(&plan.server).map_err(|error| {
            Failure::usage("the faces cannot be served like this").because(error)
        })?;
        self.logs.set_filter(filter)?;
        taken.push("log.level");
        let waiting = self.waiting(&effective);
        if !waiting.is_empty() {
            tracing::warn!(
                settings = waiting.join(", "),
                "these settings have changed and need a restart"
            );
        }
        Ok(taken)
    }

    /// Settings that differ from those of the start and are not taken.
    fn waiting(&self, new: &Effective<'_>) -> Vec<String> {
        let value = |effective: &Effective<'_>, setting: &str| {
            effective.get(setting).map(|entry| entry.value.clone())
        };
        let changed = |setting: &String| {
            !RELOADABLE.contains(&setting.as_str())
                && value(&self.effective, setting) != value(new, setting)
        };
        self.schema
            .keys()
            .map(|(setting, _)| setting)
            .filter(changed)
            .collect()
    }
}
