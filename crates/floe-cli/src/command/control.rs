//! Requests to the running server over its control socket.

use std::path::PathBuf;

use clap::ArgMatches;
use floe::config::{Effective, Schema};
use floe_server::control::{self, Reply, Request};

use crate::failure::Failure;
use crate::frontends;
use crate::settings::Request as Settings;

/// The control socket of the server with the settings of a command.
pub(super) struct Client {
    path: PathBuf,
}

impl Client {
    /// The client of a command that needs no other settings.
    pub(super) fn of(schema: &Schema, matches: &ArgMatches) -> Result<Self, Failure> {
        let settings = Settings::new(schema, matches)?;
        Client::new(&settings, &settings.load(schema)?)
    }

    pub(super) fn new(settings: &Settings, effective: &Effective<'_>) -> Result<Self, Failure> {
        let path = frontends::control_path(effective, &settings.places.data_dir)?;
        let path =
            path.ok_or_else(|| Failure::usage("control.path disables the control socket"))?;
        Ok(Client { path })
    }

    /// Sends a request and waits for its reply, which is no failure.
    ///
    /// # Errors
    /// No server answers, or the request failed.
    pub(super) fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let reply = control::call(&self.path, request).map_err(|error| {
            let path = self.path.display();
            Failure::environment(format!("no server answers at `{path}`"))
                .because(error)
                .cure("start `floe serve`, or name the server's --data-dir or --control-path; `floe volume flush --offline` needs no server")
        })?;
        match reply {
            Reply::Failed {
                is_usage: true,
                message,
            } => Err(Failure::usage(message)),
            Reply::Failed { message, .. } => Err(Failure::environment(message)),
            reply => Ok(reply),
        }
    }
}

/// The failure of a reply that is not the one of its request.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    Failure::bug("the server's reply is of another request").because(format!("{reply:?}"))
}
