//! The content of a report, before it is drawn.

use serde::{Deserialize, Serialize};

use crate::experiment::PanelKind;
use crate::replay::ReplayResult;
use crate::results::{Provenance, Row, replay_figures, run_figures};
use crate::run::RunResult;

/// The content of a report.
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
    /// Cases that have not run, if the report is of a part.
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
    /// The run's index in [`ReportData::runs`].
    pub run: usize,
    /// The settings that distinguish it.
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
    /// Named places of the horizontal axis. If empty, ticks are at round numbers.
    pub x_ticks: Vec<(f64, String)>,
    /// The horizontal axis is logarithmic, with ticks at its named places.
    #[serde(default)]
    pub x_is_log: bool,
    /// The vertical axis is logarithmic.
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
}
