//! Small runs of the papers' hosts: what must hold at any size.

use floe_core::ByteSize;

use super::*;
use crate::workload::Distribution;

const CHUNK: ByteSize = ByteSize::mib(512);

fn run_quietly(config: &HostConfig) -> HostResult {
    run(config, 42, &mut |_| {}).unwrap()
}

/// The papers' experiment at a sixteenth, on eight dies.
fn small(mut config: HostConfig) -> HostConfig {
    config.device.dies = Some(8);
    config.scaled_down(16).unwrap()
}

fn zipf() -> Distribution {
    Distribution::Zipf {
        skew: 0.99,
        scrambled: false,
    }
}

fn throughput(result: &HostResult) -> f64 {
    result.run.whole.get_bytes_per_s
}

#[test]
fn zones_beat_blocks_as_in_the_papers() {
    for (system, paper) in [
        (HostConfig::zncache as fn(&str, _, _, _) -> _, [1.68, 2.69]),
        (HostConfig::oxcache, [1.87, 2.68]),
    ] {
        let ratios: Vec<f64> = [10.0, 2.0]
            .map(|ratio| {
                let of = |preset| {
                    let config = system(preset, CHUNK, Distribution::Uniform, ratio);
                    throughput(&run_quietly(&small(config)))
                };
                of("zn540") / of("sn540")
            })
            .to_vec();
        for (ratio, paper) in ratios.iter().zip(paper) {
            println!("{ratio} {paper}");
            assert!(
                (0.75..1.25).contains(&(ratio / paper)),
                "{ratio} for {paper}"
            );
        }
        assert!(ratios[1] > ratios[0], "the smaller working set gains most");
    }
}
