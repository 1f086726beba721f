//! The framing of a forwarded upload whose checksum follows its bytes (`aws-chunked` with an
//! unsigned trailer). The library has removed the client's own, whose chunks are signed with the
//! client's key.

use bytes::{BufMut, Bytes, BytesMut};
use floe::origin::UploadBody;
use futures::StreamExt;
use http::HeaderMap;
use s3s::TrailingHeaders;

/// Bytes of a chunk; S3 takes no shorter one but the last.
const CHUNK_BYTES: usize = 64 << 10;

/// Frames `pieces`, and sends `trailer` behind them.
pub(super) fn framed(pieces: UploadBody, trailer: Option<TrailingHeaders>) -> UploadBody {
    let state = State {
        pieces: Some(pieces),
        gathered: BytesMut::new(),
        trailer,
    };
    futures::stream::unfold(Some(state), |state| async {
        let mut state = state?;
        loop {
            let Some(pieces) = &mut state.pieces else {
                return Some((Ok(state.end()), None));
            };
            match pieces.next().await {
                Some(Ok(piece)) => state.gathered.put_slice(&piece),
                Some(Err(error)) => return Some((Err(error), None)),
                None => state.pieces = None,
            }
            let is_chunk = match state.pieces {
                Some(_) => state.gathered.len() >= CHUNK_BYTES,
                None => !state.gathered.is_empty(),
            };
            if is_chunk {
                let chunk = state.gathered.split();
                return Some((Ok(frame(&chunk)), Some(state)));
            }
        }
    })
    .boxed()
}

struct State {
    /// `None` after the last one.
    pieces: Option<UploadBody>,
    gathered: BytesMut,
    trailer: Option<TrailingHeaders>,
}

impl State {
    /// The empty chunk and the trailer.
    fn end(&mut self) -> Bytes {
        let mut out = BytesMut::from(&b"0\r\n"[..]);
        let trailer: Option<HeaderMap> = self.trailer.take().and_then(|trailer| trailer.take());
        for (name, value) in &trailer.unwrap_or_default() {
            // Signed with the client's key.
            if name != "x-amz-trailer-signature" {
                out.put_slice(name.as_str().as_bytes());
                out.put_slice(b":");
                out.put_slice(value.as_bytes());
                out.put_slice(b"\r\n");
            }
        }
        out.put_slice(b"\r\n");
        out.freeze()
    }
}

fn frame(chunk: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(chunk.len() + 16);
    out.put_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
    out.put_slice(chunk);
    out.put_slice(b"\r\n");
    out.freeze()
}
