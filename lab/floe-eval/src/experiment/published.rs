//! Figures that results are compared with: published, derived from published
//! ones, or goals of this project.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tolerance::{self, Tolerance};

/// A figure that a measured one is compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// The author of the value: a publication, arithmetic on one, or this project.
    pub kind: Kind,
    /// The case that it is compared with.
    pub case: String,
    /// If set, the case's figure is divided by this case's before the
    /// comparison.
    pub relative_to: Option<String>,
    /// The metric.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// The unit of `value`; by default the metric's.
    pub unit: Option<String>,
    /// The place of the value in the publication, the arithmetic that gives it, or the
    /// name of the goal.
    pub source: String,
    /// The expectation of the measured value.
    #[serde(default)]
    pub expect: Expectation,
    /// Goals only: tolerance of the measured value, as a share of `value`.
    /// Published and derived values have the tolerance of their metric, see
    /// [`Tolerance`].
    pub tolerance: Option<f64>,
    /// Goals only: tolerance in the unit of `value`. The greater of both
    /// counts.
    pub margin: Option<f64>,
}

/// The author of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A publication prints this number; `source` names the table, figure, section or
    /// appendix.
    Published,
    /// Arithmetic on published numbers; `source` says which.
    Derived,
    /// A goal of this project.
    Goal,
}

floe_core::names! {
    Kind {
        Published => "published",
        Derived => "derived",
        Goal => "goal",
    }
}

/// A table of figures: a row per case, a column per metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedTable {
    /// See [`Published::kind`].
    pub kind: Kind,
    /// See [`Published::source`].
    pub source: String,
    /// The metric of each column.
    pub metrics: Vec<String>,
    /// The unit of all values; by default the metrics'.
    pub unit: Option<String>,
    /// The case of a row, with `{}` for the row's name. Default: the row's
    /// name.
    pub case: Option<String>,
    /// See [`Published::relative_to`], with `{}` as in `case`.
    pub relative_to: Option<String>,
    /// See [`Published::expect`].
    #[serde(default)]
    pub expect: Expectation,
    /// See [`Published::tolerance`].
    pub tolerance: Option<f64>,
    /// See [`Published::margin`].
    pub margin: Option<f64>,
    /// The rows by name, with a value per metric; `nan` for none.
    pub rows: BTreeMap<String, Vec<f64>>,
}

impl PublishedTable {
    /// The table's figures, one by one.
    ///
    /// # Errors
    /// If a row's number of values differs from that of the metrics.
    pub fn figures(&self) -> Result<Vec<Published>, String> {
        let place = |template: &str, name: &str| template.replace("{}", name);
        let mut figures = Vec::new();
        for (name, values) in &self.rows {
            if values.len() != self.metrics.len() {
                return Err(format!(
                    "{}: row `{name}` has {} values for {} metrics",
                    self.source,
                    values.len(),
                    self.metrics.len()
                ));
            }
            let known = self.metrics.iter().zip(values).filter(|(_, v)| !v.is_nan());
            figures.extend(known.map(|(metric, value)| Published {
                kind: self.kind,
                case: place(self.case.as_deref().unwrap_or("{}"), name),
                relative_to: self.relative_to.as_deref().map(|t| place(t, name)),
                metric: metric.clone(),
                value: *value,
                unit: self.unit.clone(),
                source: self.source.clone(),
                expect: self.expect,
                tolerance: self.tolerance,
                margin: self.margin,
            }));
        }
        Ok(figures)
    }
}

/// The expected relation of a measured value to a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// The same, within the tolerance.
    #[default]
    Equal,
    /// At most as much.
    AtMost,
    /// At least as much.
    AtLeast,
    /// None: the value is only shown. Allowed for derived values only, because
    /// published ones must be judged.
    Context,
}

impl Published {
    /// The rules that hold for every experiment file.
    ///
    /// # Errors
    /// When the figure has a tolerance of its own and is no goal, when it is not
    /// judged and is not derived, or when its metric has no tolerance.
    pub fn check(&self) -> Result<(), String> {
        let fail = |reason: &str| Err(format!("{}: {}: {reason}", self.source, self.metric));
        let is_goal = self.kind == Kind::Goal;
        if !is_goal && (self.tolerance.is_some() || self.margin.is_some()) {
            return fail("only goals have a tolerance of their own; others have their metric's");
        }
        if self.expect == Expectation::Context && self.kind != Kind::Derived {
            return fail("only derived values may be shown without a verdict");
        }
        if !is_goal && self.expect == Expectation::Equal && tolerance::of(&self.metric).is_none() {
            return fail("there is no tolerance for this metric (experiment/tolerance.rs)");
        }
        Ok(())
    }

    /// True if `source` has the form that the kind demands: a published value names a
    /// table, a figure, a section, an appendix, an equation or a file of a commit; a
    /// derived one names such a place and the arithmetic.
    pub fn has_place(&self) -> bool {
        let arithmetic = ['÷', '×', '−', '+', '='];
        match self.kind {
            Kind::Published => {
                let is_read_off =
                    !self.source.contains("Figure") || self.source.contains("read off");
                names_place(&self.source) && is_read_off && !self.source.contains(arithmetic)
            }
            Kind::Derived => names_place(&self.source) && self.source.contains(arithmetic),
            Kind::Goal => !self.source.trim().is_empty(),
        }
    }

