//! Advice as text.

use std::fmt::Write as _;

use floe_cli::output::size;
use floe_cli::style::Style;
use floe_core::volume::Accesses;
use floe_eval::advise::{
    Advice, AdviseOptions, Candidate, DecidedBy, SizePoint, TraceFacts, Verdict,
};

use crate::trace::{operations, percent, request_sizes};

/// Bars of hit ratios at their longest.
const BAR_CHARS: f64 = 30.0;

/// Advice, its reasons, its limits and the command that confirms it.
pub(crate) fn advice(advice: &Advice, options: &AdviseOptions) -> String {
    let style = Style::stdout();
    let mut text = format!(
        "{}: {} requests of {} volumes, format {}\n\n",
        advice.trace,
        advice.facts.operations.total(),
        advice.facts.volumes,
        advice.facts.format
    );
    if advice.facts.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", advice.facts.skipped);
    }
    for (name, value) in facts(&advice.facts) {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    curve(&mut text, &style, advice);
    candidates(&mut text, &style, advice);
    let _ = writeln!(text, "\n{}", style.bold("advice"));
    for (name, value) in verdict(advice, options) {
        let _ = writeln!(text, "  {name:<12}{value}");
    }
    let _ = writeln!(text, "\n{}", style.bold("limits"));
    for limit in &advice.limits {
        let _ = writeln!(text, "  {limit}");
    }
    if let Some(command) = &advice.confirm {
        let _ = writeln!(text, "\n{}\n  {command}", style.bold("to confirm"));
    }
    text
}

fn facts(facts: &TraceFacts) -> Vec<(&'static str, String)> {
    let mut rows = vec![("operations", operations(&facts.operations))];
    rows.extend(request_sizes(&facts.read_sizes, &facts.write_sizes));
    rows.push(("working set", size(facts.working_set_bytes)));
    rows.push((
        "sequential",
        format!(
            "{} of requests, {} of bytes",
            percent(facts.sequential.request_share),
            percent(facts.sequential.byte_share)
        ),
    ));
    rows
}

