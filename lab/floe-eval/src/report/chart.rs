//! Line charts as SVG. The markup of a chart is self-contained, so a figure looks
//! the same in a report and as a file. Must not depend on: the source of numbers.

use std::fmt::Write as _;

use super::scale::{Scale, ScaleKind, Tick, ticks};
use super::text::escape;

/// A line of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The number of its colour and dashes. A name has one number in all charts.
    pub(crate) style: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Its label, with the unit.
    pub(crate) label: String,
    pub(crate) scale: ScaleKind,
    /// Positions and labels of the ticks, if not at round numbers.
    pub(crate) named_ticks: Vec<(f64, String)>,
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>, scale: ScaleKind) -> Self {
        Axis {
            label: label.into(),
            scale,
            named_ticks: Vec::new(),
        }
    }

    /// True if places are names without an order, so that a line between two
    /// would be meaningless. A size or a count begins with a digit.
    fn is_nominal(&self) -> bool {
        let mut names = self.named_ticks.iter();
        names.any(|(_, name)| !name.starts_with(|first: char| first.is_ascii_digit()))
    }

    fn ticks(&self, scale: &Scale, count: usize) -> Vec<Tick> {
        if self.named_ticks.is_empty() {
            return ticks(scale, count);
        }
        let named = self.named_ticks.iter().map(|(value, label)| Tick {
            value: *value,
            label: label.clone(),
        });
        named.collect()
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The name of its file.
    pub(crate) name: String,
    /// The title. A second line names the subject.
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 318.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 52.0;
/// Width of a label's letter in the widest of the usual fonts.
pub(crate) const LETTER: f64 = 7.3;
/// Mean width of a letter over a name.
const LETTER_MEAN: f64 = 6.4;
/// Longest name under an axis. Longer ones show only their end, which
/// distinguishes cases.
const NAME_MAX: usize = 30;
/// Rotation of names that would overlap, in degrees.
const TURNED: f64 = 38.0;
/// Most points of a line with markers. More markers would hide the line.
const MARKERS_MAX: usize = 40;

/// Colours that also differ in lightness, for light and dark pages.
pub(crate) const STYLE: &str = "\
.fl{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;\
--ink:#1c2430;--faint:#5b6675;--grid:#e3e7ec;--back:#ffffff;\
--c0:#1f6fd6;--c1:#d9631e;--c2:#188a5b;--c3:#a23db5;--c4:#c22f44;--c5:#7d6a12;--c6:#0f8b99;--c7:#6d5ae0}\
@media(prefers-color-scheme:dark){.fl{--ink:#e8ecf2;--faint:#9aa6b6;--grid:#2c3542;--back:#161c25;\
--c0:#6aa8ff;--c1:#ff9a5c;--c2:#4fd19a;--c3:#e08bf0;--c4:#ff7f8f;--c5:#d8c15c;--c6:#53d3df;--c7:#aa9dff}}\
.fl text{fill:var(--faint)}.fl .t{fill:var(--ink);font-size:14px;font-weight:600}\
.fl .a{fill:var(--faint)}.fl .g{stroke:var(--grid);stroke-width:1}\
.fl .b{stroke:var(--faint);stroke-width:1}\
.fl path{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.fl path.g,.fl path.b{stroke-width:1}\
.fl circle{stroke:var(--back);stroke-width:1}.fl circle.m{stroke:none}";

/// The start of the colours of dark pages in the style.
pub(crate) const DARK_FROM: &str = "@media(prefers-color-scheme:dark){";

/// The style's colours for light pages.
pub(crate) const LIGHT: [(&str, &str); 12] = [
    ("ink", "#1c2430"),
    ("faint", "#5b6675"),
    ("grid", "#e3e7ec"),
    ("back", "#ffffff"),
    ("c0", "#1f6fd6"),
    ("c1", "#d9631e"),
    ("c2", "#188a5b"),
    ("c3", "#a23db5"),
    ("c4", "#c22f44"),
    ("c5", "#7d6a12"),
    ("c6", "#0f8b99"),
    ("c7", "#6d5ae0"),
];

/// Number of colours. Further lines repeat them with dashes.
pub(crate) const COLOURS: usize = 8;

impl Chart {
    /// True if it has nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// The chart as an SVG document, or as an element of an HTML page.
    pub(crate) fn svg(&self, is_document: bool) -> String {
        let legend_rows = if is_document {
            self.legend_rows()
        } else {
            Vec::new()
        };
        let plot = Plot::new(self);
        let height = plot.height + 20.0 * legend_rows.len() as f64;
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fl\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title.replace('\n', ", "))
        );
        if is_document {
            let _ = write!(svg, "<style>{STYLE}</style>");
            let _ = write!(
                svg,
                "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"var(--back)\"/>"
            );
        }
        let _ = write!(svg, "{}", title(&self.title, LEFT));
        plot.axes(self, &mut svg);
        for line in &self.lines {
            plot.line(line, self, &mut svg);
        }
        for (row, lines) in legend_rows.iter().enumerate() {
            legend(lines, plot.height + 20.0 * row as f64, &mut svg);
        }
        svg.push_str("</svg>");
        svg
    }

    /// Legend entries that fit next to each other under a figure.
    fn legend_rows(&self) -> Vec<Vec<&Line>> {
        let mut rows: Vec<Vec<&Line>> = Vec::new();
        let mut x = f64::INFINITY;
        for line in self.lines.iter().filter(|line| !line.points.is_empty()) {
            let width = legend_width(line);
            if x + width > WIDTH - RIGHT {
                rows.push(Vec::new());
                x = LEFT;
            }
            if let Some(row) = rows.last_mut() {
                row.push(line);
            }
            x += width;
        }
        rows
    }
}

