//! Lines of each block format. Those of MSR, Alibaba, SYSTOR, ETW and iolog
//! follow the published descriptions, because no sample was available.

use super::*;
use crate::trace::{ByteRange, Op, Request};

fn read(format: TraceFormat, content: &[u8]) -> Vec<BlockRequest> {
    open(format, content)
        .collect::<Result<_, _>>()
        .expect("the fixture is good")
}

fn open(format: TraceFormat, content: &[u8]) -> BlockTrace {
    BlockTrace::from_vec("fixture", content.to_vec(), given(format)).expect("a block format")
}

fn given(format: TraceFormat) -> TraceOptions {
    TraceOptions {
        format: Some(format),
        skip_bad: false,
    }
}

fn request(time_ns: u64, volume: u32, op: BlockOp, offset: u64, length: u64) -> BlockRequest {
    BlockRequest {
        time_ns: Some(time_ns),
        volume,
        op,
        offset,
        length,
    }
}

fn names(trace: &BlockTrace) -> Vec<String> {
    let text = |key: &Key| String::from_utf8(key.to_bytes()).expect("text");
    trace.volumes().iter().map(text).collect()
}

fn assert_rejected(format: TraceFormat, content: &[u8]) {
    assert!(open(format, content).any(|item| item.is_err()));
}

#[test]
fn alibaba_counts_in_bytes_and_microseconds() {
    let lines = b"419,W,8792731648,16384,1577808144360767\n7,R,0,4096,1577808144360768\n";
    assert_eq!(
        read(TraceFormat::Alibaba, lines),
        [
            request(
                1_577_808_144_360_767_000,
                0,
                BlockOp::Write,
                8_792_731_648,
                16_384
            ),
            request(1_577_808_144_360_768_000, 1, BlockOp::Read, 0, 4096),
        ]
    );
}

#[test]
fn tencent_cbs_counts_in_sectors_or_bytes_and_may_go_back_in_time() {
    let lines = b"1538323200,8,128,1,1058\n1538323199,16,8,0,1063\n";
    let at = |seconds: u64| seconds * 1_000_000_000;
    let sectors = [
        request(at(1_538_323_200), 0, BlockOp::Write, 4096, 65_536),
        request(at(1_538_323_199), 1, BlockOp::Read, 8192, 4096),
    ];
    assert_eq!(read(TraceFormat::TencentCbs, lines), sectors);
    let bytes = read(TraceFormat::TencentCbsBytes, lines);
    assert_eq!((bytes[0].offset, bytes[0].length), (8, 128));

    let clamped: Vec<u64> = open(TraceFormat::TencentCbs, lines)
        .clamp_times()
        .filter_map(|request| request.expect("good").time_ns)
        .collect();
    assert_eq!(clamped, [at(1_538_323_200); 2]);
}

#[test]
fn msr_times_are_file_times_and_disks_belong_to_hosts() {
    let lines = b"128166391024154329,prxy,0,Write,1105182720,1024,1514\n\
        128166391024154330,src1,0,Read,0,512,1\n\
        128166391024154331,prxy,1,Read,0,512,1\n";
    let mut trace = open(TraceFormat::Msr, lines);
    let first = trace.next().expect("an item").expect("good");
    // 22 February 2007, 17:05:02.
    let time_ns = 1_172_165_502_415_432_900;
    assert_eq!(
        first,
        request(time_ns, 0, BlockOp::Write, 1_105_182_720, 1024)
    );
    assert_eq!(trace.by_ref().count(), 2);
    assert_eq!(names(&trace), ["prxy.0", "src1.0", "prxy.1"]);
}

#[test]
fn systor_rows_without_a_type_are_no_requests() {
    let header = "Timestamp,Response,IOType,LUN,Offset,Size\n";
    let rows = "1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
        1456095145.2,,,0,0,512\n";
    let content = format!("{header}{rows}{header}1456095146,0.1,W,4,512,1024\n");
    assert_eq!(
        read(TraceFormat::Systor, content.as_bytes()),
        [
            request(
                1_456_095_145_133_076_000,
                0,
                BlockOp::Read,
                899_056_122_368,
                131_072
            ),
            request(1_456_095_146_000_000_000, 1, BlockOp::Write, 512, 1024),
        ]
    );
}

