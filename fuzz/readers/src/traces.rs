//! The readers of all trace formats.
//!
//! The first byte of an input chooses the format. The rest is read as one line or
//! record, as a whole trace with and without bad lines allowed, and as a file of
//! unknown format.

use floe_eval::trace::{
    BlockRequest, BlockTrace, Decoded, Request, Trace, TraceFormat, TraceOptions,
};

/// Requests that are read of an input: a line may stand for 2^64.
const REQUESTS_MAX: usize = 2000;

pub(crate) fn trace_readers(data: &[u8]) {
    let (choice, content) = data.split_first().unwrap_or((&0, &[]));
    let formats: Vec<TraceFormat> = TraceFormat::all().collect();
    let format = formats[usize::from(*choice) % formats.len()];

    match format.decode_one(content) {
        Ok(Decoded::One(request) | Decoded::Repeat(request, _)) => check_request(&request),
        Ok(Decoded::Run(first, count)) => assert!(first.checked_add(count).is_some()),
        Ok(Decoded::Blocks(request, _)) => {
            check_range(&request);
            request.into_request().iter().for_each(check_request);
        }
        Ok(Decoded::Nothing) => {}
        Err(reason) => assert!(!reason.is_empty()),
    }
    check_trace(format, content);
    check_blocks(format, content);
    if let Ok(trace) = open(None, false, content) {
        trace
            .take(REQUESTS_MAX)
            .flatten()
            .for_each(|request| check_request(&request));
    }
}

/// A reader that skips bad lines first returns the requests of a strict one.
fn check_trace(format: TraceFormat, content: &[u8]) {
    let (Ok(mut strict), Ok(mut lenient)) = (
        open(Some(format), false, content),
        open(Some(format), true, content),
    ) else {
        panic!("a trace of a given format cannot be opened");
    };
    let mut strict_is_over = false;
    for _ in 0..REQUESTS_MAX {
        let Some(request) = lenient.next() else {
            break;
        };
        let Ok(request) = request else {
            panic!("a bad line was not skipped: {request:?}");
        };
        check_request(&request);
        if strict_is_over {
            continue;
        }
        match strict.next() {
            Some(Ok(same)) => assert_eq!(same, request),
            Some(Err(_)) => strict_is_over = true,
            None => panic!("only the reader that skips bad lines got {request:?}"),
        }
        assert!(!strict_is_over || lenient.skipped() > 0);
    }
    if strict_is_over {
        assert!(strict.next().is_none(), "it goes on after an error");
    }
    assert!(lenient.skipped() <= lenient.records());
    assert!(lenient.consumed_bytes() <= content.len() as u64);
}

/// Requests to block devices do not overflow, and their volumes have names.
fn check_blocks(format: TraceFormat, content: &[u8]) {
    let options = TraceOptions {
        format: Some(format),
        skip_bad: true,
    };
    let trace = BlockTrace::from_vec("fuzz", content.to_vec(), options);
    assert_eq!(trace.is_ok(), format.has_blocks());
    let Ok(trace) = trace else { return };
    let mut trace = trace.clamp_times();
    let mut latest = None;
    for _ in 0..REQUESTS_MAX {
        let Some(request) = trace.next() else { break };
        let Ok(request) = request else {
            panic!("a bad line was not skipped: {request:?}");
        };
        check_range(&request);
        assert!((request.volume as usize) < trace.volumes().len());
        assert!(request.time_ns.is_none() || request.time_ns >= latest);
        latest = request.time_ns.or(latest);
    }
}

fn check_range<Volume>(request: &BlockRequest<Volume>) {
    assert!(request.offset.checked_add(request.length).is_some());
}

fn open(format: Option<TraceFormat>, skip_bad: bool, content: &[u8]) -> Result<Trace, ()> {
    let options = TraceOptions { format, skip_bad };
    Trace::from_vec("fuzz", content.to_vec(), options).map_err(|error| {
        assert!(!error.to_string().is_empty());
    })
}

