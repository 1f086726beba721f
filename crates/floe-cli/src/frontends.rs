//! The settings of the frontends: `[s3]`, `[oxcache]`, `[memcached]`, `[nbd]`,
//! `[peers]`, `[events]`, `[control]`, `[admin]`, `[node]`, `[server]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use floe::config::{Choice, Effective, Key, Kind, Limits, Section};
use floe_server::{
    AdminConfig, Anonymous, ControlConfig, EventsConfig, MemcachedConfig, NbdConfig, NodeConfig,
    OxCacheConfig, PeersConfig, S3Config, ServerConfig,
};

use crate::failure::Failure;

/// The value of `listen` that disables a frontend.
const OFF: &str = "off";

const ON_LOOPBACK: Choice = Choice {
    word: "loopback",
    doc: "Yes, but an address that other machines can reach is an error at startup.",
};

const ON_ANY_ADDRESS: Choice = Choice {
    word: "true",
    doc: "Yes, on any address.",
};

const ANONYMOUS: &[Choice] = &[
    Choice {
        word: "false",
        doc: "No: every request must be signed with one of `s3.keys`.",
    },
    ON_ANY_ADDRESS,
    ON_LOOPBACK,
];

const CREDENTIALS: &[Choice] = &[
    Choice {
        word: "keys",
        doc: "Those of `s3.keys`; the origin sees requests of Floe alone.",
    },
    Choice {
        word: "client",
        doc: "The clients' own at the origin, which must be an S3 service.",
    },
];

const WITHOUT_PASSWORD: &[Choice] = &[
    ON_LOOPBACK,
    ON_ANY_ADDRESS,
    Choice {
        word: "false",
        doc: "No: `memcached.auth_file` must be set.",
    },
];

const HOLDER_ORDERS: &[Choice] = &[
    Choice {
        word: "rendezvous",
        doc: "Rendezvous hashing of the nodes' addresses. No balancer's, so ask all nodes: `peers.asked` one less than there are.",
    },
    Choice {
        word: "haproxy",
        doc: "HAProxy's, as in packaging/ring/haproxy-s3.cfg: `balance uri path-only` and `hash-type consistent djb2 avalanche` over servers of equal weight. `peers.nodes` lists them in the order of their ids 1, 2, ….",
    },
];

const TLS_MODES: &[Choice] = &[
    Choice {
        word: "off",
        doc: "No connection is encrypted.",
    },
    Choice {
        word: "optional",
        doc: "Clients choose.",
    },
    Choice {
        word: "required",
        doc: "Clients must encrypt before they learn of an export.",
    },
];

const REJOIN: &[Choice] = &[
    Choice {
        word: "warm",
        doc: "Valid: no other node takes its keys while it is away.",
    },
    Choice {
        word: "new-era",
        doc: "Outdated: it forgets at each start, and after each time without a lease, all of memcached's items and what else no origin can confirm.",
    },
    Choice {
        word: "wait",
        doc: "Unknown: it answers with misses until `POST /v1/node/confirm` or `/v1/node/join`, or until it has a lease.",
    },
];

const RING_HASHES: &[Choice] = &[
    Choice {
        word: "off",
        doc: "Not known: the node takes every key.",
    },
    Choice {
        word: "nutcracker",
        doc: "nutcracker's `distribution: ketama` with `hash: fnv1a_64`, its defaults.",
    },
    Choice {
        word: "pymemcache",
        doc: "pymemcache's `HashClient`, without `key_prefix`.",
    },
    Choice {
        word: "emcache",
        doc: "emcache's rendezvous hashing; servers are named `host:port`.",
    },
];

const WITHOUT_CERTIFICATE: &[Choice] = &[
    ON_LOOPBACK,
    ON_ANY_ADDRESS,
    Choice {
        word: "false",
        doc: "No: `nbd.tls` must be `required` and `nbd.tls_client_ca` be set.",
    },
];

/// The sections of the frontends.
///
/// # Errors
/// A bug, described in text: a struct and its table disagree.
pub(crate) fn sections() -> Result<Vec<Section>, String> {
    Ok(vec![
        s3()?,
        oxcache()?,
        memcached()?,
        nbd()?,
        peers()?,
        events()?,
        control()?,
        admin()?,
        node()?,
        server()?,
    ])
}

