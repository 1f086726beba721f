//! `cargo xtask report-shot FILE`: opens a report in headless Chromium, takes a
//! screenshot, and fails if the page logged a console error.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::project::{self, Outcome};

/// The report to open.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The report.
    pub report: PathBuf,
    /// Path of the screenshot; beside the report by default.
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// Fail if there is no browser, instead of reporting a skip.
    #[arg(long)]
    pub require: bool,
}

const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// Markers of console output and of errors in Chromium's log.
const CONSOLE: &str = "CONSOLE";
const ERRORS: &[&str] = &[
    "Uncaught",
    "Error",
    "error",
    "Failed to load",
    "Refused to",
    "net::ERR_",
];

/// Takes the screenshot.
pub fn run(options: &Options) -> Result<()> {
    shoot(options)?.settle("report-shot", options.require)
}

fn shoot(options: &Options) -> Result<Outcome> {
    let Some(browser) = BROWSERS.iter().find(|name| project::available(name)) else {
        return Ok(Outcome::Skipped("there is no Chromium".into()));
    };
    let report = options
        .report
        .canonicalize()
        .with_context(|| format!("{} cannot be opened", options.report.display()))?;
    let picture = options
        .picture
        .clone()
        .unwrap_or_else(|| report.with_extension("png"));
    let log = open(browser, &report, &picture)?;
    let errors: Vec<&str> = console_errors(&log).collect();
    if !errors.is_empty() {
        bail!(
            "{} wrote errors to its console:\n{}",
            report.display(),
            errors.join("\n")
        );
    }
    if !picture.is_file() {
        bail!("{browser} took no picture of {}:\n{log}", report.display());
    }
    println!(
        "report-shot: no console error; picture: {}",
        picture.display()
    );
    Ok(Outcome::Passed)
}

fn open(browser: &str, report: &Path, picture: &Path) -> Result<String> {
    let profile = tempfile::tempdir()?;
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--enable-logging=stderr",
            "--v=0",
            "--window-size=1400,4000",
            "--hide-scrollbars",
        ])
        .args(["--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", report.display()))
        .output()
        .with_context(|| format!("starting {browser}"))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{browser} failed: {}\n{log}", output.status);
    }
    Ok(log)
}

fn console_errors(log: &str) -> impl Iterator<Item = &str> {
    log.lines()
        .filter(|line| line.contains(CONSOLE) && ERRORS.iter().any(|e| line.contains(e)))
}

#[cfg(test)]
mod tests {
    use super::console_errors;

    #[test]
    fn only_the_pages_own_errors_count() {
        let log = "[1:1:ERROR:dbus/bus.cc(408)] Failed to connect to the bus\n\
                   [1:1:INFO:CONSOLE:1] \"hello\", source: file:///x.html (1)\n\
                   [1:1:INFO:CONSOLE:3] \"Uncaught TypeError: x is undefined\", source: y (3)\n";
        let errors: Vec<&str> = console_errors(log).collect();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("TypeError"));
    }
}
