//! The voice of comments and documents: named subjects, plain words, sentences
//! that end. The limits only shrink; `cargo xtask tidy --voice` lists places.

use std::path::{Path, PathBuf};

use super::rust_rules::is_rust;
use super::violation::Violation;

/// Words that hide the subject of a sentence. Split so that this file does not
/// match itself.
const HIDING: &[&str] = &[
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
];

/// Words with which a comment line should not open.
const OPENERS: &[&str] = &["What", "Who", "Which", "Where", "Whether"];

/// Most words of a sentence.
const SENTENCE_WORDS_MAX: usize = 40;

/// Comment lines that may begin with an opener, in thousandths.
const OPENERS_PER_MILLE_MAX: usize = 1;

/// Hiding words that comments and documents may still have.
const HIDING_MAX: usize = 0;

/// Sentences that may still be too long.
const LONG_MAX: usize = 0;

/// Violations, and the number of comment lines.
#[derive(Default)]
pub(super) struct Voice {
    comment_lines: usize,
    openers: Vec<Violation>,
    hiding: Vec<Violation>,
    long: Vec<Violation>,
}

impl Voice {
    /// Reads the comments of Rust sources, and documents.
    pub(super) fn read(root: &Path, files: &[PathBuf]) -> Self {
        let mut voice = Voice::default();
        for file in files {
            let Ok(text) = std::fs::read_to_string(root.join(file)) else {
                continue;
            };
            match file.extension().and_then(|e| e.to_str()) {
                _ if is_rust(file) => voice.comments(file, &text),
                Some("md") => voice.document(file, &text),
                _ => {}
            }
        }
        voice
    }

    fn comments(&mut self, file: &Path, text: &str) {
        let mut block = Block::default();
        for (index, line) in text.lines().enumerate() {
            let Some(comment) = comment(line) else {
                self.end(file, &mut block);
                continue;
            };
            self.comment_lines += 1;
            let first = comment.split_whitespace().next().unwrap_or_default();
            if OPENERS.contains(&first) {
                let rule = format!("a comment opens with `{first}`: name its subject");
                self.openers.push(Violation::new(file, index + 1, rule));
            }
            self.line(file, index + 1, comment, &mut block);
        }
        self.end(file, &mut block);
    }

    fn document(&mut self, file: &Path, text: &str) {
        let mut block = Block::default();
        for (index, line) in text.lines().enumerate() {
            self.line(file, index + 1, line.trim(), &mut block);
        }
        self.end(file, &mut block);
    }

    fn line(&mut self, file: &Path, number: usize, line: &str, block: &mut Block) {
        if line.starts_with("```") {
            self.end(file, block);
            block.in_code = !block.in_code;
            return;
        }
        if block.in_code {
            return;
        }
        for word in HIDING {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            if words.any(|w| w.eq_ignore_ascii_case(word)) {
                let rule = format!("`{word}` hides the subject: name it");
                self.hiding.push(Violation::new(file, number, rule));
            }
        }
        // A table, heading, list item or empty line ends the sentence before it.
        let begins = ["|", "#", "* ", "- ", "<"]
            .iter()
            .any(|b| line.starts_with(b));
        let is_item = line
            .split_once(". ")
            .is_some_and(|(n, _)| n.parse::<u8>().is_ok());
        if begins || is_item || line.is_empty() {
            self.end(file, block);
        }
        if line.starts_with('|') {
            return;
        }
        for word in line.split_whitespace() {
            if block.words == 0 {
                block.from = number;
            }
            block.words += usize::from(word.contains(char::is_alphanumeric));
            let bare = word.trim_end_matches(['*', '_', ')', '"', '`']);
            if bare.ends_with(['.', '?', '!', ':', ';']) {
                self.end(file, block);
            }
        }
    }

    /// A sentence has ended.
    fn end(&mut self, file: &Path, block: &mut Block) {
        let words = std::mem::take(&mut block.words);
        if words > SENTENCE_WORDS_MAX {
            let rule = format!("a sentence of {words} words, at most {SENTENCE_WORDS_MAX}");
            self.long.push(Violation::new(file, block.from, rule));
        }
    }

    /// Adds a violation for each exceeded limit.
    pub(super) fn check(&self, violations: &mut Vec<Violation>) {
        let openers_max = self.comment_lines * OPENERS_PER_MILLE_MAX / 1000;
        for (places, most, what) in [
            (&self.openers, openers_max, "openers"),
            (&self.hiding, HIDING_MAX, "hiding words"),
            (&self.long, LONG_MAX, "long sentences"),
        ] {
            if let Some(first) = places.first().filter(|_| places.len() > most) {
                let rule = format!(
                    "{} {what} in comments and documents, at most {most}: \
                     `cargo xtask tidy --voice` lists them",
                    places.len()
                );
                violations.push(Violation::new(&first.file, first.line, rule));
            }
        }
    }

    /// Prints all places and a summary.
    pub(super) fn print(&self) {
        for place in self.openers.iter().chain(&self.hiding).chain(&self.long) {
            println!("{place}");
        }
        println!(
            "voice: {} openers in {} lines of comments ({:.1} %), {} hiding words, {} sentences over {SENTENCE_WORDS_MAX} words",
            self.openers.len(),
            self.comment_lines,
            100.0 * self.openers.len() as f64 / self.comment_lines.max(1) as f64,
            self.hiding.len(),
            self.long.len(),
        );
    }
}

/// The state of reading a sentence.
#[derive(Default)]
struct Block {
    words: usize,
    /// The line of its first word.
    from: usize,
    in_code: bool,
}

/// The text of a comment line.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (usize, usize, usize) {
        let mut voice = Voice::default();
        voice.comments(Path::new("a.rs"), text);
        (voice.openers.len(), voice.hiding.len(), voice.long.len())
    }

    #[test]
    fn openers_hiding_words_and_long_sentences_are_counted() {
        assert_eq!(
            of("/// The engine rejects it.\nlet what = 1; // What\n"),
            (0, 0, 0)
        );
        assert_eq!(of("/// What is rejected.\n"), (1, 0, 0));
        let hiding = format!("// {} else, and {}\n", HIDING[0], HIDING[2]);
        assert_eq!(of(&hiding), (0, 2, 0));
        let half = "word ".repeat(21);
        assert_eq!(of(&format!("/// {half}\n/// {half}.\n")), (0, 0, 1));
        assert_eq!(of(&format!("/// {half}.\n/// {half}.\n")), (0, 0, 0));
        assert_eq!(of(&format!("/// {half}\n/// * {half}\n")), (0, 0, 0));
        assert_eq!(
            of(&format!("/// ```\n/// {half} {half}\n/// ```\n")),
            (0, 0, 0)
        );
    }
}