    /// Tolerance of the measured value, in the unit of `value`.
    pub fn allowed(&self) -> f64 {
        let of_metric = match (self.kind, self.expect) {
            (Kind::Goal, _) | (_, Expectation::AtMost | Expectation::AtLeast) => None,
            _ => tolerance::of(&self.metric),
        };
        let Tolerance { share, margin, .. } = of_metric.copied().unwrap_or(Tolerance::NONE);
        let share = self.tolerance.unwrap_or(share);
        (share * self.value.abs()).max(self.margin.unwrap_or(margin))
    }

    /// True if any value that the metric can have would fail.
    pub fn can_differ(&self) -> bool {
        let allowed = self.allowed();
        let (least, most) = match self.relative_to {
            Some(_) => (0.0, f64::INFINITY),
            None => tolerance::range(&self.metric),
        };
        let rejects_low = least < self.value - allowed;
        let rejects_high = self.value + allowed < most;
        match self.expect {
            Expectation::Equal => rejects_low || rejects_high,
            Expectation::AtMost => rejects_high,
            Expectation::AtLeast => rejects_low,
            Expectation::Context => true,
        }
    }

    /// The factor from the published value's unit to the metric's `unit`.
    ///
    /// # Errors
    /// If the units do not convert.
    pub fn factor(&self, unit: &str) -> Result<f64, String> {
        let Some(from) = &self.unit else {
            return Ok(1.0);
        };
        match (scale(from), scale(unit)) {
            _ if from == unit => Ok(1.0),
            (Some((kind, of_from)), Some((other, of_unit))) if kind == other => {
                Ok(of_from / of_unit)
            }
            _ => Err(format!(
                "{}: `{from}` is not a unit for {}, whose unit is `{unit}`",
                self.source, self.metric
            )),
        }
    }

    /// The deviation of `measured`, as a share of the published value, both in
    /// the published value's unit. `None` if that value is zero.
    pub fn relative_error(&self, measured: f64) -> Option<f64> {
        (self.value != 0.0).then(|| (measured - self.value) / self.value.abs())
    }

    /// The verdict on `measured`, which is in the published value's unit.
    pub fn verdict(&self, measured: f64) -> String {
        let off = measured - self.value;
        // A decimal value must not fail because of its last bit.
        let slack = 1e-12 * self.value.abs().max(1.0);
        let allowed = self.allowed() + slack;
        let holds = match self.expect {
            Expectation::Equal => off.abs() <= allowed,
            Expectation::AtMost => off <= allowed,
            Expectation::AtLeast => -off <= allowed,
            Expectation::Context => return "for orientation".into(),
        };
        let off = match self.relative_error(measured) {
            Some(share) => format!("{:+.2} %", 100.0 * share),
            None => format!("{off:+.3}"),
        };
        match (holds, measured == self.value) {
            (true, true) => "equal".into(),
            (true, false) => format!("holds ({off})"),
            (false, _) => format!("DIFFERS ({off})"),
        }
    }
}

/// True if a text names a place: "Table 5", "Figure 12a", "§4.2.2", "Appendix A",
/// "Eq. 6", or a file at a commit ("libCacheSim aa0fc40, test_evictionAlgo.c").
fn names_place(source: &str) -> bool {
    let numbered = |word: &str| {
        source.match_indices(word).any(|(at, _)| {
            let rest = source[at + word.len()..].trim_start_matches(['s', ' ']);
            rest.starts_with(|first: char| first.is_ascii_digit() || first.is_ascii_uppercase())
        })
    };
    ["Table", "Figure", "§", "Appendix", "Eq.", "footnote"]
        .into_iter()
        .any(numbered)
        || source.split_once(", ").is_some_and(|(repository, file)| {
            let commit = repository.rsplit(' ').next().unwrap_or_default();
            let is_commit = commit.len() >= 7 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            is_commit && file.contains('.')
        })
}

/// The quantity of a unit, and its factor.
fn scale(unit: &str) -> Option<(&'static str, f64)> {
    const KIB: f64 = 1024.0;
    Some(match unit {
        "us" => ("time", 1e-6),
        "ms" => ("time", 1e-3),
        "s" => ("time", 1.0),
        "B/s" => ("rate", 1.0),
        "KiB/s" => ("rate", KIB),
        "MiB/s" => ("rate", KIB * KIB),
        "GiB/s" => ("rate", KIB * KIB * KIB),
        "B" => ("bytes", 1.0),
        "KiB" => ("bytes", KIB),
        "MiB" => ("bytes", KIB * KIB),
        "GiB" => ("bytes", KIB * KIB * KIB),
        "TiB" => ("bytes", KIB * KIB * KIB * KIB),
        "ratio" => ("share", 1.0),
        "%" => ("share", 0.01),
        _ => return None,
    })
}
