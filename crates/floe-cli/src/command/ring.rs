//! `floe ring`: examines the proxies before a ring of nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::args::{RingAction, RingCheckArgs};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::ring::{Config, Finding, Nodes, PoolShares, Severity, check_all};
use crate::style::Style;

pub(crate) fn run(action: &RingAction, json: bool) -> Result<ExitCode, Failure> {
    match action {
        RingAction::Check(args) => check(args, json),
        RingAction::Shares { configs } => shares(configs, json),
    }
}

fn shares(configs: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let configs = read(configs)?;
    let pools: Vec<PoolShares> = configs.iter().flat_map(Config::shares).collect();
    if pools.is_empty() {
        return Err(
            Failure::usage("there is no pool of nutcracker with `distribution: ketama`")
                .cure("name a configuration of nutcracker"),
        );
    }
    match json {
        true => output::print_json(&pools)?,
        false => output::print(&pools.iter().map(text_of_shares).collect::<String>())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text_of_shares(pool: &PoolShares) -> String {
    let style = Style::stdout();
    let mut text = format!("{}\n", style.bold(&format!("pool {}", pool.pool)));
    for server in &pool.servers {
        let percent = server.share * 100.0;
        let line = format!(
            "  {:<32} weight {:<4} {percent:>5.1} %\n",
            server.name, server.weight
        );
        text.push_str(&line);
    }
    text + &format!(
        "  the largest is {:.2} times what its weight says\n",
        pool.imbalance
    )
}

fn check(args: &RingCheckArgs, json: bool) -> Result<ExitCode, Failure> {
    let configs = read(&args.configs)?;
    let findings = check_all(&configs, &args.nodes());
    let checked = Checked::new(findings);
    if json {
        output::print_json(&checked)?;
    } else {
        output::print(&checked.text(Style::stdout()))?;
    }
    Ok(match checked.ok {
        true => ExitCode::SUCCESS,
        false => Exit::Wrong.code(),
    })
}

impl RingCheckArgs {
    fn nodes(&self) -> Nodes {
        Nodes {
            ring_hash: self.ring_hash,
            consistency: self.consistency,
        }
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<Config>, Failure> {
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<Config, Failure> {
    let name = path.display().to_string();
    let bytes = fs::read(path)
        .map_err(|error| Failure::environment(format!("cannot read {name}")).because(error))?;
    // Comments in other encodings must not hide settings.
    let text = String::from_utf8_lossy(&bytes);
    Config::parse(&text, &name)
        .map_err(|error| Failure::usage("the configuration cannot be examined").because(error))
}

/// The result of the check.
#[derive(Serialize)]
struct Checked {
    /// No finding lies.
    ok: bool,
    findings: Vec<Finding>,
}

impl Checked {
    fn new(findings: Vec<Finding>) -> Self {
        Checked {
            ok: findings.iter().all(|one| one.severity != Severity::Lies),
            findings,
        }
    }

    fn text(&self, style: Style) -> String {
        let lines = self.findings.iter().map(|one| line(one, style));
        let mut text: String = lines.collect();
        text.push_str(&self.verdict(style));
        text
    }

    fn verdict(&self, style: Style) -> String {
        let count = |severity| {
            self.findings
                .iter()
                .filter(|one| one.severity == severity)
                .count()
        };
        let verdict = match self.ok {
            true => style.green("nothing lies:"),
            false => style.red("stale values are possible:"),
        };
        format!(
            "{verdict} {} lies, {} risks, {} notes\n",
            count(Severity::Lies),
            count(Severity::Risk),
            count(Severity::Note)
        )
    }
}

fn line(finding: &Finding, style: Style) -> String {
    let Finding {
        severity,
        place,
        problem,
        cure,
    } = finding;
    let severity = match severity {
        Severity::Lies => style.red("lies:"),
        Severity::Risk => style.bold("risk:"),
        Severity::Note => style.dim("note:"),
    };
    format!(
        "{severity} {place}\n  {problem}\n  {} {cure}\n",
        style.bold("try:")
    )
}

#[cfg(test)]
mod tests {
    use super::{Checked, Finding, Severity, Style};

    fn checked(severity: Severity) -> Checked {
        Checked::new(vec![Finding {
            severity,
            place: "x:1: pool `a`".to_owned(),
            problem: "Keys move.".to_owned(),
            cure: "wait".to_owned(),
        }])
    }

    #[test]
    fn only_lies_fail() {
        assert!(!checked(Severity::Lies).ok);
        assert!(checked(Severity::Risk).ok && checked(Severity::Note).ok);
    }

    #[test]
    fn a_finding_has_its_cure() {
        assert_eq!(
            checked(Severity::Risk).text(Style::plain()),
            "risk: x:1: pool `a`\n  Keys move.\n  try: wait\nnothing lies: 0 lies, 1 risks, 0 notes\n"
        );
    }
}
