//! The client for which a task works.

use std::future::Future;
use std::net::IpAddr;

/// The client of a request. Requests to the origin that wait take turns by client. All requests
/// without a known client count as those of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(Option<IpAddr>);

tokio::task_local! {
    static CLIENT: Client;
}

impl Client {
    /// The client with this address. An address may stand for a network.
    pub fn at(address: Option<IpAddr>) -> Self {
        Client(address)
    }

    /// The client of the task that calls.
    pub fn current() -> Self {
        CLIENT.try_with(|client| *client).unwrap_or_default()
    }

    /// Runs `task` for this client. A task that it spawns has no client, unless it is wrapped
    /// as well.
    pub fn scope<F: Future>(self, task: F) -> impl Future<Output = F::Output> + use<F> {
        CLIENT.scope(self, task)
    }
}
