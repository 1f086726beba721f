//! Binds addresses, with errors that name the address and the remedy.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};

/// Connections that the kernel queues until they are accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// Attempts to find one free port for all threads.
const PORT_ATTEMPTS: usize = 16;

/// An address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("the {frontend} frontend cannot listen on {address}: {problem}; {cure}")]
pub struct BindError {
    /// The frontend.
    pub frontend: &'static str,
    /// The address or path.
    pub address: String,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub cure: String,
}

/// Listens on `address`, the setting `listen` of `frontend`.
pub(crate) async fn bind_tcp(
    frontend: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|error| {
        let setting = format!("{frontend}.listen");
        let port = address.port();
        let cure = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "stop the program that has it (`ss -ltnp 'sport = :{port}'` names it), or choose another in {setting}"
            ),
            io::ErrorKind::AddrNotAvailable => {
                format!("{setting} must be an address of this machine (`ip address` lists them)")
            }
            io::ErrorKind::PermissionDenied => {
                format!("ports below 1024 need a privilege; choose another in {setting}")
            }
            _ => format!("choose another address in {setting}"),
        };
        BindError {
            frontend,
            address: address.to_string(),
            problem: error.to_string(),
            cure,
        }
    })
}

/// Listens on `address` once per thread, so that threads do not wait for each other to accept
/// connections.
///
/// The kernel would also share a port with another process that shares it,
/// without an error. So a probe first binds the port without sharing.
pub(crate) async fn bind_tcp_shared(
    frontend: &'static str,
    address: SocketAddr,
    threads: usize,
) -> Result<Vec<std::net::TcpListener>, BindError> {
    for attempt in 1.. {
        let probe = bind_tcp(frontend, address).await?;
        let bound = probe.local_addr().unwrap_or(address);
        drop(probe);
        let listeners: io::Result<Vec<_>> = (0..threads).map(|_| bind_shared(bound)).collect();
        match listeners {
            Ok(listeners) => return Ok(listeners),
            // Another process took the port meanwhile.
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => {}
            Err(error) => {
                return Err(BindError {
                    frontend,
                    address: bound.to_string(),
                    problem: error.to_string(),
                    cure: format!("choose another address in {frontend}.listen"),
                });
            }
        }
    }
    // Unreachable: the loop returns.
    Ok(Vec::new())
}

fn bind_shared(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// A listening Unix socket; its path is removed on drop.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Listens at `path`, the setting `path` of `frontend`. Replaces a stale
    /// socket of a killed process; any other file is an error.
    pub(crate) async fn bind(frontend: &'static str, path: &Path) -> Result<Self, BindError> {
        let setting = format!("{frontend}.path");
        let failure = |problem: String, cure: String| BindError {
            frontend,
            address: path.display().to_string(),
            problem,
            cure,
        };
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() {
                return Err(failure(
                    "there is a file that is no socket".into(),
                    format!("remove it, or choose another path in {setting}"),
                ));
            }
            if UnixStream::connect(path).await.is_ok() {
                return Err(failure(
                    "another process listens on it".into(),
                    format!("stop that process, or choose another path in {setting}"),
                ));
            }
            std::fs::remove_file(path).map_err(|error| {
                failure(
                    format!("a stale socket is there and cannot be removed ({error})"),
                    "remove it by hand".into(),
                )
            })?;
        }
        let listener = UnixListener::bind(path).map_err(|error| {
            failure(
                error.to_string(),
                format!(
                    "{setting} must name a socket of at most about 100 characters in a directory \
                     that exists and is writable"
                ),
            )
        })?;
        Ok(UnixSocket {
            listener,
            path: path.to_owned(),
        })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Another handle of the socket, registered with the caller's runtime.
    pub(crate) fn share(&self) -> io::Result<UnixListener> {
        let shared = self.listener.as_fd().try_clone_to_owned()?;
        UnixListener::from_std(shared.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket's path was not removed");
        }
    }
}

#[cfg(test)]
mod tests;