fn s3() -> Result<Section, String> {
    let mut section = Section::adopt(
        "s3",
        "The S3 frontend: any S3 client, read-through.",
        &S3Config::default(),
        &[],
        vec![
            Key::new(
                "listen",
                Kind::Address,
                "Address and port; port 0 selects a free one, `off` disables the frontend.",
            ),
            Key::new(
                "anonymous",
                Kind::Choice(ANONYMOUS),
                "Serve requests without a signature. When not set: `loopback` if there are no `s3.keys`, `s3.listen` is a loopback address and the origin is the directory in the data directory, otherwise `false`.",
            ),
            Key::new(
                "credentials",
                Kind::Choice(CREDENTIALS),
                "Whose keys sign requests. With `client` an S3 origin judges each request by its client's own signature; clients address the origin's host name, by DNS or as a proxy.",
            ),
            Key::new(
                "client_hosts",
                Kind::List,
                "With `s3.credentials = \"client\"`: further host names, without ports, by which the origin takes requests that have the bucket in the path.",
            ),
            Key::new(
                "client_credentials_ttl_seconds",
                Kind::Integer,
                "With `s3.credentials = \"client\"`: most seconds that a cached object is served to the very request that the origin has accepted for it; 0 asks the origin each time.",
            )
            .limits(Limits::between(0, 900)),
            Key::new(
                "keys",
                Kind::KeyPairs,
                "Keys that may sign requests: pairs of access key and secret key. In a file, a pair may also have `origin`, a pair of keys of an S3 origin by which Floe signs what it sends on of this key's requests.",
            )
            .secret(),
            Key::new(
                "policies",
                Kind::Toml,
                "The rights of these keys: a list of tables with `key` (an access key, or `anonymous` for requests without a signature), `buckets` (names, or `*` for all), `prefixes` (beginnings of the keys of objects; left out, all keys) and `access` (`read`, or `write` for both). A key without a policy may do everything.",
            ),
            Key::new(
                "domains",
                Kind::List,
                "Domains whose subdomains are buckets: `bucket.s3.example.com` for `s3.example.com`. Requests to other host names are path style.",
            ),
            Key::new(
                "region",
                Kind::Text,
                "The region that GetBucketLocation returns.",
            ),
            threads(),
            count(
                "max_connections",
                "Most open connections. A further one replaces the connection that has been idle longest; if none is idle, it waits.",
            ),
            Key::new(
                "max_connections_per_client",
                Kind::Integer,
                "Most connections of one client, an address or a public IPv6 network of 64 bits, that may be busy at once; requests on further ones get the error SlowDown. 0 is no limit. When not set: half of `max_connections`, but at least 64, so that one client cannot hold all places. All clients behind a proxy are one.",
            ),
            count(
                "max_streams_per_connection",
                "Most concurrent requests of one HTTP/2 connection.",
            ),
            Key::new(
                "max_header_size",
                Kind::Size,
                "Bytes of the largest request head.",
            )
            .limits(Limits::between(8 << 10, 1 << 20)),
            count(
                "idle_timeout_seconds",
                "Seconds that a connection may be idle, or take to send a request's head.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds without progress in a response or an upload before its connection is closed.",
            ),
            Key::new(
                "min_upload_rate",
                Kind::Size,
                "Least bytes per second of an upload. A client may fall behind by `s3.stall_timeout_seconds`; with 0, only silence is limited.",
            ),
            Key::new(
                "max_upload_size",
                Kind::Size,
                "Bytes of the largest PUT or part of a multipart upload.",
            )
            .limits(Limits::at_least(1)),
            Key::new(
                "access_log",
                Kind::Path,
                "The file of the access log, a line of JSON for each S3 request; `-` is standard output, empty turns it off. A SIGHUP opens it again.",
            ),
            Key::new(
                "tls_certificate",
                Kind::Path,
                "A PEM file with a certificate chain, to serve S3 over TLS. Empty serves plain HTTP.",
            ),
            private_key("A PEM file with the private key of `s3.tls_certificate`."),
        ],
    )?;
    // Without a value, `config` derives it.
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
    Section::adopt(
        "oxcache",
        "OxCache's protocol on a Unix socket. Opened when `oxcache.path` is set.",
        &OxCacheConfig::default(),
        &[],
        vec![
            Key::new(
                "path",
                Kind::Path,
                "The socket's path; empty disables the frontend. An existing stale socket is replaced; any other file is an error.",
            ),
            Key::new("bucket", Kind::Text, "The bucket of all keys."),
            count(
                "max_connections",
                "Most open connections. A further one replaces the connection that has been idle longest; if none is idle, it waits.",
            ),
            count(
                "max_pipeline",
                "Most concurrent requests of one connection; further ones wait in the socket.",
            ),
            Key::new("max_read_size", Kind::Size, "Most bytes of one request.")
                .limits(Limits::between(1, (4 << 30) - 65)),
            Key::new(
                "read_ahead",
                Kind::Size,
                "Bytes read ahead of the responses being sent, over all connections.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds that a client may receive nothing of a response.",
            ),
        ],
    )
}

