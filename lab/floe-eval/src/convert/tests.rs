use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use super::*;
use crate::advise::{AdviseOptions, advise};
use crate::stat::{StatOptions, stat};
use crate::trace::Key;
use crate::volume::{VolumeReplayOptions, replay_volumes};

const TRACE: &str = "fio version 3 iolog\n\
    1500000 a write 4096 8192\n2000000 b read 100 200\n2000001 a sync 0 0\n\
    2000002 a trim 0 512\n3000000 a read 8192 4096\n";

fn convert_text(
    folder: &Path,
    from: (&str, TraceFormat),
    into: (&str, Target),
    unit: Unit,
) -> Result<Converted, EvalError> {
    convert(&ConvertOptions {
        from: folder.join(from.0),
        options: options(from.1),
        into: folder.join(into.0),
        target: into.1,
        unit,
    })
}

fn options(format: TraceFormat) -> TraceOptions {
    TraceOptions {
        format: Some(format),
        skip_bad: false,
    }
}

fn folder_with(name: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), content).expect("written");
    folder
}

#[test]
fn blocks_become_objects_and_blocks_again() {
    let folder = folder_with("a.iolog", TRACE);
    let at = folder.path();
    let blocks = Unit::Blocks(4096);
    let iolog = ("a.iolog", TraceFormat::Iolog);
    let done = convert_text(at, iolog, ("a.bin.zst", Target::OracleGeneral), blocks);
    let done = done.expect("converts");
    assert_eq!((done.requests, done.records), (5, 4));
    let expected = [
        "of 1 requests: flushes, left out",
        "of 1 requests: trims, left out",
        "the names of 2 volumes, now numbers",
        "of 1 requests: writes, which are read as reads",
        "of 3 requests: parts of seconds",
        "of 2 requests: offsets and lengths inside of blocks of 4KiB",
        "the bounds of requests of several blocks",
    ];
    assert_eq!(done.lost, expected);

    let compressed = std::fs::read(at.join("a.bin.zst")).expect("written");
    let records = zstd::decode_all(&compressed[..]).expect("zstd");
    let next: Vec<i64> = records
        .as_chunks::<24>()
        .0
        .iter()
        .map(|record| i64::from_le_bytes(*record.last_chunk().expect("24 bytes")))
        .collect();
    assert_eq!(next, [-1, 4, -1, -1]);

    let oracle = ("a.bin.zst", TraceFormat::OracleGeneral);
    let back = convert_text(at, oracle, ("b.csv", Target::Alibaba), blocks).expect("converts");
    assert_eq!((back.requests, back.records), (4, 4));
    let lines = std::fs::read_to_string(at.join("b.csv")).expect("written");
    assert_eq!(
        lines,
        "0,R,4096,4096,1000000\n0,R,8192,4096,1000000\n1,R,0,4096,2000000\n0,R,8192,4096,3000000\n"
    );
}

#[test]
fn whole_requests_keep_their_lengths() {
    let folder = folder_with("a.spc", "0,8,3584,w,7.5\n0,8,512,r,8\n");
    let at = folder.path();
    let spc = ("a.spc", TraceFormat::Spc);
    let into = ("a.bin", Target::OracleGeneral);
    convert_text(at, spc, into, Unit::Requests).expect("converts");
    let oracle = options(TraceFormat::OracleGeneral);
    let objects: Vec<_> = Trace::open(&at.join("a.bin"), oracle)
        .expect("opens")
        .map(|request| request.expect("good"))
        .map(|request| (request.key, request.size, request.time_ns))
        .collect();
    assert_eq!(
        objects,
        [
            (Key::Id(8), Some(3584), Some(7 * NS_PER_S)),
            (Key::Id(8), Some(512), Some(8 * NS_PER_S)),
        ]
    );
    let back = ("b.csv", Target::Alibaba);
    let from = ("a.bin", TraceFormat::OracleGeneral);
    convert_text(at, from, back, Unit::Requests).expect("converts");
    let lines = std::fs::read_to_string(at.join("b.csv")).expect("written");
    assert_eq!(lines, "0,R,4096,3584,7000000\n0,R,4096,512,8000000\n");
}

