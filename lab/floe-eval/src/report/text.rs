//! Text in HTML and SVG, and numbers with units.

use super::scale::short;

/// Text that is safe between tags and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Neither HTML nor XML allows these at all.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {
                safe.push('\u{fffd}');
            }
            other => safe.push(other),
        }
    }
    safe
}

/// A unit to show values in, and the factor to multiply them with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) factor: f64,
}

/// The best unit for a time of `ms` milliseconds.
pub(crate) fn time_unit(ms: f64) -> Unit {
    let (name, factor) = match ms {
        ms if ms >= 10_000.0 => ("s", 1e-3),
        ms if ms >= 1.0 => ("ms", 1.0),
        _ => ("µs", 1e3),
    };
    Unit { name, factor }
}

/// The best unit for a rate of bytes per second.
pub(crate) fn rate_unit(bytes_per_s: f64) -> Unit {
    const KIB: f64 = 1024.0;
    let (name, factor) = match bytes_per_s {
        rate if rate >= KIB * KIB * KIB => ("GiB/s", 1.0 / (KIB * KIB * KIB)),
        rate if rate >= KIB * KIB => ("MiB/s", 1.0 / (KIB * KIB)),
        rate if rate >= KIB => ("KiB/s", 1.0 / KIB),
        _ => ("B/s", 1.0),
    };
    Unit { name, factor }
}

/// Milliseconds in the best unit.
pub(crate) fn time(ms: f64) -> String {
    let unit = time_unit(ms);
    format!("{} {}", short(ms * unit.factor), unit.name)
}

/// A rate in the best unit.
pub(crate) fn rate(bytes_per_s: f64) -> String {
    let unit = rate_unit(bytes_per_s);
    format!("{} {}", short(bytes_per_s * unit.factor), unit.name)
}

/// A number of bytes in the best unit.
pub(crate) fn bytes(bytes: f64) -> String {
    rate(bytes).trim_end_matches("/s").to_owned()
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A value of a unit of results, in the best unit.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit {
        "ms" => time(value),
        "us" => time(value / 1e3),
        "s" => time(value * 1e3),
        "B/s" => rate(value),
        "B" => bytes(value),
        "%" => format!("{} %", short(value)),
        "count" if value.fract() == 0.0 && value.abs() < 9e15 => format!("{value:.0}"),
        "ratio" | "count" | "" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}
