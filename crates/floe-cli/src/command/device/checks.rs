//! What to know of a drive before it is measured.

use floe_device::upkeep::DriveFacts;
use serde::Serialize;

use crate::output::size;

/// Degrees Celsius above which drives may slow down.
const WARM_CELSIUS: i32 = 65;
/// Bytes to which partitions should be aligned.
const ALIGNMENT: u64 = 1 << 20;

/// A fact, and what to change if it harms a measurement.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// `None` if all is well.
    pub(super) advice: Option<&'static str>,
}

/// The checks that the facts allow.
pub(super) fn checks(facts: &DriveFacts) -> Vec<Check> {
    let mut all = Vec::new();
    let mut check = |name, value: Option<String>, advice: Option<&'static str>| {
        if let Some(value) = value {
            all.push(Check {
                name,
                value,
                advice,
            });
        }
    };
    let by_passthrough = ["zns", "fdp", "nvme"].contains(&facts.kind.as_str());
    let scheduler = facts.scheduler.as_deref().filter(|_| !by_passthrough);
    check(
        "scheduler",
        scheduler.map(str::to_owned),
        scheduler
            .filter(|&name| name != "none")
            .map(|_| "write `none` to /sys/block/DEVICE/queue/scheduler"),
    );
    let is_volatile = facts.write_cache.as_deref() == Some("write back");
    check(
        "write cache",
        facts.write_cache.clone(),
        is_volatile
            .then_some("it is volatile: flushes count, and figures without them are too good"),
    );
    let (logical, physical) = (facts.logical_block_bytes, facts.physical_block_bytes);
    if let (Some(logical), Some(physical)) = (logical, physical) {
        check(
            "blocks",
            Some(format!(
                "{} logical, {} physical",
                size(logical),
                size(physical)
            )),
            (logical > 4096).then_some("set device.block_size to the logical block"),
        );
    }
    let offset = facts.partition_offset_bytes;
    check(
        "partition offset",
        offset.map(size),
        offset
            .filter(|bytes| !bytes.is_multiple_of(ALIGNMENT))
            .map(|_| "align the partition to 1MiB"),
    );
    check(
        "medium",
        facts.rotational.map(|is| {
            let name = if is { "rotational" } else { "solid state" };
            name.to_owned()
        }),
        None,
    );
    let depth = facts.queue_depth.map(|depth| match facts.queues {
        Some(queues) => format!("{queues} of {depth} requests"),
        None => format!("{depth} requests"),
    });
    check("queues", depth, None);
    check(
        "NUMA node",
        facts.numa_node.map(|node| node.to_string()),
        None,
    );
    if let Some(health) = &facts.health {
        check(
            "temperature",
            Some(format!("{} °C", health.temperature_celsius)),
            (health.temperature_celsius > WARM_CELSIUS)
                .then_some("let it cool down: a hot drive slows down"),
        );
        let is_worn = health.critical_warning != 0 || health.percentage_used >= 100;
        check(
            "health",
            Some(format!(
                "{} % used, {} % spare, warnings {:#04x}",
                health.percentage_used, health.available_spare_percent, health.critical_warning
            )),
            is_worn.then_some("the drive is worn or warns; its figures say little of others"),
        );
    }
    check("kernel", Some(facts.kernel.clone()), None);
    all
}

#[cfg(test)]
mod tests {
    use floe_device::upkeep::HealthFacts;

    use super::*;

    fn advised(facts: &DriveFacts) -> Vec<&'static str> {
        let all = checks(facts).into_iter();
        all.filter_map(|check| check.advice.map(|_| check.name))
            .collect()
    }

    #[test]
    fn what_harms_a_measurement_has_an_advice() {
        let bad = DriveFacts {
            kind: "block".to_owned(),
            scheduler: Some("mq-deadline".to_owned()),
            write_cache: Some("write back".to_owned()),
            partition_offset_bytes: Some(32_256),
            health: Some(HealthFacts {
                temperature_celsius: 80,
                percentage_used: 101,
                ..HealthFacts::default()
            }),
            ..DriveFacts::default()
        };
        let expected = [
            "scheduler",
            "write cache",
            "partition offset",
            "temperature",
            "health",
        ];
        assert_eq!(advised(&bad), expected);
        let good = DriveFacts {
            scheduler: Some("none".to_owned()),
            write_cache: Some("write through".to_owned()),
            partition_offset_bytes: Some(1 << 20),
            health: Some(HealthFacts::default()),
            ..bad.clone()
        };
        assert!(advised(&good).is_empty());
        let by_passthrough = DriveFacts {
            kind: "zns".to_owned(),
            ..bad
        };
        assert!(!advised(&by_passthrough).contains(&"scheduler"));
    }
}
