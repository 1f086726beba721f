//! Advice on public traces, confirmed by a replay.

mod shared;

use floe_eval::advise::{Advice, AdviseOptions, Candidate, Verdict, advise};
use floe_eval::trace::TraceOptions;
use floe_eval::volume::{VolumeReplayOptions, VolumeResult, replay_volumes};
use shared::traces;

/// Bytes that a replay moves on the backing device, dirty ones of the end included,
/// and those that it writes to the cache device.
fn moved(result: &VolumeResult) -> (u64, u64) {
    let [_, (_, cache_written), (_, read), (_, written)] = result.io_bytes();
    (read + written + result.occupancy.dirty_bytes, cache_written)
}

/// Advises on a trace, replays all candidates, and checks the advice against the
/// objective of `floe_eval::advise`.
fn confirmed(name: &str) -> Option<Advice> {
    let options = AdviseOptions::new(traces()?.join(name));
    let advice = advise(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(advice.verdict, Verdict::Cache, "{name}");
    let case = |candidate: &Candidate| candidate.volume.parse().expect(&candidate.volume);
    let replayed = replay_volumes(&VolumeReplayOptions {
        trace: options.trace.clone(),
        options: TraceOptions::default(),
        cases: advice.candidates.iter().map(case).collect(),
        requests_max: None,
    });
    let replayed = replayed.unwrap_or_else(|error| panic!("{name}: {error}"));
    let costs: Vec<(u64, u64)> = replayed.caches.iter().map(moved).collect();
    for (candidate, cost) in advice.candidates.iter().zip(&costs) {
        let reported = (candidate.backing_bytes, candidate.cache_written.bytes);
        assert_eq!(reported, *cost, "{name}: {}", candidate.volume);
    }
    let best = &advice.candidates[0];
    let peers = advice
        .candidates
        .iter()
        .zip(&costs)
        .filter(|(candidate, _)| {
            candidate.settings.is_write_back() == best.settings.is_write_back()
        });
    let least = peers.clone().map(|(_, (backing, _))| *backing).min();
    let is_least = |bytes: u64, least: u64| bytes as f64 <= least as f64 * 1.05;
    assert!(
        is_least(costs[0].0, least.expect("peers")),
        "{name}: {best:?}"
    );
    let tied = peers.filter(|(_, (backing, _))| is_least(*backing, least.expect("peers")));
    let least = tied.map(|(_, (_, written))| *written).min();
    assert!(
        is_least(costs[0].1, least.expect("itself")),
        "{name}: {best:?}"
    );
    // Each other value of each setting was a candidate.
    let differs = |other: &Candidate| {
        let (a, b) = (best.settings, other.settings);
        usize::from(a.sizes != b.sizes) + usize::from(a.promotion != b.promotion)
    };
    let same_mode = advice.candidates.iter();
    let same_mode = same_mode.filter(|other| other.settings.mode == best.settings.mode);
    assert_eq!(
        same_mode.filter(|other| differs(other) == 1).count(),
        5 + 3,
        "{name}"
    );
    let confirm = advice.confirm.as_deref().unwrap_or_default();
    assert!(confirm.contains(&best.volume), "{confirm}");
    Some(advice)
}

#[test]
fn the_advice_on_cloudphysics_is_confirmed_by_its_replay() {
    let Some(advice) = confirmed("blk_cloudphysics/cloudPhysicsIO.vscsi.zst") else {
        return;
    };
    // MANIFEST.md: 269,210 blocks in 1,141,869 accesses, hits of 76.4 % at most.
    assert_eq!(advice.facts.working_set_bytes, 269_210 * 4096);
    assert_eq!(advice.facts.accesses, 1_141_869);
    assert!((advice.sizing.best_hit_ratio - 0.764).abs() < 0.001);
    assert!(advice.write_back_saves.is_some());
    assert!(advice.candidates[0].device_write_amplification >= Some(1.0));
}

#[test]
fn the_advice_on_prxy_is_confirmed_by_its_replay() {
    let Some(advice) = confirmed("blk_msr_prxy0_reads/PRXY_0_read.zst") else {
        return;
    };
    // MANIFEST.md: 20,017 blocks; reads only, so that no mode keeps dirty data.
    assert_eq!(advice.facts.working_set_bytes, 20_017 * 4096);
    assert_eq!(advice.write_back_saves, None);
    assert!(
        advice.limits[0].contains("less than a day"),
        "{:?}",
        advice.limits
    );
}
