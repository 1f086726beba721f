//! One line of the log.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Most bytes of a user agent.
const USER_AGENT_BYTES_MAX: usize = 256;

/// Most bytes of every other text that a client or the origin sends.
const TEXT_BYTES_MAX: usize = 1024;

/// The beginning and end of names of parameters that contain secrets or parts of a signature, in
/// lower case.
const SECRET: [&str; 5] = [
    "awsaccesskeyid",
    "credential",
    "customer-key",
    "security-token",
    "signature",
];

/// A request as its client sent it.
pub(in crate::frontends::s3) struct Asked<'a> {
    pub(in crate::frontends::s3) method: &'a str,
    pub(in crate::frontends::s3) bucket: Option<&'a str>,
    pub(in crate::frontends::s3) key: Option<&'a str>,
    /// As in the URL.
    pub(in crate::frontends::s3) query: Option<&'a str>,
    pub(in crate::frontends::s3) user_agent: Option<&'a [u8]>,
    /// A key whose signature was verified.
    pub(in crate::frontends::s3) access_key: Option<&'a str>,
}

/// A line of the log. The order of its fields is that of the line.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    #[serde(serialize_with = "rfc3339")]
    pub(super) time: SystemTime,
    pub(super) request_id: Option<String>,
    pub(super) origin_request_id: Option<String>,
    pub(super) client: SocketAddr,
    pub(super) access_key: Option<String>,
    pub(super) method: String,
    pub(super) bucket: Option<String>,
    pub(super) key: Option<String>,
    pub(super) query: Option<String>,
    /// None if the request ended before its answer began.
    pub(super) status: Option<u16>,
    pub(super) error: Option<String>,
    pub(super) cache: Cow<'static, str>,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) first_byte_us: Option<u64>,
    pub(super) duration_us: u64,
    pub(super) user_agent: Option<String>,
}

impl Entry {
    pub(super) fn new(client: SocketAddr, asked: &Asked<'_>) -> Self {
        let text = |text: Option<&str>| text.map(cut_text);
        let user_agent = asked.user_agent.map(String::from_utf8_lossy);
        Entry {
            time: SystemTime::now(),
            request_id: None,
            origin_request_id: None,
            client,
            access_key: text(asked.access_key),
            method: cut_text(asked.method),
            bucket: text(asked.bucket),
            key: text(asked.key.map(without_presigned)),
            query: asked.query.and_then(without_secrets),
            status: None,
            error: None,
            cache: "none".into(),
            sent_bytes: 0,
            received_bytes: 0,
            first_byte_us: None,
            duration_us: 0,
            user_agent: user_agent.map(|text| cut(&text, USER_AGENT_BYTES_MAX).to_owned()),
        }
    }

    pub(super) fn write_line(&self, out: &mut Vec<u8>) {
        let mut line = serde_json::Serializer::with_formatter(&mut *out, Printable);
        // Text and numbers always have a JSON form, and memory takes it.
        let _ = self.serialize(&mut line);
        out.push(b'\n');
    }
}

/// JSON without the control characters that it allows in texts, which a terminal obeys.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_control = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
        for piece in fragment.split_inclusive(is_control) {
            let control = piece.chars().next_back().filter(|c| is_control(*c));
            let plain = piece.len() - control.map_or(0, char::len_utf8);
            writer.write_all(&piece.as_bytes()[..plain])?;
            if let Some(control) = control {
                write!(writer, "\\u{:04x}", u32::from(control))?;
            }
        }
        Ok(())
    }
}

/// The key, without the query of a presigned URL that its client encoded into the path.
fn without_presigned(key: &str) -> &str {
    let lower = key.to_ascii_lowercase();
    lower.find("?x-amz-").map_or(key, |at| &key[..at])
}

/// The query without its secrets; none if nothing is left.
fn without_secrets(query: &str) -> Option<String> {
    let is_secret = |pair: &&str| {
        let name = form_urlencoded::parse(pair.as_bytes()).next();
        let name = name.map(|(name, _)| name.to_ascii_lowercase());
        name.is_some_and(|name| SECRET.iter().any(|secret| name.contains(secret)))
    };
    let kept = query.split('&').filter(|pair| !is_secret(pair));
    let kept = kept.collect::<Vec<_>>().join("&");
    (!kept.is_empty()).then(|| cut_text(&kept))
}

/// A text of another party, with a limited length.
pub(super) fn cut_text(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX).to_owned()
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = OffsetDateTime::from(*time).format(&Rfc3339);
    serializer.serialize_str(&time.map_err(serde::ser::Error::custom)?)
}
