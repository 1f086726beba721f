//! The sections of the library itself. Structs that live beside the code they
//! configure are adopted here: their defaults are theirs, the documentation
//! of their keys is this table.

use floe_core::ByteSize;

use super::{Choice, Key, Kind, Limits, Section, Value};
use crate::object::ObjectConfig;
use crate::origin::OriginConfig;

const MIB: u64 = 1 << 20;

crate::choices! {
    /// Who is forgotten when flash is full.
    pub enum Eviction, default Zplru {
        /// The zone that was read longest ago.
        Zplru = "zplru",
        /// The zone that was written longest ago.
        Fifo = "fifo",
        /// The first zone, in the order they were written, that was not read since the hand last passed.
        Sieve = "sieve",
        /// Single chunks, the one read longest ago first. Reuses chunk slots in place where the device allows it; elsewhere moves live chunks together.
        Clru = "clru",
    }
}

crate::choices! {
    /// What an acknowledged delete or overwrite survives.
    pub enum Durability, default Power {
        /// A loss of power: the device is flushed before the acknowledgement.
        Power = "power",
        /// The end of the process, by any signal; not a loss of power.
        Process = "process",
    }
}

crate::section! {
    /// The chunk engine: how values are laid out on flash and forgotten.
    pub struct ChunkConfig in "chunk" {
        /// The piece in which objects are cached, and the largest value. Part of the format: changing it needs a reformat.
        pub size: ByteSize = ByteSize::kib(64), limits Limits::between(64 << 10, 1 << 30).multiple_of(4 << 10);
        /// Who is forgotten when flash is full. Changing to or from `clru` needs a reformat.
        pub eviction: Eviction = Eviction::default();
        /// Zones written at once. When not set, derived from the number of zones and what the device allows.
        pub open_zones: Option<u32> = None, limits Limits::between(1, 1024);
        /// Reclaim starts when so few zones are free. When not set, derived from the number of zones.
        pub high_water: Option<u32> = None, limits Limits::at_least(1);
        /// Reclaim stops when so many zones are free. When not set, derived from the number of zones.
        pub low_water: Option<u32> = None, limits Limits::at_least(1);
        /// What an acknowledged delete or overwrite survives.
        pub durability: Durability = Durability::default();
        /// Most memory for values on their way to flash. When it is full, writers wait.
        pub write_buffer: ByteSize = ByteSize::mib(64), limits Limits::at_least(MIB);
        /// In how many parts the index is locked. When not set, derived from the capacity.
        pub shards: Option<u32> = None, limits Limits::between(1, 4096);
        /// How long a small value may wait, in milliseconds, for others to be written with it.
        pub flush_delay_ms: u64 = 5, limits Limits::between(0, 10_000);
    }
}

crate::section! {
    /// The RAM tier in front of flash.
    pub struct RamConfig in "ram" {
        /// Memory for values and their keys; 0 turns the tier off.
        pub size: ByteSize = ByteSize::mib(256);
        /// Values larger than this are served from flash only.
        pub max_value: ByteSize = ByteSize::mib(1);
    }
}

/// The sections of the library: device, engine, RAM tier, objects, origin.
///
/// # Errors
/// A bug, said in words: a struct has a field that this table lacks.
pub fn library_sections() -> Result<Vec<Section>, String> {
    Ok(vec![
        device()?,
        ChunkConfig::section(),
        RamConfig::section(),
        object()?,
        origin()?,
    ])
}

const CONSISTENCY: &[Choice] = &[
    Choice {
        word: "immutable",
        doc: "Always: objects never change once they are written.",
    },
    Choice {
        word: "ttl",
        doc: "For `object.ttl_s` seconds.",
    },
    Choice {
        word: "etag",
        doc: "Never: every request is preceded by a conditional request to the origin.",
    },
];

fn object() -> Result<Section, String> {
    let key = Key::new;
    Section::adopt(
        "object",
        "How objects are read through the cache.",
        &ObjectConfig::default(),
        // Objects are cut into chunks of `chunk.size`.
        &["chunk_size"],
        vec![
            key(
                "consistency",
                Kind::Choice(CONSISTENCY),
                "When cached metadata may be used without asking the origin. Writes that go through the cache are seen at once in every mode.",
            ),
            key(
                "ttl_s",
                Kind::Integer,
                "With `ttl`: for how many seconds metadata is trusted.",
            ),
            key(
                "serve_stale",
                Kind::Bool,
                "Serve what was cached when the origin is ill and cannot confirm it.",
            ),
            key(
                "negative_ttl_s",
                Kind::Integer,
                "Remember for this many seconds that an object does not exist; 0 does not.",
            ),
            key(
                "fetch_parallelism",
                Kind::Integer,
                "Requests to the origin that one reader may have under way ahead of itself.",
            )
            .limits(Limits::between(1, 1024)),
            key(
                "coalesce",
                Kind::Size,
                "Adjacent missing chunks are fetched by one request up to this size.",
            )
            .limits(Limits::between(0, 1 << 30)),
            key(
                "fetch_window",
                Kind::Size,
                "Bytes of one fetch that are kept in memory for its readers.",
            )
            .limits(Limits::between(64 << 10, 1 << 30)),
            key(
                "fetch_memory",
                Kind::Size,
                "Bytes that all fetches together may keep in memory.",
            )
            .limits(Limits::between(64 << 10, 1 << 40)),
            key(
                "reader_patience_ms",
                Kind::Integer,
                "How many milliseconds a fetch waits for its readers when its window is full; then it goes on without them, and they read the rest on their own.",
            )
            .limits(Limits::between(1, 3_600_000)),
            key(
                "cancel_unwatched",
                Kind::Bool,
                "Stop a fetch that nobody waits for any more. Otherwise it completes, for the next reader.",
            ),
            key(
                "restarts",
                Kind::Integer,
                "How often a read begins anew when the object changes under it, before its first byte.",
            )
            .limits(Limits::between(0, 100)),
            key(
                "resumes",
                Kind::Integer,
                "How often a fetch whose body broke off is continued at that point.",
            )
            .limits(Limits::between(0, 100)),
        ],
    )
}

