//! The protocol of NATS, as far as a subscriber needs it
//! (docs.nats.io/reference/reference-protocols/nats-protocol).
//!
//! Lines of text end with CRLF; a payload of a known length follows some of them. Must accept
//! any bytes, and must not depend on sockets.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;

use super::error::NatsError;

/// Most bytes of a line. That of INFO names all servers of a cluster.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a payload.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Most characters of an error of the server that the log shows.
const REASON_CHARACTERS_MAX: usize = 200;

/// The number that the client gives its only subscription.
const SUBSCRIPTION: &str = "1";

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Info(Info),
    /// The payload of a message of the subscription.
    Message(Bytes),
    Ping,
    Pong,
}

/// The properties of a server, as far as they matter here.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) tls_required: bool,
    /// Bytes that the client signs to prove its identity.
    pub(super) nonce: String,
    /// The server is about to shut down, in the terms of NATS in lame duck mode.
    #[serde(rename = "ldm")]
    pub(super) shuts_down: bool,
}

/// Takes the first complete message out of `buffer`; `None` if there is none yet.
///
/// # Errors
/// The bytes are no message, or the server reports an error. The connection is of no use then.
pub(super) fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, NatsError> {
    loop {
        let Some(length) = memchr::memmem::find(buffer, b"\r\n") else {
            return match buffer.len() > LINE_BYTES_MAX {
                true => Err(NatsError::Protocol("a line does not end")),
                false => Ok(None),
            };
        };
        let line = str::from_utf8(&buffer[..length])
            .map_err(|_| NatsError::Protocol("a line is no text"))?;
        let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let frame = match name.to_ascii_uppercase().as_str() {
            "MSG" => return message(buffer, length),
            "PING" => Frame::Ping,
            "PONG" => Frame::Pong,
            "INFO" => {
                let info = serde_json::from_str(rest);
                Frame::Info(info.map_err(|_| NatsError::Protocol("INFO has no JSON"))?)
            }
            "-ERR" => {
                let reason = rest.trim().trim_matches('\'');
                let reason = reason.chars().take(REASON_CHARACTERS_MAX).collect();
                return Err(NatsError::Refused(reason));
            }
            // An acknowledgement, which the client does not ask for.
            "+OK" => {
                buffer.advance(length + 2);
                continue;
            }
            _ => return Err(NatsError::Protocol("an unknown message")),
        };
        buffer.advance(length + 2);
        return Ok(Some(frame));
    }
}

/// Takes `MSG subject subscription [reply-to] bytes`, whose line has `length` bytes, and its
/// payload.
fn message(buffer: &mut BytesMut, length: usize) -> Result<Option<Frame>, NatsError> {
    let wrong = || NatsError::Protocol("a malformed MSG");
    let line = str::from_utf8(&buffer[..length]).map_err(|_| wrong())?;
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let ([_, _, subscription, bytes] | [_, _, subscription, _, bytes]) = fields[..] else {
        return Err(wrong());
    };
    if subscription != SUBSCRIPTION {
        return Err(wrong());
    }
    let bytes: usize = bytes.parse().map_err(|_| wrong())?;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(NatsError::TooLong);
    }
    let begin = length + 2;
    if buffer.len() < begin + bytes + 2 {
        return Ok(None);
    }
    if &buffer[begin + bytes..begin + bytes + 2] != b"\r\n" {
        return Err(wrong());
    }
    buffer.advance(begin);
    let payload = buffer.split_to(bytes).freeze();
    buffer.advance(2);
    Ok(Some(Frame::Message(payload)))
}

pub(super) const PING: &[u8] = b"PING\r\n";
pub(super) const PONG: &[u8] = b"PONG\r\n";

pub(super) fn connect(options: &serde_json::Value) -> Vec<u8> {
    format!("CONNECT {options}\r\n").into_bytes()
}

pub(super) fn subscribe(subject: &str) -> Vec<u8> {
    format!("SUB {subject} {SUBSCRIPTION}\r\n").into_bytes()
}

pub(super) fn publish(subject: &str, payload: &str) -> Vec<u8> {
    format!("PUB {subject} {}\r\n{payload}\r\n", payload.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Frame>, NatsError> {
        let mut buffer = BytesMut::from(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = decode(&mut buffer)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn messages_are_read_in_pieces_of_any_length() {
        let bytes =
            b"INFO {\"server_id\":\"x\",\"tls_required\":true,\"nonce\":\"n\",\"ldm\":true}\r\n\
            +OK\r\nMSG a.b 1 4\r\n\r\n\r\n\r\nping\r\nMSG a.b\t1 reply 0\r\n\r\nPONG\r\n";
        let expected = [
            Frame::Info(Info {
                tls_required: true,
                nonce: "n".into(),
                shuts_down: true,
            }),
            Frame::Message(Bytes::from_static(b"\r\n\r\n")),
            Frame::Ping,
            Frame::Message(Bytes::new()),
            Frame::Pong,
        ];
        assert_eq!(all(bytes).unwrap(), expected);
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for byte in bytes {
            buffer.extend_from_slice(&[*byte]);
            frames.extend(decode(&mut buffer).unwrap());
        }
        assert_eq!(frames, expected);
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        let endless = vec![b'x'; LINE_BYTES_MAX + 1];
        for (bytes, cause) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "unknown"),
            (b"INFO\r\n", "JSON"),
            (b"-ERR 'Slow Consumer'\r\n", "\"Slow Consumer\""),
            (b"\xff\r\n", "no text"),
            (b"MSG a 1\r\n", "MSG"),
            (b"MSG a 2 0\r\n\r\n", "MSG"),
            (b"MSG a 1 -1\r\n\r\n", "MSG"),
            (b"MSG a 1 1\r\nxyz", "MSG"),
            // Before a byte of it is read.
            (b"MSG a 1 1048577\r\n", "1 MiB"),
            (&endless, "does not end"),
        ] {
            let error = all(bytes).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            line in "(MSG|INFO|-ERR|PING|\\+OK)[ -~]{0,20}\r\n",
        ) {
            let _ = all(&bytes);
            let _ = all(&[line.as_bytes(), &bytes].concat());
        }
    }
}
