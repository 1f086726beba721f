//! Figures of others, and how ours compare with them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A figure of others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// The case it is compared with.
    pub case: String,
    /// Compare the case's figure divided by this case's, rather than the figure
    /// itself.
    pub relative_to: Option<String>,
    /// The metric.
    pub metric: String,
    /// The value they found.
    pub value: f64,
    /// The unit of `value`; by default the metric's.
    pub unit: Option<String>,
    /// Where it is written.
    pub source: String,
    /// What is expected of ours.
    #[serde(default)]
    pub expect: Expectation,
    /// How far ours may be off, as a share of theirs.
    #[serde(default)]
    pub tolerance: f64,
    /// How far ours may be off, in the unit of `value`; the greater of both
    /// counts.
    #[serde(default)]
    pub margin: f64,
}

/// Figures of others, written as their table is: a row per case, a column per
/// metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedTable {
    /// Where it is written.
    pub source: String,
    /// The metric of each column.
    pub metrics: Vec<String>,
    /// The unit of all values; by default the metrics'.
    pub unit: Option<String>,
    /// The case of a row, with `{}` in place of the row's name; by default the
    /// row's name is the case's.
    pub case: Option<String>,
    /// As for [`Published::relative_to`], with `{}` as in `case`.
    pub relative_to: Option<String>,
    /// What is expected of ours.
    #[serde(default)]
    pub expect: Expectation,
    /// As for [`Published::tolerance`].
    #[serde(default)]
    pub tolerance: f64,
    /// As for [`Published::margin`].
    #[serde(default)]
    pub margin: f64,
    /// The rows by name, with a value for each metric; `nan` where there is none.
    pub rows: BTreeMap<String, Vec<f64>>,
}

impl PublishedTable {
    /// The table's figures, one by one.
    ///
    /// # Errors
    /// When a row has not as many values as there are metrics.
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

/// What is expected in comparison with a published figure.
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
    /// Nothing: other hardware, shown for orientation.
    Context,
}

impl Published {
    /// How many of the metric's `unit` one of the published value's is.
    ///
    /// # Errors
    /// When there is no way from one to the other.
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
                "{}: `{from}` is no unit for {}, whose unit is `{unit}`",
                self.source, self.metric
            )),
        }
    }

    /// How far `measured` is off, as a share of the published value; both in
    /// the published value's unit. None where that value is zero.
    pub fn relative_error(&self, measured: f64) -> Option<f64> {
        (self.value != 0.0).then(|| (measured - self.value) / self.value.abs())
    }

    /// How `measured`, in the published value's unit, compares.
    pub fn verdict(&self, measured: f64) -> String {
        let off = measured - self.value;
        // What is written in decimals must not fail for its last bit.
        let slack = 1e-12 * self.value.abs().max(1.0);
        let allowed = (self.tolerance * self.value.abs()).max(self.margin) + slack;
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

/// What a unit measures, and how much of it one is.
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