fn threads() -> Key {
    Key::new(
        "threads",
        Kind::Integer,
        "Threads that serve connections; 0 is one per core.",
    )
    .limits(Limits::between(0, 1024))
}

fn memcached() -> Result<Section, String> {
    Section::adopt(
        "memcached",
        "memcached's text protocol, classic and meta. Its items share the cache's device with the objects.",
        &MemcachedConfig::default(),
        &[],
        vec![
            tcp_address(),
            Key::new(
                "path",
                Kind::Path,
                "Path of a Unix socket; empty disables it. An existing stale socket is replaced; any other file is an error.",
            ),
            threads(),
            count(
                "max_connections",
                "Most open connections; further ones get an error and are closed.",
            ),
            Key::new(
                "max_item_size",
                Kind::Size,
                "Size of the largest item: its value, its key and memcached's overhead. An item must fit a zone (`device.zone_size`), or a slot if `chunk.eviction` is `clru` and the layout is slots. If that is less than the default, it is the default.",
            )
            .limits(Limits::between(1 << 10, 1 << 30)),
            count(
                "max_pipeline",
                "Most requests of one connection that wait for flash.",
            ),
            Key::new(
                "memory",
                Kind::Size,
                "Memory for values in transfer, over all connections.",
            ),
            Key::new(
                "idle_timeout_seconds",
                Kind::Integer,
                "Seconds that a connection may be idle; 0 is unlimited.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds without progress in a value that a client sends, or in a response that it receives, before its connection is closed.",
            ),
            Key::new(
                "min_rate",
                Kind::Size,
                "Least bytes per second of a value that a client sends or a response that it receives; a slower client loses its connection. 0 disables the limit.",
            ),
            Key::new(
                "min_rate_grace_seconds",
                Kind::Integer,
                "Seconds that a transfer may be slower than `memcached.min_rate`. While `memcached.memory` is short the grace is one second, and the slowest transfer loses its connection first.",
            ),
            Key::new(
                "auth_file",
                Kind::Path,
                "A file of lines `name:password`. If set, a connection must begin with a `set` whose value is a name, a space and a password, as with memcached's `-Y`.",
            ),
            Key::new(
                "anonymous",
                Kind::Choice(WITHOUT_PASSWORD),
                "Serve clients without a password if `memcached.auth_file` is not set.",
            ),
            Key::new(
                "flush_all",
                Kind::Bool,
                "Execute `flush_all`. `false` rejects it, like memcached's `-F`.",
            ),
            Key::new(
                "tls_certificate",
                Kind::Path,
                "A PEM file with a certificate chain, to serve TCP over TLS. Empty serves plain TCP.",
            ),
            private_key("A PEM file with the private key of `memcached.tls_certificate`."),
        ],
    )
}

