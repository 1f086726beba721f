//! OxCache's frames: decodes requests and encodes responses, without I/O.
//!
//! A frame is a 4-byte big-endian length and that many bytes, the bincode 2
//! "standard" encoding of
//!
//! ```text
//! enum Request     { Get { key: String, offset: u64, size: u64 }, Close }
//! enum GetResponse { Error(String), Response(Bytes) }
//! ```

use bincode::config::{Configuration, Limit};
use bincode::{Decode, Encode};
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the length before every frame.
pub const LENGTH_BYTES: usize = 4;

/// Bytes of the longest request. A key has at most 1024 bytes, so a longer frame is invalid.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// Reads bytes of an object.
    Get {
        /// The object's key.
        key: String,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        size: u64,
    },
    /// Ends the connection after the responses to all earlier requests.
    Close,
}

/// An invalid request. It ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is out of bounds.
    #[error(
        "a request frame of {len} bytes was announced; between 1 and {REQUEST_BYTES_MAX} are allowed"
    )]
    Length {
        /// The announced length.
        len: u32,
    },
    /// The frame's bytes do not encode a request.
    #[error("the frame is not a bincode-encoded request: {0}")]
    Encoding(String),
    /// Bytes follow the request inside its frame.
    #[error("{0} bytes follow the request inside its frame")]
    Trailing(usize),
}

/// A decoded request and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The request.
    pub request: Request,
    /// Bytes from the start of the input up to the next frame.
    pub consumed: usize,
}

/// Decodes the first frame of `bytes`; `None` if it is incomplete. Never reads
/// past the frame, and never allocates more than its length.
///
/// # Errors
/// The bytes cannot begin a request frame.
pub fn decode(bytes: &[u8]) -> Result<Option<Decoded>, FrameError> {
    let Some((head, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes(*head);
    if len == 0 || len as usize > REQUEST_BYTES_MAX {
        return Err(FrameError::Length { len });
    }
    let Some(body) = rest.get(..len as usize) else {
        return Ok(None);
    };
    let (request, used): (Request, usize) = bincode::decode_from_slice(body, ENCODING)
        .map_err(|e| FrameError::Encoding(e.to_string()))?;
    if used != body.len() {
        return Err(FrameError::Trailing(body.len() - used));
    }
    Ok(Some(Decoded {
        request,
        consumed: LENGTH_BYTES + body.len(),
    }))
}

/// The limit makes bincode reject a string longer than any frame before it allocates.
type Encoding =
    Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<REQUEST_BYTES_MAX>>;
const ENCODING: Encoding = bincode::config::standard().with_limit::<REQUEST_BYTES_MAX>();

/// Encodes a request, as a client does.
///
/// # Errors
/// [`FrameError::Length`] if the key is too long for a frame.
pub fn encode_request(request: &Request) -> Result<Bytes, FrameError> {
    let body = bincode::encode_to_vec(request, bincode::config::standard())
        .map_err(|e| FrameError::Encoding(e.to_string()))?;
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if body.len() > REQUEST_BYTES_MAX {
        return Err(FrameError::Length { len });
    }
    let mut frame = BytesMut::with_capacity(LENGTH_BYTES + body.len());
    frame.put_u32(len);
    frame.put_slice(&body);
    Ok(frame.freeze())
}

/// bincode's number of each response variant.
const TAG_ERROR: u8 = 0;
const TAG_RESPONSE: u8 = 1;

/// The first bytes of a response frame with `data_len` bytes of data, which
/// follow. `None` if the frame's length exceeds its field.
pub fn response_head(data_len: u64) -> Option<Bytes> {
    head(TAG_RESPONSE, data_len)
}

/// A complete frame with an error.
pub fn error_frame(message: &str) -> Bytes {
    // Most messages are short, but they may quote a long key.
    let message = &message[..message.floor_char_boundary(1024)];
    let head = head(TAG_ERROR, message.len() as u64).unwrap_or_default();
    let mut frame = BytesMut::with_capacity(head.len() + message.len());
    frame.put_slice(&head);
    frame.put_slice(message.as_bytes());
    frame.freeze()
}

fn head(tag: u8, payload_len: u64) -> Option<Bytes> {
    let mut varint = [0; 16];
    let varint_len =
        bincode::encode_into_slice(payload_len, &mut varint, bincode::config::standard()).ok()?;
    let frame_len = payload_len.checked_add(1 + varint_len as u64)?;
    let mut head = BytesMut::with_capacity(LENGTH_BYTES + 1 + varint_len);
    head.put_u32(u32::try_from(frame_len).ok()?);
    head.put_u8(tag);
    head.put_slice(&varint[..varint_len]);
    Some(head.freeze())
}

/// A response, as a client decodes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The request failed.
    Error(String),
    /// The requested bytes.
    Response(Vec<u8>),
}

/// Decodes the payload of a response frame (without its length).
///
/// # Errors
/// The bytes are not a response.
pub fn decode_response(body: &[u8]) -> Result<Response, FrameError> {
    let encoding = |e: bincode::error::DecodeError| FrameError::Encoding(e.to_string());
    // bincode would allocate the announced length before it finds that the bytes are missing.
    let ((tag, announced), used): ((u32, u64), usize) =
        bincode::decode_from_slice(body, bincode::config::standard()).map_err(encoding)?;
    let payload = &body[used..];
    let present = payload.len() as u64;
    if announced > present {
        return Err(FrameError::Encoding(format!(
            "{announced} bytes are announced, but {present} are there"
        )));
    }
    if announced < present {
        return Err(FrameError::Trailing((present - announced) as usize));
    }
    let payload = payload.to_vec();
    if tag == u32::from(TAG_RESPONSE) {
        return Ok(Response::Response(payload));
    }
    if tag != u32::from(TAG_ERROR) {
        return Err(FrameError::Encoding(format!(
            "response variant {tag} does not exist"
        )));
    }
    String::from_utf8(payload)
        .map(Response::Error)
        .map_err(|e| FrameError::Encoding(e.to_string()))
}

#[cfg(test)]
mod tests;
