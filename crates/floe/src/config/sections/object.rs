//! `[object]`.

use crate::config::{Choice, Key, Kind, Limits, Section};
use crate::object::ObjectConfig;

const CONSISTENCY: &[Choice] = &[
    Choice {
        word: "immutable",
        doc: "Always: objects never change once they are written.",
    },
    Choice {
        word: "ttl",
        doc: "For `object.ttl_seconds` seconds.",
    },
    Choice {
        word: "etag",
        doc: "Never: every request is preceded by a conditional request to the origin.",
    },
];

pub(super) fn section() -> Result<Section, String> {
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
                "ttl_seconds",
                Kind::Integer,
                "With `ttl`: for how many seconds metadata is trusted.",
            ),
            key(
                "serve_stale",
                Kind::Bool,
                "Serve cached objects when the origin fails and cannot confirm them.",
            ),
            key(
                "negative_ttl_seconds",
                Kind::Integer,
                "Seconds for which the absence of an object is remembered; 0 turns that off.",
            ),
            key(
                "fetch_parallelism",
                Kind::Integer,
                "Requests to the origin that one reader may have under way ahead of itself.",
            )
            .limits(Limits::between(1, 1024)),
            key(
                "coalesce_size",
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
                "reader_timeout_ms",
                Kind::Integer,
                "How many milliseconds a fetch waits for its readers when its window is full; then it goes on without them, and they read the rest on their own.",
            )
            .limits(Limits::between(1, 3_600_000)),
            key(
                "cancel_abandoned",
                Kind::Bool,
                "Stop a fetch when its last reader leaves. Otherwise it completes, for the next reader.",
            ),
            key(
                "max_restarts",
                Kind::Integer,
                "How often a read begins anew when the object changes under it, before its first byte.",
            )
            .limits(Limits::between(0, 100)),
            key(
                "max_resumes",
                Kind::Integer,
                "How often a fetch whose body broke off is continued at that point.",
            )
            .limits(Limits::between(0, 100)),
        ],
    )
}