#[test]
fn alibaba_keeps_operations_and_times() {
    let folder = folder_with("a.iolog", TRACE);
    let at = folder.path();
    let iolog = ("a.iolog", TraceFormat::Iolog);
    let done = convert_text(at, iolog, ("a.csv", Target::Alibaba), Unit::Requests);
    assert_eq!(done.expect("converts").lost.len(), 3);
    let lines = std::fs::read_to_string(at.join("a.csv")).expect("written");
    assert_eq!(
        lines,
        "0,W,4096,8192,1500000\n1,R,100,200,2000000\n0,R,8192,4096,3000000\n"
    );
}

#[test]
fn invalid_limits_and_names_are_rejected_with_a_remedy() {
    let folder = folder_with("a.csv", "1,R,18446744073709550592,512,1\n");
    let at = folder.path();
    let alibaba = ("a.csv", TraceFormat::Alibaba);
    let oracle = |name| (name, Target::OracleGeneral);
    let error = convert_text(at, alibaba, oracle("b"), Unit::Blocks(512)).expect_err("too far");
    assert!(
        error.to_string().contains("choose larger blocks"),
        "{error}"
    );
    let error = convert_text(at, alibaba, oracle("a.csv"), Unit::Blocks(512)).expect_err("itself");
    assert!(error.to_string().contains("the trace itself"), "{error}");
    let error = convert(&ConvertOptions {
        from: "standin:vd740,requests=10".into(),
        options: TraceOptions::default(),
        into: at.join("b"),
        target: Target::Alibaba,
        unit: Unit::Requests,
    })
    .expect_err("the file would not name a stand-in");
    assert!(error.to_string().contains("stand-in"), "{error}");
    std::fs::write(at.join("keys"), "1\n2\n").expect("written");
    let keys = ("keys", TraceFormat::Lirs);
    let error = convert_text(at, keys, oracle("b"), Unit::Requests).expect_err("no blocks");
    assert!(error.to_string().contains("block trace"), "{error}");
    assert!(
        "msr"
            .parse::<Target>()
            .expect_err("no target")
            .contains("alibaba")
    );
    assert!("0".parse::<Unit>().is_err());
    assert_eq!("4KiB".parse(), Ok(Unit::Blocks(4096)));
}

/// A pipe with `content`, and the path of its end.
fn pipe_of(content: &[u8]) -> (std::io::PipeReader, PathBuf) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(content).expect("it fits");
    let path = format!("/dev/fd/{}", reader.as_raw_fd());
    (reader, path.into())
}

#[test]
fn a_pipe_is_read_once_or_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let convert_pipe = |content: &[u8], format, target| {
        let (_reader, from) = pipe_of(content);
        convert(&ConvertOptions {
            from,
            options: options(format),
            into: folder.path().join("out"),
            target,
            unit: Unit::Requests,
        })
    };
    let iolog = (TRACE.as_bytes(), TraceFormat::Iolog);
    let rejected = convert_pipe(iolog.0, iolog.1, Target::OracleGeneral).expect_err("twice");
    let said = rejected.to_string();
    assert!(
        said.contains("pipe") && said.contains("store the trace in a file"),
        "{said}"
    );
    assert!(!folder.path().join("out").exists());
    let once = convert_pipe(iolog.0, iolog.1, Target::Alibaba).expect("once");
    assert_eq!((once.requests, once.records), (5, 3));
    let record = [0; 24];
    let objects = (&record[..], TraceFormat::OracleGeneral);
    let once = convert_pipe(objects.0, objects.1, Target::Alibaba).expect("once");
    assert_eq!(once.records, 1);
    for (content, format, requests) in [(iolog.0, iolog.1, 5), (objects.0, objects.1, 1)] {
        let (_reader, trace) = pipe_of(content);
        let found = stat(&StatOptions {
            trace,
            options: options(format),
            block_bytes: 4096,
        });
        assert_eq!(found.expect("once").operations.total(), requests);
    }
    let (_reader, trace) = pipe_of(iolog.0);
    let advice = advise(&AdviseOptions {
        options: options(iolog.1),
        ..AdviseOptions::new(&trace)
    });
    let is_rejected = matches!(advice, Err(EvalError::Trace(TraceError::ReadsOnce { .. })));
    assert!(is_rejected, "{advice:?}");
    let replay = |cache: &str| {
        replay_volumes(&VolumeReplayOptions {
            trace: trace.clone(),
            options: options(iolog.1),
            cases: vec![cache.parse().expect("settings")],
            requests_max: None,
        })
    };
    replay("capacity=10%").expect_err("twice");
    assert_eq!(replay("capacity=1GiB").expect("once").requests, 5);
}
