//! `floe report`: one set of results again, two compared, shards merged.

use std::path::{Path, PathBuf};

use floe_eval::experiment;

use super::evaluate::explain;
use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::output;

/// `floe report`.
pub(crate) fn run(args: &ReportArgs, json: bool) -> Result<(), Failure> {
    let page = match &args.folders[..] {
        [folder] => floe_eval::report(folder).map_err(explain)?,
        folders if experiment::are_pieces(folders) => {
            let into = args
                .out
                .clone()
                .unwrap_or_else(|| beside(&folders[0], "merged"));
            experiment::merge(folders, &into).map_err(explain)?;
            into.join("report.html")
        }
        _ => {
            return Err(Failure::usage(
                "these folders are no shards of one experiment",
            ));
        }
    };
    if json {
        return output::print_json(&serde_json::json!({ "report": page }));
    }
    output::print(&format!("{}\n", page.display()))
}

/// A folder beside another.
fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.parent().unwrap_or(Path::new(".")).join(name)
}