fn nbd() -> Result<Section, String> {
    Section::adopt(
        "nbd",
        "Block devices over the NBD protocol. Opened when there is a volume or an export.",
        &NbdConfig::default(),
        &[],
        vec![
            tcp_address(),
            Key::new(
                "path",
                Kind::Path,
                "Path of a Unix socket; empty disables it. When not set: `nbd.sock` in the data directory. An existing stale socket is replaced; any other file is an error.",
            ),
            threads(),
            Key::new(
                "exports",
                Kind::Toml,
                "Exports that live in memory, for tests and benches: a list of tables with `name`, `size`, `kind` and `read_only`. The kind `memory` keeps what was written until the server stops; `null` reads as zeros and drops writes.",
            ),
            Key::new(
                "default_export",
                Kind::Text,
                "The export of clients that name none; empty is the first one.",
            ),
            count(
                "max_connections",
                "Most open connections; further ones are closed at once.",
            ),
            count(
                "max_requests",
                "Most requests in flight of one connection; further ones wait in the socket.",
            ),
            Key::new(
                "max_request_size",
                Kind::Size,
                "Most bytes of one read or write.",
            )
            .limits(Limits::between(64 << 10, 32 << 20)),
            Key::new(
                "memory",
                Kind::Size,
                "Memory for data in transfer, over all connections. While it is short, a transfer slower than 1 MiB/s loses its connection.",
            ),
            count(
                "handshake_timeout_seconds",
                "Seconds that a client may take for the handshake.",
            ),
            count(
                "stall_timeout_seconds",
                "Seconds without progress in a request that a client sends, or in replies that it receives, before its connection is closed.",
            ),
            Key::new(
                "tls",
                Kind::Choice(TLS_MODES),
                "Encryption of connections, over TCP and the Unix socket.",
            ),
            Key::new(
                "tls_certificate",
                Kind::Path,
                "A PEM file with the server's certificate chain.",
            ),
            private_key("A PEM file with the private key of `nbd.tls_certificate`."),
            Key::new(
                "tls_client_ca",
                Kind::Path,
                "A PEM file with the authorities whose certificates clients must have. Empty accepts clients without a certificate.",
            ),
            Key::new(
                "anonymous",
                Kind::Choice(WITHOUT_CERTIFICATE),
                "Serve clients without a certificate over TCP.",
            ),
        ],
    )
}

fn peers() -> Result<Section, String> {
    Section::adopt(
        "peers",
        "Other nodes with the same origin, which are asked for missing objects before the origin is: docs/scale-out.md. Opened when `peers.listen` is set.",
        &PeersConfig::default(),
        &[],
        vec![
            Key::new(
                "listen",
                Kind::Address,
                "Address and port for the questions of other nodes; port 0 selects a free one, `off` disables the frontend.",
            ),
            Key::new(
                "nodes",
                Kind::List,
                "The addresses of all nodes, `host:port`, the same list for every node; this one leaves itself out. With `rendezvous` a name may have several addresses, and is looked up again every 10 s. Empty: this node answers others, and asks none.",
            ),
            Key::new(
                "order",
                Kind::Choice(HOLDER_ORDERS),
                "How objects are spread over the nodes, which tells the nodes that most likely hold one.",
            ),
            Key::new(
                "weight",
                Kind::Integer,
                "With `haproxy`: the weight of each server there. 1 is HAProxy's default; 16 spreads objects more evenly.",
            )
            .limits(Limits::between(1, 256)),
            Key::new(
                "asked",
                Kind::Integer,
                "Nodes that are asked for a missing object, the likeliest ones.",
            )
            .limits(Limits::between(1, 16)),
            Key::new(
                "timeout_ms",
                Kind::Integer,
                "Milliseconds for a node's answer, and for each piece of it. After that the origin is asked, and the node is left out for a second, and for longer if it fails again.",
            )
            .limits(Limits::at_least(1)),
            Key::new(
                "secret",
                Kind::Text,
                "The secret of the nodes, the same for all. Who has it can read every cached object. Only a loopback address can do without.",
            )
            .secret(),
            count(
                "max_connections",
                "Most open connections of other nodes. A further one replaces the connection that has been idle longest; if none is idle, it waits.",
            ),
        ],
    )
}

