//! The heads of responses to plain reads.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io;
use std::time::SystemTime;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use s3s::S3Error;

use crate::frontends::s3::answer::{Head, describe};
use crate::frontends::s3::error::{completed, error_response};

/// Writes the head of a response.
pub(super) fn write(head: &Head, out: &mut BytesMut, request_id: &str, is_last: bool) {
    out.put_slice(match head.status {
        StatusCode::OK => b"HTTP/1.1 200 OK\r\n",
        StatusCode::PARTIAL_CONTENT => b"HTTP/1.1 206 Partial Content\r\n",
        _ => b"HTTP/1.1 304 Not Modified\r\n",
    });
    let has_object = head.status != StatusCode::NOT_MODIFIED;
    describe(&head.meta, has_object, |name, value| line(out, name, value));
    if has_object {
        // Writing to memory cannot fail.
        let _ = write!(out, "content-length: {}\r\n", head.length);
    }
    if let Some(part) = &head.part {
        let (start, last) = (part.start, part.end.saturating_sub(1));
        let size = head.meta.size;
        let _ = write!(out, "content-range: bytes {start}-{last}/{size}\r\n");
    }
    if let Some(outcome) = head.outcome {
        line(out, "x-floe-cache", outcome);
    }
    end(out, request_id, is_last);
}

/// Writes the head of an error, and returns its body.
pub(super) async fn write_error(
    out: &mut BytesMut,
    error: S3Error,
    condition: Option<&str>,
    (resource, request_id): (&str, &str),
    (is_last, is_head): (bool, bool),
) -> io::Result<(StatusCode, Bytes)> {
    let (parts, body) = error_response(error).into_parts();
    let body = BodyExt::collect(body).await.map_err(io::Error::other)?;
    let status = parts.status;
    let body = if is_head {
        Bytes::new()
    } else {
        let body = body.to_bytes();
        completed(&body, (status, condition), resource, request_id).map_or(body, Bytes::from)
    };
    let reason = status.canonical_reason().unwrap_or_default();
    // Writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 {} {reason}\r\n", status.as_str());
    for (name, value) in &parts.headers {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    if !is_head {
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    end(out, request_id, is_last);
    Ok((status, body))
}

/// Writes the lines that end every head.
fn end(out: &mut BytesMut, request_id: &str, is_last: bool) {
    line(out, "x-amz-request-id", request_id);
    out.put_slice(b"server: Floe\r\n");
    if is_last {
        out.put_slice(b"connection: close\r\n");
    }
    out.put_slice(b"date: ");
    out.put_slice(&date());
    out.put_slice(b"\r\n\r\n");
}

fn line(out: &mut BytesMut, name: &str, value: &str) {
    out.put_slice(name.as_bytes());
    out.put_slice(b": ");
    out.put_slice(value.as_bytes());
    out.put_slice(b"\r\n");
}

/// The time in the form of HTTP, made once a second.
fn date() -> [u8; 29] {
    thread_local! {
        static LAST: Cell<(u64, [u8; 29])> = const { Cell::new((0, [b' '; 29])) };
    }
    let now = SystemTime::now();
    let second = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (last, text) = LAST.get();
    if last == second {
        return text;
    }
    let mut text = [b' '; 29];
    for (to, from) in text.iter_mut().zip(httpdate::fmt_http_date(now).bytes()) {
        *to = from;
    }
    LAST.set((second, text));
    text
}
