//! `cargo xtask sizes`: lines of Rust and words of documents by crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::tidy;

/// Non-empty lines, and words of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    code: usize,
    comments: usize,
    /// Lines of tests, benches and examples, including comments.
    tests: usize,
    words: usize,
}

/// Prints a row per crate and per other directory with documents, and the sum.
pub fn run(root: &Path) -> Result<()> {
    let files = tidy::project_files(root)?;
    let mut crates: BTreeMap<PathBuf, Sizes> = BTreeMap::new();
    let mut sum = Sizes::default();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        let sizes = match file.extension().and_then(|e| e.to_str()) {
            Some("rs") => rust(file, &text),
            Some("md") => Sizes {
                words: words(&text),
                ..Sizes::default()
            },
            _ => continue,
        };
        crates.entry(owner(root, file)).or_default().add(sizes);
        sum.add(sizes);
    }
    println!(
        "{:28}{:>9}{:>9}{:>9}{:>9}",
        "", "code", "comments", "tests", "words"
    );
    for (folder, sizes) in &crates {
        sizes.print(&folder.display().to_string());
    }
    sum.print("sum");
    Ok(())
}

impl Sizes {
    fn add(&mut self, other: Sizes) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
        self.words += other.words;
    }

    fn print(&self, name: &str) {
        let Sizes {
            code,
            comments,
            tests,
            words,
        } = self;
        println!("{name:28}{code:>9}{comments:>9}{tests:>9}{words:>9}");
    }
}

/// The crate of a file, or its top-level directory.
fn owner(root: &Path, file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut above = folder.ancestors().filter(|folder| *folder != Path::new(""));
    match above.find(|folder| root.join(folder).join("Cargo.toml").is_file()) {
        Some(package) => package.to_path_buf(),
        None => Path::new(".").join(folder.components().take(1).collect::<PathBuf>()),
    }
}

fn rust(file: &Path, text: &str) -> Sizes {
    let is_test = |name: &str| name.starts_with("tests") || name == "benches" || name == "examples";
    let mut in_tests = file
        .with_extension("")
        .components()
        .any(|part| part.as_os_str().to_str().is_some_and(is_test));
    let mut sizes = Sizes::default();
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        in_tests |= line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.ends_with('{'));
        match line.trim_start().starts_with("//") {
            _ if in_tests => sizes.tests += 1,
            true => sizes.comments += 1,
            false => sizes.code += 1,
        }
    }
    sizes
}

fn words(text: &str) -> usize {
    text.split_whitespace()
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_are_apart_from_code_and_comments() {
        let text = "//! A.\n\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    // B.\n}\n";
        let sizes = |code, comments, tests| Sizes {
            code,
            comments,
            tests,
            words: 0,
        };
        assert_eq!(rust(Path::new("a/src/b.rs"), text), sizes(1, 1, 4));
        assert_eq!(rust(Path::new("a/src/tests/b.rs"), text), sizes(0, 0, 6));
        assert_eq!(rust(Path::new("a/src/b/tests.rs"), text), sizes(0, 0, 6));
        assert_eq!(words("| a | `b c` | - |"), 3);
    }
}
