//! Tells plain reads from all other requests.

use std::sync::Arc;
use std::time::SystemTime;

use floe::object::ObjectKey;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use httparse::Status;
use percent_encoding::percent_decode;
use s3s::path::{check_bucket_name, check_key};

use super::signature::Signed;
use crate::frontends::s3::access_log::AccessLog;
use crate::frontends::s3::auth::Keys;
use crate::frontends::s3::target::Domains;

/// Most headers of a plain read.
const HEADERS_MAX: usize = 32;

/// Headers that take a request off the plain way: they need another reader, or are about the
/// connection.
const NOT_PLAIN: [&str; 7] = [
    "content-length",
    "expect",
    "origin",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Headers of S3 that a plain read may have.
const OF_S3: [&str; 5] = [
    "x-amz-api-version",
    "x-amz-checksum-mode",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-user-agent",
];

/// The parameter by which clients name the operation.
const OPERATION: &str = "x-id=GetObject";

/// The requests that are admitted.
pub(super) struct Admission {
    pub(super) domains: Domains,
    pub(super) keys: Keys,
    /// Those without a signature are.
    pub(super) anonymous: bool,
    pub(super) access_log: Arc<AccessLog>,
}

/// An admitted GET or HEAD of an object, without a body.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) method: Method,
    pub(super) key: ObjectKey,
    /// Range and conditions.
    pub(super) terms: HeaderMap,
    /// The client keeps the connection open.
    pub(super) keeps_alive: bool,
    /// Bytes of the head.
    pub(super) length: usize,
    /// For the access log, if it is on.
    pub(super) details: Option<Box<Details>>,
}

/// The parts of a request that only the access log has.
#[derive(Debug)]
pub(super) struct Details {
    pub(super) access_key: Option<String>,
    pub(super) query: &'static str,
    pub(super) user_agent: Option<Vec<u8>>,
}

/// The beginning of a connection's bytes.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A part of a head.
    Incomplete,
    Plain(Plain),
    /// Anything else, valid or not.
    Other,
}

/// Reads the head of a request.
pub(super) fn parse(bytes: &[u8], admission: &Admission) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Partial) => Parsed::Incomplete,
        Ok(Status::Complete(length)) => {
            plain(&request, length, admission).map_or(Parsed::Other, Parsed::Plain)
        }
        Err(_) => Parsed::Other,
    }
}

fn plain(
    request: &httparse::Request<'_, '_>,
    length: usize,
    admission: &Admission,
) -> Option<Plain> {
    let method = match request.method? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        _ => return None,
    };
    if request.version? != 1 {
        return None;
    }
    let (mut host, mut authorization, mut keeps_alive) = (None, None, true);
    let mut terms = HeaderMap::new();
    for header in request.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("host") {
            let text = std::str::from_utf8(header.value).ok()?;
            if !text.is_ascii() || host.replace(text).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("authorization") {
            let text = std::str::from_utf8(header.value).ok()?;
            if authorization.replace(text).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("connection") {
            keeps_alive = match header.value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => keeps_alive,
                value if value.eq_ignore_ascii_case(b"close") => false,
                _ => return None,
            };
        } else if is_term(name) {
            let value = HeaderValue::from_bytes(header.value).ok()?;
            let term = HeaderName::from_bytes(name.as_bytes()).ok()?;
            if terms.insert(term, value).is_some() {
                return None;
            }
        } else if !is_ignored(name) || (is_of_s3(name) && is_repeated(name, request.headers)) {
            return None;
        }
    }
    // A bucket in the host's name is another reader's to find.
    if admission.domains.names_bucket(host?) {
        return None;
    }
    let (path, query) = match request.path?.split_once('?') {
        None => (request.path?, ""),
        Some((path, OPERATION)) if method == Method::GET => (path, OPERATION),
        Some(_) => return None,
    };
    let (bucket, key) = path.strip_prefix('/')?.split_once('/')?;
    if path.contains('#') || !check_bucket_name(bucket) || key.is_empty() {
        return None;
    }
    let access_key = match authorization {
        None if admission.anonymous => None,
        None => return None,
        Some(authorization) => {
            let signed = Signed {
                method: method.as_str(),
                path,
                query,
                headers: &*request.headers,
                authorization,
            };
            Some(signed.verified_key(&admission.keys, SystemTime::now())?)
        }
    };
    let key = percent_decode(key.as_bytes()).decode_utf8().ok()?;
    // The other way words the refusal.
    let is_allowed = check_key(&key) && admission.keys.may_read(access_key, bucket, &key);
    let details = admission.access_log.is_on().then(|| {
        let mut headers = request.headers.iter();
        let user_agent = headers.find(|header| header.name.eq_ignore_ascii_case("user-agent"));
        Box::new(Details {
            access_key: access_key.map(str::to_owned),
            query,
            user_agent: user_agent.map(|header| header.value.to_vec()),
        })
    });
    is_allowed.then(|| Plain {
        method,
        key: ObjectKey::new(bucket, &*key),
        terms,
        keeps_alive,
        length,
        details,
    })
}

