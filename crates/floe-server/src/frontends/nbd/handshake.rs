//! The handshake over a stream. The caller limits its time.

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::server::TlsStream;

use super::frontend::NbdFrontend;
use super::negotiation::{Agreed, Negotiation, Step};
use super::protocol::options::{self, Head};

/// Most options of one client.
const OPTIONS_MAX: usize = 64;

/// A connection after its handshake, with the bytes that followed.
pub(super) enum Opened<S> {
    Plain(S, BytesMut, Agreed),
    Tls(Box<TlsStream<S>>, BytesMut, Agreed),
}

/// Runs the handshake; `None` if it ended without a transmission.
///
/// # Errors
/// The network or the TLS handshake failed, or the client broke the protocol.
pub(super) async fn open<S>(mut stream: S, frontend: &NbdFrontend) -> io::Result<Option<Opened<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut input = BytesMut::new();
    let mut greeting = BytesMut::new();
    options::put_greeting(&mut greeting);
    stream.write_all(&greeting).await?;
    receive(&mut stream, &mut input, 4).await?;
    let flags = input.get_u32();
    let mode = frontend.config.get().tls;
    let negotiation = Negotiation::new(&frontend.exports, mode, flags, &frontend.draining);
    let mut negotiation = negotiation.ok_or_else(|| junk("an unknown flag"))?;
    match negotiate(&mut stream, &mut input, &mut negotiation).await? {
        Step::Begin(agreed) => return Ok(Some(Opened::Plain(stream, input, agreed))),
        Step::StartTls => {}
        Step::Continue | Step::Close => return Ok(None),
    }
    // Bytes that came before the encryption may be an attacker's.
    let tls = frontend.tls.as_ref().filter(|_| input.is_empty());
    let tls = tls.ok_or_else(|| junk("bytes ahead of the encryption"))?;
    let mut stream = Box::new(tls.accept(stream).await?);
    negotiation.encrypted();
    Ok(
        match negotiate(&mut stream, &mut input, &mut negotiation).await? {
            Step::Begin(agreed) => Some(Opened::Tls(stream, input, agreed)),
            Step::Continue | Step::StartTls | Step::Close => None,
        },
    )
}

/// Processes options until one needs another step.
async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    input: &mut BytesMut,
    negotiation: &mut Negotiation<'_>,
) -> io::Result<Step> {
    let mut replies = BytesMut::new();
    for _ in 0..OPTIONS_MAX {
        receive(stream, input, options::HEAD_BYTES).await?;
        let head = input.first_chunk().and_then(Head::parse);
        let head = head.ok_or_else(|| junk("no option, or one that is too long"))?;
        input.advance(options::HEAD_BYTES);
        receive(stream, input, head.len as usize).await?;
        let data = input.split_to(head.len as usize);
        let step = negotiation.process(head.number, &data, &mut replies);
        stream.write_all(&replies).await?;
        stream.flush().await?;
        replies.clear();
        if !matches!(step, Step::Continue) {
            return Ok(step);
        }
    }
    Err(junk("too many options"))
}

fn junk(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads until `input` has `len` bytes.
async fn receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    input: &mut BytesMut,
    len: usize,
) -> io::Result<()> {
    while input.len() < len {
        input.reserve(len - input.len());
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
