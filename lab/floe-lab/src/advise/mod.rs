//! `floe advise`: the cache that a block trace needs.

mod args;
mod text;

use floe_cli::failure::Failure;
use floe_cli::{COMMIT, output};
use floe_eval::advise::advise;
use floe_eval::report::ReportData;
use floe_eval::results::Provenance;

pub(crate) use args::AdviseArgs;

use crate::outcome::explain;

/// `floe advise`.
pub(crate) fn run(args: &AdviseArgs, json: bool) -> Result<(), Failure> {
    let options = args.options();
    let advice = advise(&options).map_err(explain)?;
    let page = match &args.out {
        None => None,
        Some(folder) => {
            let config = format!("{options:?}");
            let device = "simulated SN540 of the cache's size".to_owned();
            let provenance = Provenance::here(Some(COMMIT), &config, 0, device);
            let report = ReportData::of_advice(&advice, config, provenance);
            Some(report.write(folder).map_err(explain)?)
        }
    };
    if json {
        return output::print_json(&advice);
    }
    output::print(&text::advice(&advice, &options))?;
    match page {
        Some(page) => output::print(&format!("\nreport: {}\n", page.display())),
        None => Ok(()),
    }
}
