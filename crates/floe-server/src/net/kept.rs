//! Sends values in the RAM tier without a copy, where the stream is a socket.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use floe_device::SendableMemory;
use rustix::net::SendFlags;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Bytes to send.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Others follow at once.
    Ahead(&'a [u8]),
    /// They are in the memory.
    Kept(&'a SendableMemory, &'a [u8]),
}

impl<'a> Part<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Part::Ahead(bytes) | Part::Kept(_, bytes) => bytes,
        }
    }
}

/// A stream that may send bytes in a [`SendableMemory`] without a copy.
pub(crate) trait SendKept: AsyncWrite {
    /// False if it copies all it sends, as encryption does.
    fn sends_kept(&self) -> bool;

    /// Sends some of the bytes of `part`.
    fn poll_send(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        part: Part<'_>,
    ) -> Poll<io::Result<usize>>;
}

impl SendKept for TcpStream {
    fn sends_kept(&self) -> bool {
        true
    }

    fn poll_send(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        part: Part<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            let sent = self.try_io(Interest::WRITABLE, || match part {
                Part::Ahead(bytes) => {
                    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                    Ok(rustix::net::send(self.as_fd(), bytes, flags)?)
                }
                Part::Kept(memory, bytes) => memory.send(self.as_fd(), bytes, false),
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl SendKept for TlsStream<TcpStream> {
    fn sends_kept(&self) -> bool {
        false
    }

    fn poll_send(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        part: Part<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, part.bytes())
    }
}

/// Sends `head`, then `bytes`, which are in `memory`.
pub(crate) async fn send_kept<S: SendKept + Unpin>(
    stream: &mut S,
    mut head: &[u8],
    memory: &SendableMemory,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !head.is_empty() {
        let part = Part::Ahead(head);
        let sent = poll_fn(|cx| Pin::new(&mut *stream).poll_send(cx, part)).await?;
        head = &head[some(sent)?..];
    }
    while !bytes.is_empty() {
        let part = Part::Kept(memory, bytes);
        match poll_fn(|cx| Pin::new(&mut *stream).poll_send(cx, part)).await {
            Ok(sent) => bytes = &bytes[some(sent)?..],
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            // The socket is broken, which a write says too, or the system does not allow it.
            Err(error) => {
                tracing::debug!(%error, "a value in RAM is copied to its socket");
                return stream.write_all(bytes).await;
            }
        }
    }
    Ok(())
}

fn some(sent: usize) -> io::Result<usize> {
    match sent {
        0 => Err(io::ErrorKind::WriteZero.into()),
        sent => Ok(sent),
    }
}
