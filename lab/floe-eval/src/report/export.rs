//! Tables and figures as files for papers and pages.

use std::path::Path;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::chart::{DARK_FROM, LIGHT};
use super::figure::Figure;
use super::figures;
use super::table::{Table, csv_field};
use super::{ReportData, tables, write};
use crate::error::EvalError;
use crate::experiment::Kind;
use crate::metrics::{write_metrics_csv, write_metrics_jsonl};
use crate::results::Row;

/// Pixels of a PNG per unit of its SVG.
const PNG_SCALE: f32 = 2.0;

/// Writes every table of a report as Markdown, CSV and LaTeX, every figure as
/// SVG and PNG, and all rows with their provenance as `results.csv`. The folder
/// `series` gets every run's series over its bins, in the formats of ZNCache's
/// and OxCache's metrics.
///
/// # Errors
/// When a file cannot be written, or there is no font to draw text with.
pub fn export(data: &ReportData, folder: &Path) -> Result<(), EvalError> {
    series(data, &folder.join("series"))?;
    write_all(
        &tables::all(data),
        &figures::all(data),
        &rows_csv(&data.rows),
        folder,
    )
}

pub(super) fn write_all(
    tables: &[Table],
    figures: &[Figure],
    rows_csv: &str,
    folder: &Path,
) -> Result<(), EvalError> {
    std::fs::create_dir_all(folder).map_err(EvalError::file("create", folder))?;
    write(&folder.join("results.csv"), rows_csv.as_bytes())?;
    for table in tables {
        for (ending, text) in [
            ("md", table.markdown()),
            ("csv", table.csv()),
            ("tex", table.latex()),
        ] {
            write(
                &folder.join(format!("{}.{ending}", table.name)),
                text.as_bytes(),
            )?;
        }
    }
    let mut drawn = Vec::new();
    for figure in figures {
        let svg = plain(&figure.svg(true));
        write(
            &folder.join(format!("{}.svg", figure.name())),
            svg.as_bytes(),
        )?;
        drawn.push((folder.join(format!("{}.png", figure.name())), svg));
    }
    if drawn.is_empty() {
        return Ok(());
    }
    let options = options()?;
    for (path, svg) in drawn {
        let png = png(&svg, &options).map_err(|reason| EvalError::Results {
            path: path.clone(),
            reason,
        })?;
        write(&path, &png)?;
    }
    Ok(())
}

/// `<case>.zncache.csv` and `<case>.oxcache.json` of every run with bins. In the
/// case's name, underscores replace all but letters, digits, dots and dashes.
fn series(data: &ReportData, folder: &Path) -> Result<(), EvalError> {
    for run in data.runs.iter().filter(|run| !run.bins.is_empty()) {
        std::fs::create_dir_all(folder).map_err(EvalError::file("create", folder))?;
        let is_plain = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
        let name: String = run
            .name
            .chars()
            .map(|c| if is_plain(c) { c } else { '_' })
            .collect();
        let (mut csv, mut json) = (Vec::new(), Vec::new());
        // Writing into memory does not fail.
        let _ = write_metrics_csv(&mut csv, &run.bins);
        let _ = write_metrics_jsonl(&mut json, run.started_unix_s, &run.bins);
        write(&folder.join(format!("{name}.zncache.csv")), &csv)?;
        write(&folder.join(format!("{name}.oxcache.json")), &json)?;
    }
    Ok(())
}

/// The figure in light colours, without variables, which many programs lack.
fn plain(svg: &str) -> String {
    let mut svg = svg.to_owned();
    // Removes the block with the colours of dark pages.
    if let Some((from, end)) = svg.find(DARK_FROM).and_then(|from| {
        let end = from + svg[from..].find("}}")? + 2;
        Some((from, end))
    }) {
        svg.replace_range(from..end, "");
    }
    for (name, colour) in LIGHT {
        svg = svg.replace(&format!("--{name}:{colour};"), "");
        svg = svg.replace(&format!("--{name}:{colour}"), "");
        svg = svg.replace(&format!("var(--{name})"), colour);
    }
    svg.replace(
        "font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;",
        "font-family:sans-serif;font-size:12px;",
    )
}

/// The options for drawing figures with the machine's fonts.
fn options() -> Result<Options<'static>, EvalError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_system_fonts();
    let families = || fonts.faces().flat_map(|face| &face.families);
    let usual = [
        "DejaVu Sans",
        "Liberation Sans",
        "Noto Sans",
        "Arial",
        "Helvetica",
    ];
    let has = |name: &&str| families().any(|(family, _)| family == name);
    let found = usual
        .iter()
        .find(|name| has(name))
        .map(|&name| name.to_owned());
    let family = found.or_else(|| families().map(|(family, _)| family.clone()).min());
    let Some(family) = family else {
        return Err(EvalError::Option {
            option: "export",
            reason: "figures as PNG need a font, and none is installed; install one, as the package fonts-dejavu-core (everything else is written)".into(),
        });
    };
    fonts.set_sans_serif_family(family.as_str());
    let mut options = Options {
        font_family: family,
        ..Options::default()
    };
    options.fontdb = std::sync::Arc::new(fonts);
    Ok(options)
}

fn png(svg: &str, options: &Options<'_>) -> Result<Vec<u8>, String> {
    let tree = Tree::from_str(svg, options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(PNG_SCALE);
    let mut pixels = size
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or("the figure has no size")?;
    let scale = Transform::from_scale(PNG_SCALE, PNG_SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

/// Every row with all of its fields.
fn rows_csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "experiment,case,metric,unit,measured,kind,paper,relative_error,verdict,known,source,commit,config_digest,seed,device,machine,date\r\n",
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for row in rows {
        let from = &row.provenance;
        let fields = [
            row.experiment.clone(),
            row.case.clone(),
            row.metric.clone(),
            row.unit.clone(),
            row.measured.to_string(),
            row.kind.map_or("", Kind::name).to_owned(),
            number(row.paper),
            number(row.relative_error),
            row.verdict.clone().unwrap_or_default(),
            row.known.clone().unwrap_or_default(),
            row.source.clone().unwrap_or_default(),
            from.commit.clone(),
            from.config_digest.clone(),
            from.seed.to_string(),
            from.device.clone(),
            from.machine.clone(),
            from.date.clone(),
        ];
        let fields: Vec<String> = fields.iter().map(|field| csv_field(field)).collect();
        text += &(fields.join(",") + "\r\n");
    }
    text
}
