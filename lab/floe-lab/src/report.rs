//! `floe report`: renders one set of results, compares two, or merges shards.

use std::path::{Path, PathBuf};

use floe_cli::failure::Failure;
use floe_cli::output;
use floe_eval::experiment;
use floe_eval::report::{Comparison, ReportData, export, read_data};

use crate::args::ReportArgs;
use crate::outcome::{explain, judge};

/// `floe report`.
pub(crate) fn run(args: &ReportArgs, json: bool) -> Result<(), Failure> {
    let told = match &args.folders[..] {
        [folder] => again(folder, args)?,
        folders if experiment::are_pieces(folders) => merge(folders, args)?,
        [first, second] => compare(first, second, args)?,
        _ => {
            return Err(Failure::usage(
                "these folders are neither the shards of one experiment nor two sets to compare",
            )
            .cure("name two folders, or what `floe bench --shard` made of one file"));
        }
    };
    let page = &told.page;
    let differing = told.differing;
    let missing = told.data.as_ref().map_or(&[][..], |data| &data.missing);
    match json {
        true => output::print_json(&serde_json::json!({ "report": page, "missing": missing }))?,
        false => output::print(&format!(
            "{}{}{}\n",
            told.text,
            not_run(missing),
            page.display()
        ))?,
    }
    if !differing.is_empty() {
        return Err(Failure::verdict(format!(
            "{} counts differ\n  {}",
            differing.len(),
            differing.join("\n  ")
        )));
    }
    match told.data {
        Some(_) if args.same.is_some() => {
            Err(Failure::usage("--same compares two sets of results")
                .cure("name two folders that are no shards of one experiment"))
        }
        Some(data) if args.verdicts => judge(&data),
        None if args.verdicts => Err(Failure::usage("a comparison has no verdicts")
            .cure("name one folder of results, or the shards of one experiment")),
        _ => Ok(()),
    }
}

/// Cases that a text names.
const NAMED: usize = 20;

/// Says which cases are missing, by a line each.
fn not_run(missing: &[String]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let named = missing.iter().take(NAMED).map(|case| format!("  {case}\n"));
    let rest = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    let named: String = named.collect();
    format!(
        "not run, so not in the report: {} of its cases\n{named}{rest}",
        missing.len()
    )
}

/// The text of a report.
struct Told {
    page: PathBuf,
    text: String,
    /// The results, unless two were compared.
    data: Option<ReportData>,
    /// Counts that differ, although they should be the same.
    differing: Vec<String>,
}

fn again(folder: &Path, args: &ReportArgs) -> Result<Told, Failure> {
    let data = read_data(folder).map_err(explain)?;
    let into = args.out.as_deref().unwrap_or(folder);
    let page = data.write(into).map_err(explain)?;
    if let Some(folder) = &args.export {
        export(&data, folder).map_err(explain)?;
    }
    Ok(Told {
        page,
        text: data.published_text(),
        data: Some(data),
        differing: Vec::new(),
    })
}

fn merge(folders: &[PathBuf], args: &ReportArgs) -> Result<Told, Failure> {
    let into = beside(&folders[0], "merged", args);
    experiment::merge(folders, &into).map_err(explain)?;
    let data = read_data(&into).map_err(explain)?;
    if let Some(folder) = &args.export {
        export(&data, folder).map_err(explain)?;
    }
    Ok(Told {
        page: into.join("report.html"),
        text: data.published_text(),
        data: Some(data),
        differing: Vec::new(),
    })
}

fn compare(first: &Path, second: &Path, args: &ReportArgs) -> Result<Told, Failure> {
    let comparison = Comparison::read(first, second).map_err(explain)?;
    let into = beside(first, "comparison", args);
    let page = comparison.write(&into).map_err(explain)?;
    if let Some(folder) = &args.export {
        comparison.export(folder).map_err(explain)?;
    }
    Ok(Told {
        page,
        text: comparison.text(),
        data: None,
        differing: match args.same {
            Some(share) => comparison.counts_that_differ(share).map_err(explain)?,
            None => Vec::new(),
        },
    })
}

/// The file to write: as given, or beside the results.
fn beside(folder: &Path, name: &str, args: &ReportArgs) -> PathBuf {
    match &args.out {
        Some(out) => out.clone(),
        None => folder.parent().unwrap_or(Path::new(".")).join(name),
    }
}