fn events() -> Result<Section, String> {
    Section::adopt(
        "events",
        "Notifications of changes at the origin, over HTTP, from a queue, or from NATS, for `object.consistency = \"events\"`. Opened when `events.listen`, `events.queue` or `events.nats` is set; only one of them can be.",
        &EventsConfig::default(),
        &[],
        vec![
            Key::new(
                "listen",
                Kind::Address,
                "Address and port to which the origin posts its notifications; port 0 selects a free one, `off` opens none.",
            ),
            Key::new(
                "queue",
                Kind::Text,
                "URL of a queue of SQS with the notifications, such as `https://sqs.eu-central-1.amazonaws.com/123456789012/floe`; empty reads none. No other server may read it. The origin must be an S3 service; its credentials need `sqs:ReceiveMessage`, `sqs:DeleteMessage` and `sqs:SendMessage`.",
            ),
            Key::new(
                "nats",
                Kind::Text,
                "URL of a server of NATS with the notifications, `nats://HOST:PORT`, or `tls://HOST:PORT`, which demands TLS; empty subscribes nowhere.",
            ),
            Key::new(
                "nats_subject",
                Kind::Text,
                "The subject of the notifications at NATS, without wildcards. The server publishes heartbeats to it too, so that it needs the right to subscribe and to publish.",
            ),
            Key::new("nats_user", Kind::Text, "The user at NATS."),
            Key::new("nats_password", Kind::Text, "The password of `events.nats_user`.").secret(),
            Key::new(
                "nats_token",
                Kind::Text,
                "A token of NATS, in place of a user and a password.",
            )
            .secret(),
            Key::new(
                "nats_credentials",
                Kind::Path,
                "A file with a JWT of NATS and the seed of its key (`.creds`), in place of a user and a password. Each connection reads it again.",
            ),
            Key::new(
                "nats_tls_ca",
                Kind::Path,
                "A PEM file with the authorities of the certificate of NATS, which demands TLS. Empty: those that the machine trusts.",
            ),
            Key::new(
                "token",
                Kind::Text,
                "The secret of senders, which they send in `Authorization: Bearer …`. Only a loopback address can do without.",
            )
            .secret(),
            certificate(),
            private_key("A PEM file with the private key of `events.tls_certificate`."),
            count(
                "max_connections",
                "Most open connections. A further one replaces the connection that has been idle longest; if none is idle, it waits.",
            ),
        ],
    )
}

fn control() -> Result<Section, String> {
    Section::adopt(
        "control",
        "Commands of `floe cache` and `floe volume` to the running server, over a Unix socket that only its user can open.",
        &ControlConfig::default(),
        &[],
        vec![Key::new(
            "path",
            Kind::Path,
            "Path of the Unix socket; empty disables it. When not set: `control.sock` in the data directory, without which a server without volumes starts all the same. An existing stale socket is replaced; any other file is an error.",
        )],
    )
}

fn admin() -> Result<Section, String> {
    Section::adopt(
        "admin",
        "Metrics, health and statistics over HTTP, and commands with `admin.token`.",
        &AdminConfig::default(),
        &[],
        vec![
            Key::new(
                "listen",
                Kind::Address,
                "Address and port; port 0 selects a free one, `off` disables the frontend.",
            ),
            certificate(),
            private_key("A PEM file with the private key of `admin.tls_certificate`."),
            count(
                "max_connections",
                "Most open connections. A further one replaces the connection that has been idle longest; if none is idle, it waits. Four more serve only small pages such as `/health` and `/ready`.",
            ),
            Key::new(
                "public",
                Kind::Bool,
                "Allow other machines to reach `admin.listen`, although metrics, health and statistics need no password.",
            ),
            Key::new(
                "token",
                Kind::Text,
                "The secret of the commands of `floe cache` over HTTP, which clients send in `Authorization: Bearer …`. Empty turns these commands off.",
            )
            .secret(),
        ],
    )
}

/// The key `listen` of a frontend that may have a Unix socket instead.
fn tcp_address() -> Key {
    Key::new(
        "listen",
        Kind::Address,
        "Address and port; port 0 selects a free one, `off` disables TCP.",
    )
}

/// The key `tls_certificate`.
fn certificate() -> Key {
    Key::new(
        "tls_certificate",
        Kind::Path,
        "A PEM file with the server's certificate chain. It turns TLS on. A reload reads it again.",
    )
}

fn private_key(doc: &'static str) -> Key {
    Key::new("tls_key", Kind::Path, doc)
}

fn count(name: &'static str, doc: &'static str) -> Key {
    Key::new(name, Kind::Integer, doc).limits(Limits::at_least(1))
}

