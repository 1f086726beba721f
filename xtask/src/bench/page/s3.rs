//! S3 beside nginx.

use serde_json::Value;

use super::cells::{entry, round};

/// Requests per CPU second, the least and the most of all sizes.
pub(super) fn compare(text: &mut String, rows: &[&Value]) {
    for (peer, what) in [
        ("floe, etag", "in mode `etag`, over nginx that revalidates"),
        ("floe, immutable", "from RAM, over nginx with `proxy_cache`"),
        (
            "floe, immutable, from flash",
            "from flash, over nginx with `directio`",
        ),
    ] {
        let ratios = rows.iter().filter(|row| row["peer"] == peer);
        let ratios = ratios.filter_map(|row| row["ratio"].as_f64());
        let (least, most) = (ratios.clone().reduce(f64::min), ratios.reduce(f64::max));
        if let (Some(least), Some(most)) = (least, most) {
            entry(
                text,
                format!("S3 requests per CPU second {what}; 4 KiB to 16 MiB, 1 to 64 connections"),
                format!("{} to {} ×", round(least), round(most)),
                "≥ 1 ×",
            );
        }
    }
}

/// Reads in front of a far origin.
pub(super) fn far(text: &mut String, rows: &[&Value]) {
    let over_origin = |figure: &str| {
        let row = rows.iter().find(|row| row["figure"] == figure)?;
        row["over_origin_us"].as_f64()
    };
    for (figure, peer, what, goal) in [
        (
            "hit of 4 KiB, etag",
            "hit of 4 KiB, nginx, revalidating",
            "S3 hit in mode `etag`, over the HEAD of an origin 20 ms away",
            "≤ 300 µs",
        ),
        (
            "hit of 4 KiB, etag, busy",
            "hit of 4 KiB, nginx, revalidating, busy",
            "the same, while 32 other connections ask",
            "≤ 300 µs",
        ),
        (
            "hit of 4 KiB, immutable",
            "hit of 4 KiB, nginx",
            "S3 hit in mode `immutable`, 20 ms after the one before",
            "≤ 300 µs",
        ),
        (
            "miss of 4 KiB",
            "miss of 4 KiB, nginx",
            "S3 miss, over the GET of an origin 20 ms away",
            "≤ 200 µs",
        ),
        (
            "miss of 4 KiB, etag, busy",
            "miss of 4 KiB, nginx, revalidating, busy",
            "the same, while 32 other connections ask",
            "≤ 200 µs",
        ),
    ] {
        if let (Some(ours), Some(theirs)) = (over_origin(figure), over_origin(peer)) {
            let measured = format!("{} µs (nginx: {} µs)", round(ours), round(theirs));
            entry(text, what.to_owned(), measured, goal);
        }
    }
}