fn vscsi(version: u16, command: u16, length: u32, block: u64, time_us: u64) -> Vec<u8> {
    let [serial, segments] = [7u32, 1].map(u32::to_le_bytes);
    let length = length.to_le_bytes();
    let (command, tag) = (command.to_le_bytes(), (version << 8).to_le_bytes());
    let (block, time) = (block.to_le_bytes(), time_us.to_le_bytes());
    match version {
        1 => [
            &serial[..],
            &length,
            &segments,
            &command,
            &tag,
            &block,
            &time,
        ]
        .concat(),
        _ => [
            &command[..],
            &tag,
            &serial,
            &length,
            &segments,
            &block,
            &time,
            &[9; 8],
        ]
        .concat(),
    }
}

#[test]
fn vscsi_records_carry_all_operations() {
    for (version, format) in [(1, TraceFormat::VscsiV1), (2, TraceFormat::VscsiV2)] {
        let codes = [0x28, 0x8a, 0x42, 0x93, 0x35, 0x12];
        let content: Vec<u8> = codes
            .into_iter()
            .flat_map(|code| vscsi(version, code, 4096, 3, 5))
            .collect();
        let requests = read(format, &content);
        assert_eq!(requests[0], request(5000, 0, BlockOp::Read, 1536, 4096));
        let ops: Vec<BlockOp> = requests.iter().map(|request| request.op).collect();
        use BlockOp::{Flush, Read, Trim, Write, WriteZeroes};
        assert_eq!(ops, [Read, Write, Trim, WriteZeroes, Flush]);
        let recognised = BlockTrace::from_vec("a", content, TraceOptions::default());
        assert_eq!(recognised.expect("recognised").format(), format);
    }
    let other = vscsi(2, 0x28, 512, 0, 0);
    let error = TraceFormat::VscsiV1
        .decode_one(&other)
        .expect_err("version 2");
    assert!(error.contains("version"), "{error}");
}

#[test]
fn cloudphysics_rows_have_scsi_codes() {
    let rows =
        b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,1024,1\n1,1,12,0,0\n";
    assert_eq!(
        read(TraceFormat::CloudPhysics, rows),
        [
            request(
                5_633_898_000_000_000,
                0,
                BlockOp::Write,
                42_932_745 * 512,
                512
            ),
            request(5_633_899_000_000_000, 0, BlockOp::Read, 512, 1024),
        ]
    );
}

#[test]
fn fiu_lines_lie_between_headers_of_tar() {
    let mut content = b"./PaxHeaders.1/a\0\0\n28 ctime=1410563671.7201132\n\0\0\n".to_vec();
    content.extend_from_slice(
        b"89966527950584 4253 nfsd 8 16 W 6 0 88b93b628d84082186026d9da044f173\n\
          89966527950585 1 a b c 0 8 R 8 1 88b93b628d84082186026d9da044f173\n\0\0\0",
    );
    let expected = [
        request(89_966_527_950_584, 0, BlockOp::Write, 4096, 8192),
        request(89_966_527_950_585, 1, BlockOp::Read, 0, 4096),
    ];
    assert_eq!(read(TraceFormat::Fiu, &content), expected);
    let recognised = BlockTrace::from_vec("a", content, TraceOptions::default());
    assert_eq!(recognised.expect("recognised").format(), TraceFormat::Fiu);
}

const BLKPARSE: &str = "\
    259,2    0        1     0.000000001  4020  Q   R 8 + 8 [java]
    259,2    0        2     0.000000002  4020  U   N [java] 1
    259,2    0        3     0.000000003  4020  Q  WS 16 + 8 [a b]
    259,2    0        4     0.000000004  4020  A   R 4096 + 8 <- (8,1) 2048
    259,2    0        5     0.000000005  4020  D   R 8 + 16 [java]
      8,0    0        6     0.000000006  4020  Q  DS 8 + 8 [fstrim]
    259,2    0        7     0.000000007  4020  Q FWS [sync]
    259,2    0        8     0.000000008  4020  Q   N 0 (12 00 ..) [smartd]
CPU0 (8,16):
 Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB
";

#[test]
fn blkparse_counts_one_kind_of_event() {
    assert_eq!(
        read(TraceFormat::BlkparseQueued, BLKPARSE.as_bytes()),
        [
            request(1, 0, BlockOp::Read, 4096, 4096),
            request(3, 0, BlockOp::Write, 8192, 4096),
            request(6, 1, BlockOp::Trim, 4096, 4096),
            request(7, 0, BlockOp::Flush, 0, 0),
        ]
    );
    assert_eq!(
        read(TraceFormat::BlkparseDispatched, BLKPARSE.as_bytes()),
        [request(5, 0, BlockOp::Read, 4096, 8192)]
    );
}