fn node() -> Result<Section, String> {
    Section::adopt(
        "node",
        "This server as one of several that share keys: docs/scale-out.md.",
        &NodeConfig::default(),
        &[],
        vec![
            Key::new(
                "name",
                Kind::Text,
                "The node's name: in `node.ring`, in the clients' list of servers, and in etcd. Empty is the machine's name.",
            ),
            Key::new(
                "rejoin",
                Kind::Choice(REJOIN),
                "The validity of the node's content at a start, and after an absence.",
            ),
            Key::new(
                "ring",
                Kind::List,
                "The nodes that share memcached's keys, as in nutcracker's `servers`: `host:port:weight name`. The node then refuses keys of others, so that a client that asks the wrong node gets no old value. The same list for every node; a node with another list begins without items.",
            ),
            Key::new(
                "ring_generation",
                Kind::Integer,
                "Raise it with each change of `node.ring`, at every node: a node that was off during a change then begins without items, even if the list is the old one again.",
            ),
            Key::new(
                "ring_hash",
                Kind::Choice(RING_HASHES),
                "How clients spread memcached's keys over the nodes. With `node.etcd` and without `node.ring`, the nodes that hold a lease are the ring.",
            ),
            Key::new(
                "hash_tag",
                Kind::Text,
                "nutcracker's `hash_tag`: two characters; the part of a key between them is hashed.",
            ),
            Key::new(
                "weight",
                Kind::Integer,
                "This node's weight in a ring of leases.",
            )
            .limits(Limits::at_least(1)),
            Key::new(
                "etcd",
                Kind::List,
                "Addresses of etcd, such as `http://10.0.0.5:2379`: the node is confirmed while it holds a lease there.",
            ),
            Key::new(
                "etcd_user",
                Kind::Text,
                "The user of etcd, if it has users: one that may read and write below `node.etcd_prefix`. Empty for none.",
            ),
            Key::new("etcd_password", Kind::Text, "The user's password.").secret(),
            Key::new(
                "etcd_ca",
                Kind::Path,
                "A PEM file with the authorities of etcd's certificates, for addresses with `https`. Empty trusts those of the machine.",
            ),
            Key::new(
                "etcd_certificate",
                Kind::Path,
                "A PEM file with this node's certificate, if etcd wants one. Empty for none.",
            ),
            Key::new(
                "etcd_key",
                Kind::Path,
                "A PEM file with the certificate's private key.",
            ),
            Key::new(
                "etcd_prefix",
                Kind::Text,
                "The keys of etcd that the nodes of one ring use begin with it.",
            ),
            Key::new(
                "lease_ms",
                Kind::Integer,
                "Milliseconds for which a renewal of the lease confirms the node, counted from its sending, the same for every node. It is renewed every third of that time. etcd keeps the lease a tenth longer, and at least 2 s.",
            )
            .limits(Limits::at_least(300)),
        ],
    )
}

fn server() -> Result<Section, String> {
    Section::adopt(
        "server",
        "Settings of all frontends.",
        &ServerConfig::default(),
        // These have their own sections.
        &[
            "s3",
            "oxcache",
            "memcached",
            "nbd",
            "peers",
            "events",
            "control",
            "admin",
            "node",
        ],
        vec![
            Key::new(
                "leave_seconds",
                Kind::Integer,
                "Seconds that a shutdown goes on accepting connections and requests while `/ready` answers 404, so that a load balancer sends new ones elsewhere before it begins. Longer than the balancer's time between checks. After its last answer the server waits as long again, since a balancer may end a transfer whose last bytes it has yet to read once nothing answers its checks.",
            )
            .limits(Limits::between(0, 3600)),
            Key::new(
                "drain_timeout_seconds",
                Kind::Integer,
                "Seconds that a shutdown waits for pending requests before it aborts them.",
            )
            .limits(Limits::at_least(1)),
        ],
    )
}

