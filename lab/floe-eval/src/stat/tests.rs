use super::*;
use crate::trace::TraceFormat;

fn of(format: TraceFormat, content: &str) -> TraceStat {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("a.trace");
    std::fs::write(&trace, content).expect("written");
    let options = TraceOptions {
        format: Some(format),
        skip_bad: false,
    };
    stat(&StatOptions {
        trace,
        options,
        block_bytes: BLOCK_BYTES_DEFAULT,
    })
    .expect("described")
}

#[test]
fn a_block_trace_is_described_in_blocks() {
    let trace = "fio version 3 iolog\n\
        10 a read 0 8192\n20 a read 8192 4096\n15 a write 4000 200\n\
        30 b write 0 4096\n30 b sync 0 0\n30 b trim 0 4096\n";
    let found = of(TraceFormat::Iolog, trace);
    assert_eq!(
        found.operations,
        Operations {
            reads: 2,
            writes: 2,
            write_zeroes: 0,
            trims: 1,
            flushes: 1,
        }
    );
    assert_eq!(
        (found.operations.total(), found.operations.read_share()),
        (6, 0.5)
    );
    assert_eq!((found.volumes, found.block_bytes), (Some(2), Some(4096)));
    let time = found.time.expect("times");
    assert_eq!((time.span_s, time.backward_steps), (20e-6, 1));
    // Blocks 0, 1, 2, then 0 and 1 again, then block 0 of another volume.
    assert_eq!(
        found.accesses,
        Accesses {
            total: 6,
            unique: 4,
            unique_read: 3,
            unique_written: 3,
            working_set_bytes: 4 * 4096,
            reuse_share: 2.0 / 6.0,
        }
    );
    let sequential = found.sequential.expect("a block trace");
    assert_eq!(sequential.request_share, 0.25);
    assert_eq!(sequential.byte_share, 4096.0 / 16584.0);
    assert_eq!(
        (found.read_sizes.mean(), found.write_sizes.bytes()),
        (6144.0, 4296)
    );
}

#[test]
fn objects_have_keys_and_no_sequence() {
    let found = of(
        TraceFormat::Twitter,
        "0,k,1,9,1,get,0\n4,l,1,0,2,set,0\n5,k,1,29,2,get,0\n6,k,1,0,1,delete,0\n",
    );
    assert_eq!(
        (found.block_bytes, found.volumes, found.sequential),
        (None, None, None)
    );
    assert_eq!((found.operations.reads, found.operations.trims), (2, 1));
    assert_eq!((found.accesses.total, found.accesses.unique), (3, 2));
    assert_eq!(found.accesses.working_set_bytes, 30);
    assert_eq!(found.unit(), "objects");
}

#[test]
fn sizes_have_exact_percentiles_and_bins() {
    let mut sizes = Sizes::default();
    for bytes in [4096, 512, 4096, 20_000, 0] {
        sizes.add(bytes);
    }
    let percentiles = [0.0, 0.25, 0.5, 0.99, 1.0].map(|share| sizes.percentile(share));
    assert_eq!(percentiles, [0, 512, 4096, 4096, 20_000]);
    let bins: Vec<(u64, u64)> = sizes
        .bins()
        .iter()
        .map(|bin| (bin.bytes_max, bin.count))
        .collect();
    assert_eq!(
        bins,
        [
            (0, 1),
            (512, 1),
            (1024, 0),
            (2048, 0),
            (4096, 2),
            (8192, 0),
            (16_384, 0),
            (32_768, 1)
        ]
    );
    assert_eq!(
        (Sizes::default().mean(), Sizes::default().percentile(0.5)),
        (0.0, 0)
    );
}

#[test]
fn a_zipfian_popularity_has_its_exponent() {
    let mut counts: Vec<u64> = (1..=1000)
        .map(|rank| (1e6 / f64::from(rank).powf(0.8)) as u64)
        .collect();
    let zipf = Skew::of(&mut counts).zipf.expect("fits");
    assert!((zipf.exponent - 0.8).abs() < 0.001, "{zipf:?}");
    assert!(zipf.r_squared > 0.999, "{zipf:?}");
    let mut once = [1; 100];
    let skew = Skew::of(&mut once);
    assert_eq!(
        (
            skew.zipf,
            skew.top_1_percent_share,
            skew.top_10_percent_share
        ),
        (None, 0.01, 0.1)
    );
}
