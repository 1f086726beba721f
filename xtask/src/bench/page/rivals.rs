//! Floe beside memcached and foyer, through one protocol.

use serde_json::Value;

use super::cells::{cell, entry, round};

/// Gets from flash beside extstore, and bytes written beside foyer.
pub(super) fn compare(text: &mut String, rivals: &[&Value], bytes: u64) {
    let row = |name: &str| {
        rivals
            .iter()
            .find(|row| row["value_bytes"] == bytes && row["peer"] == name)
    };
    let of = |name: &str, figure: &str| {
        let figure = row(name)?[figure].as_f64();
        figure.filter(|figure| *figure > 0.0)
    };
    // An evicted value is not a get from flash.
    let answered = |name: &str, depth: u32| {
        let asked = of(name, &format!("get_depth_{depth}_per_cpu_second"))?;
        let hits = of(name, &format!("get_depth_{depth}_hit_percent"))?;
        Some(asked * hits / 100.0)
    };
    let dropped = |name: &str| {
        let row = row(name)?;
        let rejected = row["burst_refused"].as_f64()?;
        (rejected == 0.0).then(|| cell(&row["burst_missing_percent"]))
    };
    if let Some(ours) = dropped("floe") {
        let others = ["memcached-extstore", "foyer"];
        let others = others.map(|name| dropped(name).map(|share| format!("{name}: {share} %")));
        let others: Vec<String> = others.into_iter().flatten().collect();
        entry(
            text,
            format!(
                "memcached's protocol, sets of a burst of {bytes} B that were acknowledged and are not found"
            ),
            format!("{ours} % ({})", others.join(", ")),
            "none",
        );
    }
    let gets = [1, 32]
        .map(|depth| Some(answered("floe", depth)? / answered("memcached-extstore", depth)?));
    if let [Some(one), Some(many)] = gets {
        entry(
            text,
            format!(
                "flash gets of {bytes} B per CPU second, over memcached with extstore, 1 and 32 at a time"
            ),
            format!("{} ×, {} ×", round(one), round(many)),
            "≥ 2 ×",
        );
    }
    mix(text, of, bytes);
}

/// The Twitter-like mix: bytes written and CPU cost of each peer, including
/// rows that a peer wins.
fn mix<'a>(text: &mut String, of: impl Fn(&'a str, &'a str) -> Option<f64>, bytes: u64) {
    let peers = [
        ("foyer", "foyer"),
        (
            "memcached-extstore",
            "extstore, which keeps nothing over a crash,",
        ),
    ];
    let beside = |figure: &'static str, shown: fn(f64) -> String| {
        let ours = of("floe", figure)?;
        let others: Vec<String> = peers
            .iter()
            .filter_map(|(name, called)| Some(format!("{called} {}", shown(of(name, figure)?))))
            .collect();
        Some((shown(ours), others.join(", ")))
    };
    if let Some((ours, others)) = beside("mix_write_amplification", round) {
        let tuned = of("floe-sectors", "mix_write_amplification")
            .map(|tuned| format!("tuned with `tiny.block_size = 512` {}, ", round(tuned)));
        entry(
            text,
            format!(
                "Twitter-like mix of {bytes} B, bytes written to the device for each byte accepted, fences included"
            ),
            format!("{ours} ({}{others})", tuned.unwrap_or_default()),
            "–",
        );
    }
    let thousands = |figure: f64| format!("{:.0} K", figure / 1e3);
    if let Some((ours, others)) = beside("mix_requests_per_cpu_second", thousands) {
        entry(
            text,
            format!("Twitter-like mix of {bytes} B, requests per CPU second"),
            format!("{ours} ({others})"),
            "–",
        );
    }
}

