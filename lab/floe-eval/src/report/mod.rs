//! Reports: a folder with `results.jsonl`, `report.html` (self-contained),
//! `figures/*.svg`, and `data.json`, from which the others can be made again.

mod boxes;
mod chart;
mod compare;
mod export;
mod figures;
mod html;
mod panels;
mod scale;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod verdicts;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::experiment::PanelKind;
use crate::replay::ReplayResult;
use crate::results::{Provenance, Row, replay_figures, run_figures};
use crate::run::RunResult;

pub use compare::{Comparison, Pair};
pub use export::export;

/// Everything that a report shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReportData {
    /// The experiment's name, a part of file names.
    pub name: String,
    /// Its title.
    pub title: String,
    /// A description in a few sentences.
    pub about: String,
    /// The configuration, as text.
    pub config: String,
    /// The provenance of the figures.
    pub provenance: Provenance,
    /// Runs, one per case.
    pub runs: Vec<RunResult>,
    /// Replays against pure policies.
    pub replays: Vec<ReplayResult>,
    /// Charts of figures over cases.
    pub curves: Vec<Curve>,
    /// Charts of groups of runs.
    #[serde(default)]
    pub panels: Vec<Panel>,
    /// Every figure.
    pub rows: Vec<Row>,
    /// Cases that have not run, where the report is of a part.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// A chart of one series of some of the runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// The kind of chart.
    pub kind: PanelKind,
    /// One of the nine series.
    pub series: String,
    /// The settings that the runs have in common.
    pub group: String,
    /// The runs.
    pub lines: Vec<PanelLine>,
}

/// A line or box of a panel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PanelLine {
    /// The run's place in [`ReportData::runs`].
    pub run: usize,
    /// The settings that tell it apart.
    pub name: String,
}

/// A chart of one metric over the cases of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// Its title.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x_label: String,
    /// The label of the vertical axis, with its unit.
    pub y_label: String,
    /// Places of the horizontal axis with names of their own; none for round
    /// numbers.
    pub x_ticks: Vec<(f64, String)>,
    /// Whether the vertical axis is logarithmic.
    pub y_is_log: bool,
    /// The lines.
    pub lines: Vec<CurveLine>,
}

/// A line of a curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CurveLine {
    /// The name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl ReportData {
    /// A report of runs and replays outside of an experiment, with a row for
    /// every figure.
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        config: impl Into<String>,
        provenance: Provenance,
        runs: Vec<RunResult>,
        replays: Vec<ReplayResult>,
    ) -> Self {
        let mut data = ReportData {
            name: name.into(),
            title: title.into(),
            about: String::new(),
            config: config.into(),
            provenance,
            runs,
            replays,
            curves: Vec::new(),
            panels: Vec::new(),
            rows: Vec::new(),
            missing: Vec::new(),
        };
        data.rows = data.all_rows();
        data
    }

    fn all_rows(&self) -> Vec<Row> {
        let row = |case: &str, figure| Row::new(&self.name, case, figure, self.provenance.clone());
        let of_runs = self
            .runs
            .iter()
            .flat_map(|run| run_figures(run).into_iter().map(|f| row(&run.name, f)));
        let of_replays = self
            .replays
            .iter()
            .flat_map(|replay| replay_figures(replay).into_iter().map(|(c, f)| row(&c, f)));
        of_runs.chain(of_replays).collect()
    }

    /// Writes the whole folder; returns the path of `report.html`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, EvalError> {
        let figures = folder.join("figures");
        std::fs::create_dir_all(&figures).map_err(EvalError::file("create", &figures))?;
        self.write_rows(&folder.join("results.jsonl"))?;
        let json = serde_json::to_vec(self).map_err(|error| EvalError::Results {
            path: folder.join("data.json"),
            reason: error.to_string(),
        })?;
        write(&folder.join("data.json"), &json)?;
        for figure in figures::all(self) {
            let path = figures.join(format!("{}.svg", figure.name()));
            write(&path, figure.svg(true).as_bytes())?;
        }
        let page = folder.join("report.html");
        write(&page, self.html().as_bytes())?;
        Ok(page)
    }

    /// Measured figures beside those that judge them, for a terminal: a table for
    /// each source, published ones first, then derived ones, then goals, how many of
    /// each hold, and an empty line. Empty where nothing is judged.
    pub fn published_text(&self) -> String {
        /// Rows of a table that one can still look through.
        const ROWS_MAX: usize = 60;
        let tables = verdicts::tables(&self.rows);
        if tables.is_empty() {
            return String::new();
        }
        let tables = tables.iter().map(|table| table.plain(ROWS_MAX) + "\n");
        format!(
            "{}{}\n\n",
            tables.collect::<String>(),
            verdicts::judgement(&self.rows)
        )
    }

    /// Unexpected verdicts, a line each: rows that differ and are not listed as
    /// known to, and rows that are listed and hold.
    pub fn surprises(&self) -> Vec<String> {
        verdicts::surprises(&self.rows)
    }

    /// The figures that are judged.
    pub fn published_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.paper.is_some())
    }

    /// The report as one HTML page that refers to nothing outside of itself.
    pub fn html(&self) -> String {
        html::page(self)
    }

    fn write_rows(&self, path: &Path) -> Result<(), EvalError> {
        let mut lines = Vec::new();
        for row in &self.rows {
            let written = serde_json::to_writer(&mut lines, row);
            written.map_err(|error| EvalError::Results {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
            // Writing to memory does not fail.
            let _ = writeln!(lines);
        }
        write(path, &lines)
    }
}

/// Makes `report.html` and the figures of a results folder again, from its
/// `data.json`; returns the path of the page.
///
/// # Errors
/// When the folder holds no results that can be read, or cannot be written.
pub fn report(folder: &Path) -> Result<PathBuf, EvalError> {
    read_data(folder)?.write(folder)
}

/// Reads a results folder.
///
/// # Errors
/// When the folder holds no results that can be read.
pub fn read_data(folder: &Path) -> Result<ReportData, EvalError> {
    let path = folder.join("data.json");
    let json = std::fs::read(&path).map_err(EvalError::file("read", &path))?;
    serde_json::from_slice(&json).map_err(|error| EvalError::Results {
        path,
        reason: format!("{error}; it is not of this version, run the experiment again"),
    })
}

fn write(path: &Path, content: &[u8]) -> Result<(), EvalError> {
    std::fs::write(path, content).map_err(EvalError::file("write", path))
}
