//! The end of a command: results as text, JSON and report, verdicts, and explained failures.

use floe_cli::failure::Failure;
use floe_cli::{COMMIT, device, output};
use floe_eval::EvalError;
use floe_eval::replay::ReplayResult;
use floe_eval::report::ReportData;
use floe_eval::results::Provenance;
use floe_eval::run::RunResult;

use crate::args::OutputArgs;
use crate::figures;

/// Results.
pub(crate) enum Done {
    Run(Box<RunResult>),
    Replay(ReplayResult),
}

pub(crate) fn finish(
    name: &str,
    config: &str,
    output: &OutputArgs,
    json: bool,
    seed: u64,
    device: String,
    done: Done,
) -> Result<(), Failure> {
    let text = match &done {
        Done::Run(run) => figures::run(run),
        Done::Replay(replay) => figures::replay(replay),
    };
    let (runs, replays) = match done {
        Done::Run(run) => (vec![*run], Vec::new()),
        Done::Replay(replay) => (Vec::new(), vec![replay]),
    };
    let provenance = Provenance::here(Some(COMMIT), config, seed, device);
    let title = format!("floe {name}");
    let data = ReportData::new(name, title, config, provenance, runs, replays);
    let page = match &output.out {
        Some(folder) => Some(data.write(folder).map_err(explain)?),
        None => None,
    };
    if json {
        return output::print_json(&data.rows);
    }
    output::print(&text)?;
    match page {
        Some(page) => output::print(&format!("\nreport: {}\n", page.display())),
        None => Ok(()),
    }
}

/// Explains whether the flags, the machine or Floe are at fault.
pub(crate) fn explain(error: EvalError) -> Failure {
    match error {
        EvalError::Device(error) => device::explain(device::Part::Chunks, error),
        EvalError::Case {
            case,
            folder,
            source,
        } => {
            let failure = explain(*source).within(format!("case `{case}`"));
            failure.cure(format!(
                "cases that are done are kept: go on with --resume {}",
                folder.display()
            ))
        }
        EvalError::VirtualTime(halt) => Failure::bug("virtual time came to a halt").because(halt),
        EvalError::Option { .. }
        | EvalError::Workload(_)
        | EvalError::WorkloadFile(_)
        | EvalError::Trace(_)
        | EvalError::Origin(_)
        | EvalError::Experiment { .. } => Failure::usage("this cannot be run").because(error),
        EvalError::File { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage("this cannot be run").because(error)
        }
        EvalError::WrongBytes { .. } | EvalError::WrongLength { .. } | EvalError::Client(_) => {
            Failure::bug("the run was broken off").because(error)
        }
        _ => Failure::environment("the run was broken off").because(error),
    }
}

/// Fails if a verdict is not as expected.
pub(crate) fn judge(data: &ReportData) -> Result<(), Failure> {
    let surprises = data.surprises();
    match &surprises[..] {
        [] => Ok(()),
        surprises => Err(Failure::verdict(format!(
            "{} verdicts are not as expected\n  {}",
            surprises.len(),
            surprises.join("\n  ")
        ))
        .cure("find out what changed; list what is understood in known-to-differ.toml, with its reason")),
    }
}