const ORIGIN_KINDS: &[Choice] = &[
    Choice {
        word: "directory",
        doc: "Files: `<root>/<bucket>/<key>`.",
    },
    Choice {
        word: "s3",
        doc: "Amazon S3 and whatever speaks its protocol.",
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
        doc: "Made-up objects with chosen latencies, for experiments.",
    },
];

fn origin() -> Result<Section, String> {
    let key = Key::new;
    let mut keys = vec![
        key(
            "kind",
            Kind::Choice(ORIGIN_KINDS),
            "Which kind of store misses go to. Settings that belong to another kind are refused.",
        ),
        key(
            "root",
            Kind::Path,
            "`directory`: the folder that holds the buckets. When not set, `origin` in the data directory.",
        ),
        key(
            "endpoint",
            Kind::Text,
            "`s3`, `gcs`, `azure`: where the service is, if not at its usual place. `http`: the URL below which the objects are.",
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
            "virtual_host_style",
            Kind::Bool,
            "`s3`: put the bucket in the host name rather than in the path.",
        ),
        key(
            "buckets",
            Kind::Toml,
            "Names clients use for buckets, and their names at the origin, as `{ public = \"name-at-origin\" }`. When any is given, other buckets do not exist.",
        ),
        key(
            "part_size",
            Kind::Size,
            "Uploads longer than this are sent in parts of this size, each held in memory while it is sent.",
        )
        .limits(Limits::at_least(5 * MIB)),
        key(
            "part_size_max",
            Kind::Size,
            "The longest part of a multipart upload that is taken.",
        )
        .limits(Limits::at_least(5 * MIB)),
        key(
            "upload_memory",
            Kind::Size,
            "Memory that all uploads together may hold.",
        )
        .limits(Limits::between(5 * MIB, 1 << 40)),
    ];
    keys.extend(request_keys());
    keys.extend(emulated_keys());
    Section::adopt(
        "origin",
        "Where misses go.",
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
            "Most requests at once, bodies included.",
        )
        .limits(Limits::between(1, MIB)),
        count(
            "requests.max_queued",
            "Most requests waiting for their turn; further ones fail at once.",
        ),
        positive(
            "requests.queue_timeout_ms",
            "Longest wait for a turn, in milliseconds.",
        ),
        positive(
            "requests.connect_timeout_ms",
            "Longest wait for a connection, in milliseconds.",
        ),
        positive(
            "requests.response_timeout_ms",
            "Longest wait for the beginning of an answer, in milliseconds.",
        ),
        positive(
            "requests.idle_timeout_ms",
            "Longest pause in a body, in milliseconds.",
        ),
        positive(
            "requests.attempts",
            "How often a request is tried altogether. Uploads, whose bodies can be sent once only, are not retried.",
        ),
        count(
            "requests.backoff_ms",
            "Wait before the second try, in milliseconds; doubled for each further one, with jitter.",
        ),
        count(
            "requests.backoff_max_ms",
            "Longest wait between tries, in milliseconds.",
        ),
        count("requests.seed", "Seed of the jitter."),
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
            "`emulated`: how big objects are: `{ rule = \"fixed\", bytes = \"1MiB\" }`, `{ rule = \"uniform\", min = …, max = … }`, `{ rule = \"from_key\", otherwise = … }` or `{ rule = \"table\", path = … }`.",
        ),
        key(
            "emulated.latency",
            Kind::Toml,
            "`emulated`: how long a request takes until its body begins: `{ rule = \"none\" }`, `{ rule = \"constant\", ms = 40.6 }`, `{ rule = \"normal\" or \"log_normal\", mean_ms = …, sd_ms = … }`, `{ rule = \"empirical\", quantiles = [[0.0, 1.0], [1.0, 9.0]] }` or `{ rule = \"measured\", preset = \"64KiB\" }`.",
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
            "`emulated`: bytes per item of a body.",
        )
        .limits(Limits::between(512, 16 * MIB)),
        key(
            "emulated.error_rate",
            Kind::Float,
            "`emulated`: share of requests that fail with a server error.",
        ),
        key(
            "emulated.short_body_rate",
            Kind::Float,
            "`emulated`: share of bodies that end too early.",
        ),
        key(
            "emulated.change_rate",
            Kind::Float,
            "`emulated`: share of requests before which the object changes.",
        ),
        key(
            "emulated.validators",
            Kind::Bool,
            "`emulated`: whether objects carry an entity tag and modification time.",
        ),
        key(
            "emulated.overrides_max",
            Kind::Integer,
            "`emulated`: most objects that were written, deleted or changed and are remembered as such.",
        ),
    ]
}
