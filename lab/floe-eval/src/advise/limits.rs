//! The limits of advice.

use floe_core::ByteSize;

use super::drive::DRIVE_BYTES_MAX;
use super::facts::{DAY_S, TraceFacts};
use super::sizing::Sizing;

/// The limits of advice, a sentence or two each.
pub(super) fn limits(facts: &TraceFacts, sizing: &Sizing) -> Vec<String> {
    let mut limits = vec![span(facts)];
    if let Some(time) = facts.time
        && time.backward_steps > 0
    {
        limits.push(format!(
            "{} requests have times before those of the request before them; in replays time stands still there.",
            time.backward_steps
        ));
    }
    limits.push(format!(
        "There is no advice for caches larger than the working set, {:.1} MiB.",
        facts.working_set_bytes as f64 / (1 << 20) as f64
    ));
    limits.push(format!(
        "{:.1} % of the accesses are the first of their block: no cache of any size has them. Replays begin with an \
         empty cache.",
        facts.cold_miss_share * 100.0
    ));
    limits.push(match facts.is_exact {
        true => "The curve is exact.".to_owned(),
        false => format!(
            "The curve is of a sample. A second sample of as many blocks differs by at most {:.2} points at the sizes \
             shown; the working set is an estimate.",
            sizing.sample_difference * 100.0
        ),
    });
    limits.push(
        "The curve is LRU's with blocks of 4 KiB; candidates with larger blocks hit more or less."
            .to_owned(),
    );
    limits.push("A replay has no latencies: the advice minimises bytes, not time.".to_owned());
    limits.push(match sizing.capacity_bytes {
        Some(bytes) if bytes > DRIVE_BYTES_MAX => format!(
            "A cache above {} has no simulated SSD, hence no device write amplification.",
            ByteSize(DRIVE_BYTES_MAX)
        ),
        _ => "Device write amplification is that of a simulated drive full of random writes, of the cache's size, with \
              the SN540's share of over-provisioning and a mapping of 4 KiB; the drive gets no trims."
            .to_owned(),
    });
    limits
}

fn span(facts: &TraceFacts) -> String {
    let requests = facts.operations.total();
    match facts.time {
        None => {
            format!("The trace has {requests} requests and no times: nothing is known per day.")
        }
        Some(time) if time.span_s < DAY_S => format!(
            "The trace spans {:.0} s with {requests} requests, less than a day: figures per day are extrapolated.",
            time.span_s
        ),
        Some(time) => format!(
            "The trace spans {:.1} days with {requests} requests.",
            time.span_s / DAY_S
        ),
    }
}
