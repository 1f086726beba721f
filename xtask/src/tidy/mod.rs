//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy
//! knows, each explained where it is broken. Runs with the tests.

mod arrows;
mod dashboard;
mod duplicates;
mod files;
pub(crate) mod links;
mod module_arrows;
mod modules;
pub mod renamed;
mod rust_rules;
mod text_rules;
mod violation;
mod voice;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

pub(crate) use files::project_files;
use files::{Texts, read_texts};
pub use violation::Violation;

/// Checks the project at `root` and returns what is broken, in order of file and line.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let files = project_files(root)?;
    check_files(root, &files, &read_texts(root, &files)?)
}

fn check_files(root: &Path, files: &[PathBuf], texts: &Texts) -> Result<Vec<Violation>> {
    let packages = arrows::packages(root)?;
    let mut violations = arrows::check(root, &packages);

    let reached = modules::walk(root, &packages, &mut violations)?;
    modules::check_dead(root, &packages, files, &reached, &mut violations);
    for source in &reached {
        rust_rules::check(source, &mut violations);
    }
    module_arrows::check(&reached, &mut violations);
    text_rules::check(texts, &mut violations);
    links::check(root, files, texts, &mut violations);
    renamed::check(root, texts, &mut violations)?;
    dashboard::check(texts, &mut violations);
    voice::Voice::read(texts).check(&mut violations);
    duplicates::Duplicates::find(texts).check(&mut violations);

    violations.sort();
    violations.dedup();
    Ok(violations)
}

/// Prints the places that break the rules of voice.
pub fn print_voice(root: &Path) -> Result<()> {
    voice::Voice::read(&read_texts(root, &project_files(root)?)?).print();
    Ok(())
}

/// Prints the places that share lines of one shape.
pub fn print_duplicates(root: &Path) -> Result<()> {
    duplicates::Duplicates::find(&read_texts(root, &project_files(root)?)?).print();
    Ok(())
}

/// Prints what is broken and fails where anything is.
pub fn run(root: &Path) -> Result<()> {
    let files = project_files(root)?;
    let texts = read_texts(root, &files)?;
    let violations = check_files(root, &files, &texts)?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    for (file, lines) in text_rules::long_sources(&texts) {
        println!(
            "note: {} has {lines} lines: is it one idea?",
            file.display()
        );
    }
    if !violations.is_empty() {
        bail!("tidy: {} rules broken", violations.len());
    }
    println!("tidy: every rule holds");
    Ok(())
}
