//! `floe trace`: traces described, converted, and their miss-ratio curves.

mod args;
mod text;

use floe_cli::failure::Failure;
use floe_cli::{COMMIT, output};
use floe_eval::convert::{ConvertOptions, convert};
use floe_eval::mrc::{self, MrcOptions, Sample};
use floe_eval::report::ReportData;
use floe_eval::results::Provenance;
use floe_eval::stat::{StatOptions, stat};

use args::{ConvertArgs, MrcArgs, StatArgs};
pub(crate) use args::{FileArgs, TraceAction};
pub(crate) use text::{operations, percent, request_sizes};

use crate::outcome::explain;

/// `floe trace`.
pub(crate) fn run(action: &TraceAction, json: bool) -> Result<(), Failure> {
    match action {
        TraceAction::Stat(args) => describe(args, json),
        TraceAction::Convert(args) => rewrite(args, json),
        TraceAction::Mrc(args) => curve(args, json),
    }
}

fn describe(args: &StatArgs, json: bool) -> Result<(), Failure> {
    let options = StatOptions {
        trace: args.file.trace.clone(),
        options: args.file.options(),
        block_bytes: args.block_size.bytes(),
    };
    let found = stat(&options).map_err(explain)?;
    let page = match &args.out {
        None => None,
        Some(folder) => {
            let config = format!("{options:?}");
            let provenance = Provenance::here(Some(COMMIT), &config, 0, "none".to_owned());
            let report = ReportData::of_trace(&found, config, provenance);
            Some(report.write(folder).map_err(explain)?)
        }
    };
    if json {
        return output::print_json(&found);
    }
    output::print(&text::stat(&found))?;
    match page {
        Some(page) => output::print(&format!("\nreport: {}\n", page.display())),
        None => Ok(()),
    }
}

fn rewrite(args: &ConvertArgs, json: bool) -> Result<(), Failure> {
    let options = ConvertOptions {
        from: args.file.trace.clone(),
        options: args.file.options(),
        into: args.into.clone(),
        target: args.to,
        unit: args.unit,
    };
    let done = convert(&options).map_err(explain)?;
    match json {
        true => output::print_json(&done),
        false => output::print(&text::converted(&done, &args.into)),
    }
}

fn curve(args: &MrcArgs, json: bool) -> Result<(), Failure> {
    let options = MrcOptions {
        trace: args.file.trace.clone(),
        options: args.file.options(),
        block_bytes: args.block_size.bytes(),
        sample: match (args.exact, args.rate) {
            (true, _) => Sample::Everything,
            (false, Some(rate)) => Sample::Rate(rate),
            (false, None) => Sample::Size(args.sample),
        },
        compare: args.compare,
        points: args.points,
    };
    let found = mrc::run(&options).map_err(explain)?;
    match json {
        true => output::print_json(&found),
        false => output::print(&text::curve(&found)),
    }
}
