//! Signature Version 4 after Amazon's description, independent of the server's library.

use std::fmt::Write as _;
use std::time::SystemTime;

use base64::Engine as _;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use s3s::crypto::{Checksum as _, Sha1};
use sha2::{Digest, Sha256};

use super::{ACCESS_KEY, SECRET_KEY};

/// The signing key and time.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) time: SystemTime,
}

/// The payload's part in the signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    Signed,
    Unsigned,
    /// `STREAMING-AWS4-HMAC-SHA256-PAYLOAD` in chunks of this many bytes.
    Streamed(usize),
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER` with a CRC-32C trailer of this value.
    Trailer(&'static str),
}

const REGION: &str = "us-east-1";

impl Signer {
    /// With the key that the server knows.
    pub(crate) fn known() -> Self {
        Signer::new(ACCESS_KEY, SECRET_KEY)
    }

    pub(crate) fn new(access_key: &str, secret_key: &str) -> Self {
        Signer {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            time: SystemTime::now(),
        }
    }

    /// A request signed in its headers.
    pub(crate) fn sign(
        &self,
        method: &str,
        host: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: &[u8],
        payload: Payload,
    ) -> Request<Full<Bytes>> {
        let hash = match payload {
            Payload::Signed => hex(&Sha256::digest(body)),
            Payload::Unsigned => "UNSIGNED-PAYLOAD".into(),
            Payload::Streamed(_) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into(),
            Payload::Trailer(_) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".into(),
        };
        let mut headers: Vec<(String, String)> = vec![
            ("host".into(), host.into()),
            ("x-amz-content-sha256".into(), hash.clone()),
            ("x-amz-date".into(), self.amz_date()),
        ];
        if matches!(payload, Payload::Streamed(_) | Payload::Trailer(_)) {
            headers.push(("content-encoding".into(), "aws-chunked".into()));
            let length = body.len().to_string();
            headers.push(("x-amz-decoded-content-length".into(), length));
        }
        if matches!(payload, Payload::Trailer(_)) {
            headers.push(("x-amz-trailer".into(), "x-amz-checksum-crc32c".into()));
        }
        for (name, value) in extra {
            if *name == "date" {
                // It stands for this one.
                headers.retain(|(name, _)| name != "x-amz-date");
            }
            headers.push(((*name).into(), (*value).into()));
        }
        headers.sort();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let signed = names.join(";");
        let (path_only, query) = path.split_once('?').unwrap_or((path, ""));
        let mut canonical = format!("{method}\n{path_only}\n{}\n", canonical_query(query));
        for (name, value) in &headers {
            writeln!(canonical, "{name}:{value}").unwrap();
        }
        write!(canonical, "\n{signed}\n{hash}").unwrap();
        let signature = self.signature(&canonical);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={signed}, Signature={signature}",
            self.access_key,
            self.scope()
        );
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let body = match payload {
            Payload::Signed | Payload::Unsigned => Bytes::copy_from_slice(body),
            Payload::Streamed(size) => self.chunked(body, size, &signature),
            Payload::Trailer(value) => trailing(body, value),
        };
        request
            .header("authorization", authorization)
            .body(Full::new(body))
            .unwrap()
    }

    /// A presigned path and query.
    pub(crate) fn presign(
        &self,
        method: &str,
        host: &str,
        path: &str,
        expires_seconds: u32,
    ) -> String {
        let credential = format!("{}/{}", self.access_key, self.scope()).replace('/', "%2F");
        // Parameters in lower case, which sort behind the signature's.
        let (path, more) = match path.split_once('?') {
            Some((path, more)) => (path, format!("&{more}")),
            None => (path, String::new()),
        };
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}\
             &X-Amz-Expires={expires_seconds}&X-Amz-SignedHeaders=host{more}",
            self.amz_date()
        );
        let canonical = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        format!(
            "{path}?{query}&X-Amz-Signature={}",
            self.signature(&canonical)
        )
    }

    /// A query signed with Signature Version 2 for a GET of `path`.
    pub(crate) fn presign_v2(&self, path: &str) -> String {
        let expires = self
            .time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            + 60;
        let signature = hmac_sha1(
            self.secret_key.as_bytes(),
            format!("GET\n\n\n{expires}\n{path}").as_bytes(),
        );
        let encoded = base64::engine::general_purpose::STANDARD.encode(signature);
        let escaped = encoded
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        format!(
            "AWSAccessKeyId={}&Expires={expires}&Signature={escaped}",
            self.access_key
        )
    }

    fn chunked(&self, body: &[u8], size: usize, seed: &str) -> Bytes {
        let mut out = Vec::new();
        let mut previous = seed.to_owned();
        for chunk in body.chunks(size).chain([&[][..]]) {
            let to_sign = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{previous}\n{}\n{}",
                self.amz_date(),
                self.scope(),
                hex(&Sha256::digest(b"")),
                hex(&Sha256::digest(chunk))
            );
            previous = hex(&mac(&self.key(), &to_sign));
            out.extend(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.into()
    }

    fn signature(&self, canonical: &str) -> String {
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{}\n{}\n{}",
            self.amz_date(),
            self.scope(),
            hex(&Sha256::digest(canonical))
        );
        hex(&mac(&self.key(), &to_sign))
    }

    fn key(&self) -> Vec<u8> {
        let secret = format!("AWS4{}", self.secret_key);
        let date = mac(secret.as_bytes(), &self.amz_date()[..8]);
        let region = mac(&date, REGION);
        mac(&mac(&region, "s3"), "aws4_request")
    }

    fn scope(&self) -> String {
        format!("{}/{REGION}/s3/aws4_request", &self.amz_date()[..8])
    }

    fn amz_date(&self) -> String {
        let t = time::OffsetDateTime::from(self.time);
        format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            t.year(),
            u8::from(t.month()),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        )
    }
}

fn trailing(body: &[u8], crc32c: &str) -> Bytes {
    let mut out = format!("{:x}\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    out.extend(format!("\r\n0\r\nx-amz-checksum-crc32c:{crc32c}\r\n\r\n").bytes());
    out.into()
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.contains('=') {
            true => pair.to_owned(),
            false => format!("{pair}="),
        })
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// RFC 2104 for keys of at most 64 bytes.
fn hmac_sha1(key: &[u8], message: &[u8]) -> Vec<u8> {
    let digest = |pad: u8, text: &[u8]| {
        let mut hash = Sha1::new();
        let block: Vec<u8> = (0..64).map(|i| key.get(i).unwrap_or(&0) ^ pad).collect();
        hash.update(&block);
        hash.update(text);
        hash.finalize().to_vec()
    };
    digest(0x5c, &digest(0x36, message))
}

fn mac(key: &[u8], data: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