fn curve(text: &mut String, style: &Style, advice: &Advice) {
    let head = format!("\n{:>12}{:>14}{:>12}", "cache", "working set", "LRU hits");
    let _ = writeln!(text, "{}", style.bold(&head));
    for point in &advice.sizing.points {
        let line = format!(
            "{:>12}{:>14}{:>12}  {:<31}{}",
            size(point.bytes),
            percent(point.working_set_share),
            percent(point.hit_ratio),
            "#".repeat((point.hit_ratio * BAR_CHARS).round() as usize),
            note(point)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn note(point: &SizePoint) -> &'static str {
    match (point.is_advised, point.is_knee) {
        (true, true) => "chosen, knee",
        (true, false) => "chosen",
        (false, true) => "knee",
        (false, false) => "",
    }
}

/// A column of the table of candidates: its name, width and value.
type Column = (&'static str, usize, fn(&Candidate) -> String);

const COLUMNS: [Column; 13] = [
    ("mode", 14, |c| c.settings.mode.to_owned()),
    ("reads hit", 10, |c| hits(c.reads)),
    ("bytes", 9, |c| byte_hits(c.reads)),
    ("writes hit", 11, |c| hits(c.writes)),
    ("bytes", 9, |c| byte_hits(c.writes)),
    ("from back.", 11, |c| size(c.backing_read.bytes)),
    ("to backing", 11, |c| {
        size(c.backing_written.bytes + c.dirty_bytes)
    }),
    ("of none", 9, |c| percent(c.backing_share)),
    ("to cache", 10, |c| size(c.cache_written.bytes)),
    ("a day", 10, |c| {
        c.written_bytes_per_day
            .map_or("-".to_owned(), |bytes| size(bytes as u64))
    }),
    ("DWPD", 8, |c| {
        c.drive_writes_per_day
            .map_or("-".to_owned(), |writes| format!("{writes:.2}"))
    }),
    ("device WA", 10, |c| {
        c.device_write_amplification
            .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
    }),
    ("RAM", 10, |c| size(c.memory_bytes)),
];

fn hits(accesses: Accesses) -> String {
    some(accesses, accesses.hit_ratio())
}

fn byte_hits(accesses: Accesses) -> String {
    some(accesses, accesses.byte_hit_ratio())
}

fn some(accesses: Accesses, share: f64) -> String {
    match accesses.requests {
        0 => "-".to_owned(),
        _ => percent(share),
    }
}

fn candidates(text: &mut String, style: &Style, advice: &Advice) {
    let Some(capacity) = advice.sizing.capacity_bytes else {
        return;
    };
    let mut head = format!(
        "\n{:<14}{:<10}",
        format!("at {}", size(capacity)),
        "promotion"
    );
    for (name, width, _) in COLUMNS {
        let _ = write!(head, "{name:>width$}");
    }
    let _ = writeln!(text, "{}", style.bold(&head));
    for candidate in &advice.candidates {
        let settings = &candidate.settings;
        let _ = write!(text, "{:<14}{:<10}", settings.sizes, settings.promotion);
        for (_, width, cell) in COLUMNS {
            let _ = write!(text, "{:>width$}", cell(candidate));
        }
        text.push('\n');
    }
}

fn verdict(advice: &Advice, options: &AdviseOptions) -> Vec<(&'static str, String)> {
    let sizing = &advice.sizing;
    let best = format!(
        "{} at {}",
        percent(sizing.best_hit_ratio),
        size(sizing.limit_bytes)
    );
    let points = options.within * 100.0;
    let chosen = match (advice.verdict, advice.candidates.first()) {
        (Verdict::Cache, Some(chosen)) => chosen,
        (Verdict::NoSaving, Some(chosen)) => {
            return vec![("no cache", no_saving(advice, chosen, options))];
        }
        _ => {
            return vec![(
                "no cache",
                format!("the best reachable LRU hit ratio is {best}, not above {points} points"),
            )];
        }
    };
    let capacity = sizing.capacity_bytes.unwrap_or_default();
    let reason = match sizing.is_given {
        true => "as given".to_owned(),
        false => format!(
            "the smallest whose LRU hit ratio is within {points} points of the best reachable one, {best}"
        ),
    };
    let mut rows = vec![
        ("capacity", format!("{}: {reason}", size(capacity))),
        ("sizes", chosen.settings.sizes.to_owned()),
        ("promotion", chosen.settings.promotion.to_owned()),
        ("mode", mode(advice, chosen, options)),
        (
            "backing I/O",
            format!(
                "{}, {} of the {} without a cache",
                size(chosen.backing_bytes),
                percent(chosen.backing_share),
                size(advice.facts.requested_bytes)
            ),
        ),
        ("endurance", endurance(chosen)),
        ("RAM", size(chosen.memory_bytes)),
    ];
    if let (false, Some(decided_by)) = (advice.ties.is_empty(), advice.decided_by) {
        rows.push(("ties", ties(advice, decided_by, options)));
    }
    rows
}

fn no_saving(advice: &Advice, chosen: &Candidate, options: &AdviseOptions) -> String {
    let mut text = format!(
        "the best candidate moves {} of the bytes that the backing device moves without a cache",
        percent(chosen.backing_share)
    );
    if let (Some(saves), false) = (advice.write_back_saves, chosen.settings.is_write_back()) {
        let _ = write!(
            text,
            "; write-back saves {} of them, less than {}",
            percent(saves),
            percent(options.write_back_saves)
        );
    }
    text
}

fn mode(advice: &Advice, chosen: &Candidate, options: &AdviseOptions) -> String {
    let mode = chosen.settings.mode;
    let least = percent(options.write_back_saves);
    match advice.write_back_saves {
        None => format!("{mode}: the trace has no writes, so that all modes are equal"),
        Some(saves) if chosen.settings.is_write_back() => format!(
            "{mode}: it saves {} of the backing I/O of the best candidate without dirty data, at least {least}. RISK: a \
             cache device that fails loses acknowledged writes",
            percent(saves)
        ),
        Some(saves) => format!(
            "{mode}: write-back saves {} of its backing I/O, less than {least}, and a cache device that fails would lose \
             acknowledged writes",
            percent(saves)
        ),
    }
}

fn ties(advice: &Advice, decided_by: DecidedBy, options: &AdviseOptions) -> String {
    format!(
        "{} of the other candidates are within {} of the least backing I/O; {} decided",
        advice.ties.len(),
        percent(options.tolerance),
        match decided_by {
            DecidedBy::BackingBytes => "backing I/O",
            DecidedBy::CacheWrites => "bytes written to the cache device",
            DecidedBy::Memory => "RAM",
        }
    )
}

fn endurance(chosen: &Candidate) -> String {
    let mut text = format!(
        "{} written to the cache device",
        size(chosen.cache_written.bytes)
    );
    if let (Some(bytes), Some(writes)) = (chosen.written_bytes_per_day, chosen.drive_writes_per_day)
    {
        let _ = write!(
            text,
            ", {} a day, {writes:.2} drive writes per day",
            size(bytes as u64)
        );
    }
    if let Some(ratio) = chosen.device_write_amplification {
        let _ = write!(text, "; device write amplification {ratio:.2}");
    }
    text
}