#[test]
fn hp_srt_has_a_header_and_sized_records() {
    let mut content = b"$$TR_IOREC-1.3 (made by hand)\0\nversion = 1.3;\n\x0c".to_vec();
    let mut record = |size, kind, usec, [bytes, block]: [u32; 2], device, flags| {
        let words = [
            size, kind, 2, usec, 1, 9, bytes, block, device, 4, 1, flags, 0, 7,
        ];
        let words = words.iter().flat_map(|word: &u32| word.to_be_bytes());
        content.extend(words.take(size as usize));
    };
    record(56, 0x40001, 3, [4096, 16], 0x0800_0107, 0x1b);
    // A record of another type.
    record(52, 0x40002, 3, [4096, 16], 0x0800_0107, 0x1b);
    record(52, 0x40001, 4, [1024, 17], 0x0800_0108, 0x1a);
    // The raw device of the first volume.
    record(52, 0x40001, 5, [256, 0], 0x0700_0107, 0x1b);
    assert_eq!(
        read(TraceFormat::HpSrt, &content),
        [
            request(2_000_003_000, 0, BlockOp::Read, 4096, 4096),
            request(2_000_004_000, 1, BlockOp::Write, 4352, 1024),
            request(2_000_005_000, 0, BlockOp::Read, 0, 256),
        ]
    );
    content.extend_from_slice(&[0, 0, 0, 1]);
    let last = open(TraceFormat::HpSrt, &content).last().expect("an item");
    let error = last.expect_err("a size of 1").to_string();
    assert!(error.contains("a record of 1 bytes"), "{error}");
}

#[test]
fn disksim_and_mqsim_differ_in_the_unit_of_time() {
    let ms = read(TraceFormat::DiskSim, b"15849.28847 0 8 16 0\n2 3 0 8 1\n");
    let write = request(15_849_288_470, 0, BlockOp::Write, 4096, 8192);
    assert_eq!(ms, [write, request(2_000_000, 1, BlockOp::Read, 0, 4096)]);
    let ns = read(TraceFormat::MqSim, b"938513000 4 8 16 0\n");
    assert_eq!(ns, [request(938_513_000, 0, BlockOp::Write, 4096, 8192)]);
}

#[test]
fn iolog_has_times_or_waits() {
    let v2 = b"fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 0 4096\n\
        /dev/a wait 150 0\n/dev/a write 4096 512\n/dev/a wait 50\n/dev/a trim 0 512\n\
        /dev/a datasync 0 0\n/dev/a close\n";
    let requests = read(TraceFormat::Iolog, v2);
    assert_eq!(requests[0].time_ns, None);
    assert_eq!(
        requests[1..],
        [
            request(150_000, 0, BlockOp::Write, 4096, 512),
            request(200_000, 0, BlockOp::Trim, 0, 512),
            request(200_000, 0, BlockOp::Flush, 0, 0),
        ]
    );
    let v3 =
        b"fio version 3 iolog\n0 /dev/a add\n1520 /dev/a write 4096 4096\n1521 /dev/b read 0 1\n";
    assert_eq!(
        read(TraceFormat::Iolog, v3),
        [
            request(1_520_000, 0, BlockOp::Write, 4096, 4096),
            request(1_521_000, 1, BlockOp::Read, 0, 1),
        ]
    );
    let wait = b"fio version 3 iolog\n1 /dev/a wait 5 0\n";
    assert_rejected(TraceFormat::Iolog, wait);
}

#[test]
fn etw_columns_are_those_of_the_header() {
    let content = b"BeginHeader
          DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,   IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum
         DiskWrite,  TimeStamp,     Process Name ( PID),   ThreadID,   IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum
         DiskFlush,  TimeStamp,     Process Name ( PID),   ThreadID,   IrpPtr,  ElapsedTime,  DiskNum
      DiskReadInit,  TimeStamp,     Process Name ( PID),   ThreadID,   IrpPtr
EndHeader
      DiskReadInit,       1,      store.exe (3480),   4016,  0xfffffadf
          DiskRead,       2,      store.exe (3480),   4016,  0xfffffadf, 0x000001000,   0x00002000,  10,  3
         DiskWrite,       3,      store.exe (3480),   4016,  0xfffffadf, 0x000000200,   0x00000200,  10,  4
         DiskFlush,       4,      store.exe (3480),   4016,  0xfffffadf,  7,  3
";
    assert_eq!(
        read(TraceFormat::Etw, content),
        [
            request(2000, 0, BlockOp::Read, 4096, 8192),
            request(3000, 1, BlockOp::Write, 512, 512),
            request(4000, 0, BlockOp::Flush, 0, 0),
        ]
    );
    let headless = b"DiskRead, 2, a (1), 1, 0x1, 0x1000, 0x2000, 10, 3\n";
    assert_rejected(TraceFormat::Etw, headless);
}

