//! Addresses of servers, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A server's address and protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAddress {
    /// OxCache's protocol over a Unix socket: `unix:PATH`.
    Unix(PathBuf),
    /// memcached's protocol over TCP, `memcached:HOST:PORT`, or over a Unix
    /// socket, `memcached:PATH` with a slash in it.
    Memcached(String),
    /// S3: `s3:URL/BUCKET`.
    S3 {
        /// The URL without the bucket.
        endpoint: String,
        /// The bucket.
        bucket: String,
    },
}

impl FromStr for RemoteAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((protocol, place)) = text.split_once(':') else {
            return Err(format!("`{text}` has no protocol; {FORMS}"));
        };
        match protocol {
            "unix" if !place.is_empty() => Ok(RemoteAddress::Unix(place.into())),
            "memcached" if is_socket_address(place) || place.contains('/') => {
                Ok(RemoteAddress::Memcached(place.to_owned()))
            }
            "memcached" => Err(format!(
                "`{text}` names no port; write memcached:HOST:PORT, such as memcached:127.0.0.1:11211"
            )),
            "s3" => bucket_of(place).ok_or_else(|| {
                format!(
                    "`{text}` names no bucket; write s3:URL/BUCKET, such as s3:http://127.0.0.1:9000/bench"
                )
            }),
            _ => Err(format!("`{text}` is not a server; {FORMS}")),
        }
    }
}

const FORMS: &str = "write unix:PATH, memcached:HOST:PORT or s3:URL/BUCKET";

fn is_socket_address(place: &str) -> bool {
    let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn bucket_of(url: &str) -> Option<RemoteAddress> {
    let (endpoint, bucket) = url.trim_end_matches('/').rsplit_once('/')?;
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| endpoint.strip_prefix(scheme))?;
    (!host.is_empty() && !bucket.is_empty()).then(|| RemoteAddress::S3 {
        endpoint: endpoint.to_owned(),
        bucket: bucket.to_owned(),
    })
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            RemoteAddress::Memcached(place) => write!(f, "memcached:{place}"),
            RemoteAddress::S3 { endpoint, bucket } => write!(f, "s3:{endpoint}/{bucket}"),
        }
    }
}
