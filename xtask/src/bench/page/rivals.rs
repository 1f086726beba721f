//! Floe beside memcached and foyer behind one protocol.

use serde_json::Value;

use super::{cell, entry, round};

/// Gets from flash beside extstore's, and what is written beside foyer.
pub(super) fn compare(text: &mut String, rivals: &[&Value], bytes: u64) {
    let row = |name: &str| {
        rivals
            .iter()
            .find(|row| row["value_bytes"] == bytes && row["contender"] == name)
    };
    let of = |name: &str, figure: &str| {
        let figure = row(name)?[figure].as_f64();
        figure.filter(|figure| *figure > 0.0)
    };
    let ratio =
        |figure: &str, ours: &str, theirs: &str| Some(of(ours, figure)? / of(theirs, figure)?);
    // What was thrown away in the meantime is not answered from flash.
    let answered = |name: &str, depth: u32| {
        let asked = of(name, &format!("get_depth_{depth}_per_cpu_second"))?;
        let hits = of(name, &format!("get_depth_{depth}_hit_percent"))?;
        Some(asked * hits / 100.0)
    };
    let dropped = |name: &str| {
        let row = row(name)?;
        let refused = row["burst_refused"].as_f64()?;
        (refused == 0.0).then(|| cell(&row["burst_missing_percent"]))
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
                "memcached's protocol, gets of {bytes} B answered from flash per CPU second, over memcached with extstore, depth 1 and 32"
            ),
            format!("{} ×, {} ×", round(one), round(many)),
            "≥ 2 ×",
        );
    }
    if let Some(times) = ratio("mix_write_amplification", "foyer", "floe") {
        let what = format!("Twitter-like mix of {bytes} B: how many times as much foyer writes");
        let in_sectors = ratio("mix_write_amplification", "foyer", "floe-sectors");
        let (what, measured) = match in_sectors {
            Some(in_sectors) => (
                format!("{what} (with `tiny.block_size = 512`)"),
                format!("{} × ({} ×)", round(times), round(in_sectors)),
            ),
            None => (what, format!("{} ×", round(times))),
        };
        entry(
            text,
            what,
            measured,
            if bytes < 1024 { "≥ 10 ×" } else { "–" },
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::{page, summary};

    #[test]
    fn rivals_are_compared_by_bytes() {
        let row = |contender: &str, gets: f64, amplification: f64| {
            json!({
                "contender": contender, "value_bytes": 246,
                "get_depth_1_per_cpu_second": gets, "get_depth_1_hit_percent": 100.0,
                "get_depth_32_per_cpu_second": 2.0 * gets, "get_depth_32_hit_percent": 50.0,
                "mix_write_amplification": amplification,
                "burst_refused": 0, "burst_missing_percent": gets / 10.0,
            })
        };
        let rows = json!([
            row("floe", 90.0, 1.1),
            row("floe-sectors", 90.0, 1.0),
            row("memcached-extstore", 30.0, 1.3),
            row("foyer", 50.0, 16.5),
        ]);
        let mut figures = Map::new();
        figures.insert(
            "rivals".into(),
            json!({ "machine": {}, "arguments": [], "rows": rows }),
        );
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
        assert!(
            summary.contains("| 15.0 × (16.5 ×) | ≥ 10 × |"),
            "{summary}"
        );
    }
}
