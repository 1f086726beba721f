//! Lines of memcached's text protocol.

use floe_server::memcached::protocol::{KEY_BYTES_MAX, Request, parse};

/// Every line is parsed or rejected, and a parsed request is within the limits.
pub(crate) fn memcached_lines(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        check(&parse(line), line);
    }
}

fn check(request: &Request<'_>, line: &[u8]) {
    match request {
        Request::Get(get) => {
            assert!(get.keys().all(|key| !key.is_empty() && is_in(key, line)));
        }
        Request::Store(store) => {
            assert!(is_key(store.key) && is_in(store.key, line));
            assert!(i32::try_from(store.len).is_ok_and(|len| len <= i32::MAX - 2));
        }
        Request::Delete { key, .. } | Request::Count { key, .. } | Request::Touch { key, .. } => {
            assert!(is_key(key) && is_in(key, line));
        }
        Request::MetaGet(meta) | Request::MetaDelete(meta) | Request::MetaCount(meta) => {
            assert!(is_key(meta.key.as_slice()));
            assert!(meta.flags().all(|(flag, word)| word[0] == flag));
        }
        Request::MetaSet(meta, len) => {
            assert!(is_key(meta.key.as_slice()));
            assert!(i32::try_from(*len).is_ok_and(|len| len <= i32::MAX - 2));
        }
        Request::MetaDebug(key) => assert!(is_key(key.as_slice())),
        Request::Respond { line, .. } | Request::Reject { line, .. } => {
            assert!(!line.is_empty() && !line.contains(['\r', '\n']));
        }
        Request::MetaNoop
        | Request::FlushAll { .. }
        | Request::Stats(_)
        | Request::Version
        | Request::Quit
        | Request::Hangup => {}
    }
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// The words of the request are words of the line.
fn is_in(word: &[u8], line: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let longest = "k".repeat(250);
    let lines = [
        "get a b c\r\ngets a\r\ngat 10 a b\r\ngats -1 a".to_owned(),
        "set a 0 0 5 noreply\r\nadd a 1 2 3\r\ncas a 1 2 3 4 noreply\r\nprepend a 0 0 0".to_owned(),
        "incr a 18446744073709551615\r\ndecr a -1\r\ntouch a 0 noreply\r\ndelete a 0".to_owned(),
        "mg YQ== b v t s f c k h l Oop q u N30 R10 T0\r\nmn\r\nme a".to_owned(),
        "ms a 5 T0 F1 C9 I ME k c q\r\nmd a I T30 q\r\nma a N0 J1 D2 MD v".to_owned(),
        "flush_all 10 noreply\r\nstats items\r\nverbosity 1\r\nversion\r\nquit".to_owned(),
        "GET / HTTP/1.1\r\n\0\r\n   \r\ncache_memlimit 64\r\nlru_crawler crawl all".to_owned(),
        format!("get {longest}\r\nget {longest}k\r\nms {longest}k 1"),
    ];
    lines.into_iter().map(String::into_bytes).collect()
}
