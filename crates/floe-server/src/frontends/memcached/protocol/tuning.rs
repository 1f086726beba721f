//! Commands that tune slabs and LRUs, which Floe lacks. The responses are those
//! of memcached with these features off: commands without an effect succeed,
//! and commands that would start a feature fail.

use super::number::{signed_32, unsigned_32};
use super::request::{Request, answer};
use crate::frontends::memcached::words as say;

/// Longest sleep of memcached's crawler, in microseconds.
const CRAWLER_SLEEP_MICROS_MAX: u32 = 1_000_000;

/// Largest sum, in percent, of the shares of hot and warm items.
const LRU_SHARE_MAX: u32 = 80;

pub(super) fn slabs<'a>(given: &[&[u8]], noreply: bool) -> Request<'a> {
    match given {
        [b"reassign", _, _] => answer(say::NO_REASSIGN),
        [b"automove", level, rest @ ..] => Request::Respond {
            line: automove(level, rest),
            noreply,
        },
        _ => answer(say::ERROR),
    }
}

fn automove(level: &[u8], rest: &[&[u8]]) -> &'static str {
    if level == b"ratio" {
        return match rest.first().is_some_and(|ratio| decimal(ratio).is_some()) {
            true => say::OK,
            false => say::ERROR,
        };
    }
    match unsigned_32(level) {
        Some(0..=2) => say::OK,
        Some(_) => say::ERROR,
        None => say::BAD_FORMAT,
    }
}

pub(super) fn lru_crawler(given: &[&[u8]]) -> &'static str {
    match given {
        [b"crawl" | b"metadump", _] => say::NO_CRAWLER,
        [b"tocrawl", number] => match unsigned_32(number) {
            Some(_) => say::OK,
            None => say::BAD_FORMAT,
        },
        [b"sleep", micros] => match unsigned_32(micros) {
            Some(..=CRAWLER_SLEEP_MICROS_MAX) => say::OK,
            Some(_) => say::CRAWLER_SLEEP,
            None => say::BAD_FORMAT,
        },
        [b"enable"] => say::NO_CRAWLER_START,
        [b"disable"] => say::OK,
        _ => say::ERROR,
    }
}

pub(super) fn lru(given: &[&[u8]]) -> &'static str {
    let [b"tune", hot, warm, hot_factor, warm_factor, ..] = given else {
        return say::ERROR;
    };
    let shares = unsigned_32(hot).zip(unsigned_32(warm));
    let factors = decimal(hot_factor).zip(decimal(warm_factor));
    match shares.zip(factors) {
        None => say::ERROR,
        Some(((hot, warm), _)) if hot.wrapping_add(warm) > LRU_SHARE_MAX => say::LRU_SHARES,
        Some((_, (hot, warm))) if hot <= 0.0 || warm <= 0.0 => say::LRU_FACTORS,
        Some(_) => say::OK,
    }
}

/// Parses a decimal number like C's `strtod`, without its rarer forms.
fn decimal(text: &[u8]) -> Option<f64> {
    if let Some(whole) = signed_32(text) {
        return Some(f64::from(whole));
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
