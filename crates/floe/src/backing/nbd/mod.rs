//! An export of an NBD server as a backing device.
//!
//! | file | content |
//! |---|---|
//! | `address.rs`, `transport.rs` | addresses, and byte streams to them |
//! | `wire.rs`, `handshake.rs` | the protocol's numbers; agreeing on an export |
//! | `config.rs` | how a server is treated |
//! | `client.rs` | the connections: sending, receiving, connecting again |
//! | `state.rs` | requests from their start to their end |
//! | `unflushed.rs` | the changes that a server may still lose |
//!
//! **A connection that dies loses nothing and changes nothing late.** `state.rs` has the
//! rules. They assume that a server ends the requests of a dead connection within
//! [`NbdConfig::fence_seconds`] of its first answers to the next one.

mod address;
mod client;
mod config;
mod error;
mod handshake;
mod state;
#[cfg(test)]
mod tests;
mod transport;
mod unflushed;
pub mod wire;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use floe_device::block::{check_blocks, check_range};
use floe_device::{
    BlockDevice, Clock, Counters, DeviceError, DeviceErrorKind, IoBuf, IoData, OpFuture, Operation,
};
use tokio::task::AbortHandle;

use client::{Client, Target};
use transport::Tls;
use unflushed::{Change, Content};
use wire::flags;

pub use address::{NbdAddress, NbdAddressError};
pub use config::NbdConfig;
pub use error::OpenNbdError;
pub use transport::{NbdConnect, NbdStream};

/// Zeros to write to a server that cannot zero, the most at once.
const ZEROS_BYTES: u64 = 1 << 20;

/// Most bytes of one request without data.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// An export of an NBD server.
///
/// Requests wait while its connection is made again; see [`NbdConfig`]. A server that
/// returns as another export gets none.
pub struct NbdBlocks {
    client: Arc<Client>,
    task: AbortHandle,
}

impl NbdBlocks {
    /// Connects to the export at `address`. To be called in a tokio runtime, which then
    /// serves the connections.
    ///
    /// # Errors
    /// The server cannot be reached, or the export cannot be used: it has blocks of more
    /// than 4096 bytes, or allows writes and no flushes.
    pub async fn open(
        address: &NbdAddress,
        config: &NbdConfig,
        clock: Clock,
    ) -> Result<Self, OpenNbdError> {
        let tls = address.tls.as_ref().map(Tls::new).transpose();
        let tls = tls.map_err(|source| OpenNbdError::Tls {
            address: address.clone(),
            source,
        })?;
        let target = Target {
            connect: transport::connect_to(address),
            tls,
            export: address.export().to_owned(),
            name: address.to_string(),
        };
        NbdBlocks::start(target, config, clock).await
    }

    /// As [`open`](NbdBlocks::open), over streams of `connect`, such as those of a tunnel.
    ///
    /// # Errors
    /// As for [`open`](NbdBlocks::open).
    pub async fn open_over(
        connect: Box<NbdConnect>,
        export: &str,
        config: &NbdConfig,
        clock: Clock,
    ) -> Result<Self, OpenNbdError> {
        let target = Target {
            connect,
            tls: None,
            export: export.to_owned(),
            name: format!("`{export}`"),
        };
        NbdBlocks::start(target, config, clock).await
    }

    async fn start(target: Target, config: &NbdConfig, clock: Clock) -> Result<Self, OpenNbdError> {
        let export = target.name.clone();
        let opened = Client::open(target, config, clock).await;
        let (client, stream) = opened.map_err(|fault| OpenNbdError::Server {
            export,
            cause: fault.to_string(),
        })?;
        let task = tokio::spawn(Arc::clone(&client).run(stream)).abort_handle();
        Ok(NbdBlocks { client, task })
    }

    /// True if the server rejects changes of the export.
    pub fn is_read_only(&self) -> bool {
        self.client.export.has(flags::READ_ONLY)
    }

    /// The error of a request that is not sent.
    fn rejection(&self, operation: Operation, kind: DeviceErrorKind) -> DeviceError {
        Counters::add(&self.client.counters.errors, 1);
        DeviceError::new(operation, None, kind)
    }

    fn check_change(&self, range: &Range<u64>) -> Result<(), DeviceErrorKind> {
        check_blocks(self, range)?;
        match self.is_read_only() {
            true => Err(DeviceErrorKind::Unsupported("the export is read-only")),
            false => Ok(()),
        }
    }

