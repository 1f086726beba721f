//! Two sets of results side by side: every common figure with ratio and
//! difference, and the series over time in common charts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::export;
use super::figure::Figure;
use super::html;
use super::scale::short;
use super::table::{Table, csv_field};
use super::text::{escape, value};
use super::{Panel, PanelLine, ReportData, panels, read_data, write};
use crate::error::EvalError;
use crate::experiment::PanelKind;
use crate::results::{Provenance, Row};

/// The most important figures, which come first.
const FIRST: [&str; 8] = [
    "get_throughput",
    "request_rate",
    "get_latency_mean",
    "get_latency_p99",
    "hit_ratio",
    "write_amplification",
    "device_write_amplification",
    "miss_ratio",
];
/// Counts that do not depend on the speed of a device, if requests run one by one.
const COUNTS: [&str; 8] = [
    "hits",
    "misses",
    "device_appends",
    "device_append_bytes",
    "device_writes",
    "device_write_bytes",
    "device_resets",
    "device_finishes",
];
/// Most cases in charts. The tables have all.
const CASES_DRAWN_MAX: usize = 24;
const SHOWN_MAX: usize = 20;

/// Two sets of results.
#[derive(Debug)]
pub struct Comparison {
    first: Side,
    second: Side,
    /// The common figures.
    pub pairs: Vec<Pair>,
    only_first: Vec<String>,
    only_second: Vec<String>,
}

#[derive(Debug)]
struct Side {
    name: String,
    rows: Vec<Row>,
    data: Option<ReportData>,
}

/// A figure of both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The experiment, as the first set names it.
    pub experiment: String,
    /// Its case.
    pub case: String,
    /// The metric.
    pub metric: String,
    /// The unit.
    pub unit: String,
    /// The first set's value.
    pub first: f64,
    /// The second set's value.
    pub second: f64,
    /// The second divided by the first; `None` if the first is zero.
    pub ratio: Option<f64>,
    /// The second less the first.
    pub difference: f64,
}

/// A part of a row's provenance.
type FactOf = fn(&Provenance) -> String;

impl Comparison {
    /// Reads two folders of results (or their `results.jsonl`).
    ///
    /// # Errors
    /// When one cannot be read, or they have no figure in common.
    pub fn read(first: &Path, second: &Path) -> Result<Self, EvalError> {
        let (first, second) = (Side::read(first)?, Side::read(second)?);
        let theirs: BTreeMap<_, &Row> = second
            .rows
            .iter()
            .rev()
            .map(|row| (key(row), row))
            .collect();
        let mut pairs: Vec<Pair> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for row in &first.rows {
            // A figure with two published values has two rows.
            if let (true, Some(other)) = (seen.insert(key(row)), theirs.get(&key(row))) {
                pairs.push(Pair::new(row, other));
            }
        }
        if pairs.is_empty() {
            return Err(EvalError::Results {
                path: second.name.into(),
                reason: format!("no case and metric of it is in {}", first.name),
            });
        }
        let cases = |side: &Side| -> Vec<String> {
            let mut cases: Vec<String> = side.rows.iter().map(|row| row.case.clone()).collect();
            cases.dedup();
            cases
        };
        let (of_first, of_second) = (cases(&first), cases(&second));
        let only = |mine: &[String], others: &[String]| {
            let alone = mine.iter().filter(|case| !others.contains(case));
            alone.cloned().collect()
        };
        Ok(Comparison {
            only_first: only(&of_first, &of_second),
            only_second: only(&of_second, &of_first),
            first,
            second,
            pairs,
        })
    }

    /// Hits, misses, appends, writes, resets and finishes that differ by more than `share`
    /// of the greater of both; unless it is 0, one more or less is no difference. Each is
    /// described.
    ///
    /// # Errors
    /// If there is nothing of this kind to compare, or a case has no counterpart.
    pub fn counts_that_differ(&self, share: f64) -> Result<Vec<String>, EvalError> {
        let fail = |reason: String| {
            Err(EvalError::Option {
                option: "same",
                reason,
            })
        };
        let alone = self.only_first.iter().chain(&self.only_second);
        if let Some(case) = alone.into_iter().next() {
            return fail(format!("the case `{case}` is in one of the results only"));
        }
        let is_count = |pair: &&Pair| COUNTS.contains(&pair.metric.as_str());
        let counts: Vec<&Pair> = self.pairs.iter().filter(is_count).collect();
        if counts.is_empty() {
            return fail("the results have no counts; they are of an earlier version".into());
        }
        let is_far = |pair: &&&Pair| {
            let least = if share > 0.0 && pair.unit == "count" {
                1.0
            } else {
                0.0
            };
            pair.difference.abs() > (share * pair.first.max(pair.second)).max(least)
        };
        let differing = counts.iter().filter(is_far).map(|pair| {
            let Pair {
                case,
                metric,
                first,
                second,
                ..
            } = pair;
            format!("{case}: {metric} {first} and {second}")
        });
        Ok(differing.collect())
    }

