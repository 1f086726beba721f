//! The settings of the frontends: `[s3]`, `[oxcache]`, `[memcached]`, `[admin]`, `[server]`.

use std::net::SocketAddr;

use floe::config::{Choice, Effective, Key, Kind, Limits, Section};
use floe_server::{AdminConfig, Anonymous, MemcachedConfig, OxCacheConfig, S3Config, ServerConfig};

use crate::failure::Failure;

/// The value of `listen` that opens no frontend.
const OFF: &str = "off";

const ANONYMOUS: &[Choice] = &[
    Choice {
        word: "false",
        doc: "No: every request must be signed with one of `s3.keys`.",
    },
    Choice {
        word: "true",
        doc: "Yes, whoever asks.",
    },
    Choice {
        word: "loopback",
        doc: "Yes, but refuse to start on an address that other machines can reach.",
    },
];

const WITHOUT_PASSWORD: &[Choice] = &[
    Choice {
        word: "loopback",
        doc: "Yes, but refuse to start on an address that other machines can reach.",
    },
    Choice {
        word: "true",
        doc: "Yes, whoever asks.",
    },
    Choice {
        word: "false",
        doc: "No: `memcached.auth_file` must name who may.",
    },
];

/// The sections of the frontends.
///
/// # Errors
/// A bug, said in words: a struct has a field that this table lacks.
pub(crate) fn sections() -> Result<Vec<Section>, String> {
    Ok(vec![s3()?, oxcache()?, memcached()?, admin()?, server()?])
}

fn s3() -> Result<Section, String> {
    let key = Key::new;
    let count = |name, doc| Key::new(name, Kind::Integer, doc).limits(Limits::at_least(1));
    let mut section = Section::adopt(
        "s3",
        "The S3 frontend: any S3 client, read-through.",
        &S3Config::default(),
        &[],
        vec![
            key(
                "listen",
                Kind::Address,
                "Address and port; port 0 takes a free one, `off` opens no S3 frontend.",
            ),
            key(
                "anonymous",
                Kind::Choice(ANONYMOUS),
                "Whether requests without a signature are served. When not set: `loopback` as long as there are no `s3.keys`, `s3.listen` is a loopback address and the origin is the folder in the data directory, otherwise `false`.",
            ),
            key(
                "keys",
                Kind::KeyPairs,
                "Who may sign requests: pairs of access key and secret key.",
            )
            .secret(),
            key(
                "domains",
                Kind::List,
                "Domains below which the first label of the host name is the bucket (`bucket.s3.example.com` for `s3.example.com`). Requests to any other host name are path style.",
            ),
            key("region", Kind::Text, "What GetBucketLocation answers."),
            count(
                "max_connections",
                "Connections at once. A further one takes the place of the one that has been idle the longest; while none is idle, it waits.",
            ),
            count(
                "max_streams_per_connection",
                "Requests at once on one HTTP/2 connection.",
            ),
            key(
                "max_header_size",
                Kind::Size,
                "Most bytes of a request's head.",
            )
            .limits(Limits::between(8 << 10, 1 << 20)),
            count(
                "idle_timeout_seconds",
                "Seconds that a connection may be idle, or take to send a request's head.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds that a client may take nothing of an answer, or send nothing of an upload, before its connection is broken off.",
            ),
            key(
                "min_upload_rate",
                Kind::Size,
                "Bytes per second that an upload must bring. A client may fall behind by `s3.stall_timeout_seconds`; `0` asks only that it never falls silent.",
            ),
            key(
                "max_upload_size",
                Kind::Size,
                "Largest object taken by one PUT or one multipart upload's part.",
            )
            .limits(Limits::at_least(1)),
            key(
                "tls_certificate",
                Kind::Path,
                "A PEM file with a certificate chain: S3 is served over TLS. Empty serves it in the clear.",
            ),
            key(
                "tls_key",
                Kind::Path,
                "A PEM file with the private key of `s3.tls_certificate`.",
            ),
        ],
    )?;
    // Derived if not set; see `config`.
    for key in section
        .keys
        .iter_mut()
        .filter(|key| key.name == "anonymous")
    {
        key.default = None;
    }
    Ok(section)
}