/// A title and, below it, its subject.
pub(crate) fn title(text: &str, x: f64) -> String {
    let (title, of) = text.split_once('\n').unwrap_or((text, ""));
    let mut svg = format!(
        "<text class=\"t\" x=\"{x}\" y=\"18\">{}</text>",
        escape(title)
    );
    if !of.is_empty() {
        let _ = write!(
            svg,
            "<text class=\"a\" x=\"{x}\" y=\"36\">{}</text>",
            escape(of)
        );
    }
    svg
}

/// The style that reports need once for all of their charts.
pub(crate) fn style() -> &'static str {
    STYLE
}

/// The dashes of a line: none for the first round of colours.
pub(crate) fn dashes(style: usize) -> &'static str {
    match style / COLOURS % 4 {
        0 => "",
        1 => "7 4",
        2 => "2 4",
        _ => "10 3 2 3",
    }
}

fn legend_width(line: &Line) -> f64 {
    44.0 + LETTER * line.name.chars().count() as f64
}

fn legend(lines: &[&Line], y: f64, svg: &mut String) {
    let mut x = LEFT;
    for line in lines {
        let colour = line.style % COLOURS;
        let _ = write!(
            svg,
            "<path d=\"M{x:.1} {y:.1}h20\" stroke=\"var(--c{colour})\" stroke-dasharray=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            dashes(line.style),
            x + 26.0,
            y + 4.0,
            escape(&line.name)
        );
        x += legend_width(line);
    }
}

/// The two scales of a chart and the drawing with them.
struct Plot {
    x: Scale,
    y: Scale,
    /// The vertical axis's position.
    left: f64,
    /// The height of the chart without its legend.
    height: f64,
    /// Names under the axis are rotated, because they would overlap.
    turns_names: bool,
}

impl Plot {
    fn new(chart: &Chart) -> Self {
        let values = |pick: fn(&(f64, f64)) -> f64| {
            let points = chart.lines.iter().flat_map(|line| &line.points);
            points
                .map(pick)
                .filter(|value| value.is_finite())
                .collect::<Vec<f64>>()
        };
        // Names without values are shown, too.
        let mut across = values(|point| point.0);
        across.extend(chart.x.named_ticks.iter().map(|(place, _)| place));
        let mut plot = Plot {
            x: Scale::fit(&across, chart.x.scale),
            y: Scale::fit(&values(|point| point.1), chart.y.scale),
            left: LEFT,
            height: HEIGHT,
            turns_names: false,
        };
        plot.make_room(chart);
        plot
    }

    /// Makes room for rotated names, which extend down and to the left.
    fn make_room(&mut self, chart: &Chart) {
        let ticks = chart.x.ticks(&self.x, 8);
        let (widest, closest) = self.spread(&ticks);
        if chart.x.named_ticks.is_empty() || widest <= closest {
            return;
        }
        self.turns_names = true;
        let length = |tick: &Tick| LETTER_MEAN * end_of(&tick.label).chars().count() as f64;
        let longest = ticks.iter().map(length).fold(0.0, f64::max);
        let (down, across) = TURNED.to_radians().sin_cos();
        self.height = self
            .height
            .max(HEIGHT - BOTTOM + 18.0 + longest * down + 30.0);
        let beyond = |tick: &Tick| {
            let share = self.x.share(tick.value);
            // The position where it would begin with the axis at zero.
            (length(tick) * across + 4.0 - share * (WIDTH - RIGHT)) / (1.0 - share).max(0.1)
        };
        self.left = ticks
            .iter()
            .map(beyond)
            .fold(LEFT, f64::max)
            .min(WIDTH / 2.0);
    }

