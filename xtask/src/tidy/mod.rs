//! `cargo xtask tidy`: house rules that neither the compiler nor clippy checks;
//! each violation is explained. Runs with the tests.

mod api;
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
pub use violation::Violation;

/// Checks the project at `root`; returns violations in order of file and line.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    check_files(root, &project_files(root)?)
}

fn check_files(root: &Path, files: &[PathBuf]) -> Result<Vec<Violation>> {
    let packages = arrows::packages(root)?;
    let mut violations = arrows::check(root, &packages);

    let reached = modules::walk(root, &packages, &mut violations)?;
    modules::check_dead(root, &packages, files, &reached, &mut violations);
    for source in &reached {
        rust_rules::check(source, &mut violations);
    }
    module_arrows::check(&reached, &mut violations);
    api::check(root, &reached, &mut violations);
    text_rules::check(root, files, &mut violations)?;
    links::check(root, files, &mut violations);
    renamed::check(root, files, &mut violations)?;
    dashboard::check(root, &mut violations)?;
    voice::Voice::read(root, files).check(&mut violations);
    duplicates::Duplicates::find(root, files).check(&mut violations);

    violations.sort();
    violations.dedup();
    Ok(violations)
}

/// Records the public API of the library's crates in `docs/api/`.
pub fn write_api(root: &Path) -> Result<()> {
    let packages = arrows::packages(root)?;
    api::write(root, &modules::walk(root, &packages, &mut Vec::new())?)
}

/// Prints the violations of the rules on voice.
pub fn print_voice(root: &Path) -> Result<()> {
    voice::Voice::read(root, &project_files(root)?).print();
    Ok(())
}

/// Prints the places that share lines of one shape.
pub fn print_duplicates(root: &Path) -> Result<()> {
    duplicates::Duplicates::find(root, &project_files(root)?).print();
    Ok(())
}

/// Prints all violations, and fails if there are any.
pub fn run(root: &Path) -> Result<()> {
    let files = project_files(root)?;
    let violations = check_files(root, &files)?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    for (file, lines) in text_rules::long_sources(root, &files) {
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
