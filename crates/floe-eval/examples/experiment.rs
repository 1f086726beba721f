//! Runs an experiment file and says where its report is:
//! `cargo run --release -p floe-eval --example experiment -- experiments/smoke.toml`

use std::path::PathBuf;
use std::process::ExitCode;

use floe_eval::experiment::{ExperimentOptions, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: experiment <file.toml> [results folder]");
        return ExitCode::from(2);
    };
    let mut options = ExperimentOptions::new(path);
    if let Some(results) = arguments.next() {
        options.results = PathBuf::from(results);
    }
    match run(&options) {
        Ok(folder) => {
            println!("{}", folder.join("report.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}