#[test]
fn tectonic_rows_repeat_and_blocks_are_volumes() {
    let content = b"op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count\n\
        5,aa,40,8388608,0,1,2,getChunkData.NotInitialized,2\n5,bb,40,10,7,1,2,putChunk.Permanent,1\n";
    let read_aa = request(5_000_000_000, 0, BlockOp::Read, 0, 8_388_608);
    assert_eq!(
        read(TraceFormat::MetaTectonic, content),
        [
            read_aa,
            read_aa,
            request(5_000_000_000, 1, BlockOp::Write, 7, 10)
        ]
    );
}

#[test]
fn spc_arc_and_bare_lists_have_whole_requests() {
    let spc = read(TraceFormat::Spc, b"0,8,3584,w,0.5\n1,2,512,R,1\n");
    assert_eq!(
        spc,
        [
            request(500_000_000, 0, BlockOp::Write, 4096, 3584),
            request(1_000_000_000, 1, BlockOp::Read, 1024, 512),
        ]
    );
    let without_time = |offset, length| BlockRequest {
        time_ns: None,
        ..request(0, 0, BlockOp::Read, offset, length)
    };
    let arc = read(TraceFormat::Arc, b"10 3 0 0\n7 0 0 1\n8 1 0 2\n");
    assert_eq!(arc, [without_time(5120, 1536), without_time(4096, 512)]);
    let list = read(TraceFormat::Lbn, b"42932745\n\n1\n");
    assert_eq!(
        list,
        [without_time(42_932_745 * 512, 512), without_time(512, 512)]
    );
}

#[test]
fn objects_are_volumes_without_flushes() {
    let content = b"fio version 3 iolog\n1 a write 8 4\n2 a sync 0 0\n3 a trim 0 16\n";
    let trace = Trace::from_vec("fixture", content.to_vec(), given(TraceFormat::Iolog));
    let requests: Vec<Request> = trace
        .expect("given")
        .map(|item| item.expect("good"))
        .collect();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.op, request.range))
        .collect();
    assert_eq!(
        seen,
        [
            (Op::Put, Some(ByteRange::new(8, 4))),
            (Op::Delete, Some(ByteRange::new(0, 16))),
        ]
    );
}

#[test]
fn formats_of_objects_have_no_blocks() {
    let error = BlockTrace::from_vec("a", b"1\n2\n".to_vec(), given(TraceFormat::Lirs))
        .expect_err("keys are no blocks");
    assert!(error.to_string().contains("lirs"), "{error}");
}

#[test]
fn block_formats_are_recognised_where_that_is_safe() {
    let recognised = |content: &[u8]| {
        BlockTrace::from_vec("a", content.to_vec(), TraceOptions::default())
            .map(|trace| trace.format())
            .map_err(|error| error.to_string())
    };
    for (content, format) in [
        (
            &b"419,W,8792731648,16384,1577808144360767\n"[..],
            TraceFormat::Alibaba,
        ),
        (
            b"1538323200,8,1024,1,1\n1538323200,8,8,1,1\n",
            TraceFormat::TencentCbs,
        ),
        (
            b"128166391024154329,prxy,0,Write,0,1024,1514\n",
            TraceFormat::Msr,
        ),
        (
            b"Timestamp,Response,IOType,LUN,Offset,Size\n",
            TraceFormat::Systor,
        ),
        (b"version,time,op,size,lbn\n", TraceFormat::CloudPhysics),
        (BLKPARSE.as_bytes(), TraceFormat::BlkparseQueued),
        (
            b"  8,16 3 4 0.1 3645 I R 8 + 8 [a]\n  8,16 3 5 0.1 3645 D R 8 + 8 [a]\n",
            TraceFormat::BlkparseDispatched,
        ),
        (b"$$TR_IOREC-1.3 (...)\0\n\x0c", TraceFormat::HpSrt),
        (b"1.5 0 8 16 0\n", TraceFormat::DiskSim),
        (b"fio version 3 iolog\n", TraceFormat::Iolog),
        (b"BeginHeader\n", TraceFormat::Etw),
        (
            b"op_time,block_id,io_size,io_offset,op_name\n",
            TraceFormat::MetaTectonic,
        ),
    ] {
        assert_eq!(recognised(content), Ok(format), "{format}");
    }
    for (content, names) in [
        (&b"938513000 4 264719034 16 0\n"[..], ["disksim", "mqsim"]),
        (
            b"1538323200,4096,512,1,1058\n",
            ["tencent-cbs)", "tencent-cbs-bytes"],
        ),
    ] {
        let error = recognised(content).expect_err("the unit is not told");
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    }
}
