//! Verdicts on measured figures: tables, counts and surprises.

use super::table::Table;
use super::text::value;
use crate::experiment::Kind;
use crate::results::Row;

const CONTEXT: &str = "for orientation";
const DIFFERS: &str = "DIFFERS";

/// Measured figures next to their references: a table per kind and source, in the
/// order of kinds, then the reasons of the rows that are known to differ.
pub(super) fn tables(rows: &[Row]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for kind in Kind::ALL {
        for row in rows.iter().filter(|row| row.kind == Some(kind)) {
            let (Some(paper), Some(source)) = (row.paper, &row.source) else {
                continue;
            };
            let title = format!("{}: {source}", kind.name());
            let cells = cells(row, paper);
            match tables.iter_mut().find(|table| table.title == title) {
                Some(table) => table.rows.push(cells),
                None => {
                    let name = format!("published-{}", tables.len() + 1);
                    let head = [
                        "case",
                        "metric",
                        "measured",
                        kind.name(),
                        "error",
                        "verdict",
                    ];
                    let mut table = Table::new(name, title, &head);
                    table.rows.push(cells);
                    tables.push(table);
                }
            }
        }
    }
    tables.extend(Some(known_table(rows)).filter(|table| !table.is_empty()));
    tables
}

fn cells(row: &Row, paper: f64) -> Vec<String> {
    let verdict = row.verdict.clone().unwrap_or_default();
    vec![
        row.case.clone(),
        row.metric.replace('_', " "),
        value(row.measured, &row.unit),
        value(paper, &row.unit),
        row.relative_error
            .map_or_else(|| "–".into(), |error| format!("{:+.2} %", 100.0 * error)),
        match row.known {
            Some(_) => verdict + ", known",
            None => verdict,
        },
    ]
}

/// The reasons of known differences, with the number of figures of each.
fn known_table(rows: &[Row]) -> Table {
    let head = ["reason", "figures"];
    let mut table = Table::new("known-to-differ", "Known to differ, and why", &head);
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in rows.iter().filter_map(|row| row.known.as_deref()) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let reasons = reasons.into_iter();
    table.rows = reasons
        .map(|(reason, count)| vec![reason.to_owned(), count.to_string()])
        .collect();
    table
}

/// A sentence for each kind, with the number of its figures that hold.
pub(super) fn judgement(rows: &[Row]) -> String {
    let sentences: Vec<String> = Kind::ALL
        .into_iter()
        .filter_map(|kind| of_kind(rows, kind))
        .collect();
    match sentences.is_empty() {
        true => "Figures are shown for orientation; none is judged.".to_owned(),
        false => sentences.join("\n"),
    }
}

fn of_kind(rows: &[Row], kind: Kind) -> Option<String> {
    let is_judged = |row: &&Row| {
        row.kind == Some(kind)
            && row
                .verdict
                .as_deref()
                .is_some_and(|verdict| verdict != CONTEXT)
    };
    let judged: Vec<&Row> = rows.iter().filter(is_judged).collect();
    let differ = judged.iter().filter(|row| differs(row)).count();
    let known = judged
        .iter()
        .filter(|row| differs(row) && row.known.is_some())
        .count();
    let name = kind.name();
    match (judged.len(), differ) {
        (0, _) => None,
        (judged, 0) => Some(format!("{name}: all of {judged} judged figures hold.")),
        (judged, differ) => Some(format!(
            "{name}: {} of {judged} judged figures hold, {differ} differ, of which {known} are known to.",
            judged - differ
        )),
    }
}

/// The lines of [`ReportData::surprises`](super::ReportData::surprises).
pub(super) fn surprises(rows: &[Row]) -> Vec<String> {
    let surprise = |row: &Row| {
        let verdict = row.verdict.as_deref()?;
        let expectation = match (differs(row), &row.known) {
            (true, None) => "is not listed as known to differ",
            (false, Some(_)) => "is listed as known to differ",
            _ => return None,
        };
        let source = row.source.as_deref().unwrap_or_default();
        Some(format!(
            "{}, {} ({source}): {verdict}, and {expectation}",
            row.case, row.metric
        ))
    };
    rows.iter().filter_map(surprise).collect()
}

fn differs(row: &Row) -> bool {
    row.verdict
        .as_deref()
        .is_some_and(|verdict| verdict.starts_with(DIFFERS))
}