    /// Writes `report.html` and `comparison.jsonl`; returns the page's path.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, EvalError> {
        std::fs::create_dir_all(folder).map_err(EvalError::file("create", folder))?;
        let path = folder.join("comparison.jsonl");
        let mut lines = String::new();
        for pair in &self.pairs {
            let line = serde_json::to_string(pair).map_err(|error| EvalError::Results {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            lines += &(line + "\n");
        }
        write(&path, lines.as_bytes())?;
        let page = folder.join("report.html");
        write(&page, self.html().as_bytes())?;
        Ok(page)
    }

    /// Writes its tables and figures as [`export`](super::export) does.
    ///
    /// # Errors
    /// As [`export`](super::export).
    pub fn export(&self, folder: &Path) -> Result<(), EvalError> {
        let tables = [
            self.table("figures", |pair| is_first(&pair.metric)),
            self.table("all", |_| true),
        ];
        let mut csv = String::from("experiment,case,metric,unit,first,second,ratio,difference\r\n");
        for pair in &self.pairs {
            let texts =
                [&pair.experiment, &pair.case, &pair.metric, &pair.unit].map(|t| csv_field(t));
            let ratio = pair
                .ratio
                .map_or_else(String::new, |ratio| ratio.to_string());
            let _ = write!(
                csv,
                "{},{},{},{ratio},{}\r\n",
                texts.join(","),
                pair.first,
                pair.second,
                pair.difference
            );
        }
        export::write_all(&tables, &self.figures(), &csv, folder)
    }

    /// The most important figures as text for a terminal.
    pub fn text(&self) -> String {
        let shown: Vec<&Pair> = self
            .pairs
            .iter()
            .filter(|pair| is_first(&pair.metric))
            .collect();
        let width = shown
            .iter()
            .map(|pair| pair.case.chars().count())
            .max()
            .unwrap_or(4);
        let mut text = format!(
            "{:<width$}  {:<26}{:>14}{:>14}{:>9}\n",
            "case", "metric", "first", "second", "ratio"
        );
        for pair in shown.iter().take(SHOWN_MAX) {
            let _ = writeln!(
                text,
                "{:<width$}  {:<26}{:>14}{:>14}{:>9}",
                pair.case,
                pair.metric,
                value(pair.first, &pair.unit),
                value(pair.second, &pair.unit),
                pair.ratio_text()
            );
        }
        if shown.len() > SHOWN_MAX {
            let _ = writeln!(text, "and {} more, in the report", shown.len() - SHOWN_MAX);
        }
        text
    }

    fn html(&self) -> String {
        let mut body = String::new();
        let title = format!("{} beside {}", self.second.name, self.first.name);
        let _ = write!(
            body,
            "<header><p class=\"brand\">floe · comparison</p><h1>{}</h1>\
             <p class=\"facts\">{} figures in common; ratios are second ÷ first</p></header>",
            escape(&title),
            self.pairs.len()
        );
        html::section("Where they come from", &self.origins().html(), &mut body);
        for (side, cases) in [("first", &self.only_first), ("second", &self.only_second)] {
            if !cases.is_empty() {
                let facts = format!("<p class=\"facts\">{}</p>", escape(&cases.join(" · ")));
                html::section(
                    &format!("Cases that only the {side} has"),
                    &facts,
                    &mut body,
                );
            }
        }
        let first = self.table("figures", |pair| is_first(&pair.metric));
        html::section(
            "What one looks at first",
            &html::foldable(&first),
            &mut body,
        );
        html::section("What changed most", &self.changed().html(), &mut body);
        html::section("In one chart", &html::grid(&self.figures(), &[]), &mut body);
        let all = format!(
            "<details><summary>{} figures</summary>{}</details>",
            self.pairs.len(),
            self.table("all", |_| true).html()
        );
        html::section("Everything", &all, &mut body);
        html::frame(&title, &body)
    }

    fn origins(&self) -> Table {
        let mut table = Table::new(
            "origins",
            "Where they come from",
            &["", "first", "second", ""],
        );
        let facts: [(&str, FactOf); 6] = [
            ("commit", |p| p.commit.clone()),
            ("configuration", |p| p.config_digest.clone()),
            ("seed", |p| p.seed.to_string()),
            ("device", |p| p.device.clone()),
            ("machine", |p| p.machine.clone()),
            ("date", |p| p.date.clone()),
        ];
        table.rows.push(vec![
            "folder".into(),
            self.first.name.clone(),
            self.second.name.clone(),
            String::new(),
        ]);
        for (name, of) in facts {
            let together = |side: &Side| {
                let mut values: Vec<String> =
                    side.rows.iter().map(|row| of(&row.provenance)).collect();
                values.sort_unstable();
                values.dedup();
                match &values[..] {
                    [one] => one.clone(),
                    values => format!("{} different", values.len()),
                }
            };
            let (first, second) = (together(&self.first), together(&self.second));
            let same = if first == second { "same" } else { "" };
            table
                .rows
                .push(vec![name.into(), first, second, same.into()]);
        }
        table
    }

    fn table(&self, name: &str, is_wanted: impl Fn(&Pair) -> bool) -> Table {
        let head = ["case", "metric", "first", "second", "ratio", "difference"];
        let title = format!("{} beside {}", self.second.name, self.first.name);
        let mut table = Table::new(format!("comparison-{name}"), title, &head);
        let pairs = self.pairs.iter().filter(|pair| is_wanted(pair));
        table.rows.extend(pairs.map(Pair::cells));
        table
    }

    /// The pairs whose ratios are farthest from one.
    fn changed(&self) -> Table {
        const SHOWN: usize = 20;
        let distance = |pair: &Pair| pair.ratio.filter(|r| *r > 0.0).map(|r| r.ln().abs());
        let mut pairs: Vec<(f64, &Pair)> = self
            .pairs
            .iter()
            .filter_map(|pair| Some((distance(pair)?, pair)))
            .filter(|(distance, _)| *distance > 1e-3)
            .collect();
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let head = ["case", "metric", "first", "second", "ratio", "difference"];
        let mut table = Table::new("comparison-changed", "What changed most", &head);
        table
            .rows
            .extend(pairs.iter().take(SHOWN).map(|(_, pair)| pair.cells()));
        if table.is_empty() {
            let nothing = ["nothing by more than 0.1 %", "", "", "", "", ""];
            table.rows.push(nothing.map(str::to_owned).to_vec());
        }
        table
    }

    /// Throughput and latency of both sets, for every common case.
    fn figures(&self) -> Vec<Figure> {
        let (Some(first), Some(second)) = (&self.first.data, &self.second.data) else {
            return Vec::new();
        };
        let mut both = ReportData::new("", "", "", Provenance::default(), Vec::new(), Vec::new());
        for run in &first.runs {
            let other = second.runs.iter().find(|other| other.name == run.name);
            let Some(other) = other.filter(|_| both.runs.len() < 2 * CASES_DRAWN_MAX) else {
                continue;
            };
            let at = both.runs.len();
            both.runs.extend([run.clone(), other.clone()]);
            for (kind, series) in [
                (PanelKind::Time, "get_throughput"),
                (PanelKind::Cdf, "get_latency"),
            ] {
                let lines = ["first", "second"].into_iter().enumerate();
                both.panels.push(Panel {
                    kind,
                    series: series.into(),
                    group: run.name.clone(),
                    lines: lines
                        .map(|(n, name)| PanelLine {
                            run: at + n,
                            name: name.into(),
                        })
                        .collect(),
                });
            }
        }
        let mut figures = panels::all(&both);
        figures.retain(|figure: &Figure| !figure.is_empty());
        figures
    }
}

impl Side {
    fn read(path: &Path) -> Result<Self, EvalError> {
        let rows_path = match path.is_dir() {
            true => path.join("results.jsonl"),
            false => path.to_owned(),
        };
        let text =
            std::fs::read_to_string(&rows_path).map_err(EvalError::file("read", &rows_path))?;
        let rows = text.lines().enumerate().map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| EvalError::Results {
                path: rows_path.clone(),
                reason: format!("line {}: {error}", number + 1),
            })
        });
        Ok(Side {
            name: path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned(),
            rows: rows.collect::<Result<_, _>>()?,
            // Without it there are no charts, but all figures.
            data: path.is_dir().then(|| read_data(path).ok()).flatten(),
        })
    }
}

impl Pair {
    fn new(first: &Row, second: &Row) -> Self {
        Pair {
            experiment: first.experiment.clone(),
            case: first.case.clone(),
            metric: first.metric.clone(),
            unit: first.unit.clone(),
            first: first.measured,
            second: second.measured,
            ratio: (first.measured != 0.0).then(|| second.measured / first.measured),
            difference: second.measured - first.measured,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.case.clone(),
            self.metric.replace('_', " "),
            value(self.first, &self.unit),
            value(self.second, &self.unit),
            self.ratio_text(),
            self.difference_text(),
        ]
    }

    fn ratio_text(&self) -> String {
        self.ratio.map_or_else(|| "–".into(), short)
    }

    fn difference_text(&self) -> String {
        let sign = if self.difference < 0.0 { "−" } else { "+" };
        format!("{sign}{}", value(self.difference.abs(), &self.unit))
    }
}

/// The identity of a figure. It excludes the experiment's name: most comparisons
/// are with a copy of the experiment that has one change.
fn key(row: &Row) -> (&str, &str, &str) {
    (&row.case, &row.metric, &row.unit)
}

fn is_first(metric: &str) -> bool {
    FIRST.contains(&metric)
}
