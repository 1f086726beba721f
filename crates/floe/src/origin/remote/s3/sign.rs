//! Signature Version 4 of requests, as S3 verifies it: the path is encoded once, and the
//! signature covers host, content type, MD5 and all headers of S3
//! (docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).

use std::time::SystemTime;

use hmac::{Hmac, KeyInit, Mac};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use object_store::aws::AwsCredential;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::origin::error::OriginError;
use crate::origin::hexadecimal;

const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
pub(super) const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The characters that a parameter of a URL encodes.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Those that a path encodes.
pub(super) const PATH: &AsciiSet = &PARAMETER.remove(b'/');

/// The service that a signature is for.
pub(super) struct Scope<'a> {
    pub(super) service: &'a str,
    pub(super) region: &'a str,
}

/// The parts of a signature that are the same for every request.
pub(super) struct Signer<'a> {
    pub(super) credential: &'a AwsCredential,
    pub(super) scope: Scope<'a>,
    pub(super) now: SystemTime,
}

impl Signer<'_> {
    /// Signs a request, whose headers must have a host.
    ///
    /// # Errors
    /// The credentials are no header values.
    pub(super) fn sign(
        self,
        method: &http::Method,
        uri: &Uri,
        headers: &mut HeaderMap,
        payload: &str,
    ) -> Result<(), OriginError> {
        let credential = self.credential;
        let now = OffsetDateTime::from(self.now);
        let time = now
            .format(format_description!(
                "[year][month][day]T[hour][minute][second]Z"
            ))
            .map_err(|error| OriginError::Protocol(error.to_string()))?;
        let date = &time[..8];
        let Scope { service, region } = self.scope;
        headers.insert(X_AMZ_DATE, value(&time)?);
        if let Some(token) = &credential.token {
            headers.insert(X_AMZ_SECURITY_TOKEN, value(token)?);
        }
        let names = signed_names(headers);
        let signed = names.join(";");
        let canonical = canonical_request(method, uri, headers, &names, &signed, payload);
        let scope = format!("{date}/{region}/{service}/aws4_request");
        let hash = hexadecimal::encode(&Sha256::digest(&canonical));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let secret = format!("AWS4{}", credential.secret_key);
        let key = [date, region, service, "aws4_request"]
            .iter()
            .fold(secret.into_bytes(), |key, part| hmac(&key, part.as_bytes()));
        let signature = hexadecimal::encode(&hmac(&key, text.as_bytes()));
        let line = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
            credential.key_id
        );
        headers.insert(AUTHORIZATION, value(&line)?);
        Ok(())
    }
}

fn value(text: &str) -> Result<HeaderValue, OriginError> {
    HeaderValue::from_str(text)
        .map_err(|_| OriginError::AccessDenied("the origin's credentials are not text".into()))
}

fn signed_names(headers: &HeaderMap) -> Vec<&str> {
    let is_signed = |name: &&str| {
        name.starts_with("x-amz-")
            || *name == HOST.as_str()
            || *name == CONTENT_TYPE.as_str()
            || *name == "content-md5"
    };
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.retain(is_signed);
    names.sort_unstable();
    names
}

/// The bytes that are hashed: values of headers may be no text.
fn canonical_request(
    method: &http::Method,
    uri: &Uri,
    headers: &HeaderMap,
    names: &[&str],
    signed: &str,
    payload: &str,
) -> Vec<u8> {
    let path: Vec<u8> = percent_decode_str(uri.path()).collect();
    let path = percent_encode(&path, PATH);
    let query = canonical_query(uri.query().unwrap_or_default());
    let mut out = format!("{method}\n{path}\n{query}\n").into_bytes();
    for name in names {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        for (index, value) in headers.get_all(*name).iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_trimmed(&mut out, value.as_bytes());
        }
        out.push(b'\n');
    }
    out.extend_from_slice(format!("\n{signed}\n{payload}").as_bytes());
    out
}

/// Sorted by encoded name and value.
fn canonical_query(query: &str) -> String {
    let encode = |text: &str| {
        let spaced = text.replace('+', " ");
        // Bytes, not text: what is no UTF-8 is signed as it is.
        let decoded: Vec<u8> = percent_decode_str(&spaced).collect();
        percent_encode(&decoded, PARAMETER).to_string()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// A value without spaces at its ends, and with single ones inside.
fn push_trimmed(out: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(|byte| *byte == b' ');
    for (index, word) in words.filter(|word| !word.is_empty()).enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    // A key of any length is valid.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn authorization(method: &str, uri: &str, sent: &[(&str, &str)], payload: &str) -> String {
        let credential = AwsCredential {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let signer = Signer {
            credential: &credential,
            scope: Scope {
                service: "s3",
                region: "us-east-1",
            },
            // 2013-05-24T00:00:00Z.
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600),
        };
        let uri: Uri = uri.parse().unwrap();
        let mut headers = HeaderMap::new();
        let host = uri.authority().unwrap().as_str();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        headers.insert(
            X_AMZ_CONTENT_SHA256,
            HeaderValue::from_str(payload).unwrap(),
        );
        for (name, value) in sent {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let method = method.parse().unwrap();
        signer.sign(&method, &uri, &mut headers, payload).unwrap();
        let line = headers[AUTHORIZATION].to_str().unwrap();
        line.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    /// The examples of S3's documentation.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        const HOST: &str = "https://examplebucket.s3.amazonaws.com";
        const EMPTY: &str = crate::origin::PayloadHash::EMPTY;
        for (query, signature) in [
            (
                "?lifecycle",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "?max-keys=2&prefix=J",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let uri = format!("{HOST}/{query}");
            assert_eq!(authorization("GET", &uri, &[], EMPTY), signature);
        }
    }

    #[test]
    fn keys_values_and_parameters_have_one_canonical_form() {
        let uri: Uri = "http://h/b/a%2Fb//./%c3%bc%20+?b=2&a&c=x+y&a=%2f&&d=%ff"
            .parse()
            .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", HeaderValue::from_static(" one   two "));
        let names = signed_names(&headers);
        let method = http::Method::PUT;
        let bytes = canonical_request(&method, &uri, &headers, &names, "x-amz-meta-a", "P");
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "PUT\n/b/a/b//./%C3%BC%20%2B\na=&a=%2F&b=2&c=x%20y&d=%FF\n\
             x-amz-meta-a:one two\n\nx-amz-meta-a\nP"
        );
    }
}
