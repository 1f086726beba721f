//! Scales of axes and their ticks.

/// The kind of a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleKind {
    /// From zero.
    Linear,
    /// From zero to one, shown as percentages.
    Percent,
    /// Powers of ten.
    Log,
    /// Linear, but not necessarily from zero: for horizontal axes.
    Free,
}

/// Values mapped to shares of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    step: f64,
}

/// A labelled place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Scale {
    /// A scale for all of `values` that its kind can show.
    pub(crate) fn fit(values: &[f64], kind: ScaleKind) -> Self {
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match kind {
            // Small shares would otherwise be a flat line at zero.
            ScaleKind::Percent if largest > 0.0 && largest < 0.5 => {
                Scale::linear(kind, 0.0, largest, 6.0)
            }
            ScaleKind::Percent => Scale {
                kind,
                low: 0.0,
                high: 1.0,
                step: 0.2,
            },
            ScaleKind::Linear => Scale::linear(kind, 0.0, positive_or(largest, 1.0), 6.0),
            ScaleKind::Free => {
                let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
                let low = if smallest.is_finite() { smallest } else { 0.0 };
                let high = if largest > low { largest } else { low + 1.0 };
                // An axis that begins near zero begins at zero.
                let low = if low > 0.0 && low < high / 4.0 {
                    0.0
                } else {
                    low
                };
                let step = nice_step((high - low) / 8.0);
                Scale {
                    kind,
                    low,
                    high,
                    step,
                }
            }
            ScaleKind::Log => {
                let visible = values.iter().copied().filter(|value| *value > 0.0);
                let smallest = visible.fold(f64::INFINITY, f64::min);
                let high = positive_or(largest, 1.0);
                let low = if smallest.is_finite() {
                    smallest
                } else {
                    high / 10.0
                };
                let low = 10f64.powf((low.log10() + 1e-9).floor());
                let high = 10f64.powf((high.log10() - 1e-9).ceil());
                Scale {
                    kind,
                    low,
                    high: if high > low { high } else { low * 10.0 },
                    step: 10.0,
                }
            }
        }
    }

    fn linear(kind: ScaleKind, low: f64, largest: f64, count: f64) -> Self {
        let step = nice_step((largest - low) / count);
        let high = low + ((largest - low) / step - 1e-9).ceil() * step;
        Scale {
            kind,
            low,
            high,
            step,
        }
    }

    /// The position of a value: 0 at the low end, 1 at the high end.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = match self.kind {
            ScaleKind::Log => (value / self.low).log10() / (self.high / self.low).log10(),
            _ => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// True if the scale can show the value.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.kind != ScaleKind::Log || value > 0.0)
    }

    /// A value as text, with the precision of this scale.
    pub(crate) fn label(&self, value: f64) -> String {
        match self.kind {
            ScaleKind::Percent => format!("{} %", short(100.0 * value)),
            _ => short(value),
        }
    }
}

/// About `count` round places within a scale.
pub(crate) fn ticks(scale: &Scale, count: usize) -> Vec<Tick> {
    let values = match scale.kind {
        ScaleKind::Log => log_ticks(scale),
        _ => {
            let first = (scale.low / scale.step - 1e-9).ceil();
            let last = (scale.high / scale.step + 1e-9).floor();
            let many = ((last - first) as usize).min(4 * count);
            (0..=many)
                .map(|i| (first + i as f64) * scale.step)
                .collect()
        }
    };
    let tick = |value: f64| Tick {
        value,
        label: scale.label(value),
    };
    values.into_iter().map(tick).collect()
}

/// Powers of ten, with their multiples by 2 and 5 if there are few.
fn log_ticks(scale: &Scale) -> Vec<f64> {
    let decades = (scale.high / scale.low).log10().round() as i32;
    let within: &[f64] = if decades <= 2 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let every = (decades / 8 + 1) as usize;
    (0..=decades)
        .step_by(every)
        .flat_map(|decade| within.iter().map(move |m| (decade, m)))
        .map(|(decade, m)| scale.low * 10f64.powi(decade) * m)
        .filter(|value| *value <= scale.high * (1.0 + 1e-9))
        .collect()
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fitting = steps
        .into_iter()
        .find(|step| step * power >= rough * (1.0 - 1e-9));
    fitting.unwrap_or(10.0) * power
}

fn positive_or(value: f64, otherwise: f64) -> f64 {
    if value.is_finite() && value > 0.0 {
        value
    } else {
        otherwise
    }
}

/// A number with at most four significant digits and no needless zeros.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 {
            "0".into()
        } else {
            "–".into()
        };
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..9).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let decimals = (3 - magnitude).clamp(0, 8) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1234.6, "1235"),
            (0.25, "0.25"),
            (0.000_123_4, "0.0001234"),
            (1.5e12, "1.50e12"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn linear_scales_start_at_zero_and_contain_their_values() {
        for largest in [0.013, 1.0, 7.3, 99.0, 100.0, 5e9] {
            let scale = Scale::fit(&[largest / 3.0, largest], ScaleKind::Linear);
            assert_eq!(scale.share(0.0), 0.0);
            assert!(scale.high >= largest && scale.high <= largest * 2.0);
            let ticks = ticks(&scale, 6);
            assert_eq!(ticks[0].value, 0.0);
            assert!((3..=8).contains(&ticks.len()), "{largest}: {ticks:?}");
        }
        let nothing = Scale::fit(&[], ScaleKind::Linear);
        assert!(nothing.share(0.5).is_finite());
    }

    #[test]
    fn shares_are_shown_of_the_whole_or_if_all_are_small_of_less() {
        let top = |largest: f64| {
            let scale = Scale::fit(&[0.0, largest], ScaleKind::Percent);
            let last = ticks(&scale, 6).pop();
            last.map(|tick| tick.label)
        };
        assert_eq!(top(0.7).as_deref(), Some("100 %"));
        assert_eq!(top(0.0).as_deref(), Some("100 %"));
        assert_eq!(top(0.004).as_deref(), Some("0.4 %"));
    }

    #[test]
    fn log_scales_cover_whole_decades() {
        let scale = Scale::fit(&[0.03, 40.0, 0.0], ScaleKind::Log);
        assert_eq!(scale.share(0.01), 0.0);
        assert!((scale.share(100.0) - 1.0).abs() < 1e-9);
        assert!(!scale.shows(0.0));
        let labels: Vec<String> = ticks(&scale, 6).into_iter().map(|t| t.label).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100"]);
    }
}