    /// The width of the widest label, and the least distance of two places.
    fn spread(&self, ticks: &[Tick]) -> (f64, f64) {
        let width = |tick: &Tick| LETTER * tick.label.chars().count() as f64 + 6.0;
        let widest = ticks.iter().map(width).fold(0.0, f64::max);
        let places: Vec<f64> = ticks.iter().map(|tick| self.px(tick.value)).collect();
        let closest = places.windows(2).map(|two| two[1] - two[0]);
        (widest, closest.fold(f64::INFINITY, f64::min))
    }

    fn px(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (WIDTH - self.left - RIGHT)
    }

    /// A position on the page, whose vertical axis points down; a chart's points up.
    fn py(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, chart: &Chart, svg: &mut String) {
        let (left, right, bottom) = (self.left, WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in chart.y.ticks(&self.y, 6) {
            let y = self.py(tick.value);
            let _ = write!(
                svg,
                "<path class=\"g\" d=\"M{left:.1} {y:.1}H{right}\"/><text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                tick.label
            );
        }
        self.x_ticks(chart, bottom, svg);
        let _ = write!(svg, "<path class=\"b\" d=\"M{left:.1} {bottom}H{right}\"/>");
        let _ = write!(
            svg,
            "<text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            self.height - 14.0,
            escape(&axis_label(&chart.x))
        );
        let _ = write!(
            svg,
            "<text class=\"a\" transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            left - LEFT + 16.0,
            (TOP + bottom) / 2.0,
            escape(&axis_label(&chart.y))
        );
    }

    /// Leaves out every other label if labels would overlap. Names are rotated
    /// instead, because all are needed.
    fn x_ticks(&self, chart: &Chart, bottom: f64, svg: &mut String) {
        let ticks = chart.x.ticks(&self.x, 8);
        let (widest, closest) = self.spread(&ticks);
        let every = match widest > closest && chart.x.named_ticks.is_empty() {
            true => (widest / closest.max(1.0)).ceil() as usize,
            false => 1,
        };
        for (number, tick) in ticks.iter().enumerate() {
            let x = self.px(tick.value);
            let _ = write!(svg, "<path class=\"b\" d=\"M{x:.1} {bottom}v5\"/>");
            if number % every > 0 {
                continue;
            }
            let y = bottom + 18.0;
            let turned = match self.turns_names {
                true => {
                    format!("transform=\"rotate(-{TURNED} {x:.1} {y:.1})\" text-anchor=\"end\"")
                }
                false => "text-anchor=\"middle\"".to_owned(),
            };
            let _ = write!(
                svg,
                "<text class=\"a\" x=\"{x:.1}\" y=\"{y:.1}\" {turned}><title>{}</title>{}</text>",
                escape(&tick.label),
                escape(&end_of(&tick.label))
            );
        }
    }

    fn line(&self, line: &Line, chart: &Chart, svg: &mut String) {
        let points: Vec<&(f64, f64)> = line
            .points
            .iter()
            .filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
            .collect();
        let colour = line.style % COLOURS;
        let _ = write!(
            svg,
            "<g class=\"line\" data-line=\"{}\"><path stroke=\"var(--c{colour})\" stroke-dasharray=\"{}\" d=\"",
            line.style,
            dashes(line.style)
        );
        let is_joined = !chart.x.is_nominal();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index > 0 && is_joined { 'L' } else { 'M' };
            let _ = write!(svg, "{command}{:.1} {:.1}", self.px(*x), self.py(*y));
        }
        svg.push_str("\"/>");
        let (radius, class) = match points.len() > MARKERS_MAX {
            true => (1.2, " class=\"m\""),
            false => (3.4, ""),
        };
        for (x, y) in points {
            let _ = write!(
                svg,
                "<circle{class} cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"var(--c{colour})\"><title>{}\n{}: {}\n{}: {}</title></circle>",
                self.px(*x),
                self.py(*y),
                escape(&line.name),
                escape(&chart.x.label),
                self.x.label(*x),
                escape(&chart.y.label),
                self.y.label(*y)
            );
        }
        svg.push_str("</g>");
    }
}

/// The end of a name, which distinguishes cases, so that the figure has room.
pub(crate) fn end_of(name: &str) -> String {
    let letters = name.chars().count();
    match letters > NAME_MAX {
        true => {
            let rest: String = name.chars().skip(letters + 1 - NAME_MAX).collect();
            format!("…{rest}")
        }
        false => name.to_owned(),
    }
}

fn axis_label(axis: &Axis) -> String {
    match axis.scale {
        ScaleKind::Log => format!("{}, log scale", axis.label),
        _ => axis.label.clone(),
    }
}
