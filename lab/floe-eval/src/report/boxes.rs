//! Box plots as SVG. Each case has a row, because the names of cases are long.

use std::fmt::Write as _;

use super::chart::{COLOURS, LETTER, STYLE, end_of, title};
use super::scale::ScaleKind;
use super::scale::{Scale, ticks};
use super::text::escape;

/// A box plot.
#[derive(Clone, Debug)]
pub(crate) struct BoxChart {
    /// The name of its file.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The label of the horizontal axis, with its unit.
    pub(crate) label: String,
    pub(crate) is_log: bool,
    pub(crate) boxes: Vec<BoxMark>,
}

/// A box between the quartiles, with the median and whiskers.
#[derive(Clone, Debug)]
pub(crate) struct BoxMark {
    pub(crate) name: String,
    /// The number of its colour, as for lines.
    pub(crate) style: usize,
    pub(crate) low: f64,
    pub(crate) quartile1: f64,
    pub(crate) median: f64,
    pub(crate) quartile3: f64,
    pub(crate) high: f64,
}

const WIDTH: f64 = 520.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 52.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 24.0;

impl BoxChart {
    /// The chart as an SVG document, or as an element of an HTML page.
    pub(crate) fn svg(&self, is_document: bool) -> String {
        let letters = self.boxes.iter().map(|b| end_of(&b.name).chars().count());
        let left = 18.0 + LETTER * letters.max().unwrap_or(0) as f64;
        let bottom = TOP + ROW * self.boxes.len() as f64 + 6.0;
        let height = bottom + BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fl\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title.replace('\n', ", "))
        );
        if is_document {
            let _ = write!(
                svg,
                "<style>{STYLE}</style><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"var(--back)\"/>"
            );
        }
        svg += &title(&self.title, 12.0);
        let scale = self.scale();
        let place = |value: f64| left + scale.share(value) * (WIDTH - left - RIGHT);
        for tick in ticks(&scale, 6) {
            let x = place(tick.value);
            let _ = write!(
                svg,
                "<path class=\"g\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/><text class=\"a\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                tick.label
            );
        }
        for (row, mark) in self.boxes.iter().enumerate() {
            let y = TOP + ROW * (row as f64 + 0.5) + 3.0;
            mark.draw(y, left, &place, &scale, &mut svg);
        }
        let log = if self.is_log { ", log scale" } else { "" };
        let _ = write!(
            svg,
            "<text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}{log}</text></svg>",
            (left + WIDTH - RIGHT) / 2.0,
            bottom + 38.0,
            escape(&self.label)
        );
        svg
    }

    fn scale(&self) -> Scale {
        let ends = self.boxes.iter().flat_map(|mark| [mark.low, mark.high]);
        let kind = if self.is_log {
            ScaleKind::Log
        } else {
            ScaleKind::Linear
        };
        Scale::fit(&ends.collect::<Vec<f64>>(), kind)
    }
}

impl BoxMark {
    fn draw(&self, y: f64, left: f64, place: &dyn Fn(f64) -> f64, scale: &Scale, svg: &mut String) {
        let colour = self.style % COLOURS;
        let values = [
            self.low,
            self.quartile1,
            self.median,
            self.quartile3,
            self.high,
        ];
        let [low, quartile1, median, quartile3, high] = values.map(place);
        let percentiles: Vec<String> = ["p1", "p25", "p50", "p75", "p99"]
            .iter()
            .zip(values)
            .map(|(name, value)| format!("{name}: {}", scale.label(value)))
            .collect();
        let _ = write!(
            svg,
            "<text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <g class=\"line\" data-line=\"{}\"><title>{}\n{}</title>\
             <path stroke=\"var(--c{colour})\" d=\"M{low:.1} {y:.1}H{quartile1:.1}M{quartile3:.1} {y:.1}H{high:.1}\
             M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>\
             <rect x=\"{quartile1:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"var(--c{colour})\" fill-opacity=\"0.25\" stroke=\"var(--c{colour})\" stroke-width=\"1.5\"/>\
             <path stroke=\"var(--c{colour})\" d=\"M{median:.1} {:.1}v14\"/></g>",
            left - 8.0,
            y + 4.0,
            escape(&end_of(&self.name)),
            self.style,
            escape(&self.name),
            percentiles.join("\n"),
            y - 4.0,
            y - 4.0,
            y - 7.0,
            (quartile3 - quartile1).max(1.0),
            y - 7.0,
        );
    }
}
