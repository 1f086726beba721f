//! The engines for tiny objects: their cores, their longest steps, and what waits for them.

use serde_json::Value;

use super::cells::{cell, entry, round};

/// The longest call under an engine's lock, for each size of set-groups.
pub(super) fn steps(text: &mut String, rows: &[&Value]) {
    for of_size in rows.chunk_by(|a, b| a["set_groups"] == b["set_groups"]) {
        let longest = |row: &&&Value| row["longest_us"].as_f64().unwrap_or(f64::MAX);
        let most = of_size
            .iter()
            .max_by(|a, b| longest(a).total_cmp(&longest(b)));
        if let Some(row) = most {
            let without_faults = of_size
                .iter()
                .filter_map(|row| row["longest_without_page_fault_us"].as_f64())
                .reduce(f64::max)
                .map(|us| format!("; {} without page faults", round(us)));
            entry(
                text,
                format!(
                    "tiny objects, longest step under the lock, set-groups of {}",
                    row["set_groups"].as_str().unwrap_or_default()
                ),
                format!(
                    "{} µs of CPU ({}){}",
                    cell(&row["longest_us"]),
                    row["step"].as_str().unwrap_or_default(),
                    without_faults.unwrap_or_default()
                ),
                "≤ 50 µs",
            );
        }
    }
}

/// Hits in memory while set-groups are flushed, beside none.
pub(super) fn stalls(text: &mut String, rows: &[&Value]) {
    for of_size in rows.chunk_by(|a, b| a["set_groups"] == b["set_groups"]) {
        let tail = |load: &str| {
            let row = of_size.iter().find(|row| row["load"] == load)?;
            row["p99_99_us"].as_f64()
        };
        if let Some((still, flushing)) = tail("still").zip(tail("flushing")) {
            entry(
                text,
                format!(
                    "tiny objects, p99.99 of hits in RAM while set-groups of {} are flushed, over none flushed",
                    of_size[0]["set_groups"].as_str().unwrap_or_default()
                ),
                format!("{} × ({} µs)", round(flushing / still), round(flushing)),
                "≤ 1.5 ×, ≤ 2,000 µs",
            );
        }
    }
}

/// CPU cost of the tiny engines without I/O.
pub(super) fn brains(text: &mut String, rows: &[&Value]) {
    let millions = |rate: &Value| {
        let millions = rate.as_f64().unwrap_or_default() / 1e6;
        format!("{} million", round(millions))
    };
    for row in rows.iter().filter(|r| !r["mix"].is_null()) {
        entry(
            text,
            "tiny objects, requests of the mix per second and core without I/O, behind a memory tier of 2 %".into(),
            millions(&row["requests_per_second"]),
            "≥ 2 million",
        );
    }
    for row in rows.iter().filter(|r| r["engine"] == "nemo") {
        entry(
            text,
            "of those that this tier leaves to the engine, on a model of flash".into(),
            format!(
                "{} ({} without the model's time)",
                millions(&row["operations_per_second"]),
                millions(&row["operations_per_second_without_model"])
            ),
            "≥ 2 million",
        );
    }
    for row in rows.iter().filter(|r| !r["threads"].is_null()) {
        entry(
            text,
            "two threads on two instances, over how a null loop scales".into(),
            format!("{} ×", cell(&row["of_that"])),
            "≥ 0.9 ×",
        );
    }
    for row in rows
        .iter()
        .filter(|r| r["filters"] == "bit slices" && r["key"] == "in one")
    {
        entry(
            text,
            "asking the filters of 1,000 sets".into(),
            format!("{} ns", cell(&row["cpu_ns_per_1000_filters"])),
            "≤ 1,000 ns",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::summary;
    use super::super::tests::figures_of;

    #[test]
    fn the_summary_names_the_cores() {
        let rows = json!([
            {
                "engine": "nemo",
                "operations_per_second": 1_200_000.0,
                "operations_per_second_without_model": 1_600_000.0,
            },
            { "mix": "nemo behind memory", "requests_per_second": 2_500_000.0 },
            { "filters": "bit slices", "key": "in one", "cpu_ns_per_1000_filters": 333.0 },
        ]);
        let text = summary(&figures_of("tiny", &rows));
        assert!(text.contains("2.50 million | ≥ 2 million"), "{text}");
        let both = "1.20 million (1.60 million without the model's time) | ≥ 2 million";
        assert!(text.contains(both), "{text}");
        assert!(text.contains("333 ns | ≤ 1,000 ns"), "{text}");
    }

    #[test]
    fn the_summary_names_stalls_and_long_steps() {
        let step = |step: &str, longest: f64| json!({ "set_groups": "4 MiB, Bloom filters", "step": step, "longest_us": longest });
        let steps = summary(&figures_of(
            "tiny-steps",
            &json!([
                step("insert", 12.0),
                step("advance", 30.0),
                step("memory", 2.0)
            ]),
        ));
        let named = "set-groups of 4 MiB, Bloom filters | 30 µs of CPU (advance) | ≤ 50 µs";
        assert!(steps.contains(named), "{steps}");
        let slice = |load: &str, tail: f64| json!({ "set_groups": "128 MiB", "load": load, "p99_99_us": tail });
        let stalls = summary(&figures_of(
            "stalls",
            &json!([slice("still", 200.0), slice("flushing", 300.0)]),
        ));
        assert!(stalls.contains("1.50 × (300 µs) | ≤ 1.5 ×"), "{stalls}");
    }
}