/// True for a header that selects what is returned: a range, a condition or checksums.
fn is_term(name: &str) -> bool {
    let is_condition = name.len() > 3 && name.as_bytes()[..3].eq_ignore_ascii_case(b"if-");
    is_condition
        || name.eq_ignore_ascii_case("range")
        || name.eq_ignore_ascii_case("x-amz-checksum-mode")
}

/// True for a header without an effect on a read.
fn is_ignored(name: &str) -> bool {
    let is_one_of = |known: &[&str]| known.iter().any(|other| name.eq_ignore_ascii_case(other));
    match is_of_s3(name) {
        true => is_one_of(&OF_S3),
        false => !is_one_of(&NOT_PLAIN),
    }
}

fn is_of_s3(name: &str) -> bool {
    const PREFIX: &str = "x-amz-";
    let start = name.as_bytes().get(..PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

fn is_repeated(name: &str, headers: &[httparse::Header<'_>]) -> bool {
    let same = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name));
    same.count() > 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Anonymous, S3Config};

    fn of(text: &str) -> Parsed {
        of_bytes(text.as_bytes())
    }

    fn of_bytes(bytes: &[u8]) -> Parsed {
        let config = S3Config {
            anonymous: Anonymous::Served,
            ..S3Config::default()
        };
        let admission = Admission {
            domains: Domains::new(&["s3.example.com".into()]),
            keys: Keys::new(&config),
            anonymous: true,
            access_log: AccessLog::new(),
        };
        parse(bytes, &admission)
    }

    #[test]
    fn plain_reads_are_read_whole() {
        let text = "GET /bucket/a%20b//c+d HTTP/1.1\r\nHost: h:1\r\nUser-Agent: x\r\n\
            range: bytes=0-1\r\nConnection: close\r\n\r\nGET /";
        let Parsed::Plain(read) = of(text) else {
            panic!("not plain");
        };
        assert_eq!(read.key, ObjectKey::new("bucket", "a b//c+d"));
        assert_eq!(read.terms["range"], "bytes=0-1");
        assert!(!read.keeps_alive && read.method == Method::GET);
        assert_eq!(&text[read.length..], "GET /");
        for end in 0..text.len() - 6 {
            assert!(matches!(of(&text[..end]), Parsed::Incomplete), "{end}");
        }
    }

    #[test]
    fn all_others_are_left_alone() {
        let with = |line: &str| format!("GET /bucket/key HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n");
        let to = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        for plain in [
            with("X-Own: 1"),
            with("x-amz-checksum-mode: ENABLED"),
            to("/bucket/key?x-id=GetObject"),
        ] {
            assert!(matches!(of(&plain), Parsed::Plain(_)), "{plain}");
        }
        for text in [
            with("Authorization: AWS4-HMAC-SHA256 x"),
            with("X-Amz-Security-Token: 1"),
            with("x-amz-date: 1\r\nX-Amz-Date: 2"),
            with("x-amz-anything: 1"),
            with("Content-Length: 0"),
            with("Transfer-Encoding: chunked"),
            with("Expect: 100-continue"),
            with("Upgrade: h2c"),
            with("Origin: http://page"),
            with("Host: h"),
            with("Range: bytes=0-1\r\nRange: bytes=2-3"),
            with("Connection: upgrade"),
            with(&"A: 1\r\n".repeat(40)),
            with(" folded"),
            to("/bucket/key?versionId=1"),
            to("/bucket/key?"),
            to("/bucket/key?x-id=GetObject").replace("GET ", "HEAD "),
            to("/bucket"),
            to("/bucket/"),
            to("/"),
            to("/BUCKET/key"),
            to("/bu%63ket/key"),
            to("http://h/bucket/key"),
            to("/bucket/%ff"),
            to(&format!("/bucket/{}", "x".repeat(1025))),
            to("/bucket/key").replace("1.1", "1.0"),
            to("/bucket/key").replace("Host: h\r\n", ""),
            to("/bucket/key").replace("Host: h", "Host: x.s3.example.com"),
            to("/bucket/key").replace("GET", "PUT"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "\0\r\n".to_owned(),
        ] {
            assert!(matches!(of(&text), Parsed::Other), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_left_alone(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            changed in 0..80usize,
            by: u8,
        ) {
            let read = |bytes: &[u8]| match of_bytes(bytes) {
                Parsed::Plain(read) => Some(read.length),
                Parsed::Incomplete | Parsed::Other => None,
            };
            prop_assert!(read(&bytes).is_none_or(|length| length <= bytes.len()));
            // Beside a request, and in place of a part of one.
            let mut request = b"GET /bucket/key HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n".to_vec();
            let at = changed % request.len();
            request[at] ^= by;
            request.append(&mut bytes);
            prop_assert!(read(&request).is_none_or(|length| length <= request.len()));
        }
    }
}