/// The configuration of the frontends. `origin_is_default` says that the settings
/// name no origin: the cache then serves its own directory, and a loopback
/// address needs no signatures. `data_dir` holds sockets without a configured path.
///
/// # Errors
/// The invalid setting, and the remedy.
pub(crate) fn config(
    effective: &Effective<'_>,
    origin_is_default: bool,
    data_dir: &Path,
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
    let peers: PeersConfig = effective.section("peers")?;
    match peers.listen {
        Some(_) => config.peers = Some(peers),
        None => reject_without_effect(effective, "peers.", "peers.listen")?,
    }
    let events: EventsConfig = effective.section("events")?;
    let (has_queue, has_nats) = (!events.queue.is_empty(), !events.nats.is_empty());
    if events.listen.is_none() && !has_queue && !has_nats {
        let sources = "events.listen, events.queue or events.nats";
        reject_without_effect(effective, "events.", sources)?;
    } else {
        if events.listen.is_none() {
            for setting in ["events.token", "events.tls_"] {
                reject_without_effect(effective, setting, "events.listen")?;
            }
        }
        if !has_nats {
            reject_without_effect(effective, "events.nats_", "events.nats")?;
        }
        config.events = Some(events);
    }
    config.memcached = memcached_config(effective)?;
    config.node = Some(effective.section("node")?);
    config.nbd = nbd_config(effective, data_dir)?;
    let oxcache: OxCacheConfig = effective.section("oxcache")?;
    if oxcache.path.as_os_str().is_empty() {
        reject_without_effect(effective, "oxcache.", "oxcache.path")?;
    } else {
        config.oxcache = Some(oxcache);
    }
    let needed = has_volumes(effective) || effective.is_given("control.path");
    let useful = config.s3.is_some() || config.oxcache.is_some();
    config.control = control_path(effective, data_dir)?
        .filter(|_| needed || useful)
        .map(|path| ControlConfig {
            path,
            is_optional: !needed,
        });
    if let Some(s3) = &mut config.s3 {
        let nobody_said = !effective.is_given("s3.anonymous") && s3.keys.is_empty();
        if nobody_said && origin_is_default && is_loopback(s3.listen) {
            s3.anonymous = Anonymous::OnLoopback;
        }
    }
    config.validate().map_err(|error| {
        Failure::usage("the settings of the frontends are invalid").because(error)
    })?;
    Ok(config)
}

fn memcached_config(effective: &Effective<'_>) -> Result<Option<MemcachedConfig>, Failure> {
    let config: MemcachedConfig = effective.section("memcached")?;
    if config.listen.is_none() && config.path.as_os_str().is_empty() {
        return Ok(None);
    }
    Ok(Some(config))
}

fn nbd_config(effective: &Effective<'_>, data_dir: &Path) -> Result<Option<NbdConfig>, Failure> {
    let mut config: NbdConfig = effective.section("nbd")?;
    if config.exports.is_empty() && !has_volumes(effective) {
        reject_without_effect(effective, "nbd.", "a volume or nbd.exports")?;
        return Ok(None);
    }
    if !effective.is_given("nbd.path") {
        config.path = data_dir.join("nbd.sock");
    }
    Ok(Some(config))
}

/// True if the cache of volumes is to be opened.
pub(crate) fn has_volumes(effective: &Effective<'_>) -> bool {
    effective.is_given("volumes.path") || effective.entries_of("volume").next().is_some()
}

/// The path of the control socket; `None` if it is disabled.
pub(crate) fn control_path(
    effective: &Effective<'_>,
    data_dir: &Path,
) -> Result<Option<PathBuf>, Failure> {
    let ControlConfig { path, .. } = effective.section("control")?;
    Ok(match effective.is_given("control.path") {
        false => Some(data_dir.join("control.sock")),
        true => Some(path).filter(|path| !path.as_os_str().is_empty()),
    })
}

/// Rejects changed settings that begin with `prefix`, as `needed` is not set.
fn reject_without_effect(
    effective: &Effective<'_>,
    prefix: &str,
    needed: &str,
) -> Result<(), Failure> {
    for setting in effective.schema().keys().map(|(setting, _)| setting) {
        if setting.starts_with(prefix) && effective.is_changed(&setting) {
            let why = format!("has no effect without `{needed}`");
            return Err(effective.bad_value(&setting, why, None).into());
        }
    }
    Ok(())
}

fn is_off(effective: &Effective<'_>, setting: &str) -> bool {
    effective
        .get(setting)
        .is_some_and(|entry| entry.value.as_str() == Some(OFF))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}
