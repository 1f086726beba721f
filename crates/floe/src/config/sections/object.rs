//! `[object]`.

use crate::config::{Choice, Key, Kind, Limits, Section};
use crate::object::ObjectConfig;

const CONSISTENCY: &[Choice] = &[
    Choice {
        word: "immutable",
        doc: "Always: objects never change.",
    },
    Choice {
        word: "ttl",
        doc: "For `object.ttl_seconds` seconds.",
    },
    Choice {
        word: "events",
        doc: "While the origin's notifications of changes arrive at `events.listen`; otherwise as `etag`.",
    },
    Choice {
        word: "etag",
        doc: "Never: each request sends a conditional request to the origin.",
    },
];

pub(super) fn section() -> Result<Section, String> {
    let key = Key::new;
    Section::adopt(
        "object",
        "Reads of objects through the cache.",
        &ObjectConfig::default(),
        // For tests.
        &["max_resumes"],
        vec![
            key(
                "chunk_size",
                Kind::Size,
                "Bytes of a chunk, the piece of an object that is fetched, stored and evicted as one. Larger chunks cost less processor time per byte, smaller ones fetch and store less for reads of small ranges. A chunk above 256KiB streams: it enters the RAM tier only when a read of all of it comes from flash. Changing it makes misses of all cached objects. Not set, it is `chunk.size` if that is set, and at most the longest value of the cache.",
            )
            .limits(Limits::between(64 << 10, 1 << 30)),
            key(
                "consistency",
                Kind::Choice(CONSISTENCY),
                "When cached metadata is used without a request to the origin. In every mode a write through the cache is visible at once.",
            ),
            key(
                "ttl_seconds",
                Kind::Integer,
                "With `ttl`: lifetime of metadata in seconds.",
            ),
            key(
                "events_timeout_seconds",
                Kind::Integer,
                "With `events`: seconds without a notification or a heartbeat after which objects are validated as with `etag`. Metadata from before such a silence does not count after it.",
            )
            .limits(Limits::at_least(1)),
            key(
                "events_max_age_seconds",
                Kind::Integer,
                "With `events`: lifetime of metadata in seconds. So long a lost notification can go unnoticed.",
            ),
            key(
                "serve_stale",
                Kind::Bool,
                "Serve cached objects when the origin fails to confirm them.",
            ),
            key(
                "negative_ttl_seconds",
                Kind::Integer,
                "Lifetime of a cached \"no such object\", in seconds; 0 caches none.",
            ),
            key(
                "fetch_parallelism",
                Kind::Integer,
                "Most requests to the origin that one reader has pending ahead of its position. It begins with two, and doubles them when it has to wait.",
            )
            .limits(Limits::between(1, 1024)),
            key(
                "coalesce_size",
                Kind::Size,
                "Most bytes of adjacent missing chunks in one request.",
            )
            .limits(Limits::between(0, 1 << 30)),
            key(
                "fetch_window",
                Kind::Size,
                "Bytes of one fetch that stay in memory for its readers.",
            )
            .limits(Limits::between(64 << 10, 1 << 30)),
            key(
                "fetch_memory",
                Kind::Size,
                "Bytes of memory for all fetches together.",
            )
            .limits(Limits::between(64 << 10, 1 << 40)),
            key(
                "reader_timeout_ms",
                Kind::Integer,
                "How long, in milliseconds, a fetch with a full window waits for its readers. After that it continues without them, and they read the store or the origin.",
            )
            .limits(Limits::between(1, 3_600_000)),
            key(
                "cancel_abandoned",
                Kind::Bool,
                "Stop a fetch that has lost all its readers. Otherwise it completes for later ones.",
            ),
            key(
                "rules",
                Kind::Toml,
                "Other settings for objects of some buckets and prefixes: a list of tables with `objects`, which is `BUCKET` or `BUCKET/PREFIX`, and any of `consistency`, `ttl_seconds`, `serve_stale`, `negative_ttl_seconds`, `chunk_size`, `fetch_parallelism`, `admission` and `cache`; `cache = false` stores nothing of them, and `admission = \"all\"` stores everything of them on flash, whatever `chunk.admission` says. Of several rules for an object the one with the longest prefix counts. At most 256 rules.",
            ),
            key(
                "cache_only",
                Kind::Toml,
                "Buckets whose objects are in the cache and nowhere else (docs/s3.md): a list of tables with `bucket`, and any of `capacity`, the most bytes of its objects, beyond which a write removes the oldest ones; `ttl_seconds`, their lifetime; and `lifetimes`, a list of tables with `prefix` and `ttl_seconds` for some of them. Such a bucket hides one of the origin with the same name.",
            ),
            key(
                "names",
                Kind::Path,
                "The file with the names of objects in cache-only buckets; without it, `names.floe` in the data directory. Without this file the buckets are empty.",
            ),
            key(
                "pins",
                Kind::Path,
                "The file with the pins (`floe cache pin`); without it, `pins.json` in the data directory.",
            ),
            key(
                "pinned_percent",
                Kind::Integer,
                "Most of the flash, in percent, that is kept of all pins together (docs/s3.md). What is kept is written again: at 50 up to as much as what is new. 0 keeps nothing. With `chunk.eviction = \"clru\"` there are no pins.",
            )
            .limits(Limits::between(0, 50)),
        ],
    )
}