    /// Starts a change in parts of at most `bytes_max`.
    fn change(
        &self,
        range: &Range<u64>,
        bytes_max: u64,
        content: impl Fn(&Range<u64>) -> Content,
    ) -> OpFuture<()> {
        let mut parts = Vec::new();
        for range in pieces(range, bytes_max) {
            let (completer, operation) = OpFuture::pending();
            let content = content(&range);
            self.client.start(|state, now| {
                state.change(Change { range, content }, completer, now);
            });
            parts.push(operation);
        }
        OpFuture::all(parts)
    }

    fn start_read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let (completer, operation) = OpFuture::pending();
        self.client
            .start(|state, now| state.read(at, buf, completer, now));
        operation
    }

    fn payload_bytes_max(&self) -> u64 {
        self.client.export.payload_bytes_max.into()
    }
}

/// `range` in parts of at most `bytes_max`.
fn pieces(range: &Range<u64>, bytes_max: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    (range.start..end)
        .step_by(bytes_max as usize)
        .map(move |at| at..end.min(at.saturating_add(bytes_max)))
}

impl BlockDevice for NbdBlocks {
    fn size_bytes(&self) -> u64 {
        self.client.size_bytes()
    }

    fn refresh_size(&self) -> OpFuture<u64> {
        let client = Arc::clone(&self.client);
        OpFuture::new(async move {
            client.refresh_size().await.map_err(|fault| {
                let why = format!("{}: {fault}", client.target.name).into();
                error::unanswered(Operation::Report, &why)
            })
        })
    }

    fn block_bytes(&self) -> u32 {
        self.client.export.block_bytes
    }

    fn describe(&self) -> String {
        self.client.target.name.clone()
    }

    fn read(&self, at: u64, mut buf: IoBuf) -> OpFuture<IoBuf> {
        let range = match check_range(self, at, buf.len()) {
            Ok(range) => range,
            Err(kind) => return OpFuture::ready(Err(self.rejection(Operation::Read, kind))),
        };
        if buf.len() as u64 <= self.payload_bytes_max() {
            return self.start_read(at, buf);
        }
        let parts: Vec<_> = pieces(&range, self.payload_bytes_max())
            .map(|part| {
                self.start_read(part.start, IoBuf::zeroed((part.end - part.start) as usize))
            })
            .collect();
        OpFuture::new(async move {
            let mut from = 0;
            for part in parts {
                let part = part.await?;
                buf[from..from + part.len()].copy_from_slice(&part);
                from += part.len();
            }
            Ok(buf)
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        let range = at..at.saturating_add(data.len() as u64);
        if let Err(kind) = self.check_change(&range) {
            return OpFuture::ready(Err(self.rejection(Operation::Write, kind)));
        }
        self.change(&range, self.payload_bytes_max(), |part| {
            let from = (part.start - at) as usize;
            Content::Data(data.slice(from..from + (part.end - part.start) as usize))
        })
    }

    /// A server that cannot zero gets data of zeros.
    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        if let Err(kind) = self.check_change(&range) {
            return OpFuture::ready(Err(self.rejection(Operation::WriteZeroes, kind)));
        }
        if self.client.export.has(flags::SEND_WRITE_ZEROES) {
            return self.change(&range, RANGE_BYTES_MAX, |_| Content::Zeroes);
        }
        let bytes_max = ZEROS_BYTES.min(self.payload_bytes_max());
        let zeros = IoBuf::zeroed(bytes_max.min(range.end - range.start) as usize).freeze();
        self.change(&range, bytes_max, |part| {
            Content::Data(zeros.slice(0..(part.end - part.start) as usize))
        })
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        if let Err(kind) = self.check_change(&range) {
            return OpFuture::ready(Err(self.rejection(Operation::Discard, kind)));
        }
        match self.client.export.has(flags::SEND_TRIM) {
            true => self.change(&range, RANGE_BYTES_MAX, |_| Content::Discarded),
            false => OpFuture::ready(Ok(())),
        }
    }

    fn flush(&self) -> OpFuture<()> {
        if !self.client.export.has(flags::SEND_FLUSH) {
            // It is read-only.
            return OpFuture::ready(Ok(()));
        }
        let (completer, operation) = OpFuture::pending();
        self.client.start(|state, now| state.flush(completer, now));
        operation
    }

    fn counters(&self) -> &Counters {
        &self.client.counters
    }
}

impl fmt::Debug for NbdBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NbdBlocks({})", self.describe())
    }
}

/// Ends the connections. Requests in flight fail.
impl Drop for NbdBlocks {
    fn drop(&mut self) {
        self.task.abort();
    }
}
