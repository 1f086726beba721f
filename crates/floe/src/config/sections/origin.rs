//! `[origin]`.

use crate::config::{Choice, Key, Kind, Limits, Section};
use crate::origin::OriginConfig;

const MIB: u64 = 1 << 20;

const ORIGIN_KINDS: &[Choice] = &[
    Choice {
        word: "directory",
        doc: "Files: `<root>/<bucket>/<key>`.",
    },
    Choice {
        word: "s3",
        doc: "Amazon S3 and compatible stores.",
    },
    Choice {
        word: "gcs",
        doc: "Google Cloud Storage.",
    },
    Choice {
        word: "azure",
        doc: "Azure Blob Storage; a bucket is a container.",
    },
    Choice {
        word: "http",
        doc: "A web server; an object is `<endpoint>/<bucket>/<key>`. Read only.",
    },
    Choice {
        word: "emulated",
        doc: "Generated objects with configured latencies, for experiments.",
    },
];

pub(super) fn section() -> Result<Section, String> {
    let key = Key::new;
    let mut keys = vec![
        key(
            "kind",
            Kind::Choice(ORIGIN_KINDS),
            "The kind of origin. Settings that belong to another kind are rejected.",
        ),
        key(
            "root",
            Kind::Path,
            "`directory`: the directory of the buckets. When not set, `origin` in the data directory.",
        ),
        key(
            "endpoint",
            Kind::Text,
            "`s3`, `gcs`, `azure`: the service's URL, if not the usual one. `http`: the URL that object names are appended to.",
        ),
        key(
            "region",
            Kind::Text,
            "`s3`: the region; otherwise from `AWS_REGION`, otherwise `us-east-1`.",
        ),
        key(
            "access_key",
            Kind::Text,
            "`s3`: the access key; otherwise from `AWS_ACCESS_KEY_ID`, web identity or instance metadata. `azure`: the storage account.",
        ),
        key(
            "secret_key",
            Kind::Text,
            "`s3`: the secret key; otherwise from `AWS_SECRET_ACCESS_KEY`. `azure`: the account's key.",
        )
        .secret(),
        key(
            "session_token",
            Kind::Text,
            "`s3`: the session token of temporary credentials; otherwise from `AWS_SESSION_TOKEN`.",
        )
        .secret(),
        key(
            "service_account",
            Kind::Path,
            "`gcs`: the file of the service account; otherwise from `GOOGLE_SERVICE_ACCOUNT` or the machine's default credentials.",
        ),
        key(
            "anonymous",
            Kind::Bool,
            "`s3`, `gcs`, `azure`: send requests unsigned, for public buckets.",
        ),
        key("allow_http", Kind::Bool, "Allow `http://` endpoints."),
        key(
            "redirects",
            Kind::List,
            "`s3`, `gcs`, `azure`, `http`: other origins (`https://host:port`) that responses may redirect to. Redirects within the endpoint's own scheme, host and port are always followed.",
        ),
        key(
            "virtual_host_style",
            Kind::Bool,
            "`s3`: put the bucket in the host name rather than in the path.",
        ),
        key(
            "buckets",
            Kind::Toml,
            "Maps clients' bucket names to the origin's, as `{ public = \"name-at-origin\" }`. When set, no other bucket exists.",
        ),
        key(
            "part_size",
            Kind::Size,
            "Bytes of one part. Longer uploads are sent in parts, each in memory while it is sent.",
        )
        .limits(Limits::at_least(5 * MIB)),
        key(
            "max_part_size",
            Kind::Size,
            "Bytes of the longest part that a client may upload.",
        )
        .limits(Limits::at_least(5 * MIB)),
        key(
            "upload_memory",
            Kind::Size,
            "Bytes of memory for all uploads together.",
        )
        .limits(Limits::between(5 * MIB, 1 << 40)),
    ];
    keys.extend(request_keys());
    keys.extend(emulated_keys());
    Section::adopt(
        "origin",
        "The origin: the store where misses go.",
        &OriginConfig::default(),
        &[],
        keys,
    )
}

