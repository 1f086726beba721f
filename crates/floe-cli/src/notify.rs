//! Notifications to systemd by the protocol of sd_notify(3), one datagram per
//! message.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The supervisor's socket, if there is one.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Finds the supervisor in the environment.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let address = match path.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&path),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        });
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC")
            .filter(|usec| for_us && *usec > 0)
            .map(Duration::from_micros);
        Supervisor { socket, watchdog }
    }

    /// The interval for notifying the watchdog: half its limit, as
    /// sd_watchdog_enabled(3) recommends.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.socket.as_ref()?;
        self.watchdog.map(|interval| interval / 2)
    }

    /// The service answers requests.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The service is going down.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing requests in flight\n");
    }

    /// The service is alive.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::warn!(%error, "the supervisor's socket does not take messages");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_datagrams() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let supervisor_end = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor {
            socket: Some((
                UnixDatagram::unbound().unwrap(),
                SocketAddr::from_pathname(&path).unwrap(),
            )),
            watchdog: Some(Duration::from_secs(10)),
        };
        assert_eq!(supervisor.watchdog_interval(), Some(Duration::from_secs(5)));
        supervisor.ready("serving");
        supervisor.alive();
        supervisor.stopping();
        let mut messages = Vec::new();
        for _ in 0..3 {
            let mut buffer = [0; 128];
            let length = supervisor_end.recv(&mut buffer).unwrap();
            messages.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        assert_eq!(messages[0], "READY=1\nSTATUS=serving\n");
        assert_eq!(messages[1], "WATCHDOG=1\n");
        assert!(messages[2].starts_with("STOPPING=1\n"));
    }
}