fn oxcache() -> Result<Section, String> {
    let key = Key::new;
    let count = |name, doc| Key::new(name, Kind::Integer, doc).limits(Limits::at_least(1));
    Section::adopt(
        "oxcache",
        "OxCache's protocol on a Unix socket. Opened when `oxcache.path` is set.",
        &OxCacheConfig::default(),
        &[],
        vec![
            key(
                "path",
                Kind::Path,
                "The socket's path; empty opens none. A stale socket there is replaced, anything else is not.",
            ),
            key(
                "bucket",
                Kind::Text,
                "The bucket that holds the objects named by keys.",
            ),
            count(
                "max_connections",
                "Connections at once. A further one takes the place of the one that has been idle the longest; while none is idle, it waits.",
            ),
            count(
                "max_pipeline",
                "Requests in progress at once on one connection; more wait in the socket.",
            ),
            key(
                "max_read_size",
                Kind::Size,
                "Most bytes asked for by one request.",
            )
            .limits(Limits::between(1, (4 << 30) - 65)),
            key(
                "read_ahead",
                Kind::Size,
                "Bytes read ahead of the answers being sent, over all connections.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds that a client may take nothing of an answer.",
            ),
        ],
    )
}

fn memcached() -> Result<Section, String> {
    let key = Key::new;
    let count = |name, doc| Key::new(name, Kind::Integer, doc).limits(Limits::at_least(1));
    Section::adopt(
        "memcached",
        "memcached's text protocol, classic and meta. Its items share the cache's device with the objects.",
        &MemcachedConfig::default(),
        &[],
        vec![
            key(
                "listen",
                Kind::Address,
                "Address and port; port 0 takes a free one, `off` opens none.",
            ),
            key(
                "path",
                Kind::Path,
                "A Unix socket's path; empty opens none. A stale socket there is replaced, anything else is not.",
            ),
            key(
                "threads",
                Kind::Integer,
                "Threads that serve connections; 0 is one a core.",
            )
            .limits(Limits::between(0, 1024)),
            count(
                "max_connections",
                "Connections open at once; more are told so and closed.",
            ),
            key(
                "max_item_size",
                Kind::Size,
                "Largest item: its value, its key and the few bytes that memcached counts beside them. An item must fit a zone (`device.zone_size`), or a slot where `chunk.eviction` is `clru` and chunks are rewritten in place; where that is less than the default, it is the default.",
            )
            .limits(Limits::between(1 << 10, 1 << 30)),
            count(
                "max_pipeline",
                "Requests of one connection that wait for flash at once.",
            ),
            key(
                "memory",
                Kind::Size,
                "Memory of values on their way in or out, over all connections.",
            ),
            key(
                "idle_timeout_seconds",
                Kind::Integer,
                "Seconds that a connection may be idle; 0 is for ever.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds that a client may take nothing of an answer, or send nothing of a value that it announced, before its connection is broken off.",
            ),
            key(
                "min_rate",
                Kind::Size,
                "Least bytes per second of a value that a client sends and of an answer that it takes; a slower client loses its connection. 0 is none.",
            ),
            key(
                "min_rate_grace_seconds",
                Kind::Integer,
                "Seconds that a value or an answer may be slower than `memcached.min_rate`. While `memcached.memory` is short it is one second, and the slowest clients go first.",
            ),
            key(
                "auth_file",
                Kind::Path,
                "A file of lines `name:password`. With it a connection must begin with a `set` whose value is a name, a space and a password, as with memcached's `-Y`.",
            ),
            key(
                "anonymous",
                Kind::Choice(WITHOUT_PASSWORD),
                "Whether clients are served without a password, where there is no `memcached.auth_file`.",
            ),
            key(
                "flush_all",
                Kind::Bool,
                "Whether `flush_all` is carried out. `false` refuses it, as memcached's `-F` does.",
            ),
            key(
                "tls_certificate",
                Kind::Path,
                "A PEM file with a certificate chain: TCP is served over TLS. Empty serves it in the clear.",
            ),
            key(
                "tls_key",
                Kind::Path,
                "A PEM file with the private key of `memcached.tls_certificate`.",
            ),
        ],
    )
}

