//! Reports: a folder with `results.jsonl`, `report.html` (self-contained),
//! `figures/*.svg`, and `data.json`, from which the others can be made again.

mod boxes;
mod chart;
mod compare;
mod data;
mod export;
mod figure;
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

use crate::error::EvalError;
use crate::results::Row;

pub use compare::{Comparison, Pair};
pub use data::{Curve, CurveLine, Panel, PanelLine, ReportData};
pub use export::export;

impl ReportData {
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

    /// Measured figures next to their references, for a terminal: a table for each
    /// source (published, then derived, then goals), the number of each that hold,
    /// and an empty line. Empty if no figure has a reference.
    pub fn published_text(&self) -> String {
        /// Most rows of a table.
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

    /// The report as one self-contained HTML page.
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