fn request_keys() -> Vec<Key> {
    let count = |name, doc| Key::new(name, Kind::Integer, doc);
    let positive = |name, doc| count(name, doc).limits(Limits::at_least(1));
    vec![
        count(
            "requests.max_concurrent",
            "Most concurrent requests other than uploads, bodies included.",
        )
        .limits(Limits::between(1, MIB)),
        count(
            "requests.max_uploads",
            "Most concurrent uploads. An upload begins when its body is complete or 16 KiB of it have arrived.",
        )
        .limits(Limits::between(1, MIB)),
        count(
            "requests.max_queued",
            "Most requests in the queue, and uploads in theirs. If it is full, the client with the most \
             in it loses its newest one to a client that has fewer; others fail at once.",
        ),
        positive(
            "requests.queue_timeout_ms",
            "Longest wait in the queue, in milliseconds.",
        ),
        positive(
            "requests.connect_timeout_ms",
            "Longest wait for a connection, in milliseconds.",
        ),
        positive(
            "requests.response_timeout_ms",
            "Longest wait for the first byte of a response, in milliseconds.",
        ),
        positive(
            "requests.idle_timeout_ms",
            "Longest pause in a body, in milliseconds.",
        ),
        positive(
            "requests.max_attempts",
            "Most attempts of a request. Uploads have one attempt, since their bodies can be read only once.",
        ),
        count(
            "requests.backoff_ms",
            "Wait before the second attempt, in milliseconds; doubled for each further one, with jitter.",
        ),
        count(
            "requests.max_backoff_ms",
            "Longest wait between attempts, in milliseconds.",
        ),
    ]
}

fn emulated_keys() -> Vec<Key> {
    let key = Key::new;
    vec![
        key(
            "emulated.seed",
            Kind::Integer,
            "`emulated`: seed of contents, latencies and faults.",
        ),
        key(
            "emulated.size",
            Kind::Toml,
            "`emulated`: sizes of objects: `{ rule = \"fixed\", bytes = \"1MiB\" }`, `{ rule = \"uniform\", min = …, max = … }`, `{ rule = \"from_key\", otherwise = … }` or `{ rule = \"table\", path = … }`.",
        ),
        key(
            "emulated.latency",
            Kind::Toml,
            "`emulated`: time from a request to the first byte of its body: `{ rule = \"none\" }`, `{ rule = \"constant\", ms = 40.6 }`, `{ rule = \"normal\" or \"log_normal\", mean_ms = …, sd_ms = … }`, `{ rule = \"empirical\", quantiles = [[0.0, 1.0], [1.0, 9.0]] }`, `{ rule = \"file\", path = \"latency.toml\" }` (written by `floe bench --origin`) or `{ rule = \"measured\", preset = \"64KiB\" }`.",
        ),
        key(
            "emulated.head_latency",
            Kind::Bool,
            "`emulated`: whether metadata requests take the latency too.",
        ),
        key(
            "emulated.bandwidth_per_stream",
            Kind::Size,
            "`emulated`: bytes per second of one body; unlimited when not set.",
        )
        .limits(Limits::at_least(1)),
        key(
            "emulated.piece_size",
            Kind::Size,
            "`emulated`: bytes of one piece of a body.",
        )
        .limits(Limits::between(512, 16 * MIB)),
        key(
            "emulated.error_rate",
            Kind::Float,
            "`emulated`: fraction of requests that fail with a server error.",
        ),
        key(
            "emulated.short_body_rate",
            Kind::Float,
            "`emulated`: fraction of bodies that end early.",
        ),
        key(
            "emulated.change_rate",
            Kind::Float,
            "`emulated`: fraction of requests before which the object changes.",
        ),
        key(
            "emulated.validators",
            Kind::Bool,
            "`emulated`: whether objects carry an entity tag and modification time.",
        ),
        key(
            "emulated.max_overrides",
            Kind::Integer,
            "`emulated`: most written, deleted or changed objects that the origin keeps track of.",
        ),
    ]
}