/// A fill with new keys: bytes written by each peer.
pub(super) fn compare_fill(text: &mut String, rows: &[&Value]) {
    let of = |name: &str| {
        let row = rows.iter().find(|row| row["peer"] == name)?;
        row["fill_write_amplification"].as_f64().map(round)
    };
    let Some(ours) = of("floe") else {
        return;
    };
    let others = [
        ("floe-looks", "with `tiny.look_before_fence = \"always\"`"),
        ("floe-sectors", "tuned with `tiny.block_size = 512`"),
        (
            "floe-unfenced",
            "with `tiny.durability = \"none\"`, which keeps nothing over a crash,",
        ),
        ("foyer", "foyer"),
        (
            "memcached-extstore",
            "extstore, which keeps nothing over a crash,",
        ),
    ];
    let others = others.map(|(name, called)| Some(format!("{called} {}", of(name)?)));
    let others: Vec<String> = others.into_iter().flatten().collect();
    entry(
        text,
        "a fill of new keys with values of 226 B, bytes written to the device for each byte accepted, fences included".to_owned(),
        format!("{ours} ({})", others.join(", ")),
        "–",
    );
    let when_full = rows
        .iter()
        .find(|row| row["peer"] == "floe" && row["when_full_depth"] == 1024);
    if let Some(row) = when_full {
        entry(
            text,
            "the same on full flash, with 1,024 sets in flight".to_owned(),
            cell(&row["when_full_write_amplification"]),
            "≤ 1.12",
        );
    }
    let sets = |name: &str| {
        let row = rows.iter().find(|row| row["peer"] == name)?;
        row["fill_sets_per_cpu_second"].as_f64()
    };
    let all = sets("floe")
        .zip(sets("floe-unfenced"))
        .zip(sets("memcached"));
    if let Some(((ours, unfenced), memory)) = all {
        entry(
            text,
            "sets of new keys per CPU second, over memcached's in memory".to_owned(),
            format!(
                "{} × (with `tiny.durability = \"none\"`, as memcached, {} ×)",
                round(ours / memory),
                round(unfenced / memory)
            ),
            "≥ 0.7 × (≥ 1 ×)",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::figures_of;
    use super::super::{page, summary};

    #[test]
    fn rivals_are_compared_by_bytes() {
        let row = |peer: &str, gets: f64, amplification: f64| {
            json!({
                "peer": peer, "value_bytes": 246,
                "get_depth_1_per_cpu_second": gets, "get_depth_1_hit_percent": 100.0,
                "get_depth_32_per_cpu_second": 2.0 * gets, "get_depth_32_hit_percent": 50.0,
                "mix_write_amplification": amplification,
                "mix_requests_per_cpu_second": 1e3 * gets,
                "burst_refused": 0, "burst_missing_percent": gets / 10.0,
            })
        };
        let rows = json!([
            row("floe", 90.0, 1.1),
            row("floe-sectors", 90.0, 1.0),
            row("memcached-extstore", 30.0, 1.3),
            row("foyer", 50.0, 16.5),
        ]);
        let mut figures = figures_of("rivals", &rows);
        let page = page(&figures);
        assert!(page.contains("### Values of 246 B"), "{page}");
        assert!(
            page.contains("| figure | floe | floe-sectors | memcached-extstore | foyer |"),
            "{page}"
        );
        let summary = summary(&figures);
        assert!(summary.contains("| 3 ×, 3 × | ≥ 2 × |"), "{summary}");
        let dropped = "| 9 % (memcached-extstore: 3 %, foyer: 5 %) | none |";
        assert!(summary.contains(dropped), "{summary}");
        let written = "| 1.10 (tuned with `tiny.block_size = 512` 1, foyer 16.5, \
                       extstore, which keeps nothing over a crash, 1.30) | – |";
        assert!(summary.contains(written), "{summary}");
        let fill = |peer: &str, amplification: f64| {
            json!({
                "peer": peer, "value_bytes": 226,
                "fill_write_amplification": amplification,
            })
        };
        figures.insert(
            "fill".into(),
            json!({ "machine": {}, "arguments": [], "rows": [fill("floe", 2.03), fill("foyer", 9.5)] }),
        );
        let summary = super::super::summary(&figures);
        assert!(summary.contains("| 2.03 (foyer 9.50) | – |"), "{summary}");
        let lost = "| 90 K (foyer 50 K, extstore, which keeps nothing over a crash, 30 K) | – |";
        assert!(summary.contains(lost), "{summary}");
    }
}