fn check_request(request: &Request) {
    assert!(!request.key.to_bytes().is_empty());
    request.key.to_u64();
    if let Some(range) = request.range {
        assert!(range.offset.checked_add(range.length).is_some());
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    TraceFormat::all()
        .zip(0u8..)
        .flat_map(|(format, choice)| {
            samples(format)
                .into_iter()
                .map(move |sample| [&[choice], &sample[..]].concat())
        })
        .collect()
}

/// Lines or records of each kind that a format has, and an invalid one.
fn samples(format: TraceFormat) -> Vec<Vec<u8>> {
    let text: &[&str] = match format {
        TraceFormat::MetaCdn => &[
            "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate\n\
             7,cdn:a,1,1000,10,3,100,199,60,0.001\n\
             8,cdn:b,2,-1,10,3,-1,-1,0,0.001\r\n\
             9,cdn:c,9,1000,10,3,400,-1,60,0.001\n\
             9,cdn:c,1,1000,10,3,400,-1,60,0.001\n",
            "OpType,cacheKey,vip_type,timestamp,cdn_content_type_id\n1,x,3,5,-\n",
        ],
        TraceFormat::MetaKv => &[
            "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
             10,aa,20,GET,3,80,3,0,1,1\n10,bb,20,NONE,1,5,0,30,1,1\n\
             11,bb,20,SET_LEASE,18446744073709551615,5,0,30,1,1\n",
            "key,op,size\na,DELETE,0\n",
        ],
        TraceFormat::Twitter => {
            &["0,q:q:1:8WTw,17,249,1,get,0\n4,k,1,0,2,cas,0\nx,k,1,0,2,get,0\n5,k,1,9,2,set,3600\n"]
        }
        TraceFormat::Spc => {
            &["0,303567,3584,w,0.026214\n1,2,512,x,1\n1,36028797018963967,512,R,1,extra\n"]
        }
        TraceFormat::TencentPhoto => &[
            "20160201164604 085abb 5 m 12903 1 PHONE 1\n20160230000000 0 5 m 1 1 PC 1\n\
             19700101000000 f 0 o 0 0 PC 0\n",
        ],
        TraceFormat::Lirs => &["1\n*\n 2 \n\nnone\n18446744073709551615"],
        TraceFormat::Arc => &["10 3 0 0\n7 0 0 1\n7\n8 4294967295 0 2\n"],
        TraceFormat::Alibaba => {
            &["419,W,8792731648,16384,1577808144360767\n1,x,0,1,0\n7,R,0,4096,1\n"]
        }
        TraceFormat::BlkparseQueued | TraceFormat::BlkparseDispatched => &[
            "259,2 0 1 0.000000001 4020 Q R 8 + 8 [java]\n8,0 0 2 0.1 1 D DS 8 + 8 [a b]\n\
             8,0 0 3 0.2 1 Q FWS [sync]\n8,0 0 4 0.2 1 A R 1 + 2 <- (8,1) 3\n8,0 0 5\nCPU0 (8,16):\n",
        ],
        TraceFormat::CloudPhysics => {
            &["version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,2,xx,0,0\n1,3,42,1,2\n"]
        }
        TraceFormat::DiskSim => &["15849.28847 0 8 16 0\n1 0 0\n2 3 0 8 1\n"],
        TraceFormat::Etw => &[
            "BeginHeader\n DiskRead, TimeStamp, ByteOffset, IOSize, DiskNum\n\
             DiskFlush, TimeStamp, DiskNum\nEndHeader\nDiskRead, 2, 0x1000, 0x2000, 3\n\
             DiskWrite, 2, 0x1000, 0x2000, 3\nDiskFlush, 4, 3\nOther, 1\n",
        ],
        TraceFormat::Fiu => &[
            "28 ctime=1.7\n\0\n8 4253 a b 8 16 W 6 0 88b93b628d84082186026d9da044f173\n\
             9 1 a 8 16 W 6 0 88b9\n",
        ],
        TraceFormat::HpSrt => return vec![hp_srt_sample()],
        TraceFormat::Iolog => &[
            "fio version 2 iolog\na add\na read 0 4096\na wait 150 0\na trim 0 512\na sync 0 0\na x\n",
            "fio version 3 iolog\n0 a add\n1520 a write 4096 4096\n1521 a wait 1 0\n",
        ],
        TraceFormat::Lbn => &["42932745\n\nnone\n36028797018963967\n"],
        TraceFormat::MetaTectonic => &[
            "op_time,block_id,io_size,io_offset,op_name,op_count\n5,aa,8388608,0,getChunkData.Permanent,2\n\
             5,,1,0,putChunk.Permanent,1\n5,b,1,0,putChunk.Permanent,18446744073709551615\n",
        ],
        TraceFormat::MqSim => &["938513000 4 8 16 0\n1.5 4 8 16 0\n2 3 0 8 1\n"],
        TraceFormat::Msr => &[
            "128166391024154329,prxy,0,Write,1105182720,1024,1514\n1,prxy,0,Write,0,1,1\n\
             128166391024154330,src1,0,Read,0,512,1\n",
        ],
        TraceFormat::Systor => &[
            "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,0.1,R,0,899056122368,131072\n\
             1456095145.2,,,0,0,512\n1,0,X,0,0,1\n",
        ],
        TraceFormat::TencentCbs | TraceFormat::TencentCbsBytes => {
            &["1538323200,8,128,1,1058\n1538323199,16,8,2,1063\n1538323199,16,8,0,1063\n"]
        }
        TraceFormat::VscsiV1 | TraceFormat::VscsiV2 => return vscsi_samples(),
        TraceFormat::OracleGeneral
        | TraceFormat::Cache2k
        | TraceFormat::Corda
        | TraceFormat::Zncache
        | TraceFormat::Synthetic
        | TraceFormat::StandIn => return vec![binary_sample()],
    };
    text.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Two records of oracleGeneral. Every other binary format reads them as keys.
fn binary_sample() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (time, key, size, next) in [(5u32, 42u64, 512u32, 1i64), (6, 42, 512, -1)] {
        bytes.extend_from_slice(&time.to_le_bytes());
        bytes.extend_from_slice(&key.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&next.to_le_bytes());
    }
    bytes
}

/// A header, a record, one of an impossible size, and a truncated one.
fn hp_srt_sample() -> Vec<u8> {
    let mut bytes = b"$$TR_IOREC-1.3 (made by hand)\0\n\x0c".to_vec();
    let record = [52u32, 0x40001, 2, 3, 1, 9, 4096, 16, 7, 4, 1, 0x1b, 0];
    for word in record.into_iter().chain([1]).chain(record).take(20) {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Records of both versions. Each is invalid for the other's reader.
fn vscsi_samples() -> Vec<Vec<u8>> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![
        words(&[7, 4096, 1, 0x0100_0028, 3, 0, 5, 0]),
        words(&[0x0200_0042, 7, 4096, 1, 3, 0, 5, 0, 1, 0]),
    ]
}
