//! SIGHUP: reads the configuration again and applies the settings that need no restart.

use std::cell::RefCell;
use std::collections::BTreeMap;

use clap::ArgMatches;
use floe::config::{Effective, Entry, Schema, Value};
use floe_server::Server;

use crate::failure::Failure;
use crate::logging::Logs;
use crate::settings::{Plan, Request};

/// Files that their frontend reads again, changed or not.
const FILES: [&str; 5] = [
    "s3.tls_certificate",
    "s3.tls_key",
    "memcached.auth_file",
    "memcached.tls_certificate",
    "memcached.tls_key",
];

/// The settings of objects that a rule can have, and the rules.
const OBJECTS: [&str; 7] = [
    "object.chunk_size",
    "object.consistency",
    "object.fetch_parallelism",
    "object.negative_ttl_seconds",
    "object.rules",
    "object.serve_stale",
    "object.ttl_seconds",
];

/// The setting of requests to the origin that is fixed when it is opened.
const ORIGIN_FIXED: &str = "connect_timeout_ms";

/// The sources of the running server's settings.
pub(crate) struct Reloader<'a> {
    schema: &'a Schema,
    matches: &'a ArgMatches,
    logs: Logs,
    /// Effective values, by setting.
    in_force: RefCell<BTreeMap<String, Value>>,
}

impl<'a> Reloader<'a> {
    pub(crate) fn new(
        schema: &'a Schema,
        matches: &'a ArgMatches,
        logs: Logs,
        effective: &Effective<'a>,
    ) -> Self {
        Reloader {
            schema,
            matches,
            logs,
            in_force: RefCell::new(values(effective)),
        }
    }

    /// Reads the configuration again. On an error all settings stay as they were.
    pub(crate) fn reload(&self, server: &Server) {
        match self.try_reload(server) {
            Ok(reloaded) => tracing::info!(
                reloaded = reloaded.join(", "),
                "the configuration was reloaded"
            ),
            Err(failure) => tracing::error!(
                %failure,
                "the new configuration was rejected; the old one stays in effect"
            ),
        }
    }

    fn try_reload(&self, server: &Server) -> Result<Vec<String>, Failure> {
        let request = Request::new(self.schema, self.matches)?;
        let effective = request.load(self.schema)?;
        let plan = Plan::new(&request, &effective)?;
        let filter = crate::logging::filter(&plan.log)?;
        let objects = plan.objects(server.store().value_bytes_max());
        let invalid = |error| Failure::usage("the settings of objects are invalid").because(error);
        server.objects().check(&objects).map_err(invalid)?;
        let mut taken = server.reload(&plan.server).map_err(|error| {
            Failure::usage("the settings of the frontends are invalid").because(error)
        })?;
        // The plan has validated these settings.
        let origin = server.origin().reload(&plan.origin.requests);
        origin.map_err(|error| {
            Failure::usage("the settings of the origin are invalid").because(error)
        })?;
        server.objects().reload(&objects).map_err(invalid)?;
        taken.extend(OBJECTS);
        if server.store().resize_ram(plan.ram.size) {
            taken.push("ram.size");
        }
        self.logs.set_filter(filter)?;
        taken.push("log.level");
        let is_taken = |setting: &str| {
            let of_origin = setting.strip_prefix("origin.requests.");
            taken.contains(&setting) || of_origin.is_some_and(|setting| setting != ORIGIN_FIXED)
        };
        let mut in_force = self.in_force.borrow_mut();
        let (mut reloaded, mut waiting) = (Vec::new(), Vec::new());
        for (setting, value) in values(&effective) {
            let is_same = in_force.get(&setting) == Some(&value);
            if is_taken(&setting) {
                if !is_same || FILES.contains(&setting.as_str()) {
                    reloaded.push(setting.clone());
                }
                in_force.insert(setting, value);
            } else if !is_same {
                waiting.push(setting);
            }
        }
        if !waiting.is_empty() {
            tracing::warn!(
                settings = waiting.join(", "),
                "these settings have changed and need a restart"
            );
        }
        Ok(reloaded)
    }
}

fn values(effective: &Effective<'_>) -> BTreeMap<String, Value> {
    let settings = effective.settings();
    let value = |(setting, entry): (&str, &Entry)| (setting.to_owned(), entry.value.clone());
    settings.map(value).collect()
}