fn admin() -> Result<Section, String> {
    let count = |name, doc| Key::new(name, Kind::Integer, doc).limits(Limits::at_least(1));
    Section::adopt(
        "admin",
        "Metrics, health and statistics over HTTP.",
        &AdminConfig::default(),
        &[],
        vec![
            Key::new(
                "listen",
                Kind::Address,
                "Address and port; port 0 takes a free one, `off` opens no such frontend.",
            ),
            count(
                "max_connections",
                "Connections at once. A further one takes the place of the one that has been idle the longest; while none is idle, it waits. Four more serve only small pages such as `/health` and `/ready`.",
            ),
            Key::new(
                "public",
                Kind::Bool,
                "Whether `admin.listen` may be an address that other machines can reach: nobody is asked for a password.",
            ),
        ],
    )
}

fn server() -> Result<Section, String> {
    Section::adopt(
        "server",
        "What all frontends share.",
        &ServerConfig::default(),
        // Sections of their own.
        &["s3", "oxcache", "memcached", "admin"],
        vec![
            Key::new(
                "drain_timeout_seconds",
                Kind::Integer,
                "How many seconds a shutdown waits for requests in flight before it breaks them off.",
            )
            .limits(Limits::at_least(1)),
        ],
    )
}

/// Builds the configuration of the frontends from the settings. `origin_is_ours` is
/// true if the user named no origin: the cache serves a folder of its own then, and
/// a loopback address needs no signatures.
///
/// # Errors
/// The setting that cannot be served, and the cure.
pub(crate) fn config(
    effective: &Effective<'_>,
    origin_is_ours: bool,
) -> Result<ServerConfig, Failure> {
    let mut config: ServerConfig = effective.section("server")?;
    config.s3 = match is_off(effective, "s3.listen") {
        true => None,
        false => Some(effective.section("s3")?),
    };
    config.admin = match is_off(effective, "admin.listen") {
        true => None,
        false => Some(effective.section("admin")?),
    };
    config.memcached = memcached_config(effective)?;
    let oxcache: OxCacheConfig = effective.section("oxcache")?;
    if oxcache.path.as_os_str().is_empty() {
        for setting in effective.schema().keys().map(|(setting, _)| setting) {
            if setting.starts_with("oxcache.") && effective.is_changed(&setting) {
                return Err(effective
                    .refuse(&setting, "has no effect without `oxcache.path`", None)
                    .into());
            }
        }
    } else {
        config.oxcache = Some(oxcache);
    }
    if let Some(s3) = &mut config.s3 {
        let nobody_said = !effective.is_given("s3.anonymous") && s3.keys.is_empty();
        if nobody_said && origin_is_ours && is_loopback(s3.listen) {
            s3.anonymous = Anonymous::OnLoopback;
        }
    }
    config
        .validate()
        .map_err(|error| Failure::usage("the frontends cannot be served").because(error))?;
    Ok(config)
}

fn memcached_config(effective: &Effective<'_>) -> Result<Option<MemcachedConfig>, Failure> {
    let config: MemcachedConfig = effective.section("memcached")?;
    if config.listen.is_none() && config.path.as_os_str().is_empty() {
        return Ok(None);
    }
    Ok(Some(config))
}

fn is_off(effective: &Effective<'_>, setting: &str) -> bool {
    effective
        .get(setting)
        .is_some_and(|entry| entry.value.as_str() == Some(OFF))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}
