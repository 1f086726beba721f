use proptest::prelude::*;

use std::time::Duration;

use super::*;

fn read(format: TraceFormat, content: &[u8]) -> Vec<Request> {
    open(format, content, false)
        .collect::<Result<_, _>>()
        .expect("the fixture is good")
}

fn open(format: TraceFormat, content: &[u8], skip_bad: bool) -> Trace {
    let options = TraceOptions {
        format: Some(format),
        skip_bad,
    };
    Trace::from_vec("fixture", content.to_vec(), options).expect("the format is given")
}

fn bytes_key(text: &str) -> Key {
    Key::Bytes(text.as_bytes().into())
}

const META_CDN: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate\n\
    7,cdn:a,1,1000,10,3,100,199,60,0.001\n\
    8,cdn:b,1,-1,10,3,-1,-1,0,0.001\n\
    9,cdn:c,1,1000,10,3,400,-1,60,0.001\n";

#[test]
fn meta_cdn_has_ranges_sizes_and_ttls() {
    let requests = read(TraceFormat::MetaCdn, META_CDN.as_bytes());
    assert_eq!(
        requests[0],
        Request {
            time_ns: Some(7_000_000_000),
            key: bytes_key("cdn:a"),
            op: Op::Get,
            size: Some(1000),
            range: Some(ByteRange::new(100, 100)),
            ttl: Some(Duration::from_secs(60)),
        }
    );
    assert_eq!((requests[1].size, requests[1].range), (None, None));
    assert_eq!(requests[2].range, Some(ByteRange::new(400, 600)));
    assert_eq!(requests.len(), 3);
}

#[test]
fn meta_cdn_finds_columns_by_name() {
    let newer = "OpType,cacheKey,vip_type,timestamp,cdn_content_type_id\n1,x,3,5,-\n";
    let requests = read(TraceFormat::MetaCdn, newer.as_bytes());
    assert_eq!(requests[0].key, bytes_key("x"));
    assert_eq!(requests[0].time_ns, Some(5_000_000_000));
    let error = open(TraceFormat::MetaCdn, b"timestamp,key\n1,2\n", false)
        .next()
        .expect("one item")
        .expect_err("no cacheKey");
    assert!(
        error.to_string().contains("no column `cacheKey`"),
        "{error}"
    );
}

#[test]
fn meta_kv_repeats_rows() {
    let content = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
        10,aa,20,GET,3,80,3,0,1,1\n10,bb,20,SET_LEASE,1,5,0,30,1,1\n";
    let requests = read(TraceFormat::MetaKv, content.as_bytes());
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0], requests[2]);
    assert_eq!(requests[0].size, Some(100));
    assert_eq!(requests[3].op, Op::Put);
    assert_eq!(requests[3].ttl, Some(Duration::from_secs(30)));
}

#[test]
fn twitter_rows() {
    let content = "0,q:q:1:8WTw,17,249,1,get,0\n4,k,1,0,2,get,0\n5,k,1,9,2,set,3600\n";
    let requests = read(TraceFormat::Twitter, content.as_bytes());
    assert_eq!(requests[0].size, Some(266));
    assert_eq!(requests[1].size, None);
    assert_eq!(requests[2].op, Op::Put);
    assert_eq!(requests[2].ttl, Some(Duration::from_secs(3600)));
}

#[test]
fn spc_rows() {
    let requests = read(
        TraceFormat::Spc,
        b"0,303567,3584,w,0.026214\n1,2,512,R,1,extra\n",
    );
    assert_eq!(requests[0].op, Op::Put);
    assert_eq!(requests[0].time_ns, Some(26_214_000));
    assert_eq!(requests[0].range, Some(ByteRange::new(303_567 * 512, 3584)));
    assert_eq!(requests[1].key, Key::Id(1));
    assert_eq!(requests[1].time_ns, Some(1_000_000_000));
}

#[test]
fn tencent_photo_rows() {
    let line = b"20160201164604 085abb 5 m 12903 1 PHONE 1\n";
    let requests = read(TraceFormat::TencentPhoto, line);
    assert_eq!(requests[0].key, bytes_key("085abb/5/m"));
    assert_eq!(requests[0].size, Some(12903));
    assert_eq!(requests[0].time_ns, Some(1_454_345_164 * 1_000_000_000));
}

#[test]
fn binary_records() {
    let mut oracle = Vec::new();
    for (time, key, size, next) in [(5u32, 42u64, 512u32, 1i64), (6, 42, 512, -1)] {
        oracle.extend_from_slice(&time.to_le_bytes());
        oracle.extend_from_slice(&key.to_le_bytes());
        oracle.extend_from_slice(&size.to_le_bytes());
        oracle.extend_from_slice(&next.to_le_bytes());
    }
    let requests = read(TraceFormat::OracleGeneral, &oracle);
    assert_eq!(requests[1].time_ns, Some(6_000_000_000));
    assert_eq!(requests[1].key, Key::Id(42));
    assert_eq!(requests[1].size, Some(512));

    let keys = |format, content: &[u8]| -> Vec<Key> {
        read(format, content).into_iter().map(|r| r.key).collect()
    };
    let eight = [0, 0, 0, 1, 0, 0, 0, 2];
    assert_eq!(keys(TraceFormat::Cache2k, &eight), [Key::Id(1), Key::Id(2)]);
    assert_eq!(keys(TraceFormat::Corda, &eight), [Key::Id((1 << 32) + 2)]);
    assert_eq!(
        keys(TraceFormat::Zncache, &eight),
        [Key::Id(1 << 24), Key::Id(2 << 24)]
    );
}

