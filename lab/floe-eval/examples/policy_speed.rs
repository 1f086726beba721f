//! How many accesses per second of CPU time each object policy decides, on a Zipfian
//! stream with a cache of a tenth of its objects:
//! `cargo run --release -p floe-eval --example policy_speed`

use floe_core::policy::object::{Access, ObjectPolicy, ObjectPolicyKind};
use floe_eval::metrics::ProcessProbe;
use floe_eval::workload::{Distribution, Workload, WorkloadSpec};

const OBJECTS: u64 = 1_000_000;
const ACCESSES: usize = 10_000_000;

fn main() {
    let spec = WorkloadSpec {
        distribution: Distribution::Zipf {
            skew: 0.99,
            scrambled: true,
        },
        items: OBJECTS,
        seed: 1,
    };
    let workload = Workload::new(&spec).expect("the specification is valid");
    let ids: Vec<u64> = workload.take(ACCESSES).collect();
    for kind in ObjectPolicyKind::ALL {
        let mut policy = ObjectPolicy::new(kind, OBJECTS / 10);
        let mut probe = ProcessProbe::new();
        let hits = ids
            .iter()
            .filter(|&&id| policy.access(id, 1) == Access::Hit)
            .count();
        let sample = probe.sample().expect("this machine has /proc");
        let seconds = sample.cpu_time.as_secs_f64();
        println!(
            "{kind:8} {:6.1} M accesses per CPU second, hit ratio {:.2} %",
            ACCESSES as f64 / seconds / 1e6,
            100.0 * hits as f64 / ACCESSES as f64
        );
    }
}
