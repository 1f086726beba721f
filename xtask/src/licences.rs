//! `cargo xtask licences`: checks that all linked packages have a licence that
//! `deny.toml` allows. This part of `cargo deny` runs everywhere, without
//! installing anything.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::project;

/// Checks every package of the lock file that is built on this platform.
pub fn run() -> Result<()> {
    let allowed = allowed()?;
    let text = project::output(project::cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        env!("XTASK_TARGET"),
    ]))?;
    let metadata: Value = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let packages = metadata["packages"]
        .as_array()
        .context("`cargo metadata` lists no packages")?;
    let rejected: Vec<String> = packages
        .iter()
        .filter_map(|p| violation(p, &allowed))
        .collect();
    if !rejected.is_empty() {
        bail!(
            "licences that deny.toml does not allow:\n{}",
            rejected.join("\n")
        );
    }
    println!("licences: {} packages, all allowed", packages.len());
    Ok(())
}

fn allowed() -> Result<Vec<String>> {
    let text =
        fs::read_to_string(project::root().join("deny.toml")).context("reading deny.toml")?;
    let table: toml::Table = toml::from_str(&text).context("reading deny.toml")?;
    let list = table
        .get("licenses")
        .and_then(|section| section.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no licenses.allow")?;
    Ok(list
        .iter()
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect())
}

fn violation(package: &Value, allowed: &[String]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    match package["license"].as_str() {
        Some(expression) if satisfied(expression, allowed) => None,
        Some(expression) => Some(format!("{name}: {expression}")),
        None => Some(format!("{name}: no licence is named")),
    }
}

/// True if `allowed` satisfies an SPDX expression. A slash is an old form of `OR`.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    let holds = parser.any();
    holds && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let taken = self.words.first() == Some(&word);
        if taken {
            self.words = &self.words[1..];
        }
        taken
    }

    fn any(&mut self) -> bool {
        let mut holds = self.all();
        while self.take("OR") {
            holds |= self.all();
        }
        holds
    }

    fn all(&mut self) -> bool {
        let mut holds = self.one();
        while self.take("AND") {
            holds &= self.one();
        }
        holds
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let holds = self.any();
            return self.take(")") && holds;
        }
        let Some((&id, rest)) = self.words.split_first() else {
            return false;
        };
        self.words = rest;
        let mut licence = id.to_owned();
        if self.take("WITH")
            && let Some((&exception, rest)) = self.words.split_first()
        {
            self.words = rest;
            licence = format!("{licence} WITH {exception}");
        }
        self.allowed.contains(&licence)
    }
}

#[cfg(test)]
mod tests {
    use super::satisfied;

    #[test]
    fn licence_expressions_are_evaluated() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0",
            "(MIT",
            "MIT)",
            "",
            "MIT MIT",
        ] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }
}