#[test]
fn lirs_markers_are_no_requests_and_arc_lines_are_runs() {
    assert_eq!(read(TraceFormat::Lirs, b"1\n*\n 2 \n\n3").len(), 3);
    let requests = read(TraceFormat::Arc, b"10 3 0 0\n7 0 0 1\n8 1 0 2\n");
    let keys: Vec<u64> = requests.iter().map(|r| r.key.to_u64()).collect();
    assert_eq!(keys, [10, 11, 12, 8]);
}

#[test]
fn bad_lines_are_located_or_counted() {
    let content = b"0,1,512,r,0.5\n0,x,512,r,0.5\n0,2,512,q,1\n0,3,512,r,1\n";
    let mut strict = open(TraceFormat::Spc, content, false);
    assert!(strict.next().is_some_and(|item| item.is_ok()));
    let error = strict.next().expect("an item").expect_err("a bad LBA");
    let text = error.to_string();
    assert!(text.starts_with("line 2 (byte 14): the LBA `x`"), "{text}");
    assert!(strict.next().is_none(), "a failed trace is over");

    let mut lenient = open(TraceFormat::Spc, content, true);
    assert_eq!(lenient.by_ref().filter(|item| item.is_ok()).count(), 2);
    assert_eq!(lenient.skipped(), 2);
}

#[test]
fn cut_records_and_endless_lines_are_errors() {
    let error = open(TraceFormat::OracleGeneral, &[0; 31], false)
        .nth(1)
        .expect("an item")
        .expect_err("a cut record");
    let text = error.to_string();
    assert!(
        text.contains("record 2 (byte 24)") && text.contains("7 of 24"),
        "{text}"
    );

    let mut content = vec![b'1'; LINE_BYTES_MAX * 3];
    content.extend_from_slice(b"\n5\n");
    let mut trace = open(TraceFormat::Lirs, &content, true);
    let rest: Vec<Request> = trace.by_ref().filter_map(Result::ok).collect();
    assert_eq!(rest.len(), 1);
    assert_eq!(trace.skipped(), 1);
    assert_eq!(trace.consumed_bytes(), content.len() as u64);
}

#[test]
fn formats_are_recognised_by_content_and_name() {
    let recognised = |name: &str, content: &[u8]| {
        Trace::from_vec(name, content.to_vec(), TraceOptions::default()).map(|t| t.format())
    };
    for (name, content, format) in [
        ("a.csv", META_CDN.as_bytes(), TraceFormat::MetaCdn),
        ("a", b"key,op,size\n1,GET,2\n", TraceFormat::MetaKv),
        ("a", b"0,k,1,2,1,get,0\n", TraceFormat::Twitter),
        ("a", b"0,1,512,r,0.5\n", TraceFormat::Spc),
        (
            "a",
            b"20160201164604 08 5 m 12903 1 PHONE 1\n",
            TraceFormat::TencentPhoto,
        ),
        ("a", b"*\n17\n", TraceFormat::Lirs),
        ("a", b"1 2 0 0\n", TraceFormat::Arc),
        (
            "x.oracleGeneral.bin.zst",
            b"\0\0",
            TraceFormat::OracleGeneral,
        ),
        (
            "kv_cache2k_web/web07.trace.zst",
            b"\0\0\0\0",
            TraceFormat::Cache2k,
        ),
        ("kv_corda/t", b"\0\0\0\0", TraceFormat::Corda),
    ] {
        assert_eq!(recognised(name, content).expect(name), format);
    }
    for content in [&b""[..], b"\xff\xfe\x00\x00", b"hello world\n"] {
        let error = recognised("a", content).expect_err("nothing tells");
        assert!(error.to_string().contains("--format"), "{error}");
    }
    for format in TraceFormat::all() {
        assert_eq!(format.name().parse(), Ok(format));
    }
}

#[test]
fn zstd_is_transparent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trace");
    std::fs::write(&path, zstd::encode_all(&b"1\n2\n3\n"[..], 3).expect("zstd")).expect("write");
    let options = TraceOptions {
        format: Some(TraceFormat::Lirs),
        skip_bad: false,
    };
    assert_eq!(Trace::open(&path, options).expect("opens").count(), 3);
}

#[test]
fn a_missing_file_is_named() {
    let error = Trace::open(Path::new("no/such.trace"), TraceOptions::default()).expect_err("none");
    assert!(error.to_string().contains("no/such.trace"));
}

proptest! {
    /// Whatever the bytes, every reader ends, and never panics.
    #[test]
    fn readers_survive_any_bytes(
        content in proptest::collection::vec(any::<u8>(), 0..600),
        skip_bad in any::<bool>(),
    ) {
        for format in TraceFormat::all() {
            let _ = open(format, &content, skip_bad).take(5_000).count();
            let _ = format.decode_one(&content);
            let options = TraceOptions { format: Some(format), skip_bad };
            if let Ok(blocks) = BlockTrace::from_vec("x", content.clone(), options) {
                let _ = blocks.take(5_000).count();
            }
        }
        let _ = Trace::from_vec("x", content, TraceOptions::default());
    }

    /// As above, with text that comes close to real lines.
    #[test]
    fn readers_survive_almost_good_lines(
        lines in proptest::collection::vec("[-0-9a-zA-Z,. *:]{0,60}", 0..8),
    ) {
        let mut content = META_CDN.as_bytes().to_vec();
        for line in &lines {
            content.extend_from_slice(line.as_bytes());
            content.push(b'\n');
        }
        for format in TraceFormat::all() {
            let _ = open(format, &content, true).take(5_000).count();
        }
    }
}
