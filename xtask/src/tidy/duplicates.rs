//! Pairs of places that share six or more lines of code.
//!
//! Lines are alike if their text is, or their shape: their tokens, with each
//! name, number and string replaced by its kind. Comments, imports, `mod x;`
//! and lone punctuation are ignored. So are runs of one shape that declare a
//! type, or that have fewer than four different lines or few tokens, because
//! lists are not code. Two files, or two parts of one, are one pair however
//! many runs they share. A run in more than eight places is an idiom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::rust_rules::is_rust;
use super::violation::Violation;

/// Most pairs in the project. The limit only shrinks.
const PAIRS_MAX: usize = 80;

/// Fewest common lines of a pair.
const RUN_LINES: usize = 6;

/// Fewest different shapes, and tokens, of a run of one shape.
const RUN_SHAPES_MIN: usize = 4;
const RUN_TOKENS_MIN: usize = 42;

/// A run in more places than this is an idiom.
const PLACES_MAX: usize = 8;

/// The pairs of a project's Rust files.
pub(super) struct Duplicates<'a> {
    sources: Vec<Source<'a>>,
    pairs: Vec<Pair>,
}

struct Source<'a> {
    file: &'a Path,
    lines: Vec<Line>,
}

/// A counted line. Equal shapes have equal numbers, and so have equal texts.
struct Line {
    /// From 1.
    number: usize,
    shape: usize,
    text: usize,
    /// Tokens of the line.
    tokens: usize,
    /// It is part of a struct's or enum's declaration.
    is_declaration: bool,
}

/// The longest run of lines that two places share.
struct Pair {
    first: Place,
    second: Place,
    lines: usize,
    /// Further runs that the two files share.
    more_runs: usize,
}

/// A source, and one of its counted lines.
type Place = (usize, usize);

impl<'a> Duplicates<'a> {
    pub(super) fn find(root: &Path, files: &'a [PathBuf]) -> Self {
        let mut shapes = Numbers::default();
        let mut texts = Numbers::default();
        let mut sources = Vec::new();
        for file in files.iter().filter(|file| is_rust(file)) {
            if let Ok(text) = std::fs::read_to_string(root.join(file)) {
                let lines = counted_lines(&text, &mut shapes, &mut texts);
                sources.push(Source { file, lines });
            }
        }
        let pairs = pairs(&sources);
        Duplicates { sources, pairs }
    }

    pub(super) fn check(&self, violations: &mut Vec<Violation>) {
        if let Some(first) = self.pairs.first().filter(|_| self.pairs.len() > PAIRS_MAX) {
            let (source, line) = first.first;
            let source = &self.sources[source];
            let rule = format!(
                "{} pairs of places share {RUN_LINES} or more lines of code, at most \
                 {PAIRS_MAX}: `cargo xtask duplicates` lists them",
                self.pairs.len()
            );
            violations.push(Violation::new(source.file, source.lines[line].number, rule));
        }
    }

    /// Prints every pair, the longest run first, and a summary.
    pub(super) fn print(&self) {
        for pair in &self.pairs {
            let [first, second] = [pair.first, pair.second].map(|(source, from)| {
                let Source { file, lines } = &self.sources[source];
                let [from, to] = [from, from + pair.lines - 1].map(|line| lines[line].number);
                format!("{}:{from}-{to}", file.display())
            });
            let more = match pair.more_runs {
                0 => String::new(),
                more => format!(" (+{more} more runs)"),
            };
            println!("{first} ~ {second}{more}");
        }
        println!(
            "duplicates: {} pairs of places in {} files share {RUN_LINES} or more lines of code",
            self.pairs.len(),
            self.sources.len(),
        );
    }
}

fn pairs(sources: &[Source<'_>]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = shared_windows(sources)
        .into_iter()
        .filter_map(|((first, second), starts)| {
            let runs = runs(starts);
            let longest = runs
                .iter()
                .max_by_key(|run| (run.0.len(), Reverse(run.0.start)));
            let (lines, apart) = longest?;
            Some(Pair {
                first: (first, lines.start),
                second: (second, lines.start.checked_add_signed(*apart)?),
                lines: lines.len(),
                more_runs: runs.len() - 1,
            })
        })
        .collect();
    pairs.sort_by_key(|pair| Reverse(pair.lines));
    pairs
}

/// Starts of windows of lines that two sources share: the distance of the
/// second's line, and the first's line.
type Starts = BTreeSet<(isize, usize)>;

fn shared_windows(sources: &[Source<'_>]) -> BTreeMap<(usize, usize), Starts> {
    let mut windows: HashMap<(bool, Vec<usize>), Vec<Place>> = HashMap::new();
    for (index, source) in sources.iter().enumerate() {
        for (from, lines) in source.lines.windows(RUN_LINES).enumerate() {
            let mut add = |is_shape, lines| {
                let places = windows.entry((is_shape, lines)).or_default();
                places.push((index, from));
            };
            add(false, lines.iter().map(|line| line.text).collect());
            if is_code(lines) {
                add(true, lines.iter().map(|line| line.shape).collect());
            }
        }
    }
    let mut shared: BTreeMap<(usize, usize), Starts> = BTreeMap::new();
    for places in windows.values().filter(|p| p.len() <= PLACES_MAX) {
        for (index, &(first, from)) in places.iter().enumerate() {
            for &(second, other) in &places[index + 1..] {
                if first != second || other - from >= RUN_LINES {
                    let apart = other.cast_signed() - from.cast_signed();
                    shared
                        .entry((first, second))
                        .or_default()
                        .insert((apart, from));
                }
            }
        }
    }
    shared
}

/// True if lines of one shape are code rather than a list.
fn is_code(lines: &[Line]) -> bool {
    let shapes: BTreeSet<usize> = lines.iter().map(|line| line.shape).collect();
    let tokens: usize = lines.iter().map(|line| line.tokens).sum();
    shapes.len() >= RUN_SHAPES_MIN
        && tokens >= RUN_TOKENS_MIN
        && !lines.iter().any(|line| line.is_declaration)
}

/// Joins windows into runs: lines of the first source, and the distance of the second's lines.
fn runs(starts: Starts) -> Vec<(Range<usize>, isize)> {
    let mut runs: Vec<(Range<usize>, isize)> = Vec::new();
    for (apart, from) in starts {
        match runs.last_mut() {
            Some((run, of)) if *of == apart && from <= run.end => run.end = from + RUN_LINES,
            _ => runs.push((from..from + RUN_LINES, apart)),
        }
    }
    runs
}

/// Assigns one number to equal texts.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn number(&mut self, text: String) -> usize {
        let next = self.0.len();
        *self.0.entry(text).or_insert(next)
    }
}

fn counted_lines(text: &str, shapes: &mut Numbers, texts: &mut Numbers) -> Vec<Line> {
    let written: Vec<&str> = text.lines().collect();
    let mut read = Shapes::default();
    if let Ok(tokens) = text.parse() {
        read.add(tokens, false);
    }
    let counts = |shape: &Shape| {
        shape.tokens.contains(char::is_alphanumeric) && !shape.tokens.ends_with("mod n;")
    };
    read.lines
        .into_iter()
        .filter(|(_, shape)| counts(shape))
        .map(|(number, shape)| {
            let words: Vec<&str> = written[number - 1].split_whitespace().collect();
            Line {
                number,
                shape: shapes.number(shape.tokens),
                text: texts.number(words.join(" ")),
                tokens: shape.count,
                is_declaration: shape.is_declaration,
            }
        })
        .collect()
}

/// The shape of each line of a source.
#[derive(Default)]
struct Shapes {
    lines: BTreeMap<usize, Shape>,
}

#[derive(Default)]
struct Shape {
    tokens: String,
    count: usize,
    is_declaration: bool,
}

impl Shapes {
    /// Adds tokens, which are part of a declaration or contain no beginning of one.
    fn add(&mut self, tokens: TokenStream, of_declaration: bool) {
        let mut tokens = tokens.into_iter();
        let mut is_declaration = of_declaration;
        while let Some(token) = tokens.next() {
            is_declaration |=
                matches!(&token, TokenTree::Ident(name) if name == "struct" || name == "enum");
            let shape = match &token {
                TokenTree::Ident(name) if name == "use" && is_import(tokens.clone().next()) => {
                    let _import = tokens.find(ends_item);
                    self.lines.remove(&token.span().start().line);
                    continue;
                }
                TokenTree::Ident(name) => shape_of_name(name.to_string()),
                TokenTree::Literal(literal) => shape_of_literal(&literal.to_string()),
                TokenTree::Punct(mark) => mark.as_char().to_string(),
                TokenTree::Group(group) => {
                    self.add_group(group, is_declaration);
                    String::new()
                }
            };
            self.push(token.span().start().line, &shape, is_declaration);
            if ends_item(&token) {
                is_declaration = of_declaration;
            }
        }
    }

    fn add_group(&mut self, group: &Group, of_declaration: bool) {
        let mut inside = group.stream().into_iter();
        if matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc") {
            return; // a comment
        }
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        self.push(group.span_open().start().line, open, of_declaration);
        self.add(group.stream(), of_declaration);
        self.push(group.span_close().start().line, close, of_declaration);
    }

    fn push(&mut self, line: usize, token: &str, is_declaration: bool) {
        let shape = self.lines.entry(line).or_default();
        // Keeps two adjacent words apart.
        if shape.tokens.ends_with(char::is_alphanumeric) {
            shape.tokens.push(' ');
        }
        shape.tokens.push_str(token);
        shape.count += usize::from(!token.is_empty());
        shape.is_declaration |= is_declaration;
    }
}

/// True if `use` before this token is an import; before `<` it is a bound.
fn is_import(next: Option<TokenTree>) -> bool {
    !matches!(next, Some(TokenTree::Punct(mark)) if mark.as_char() == '<')
}

/// True if an import or a declaration ends here.
fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

/// Keywords stay, because they determine what a line does.
fn shape_of_name(name: String) -> String {
    const KEYWORDS: &[&str] = &[
        "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum",
        "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut",
        "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true", "type",
        "unsafe", "where", "while",
    ];
    match KEYWORDS.contains(&&*name) {
        true => name,
        false => "n".to_owned(),
    }
}

fn shape_of_literal(literal: &str) -> String {
    let is_number = literal.starts_with(|c: char| c.is_ascii_digit());
    if is_number { "0" } else { "s" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs_of(first: &str, second: &str) -> usize {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = [PathBuf::from("a.rs"), PathBuf::from("b.rs")];
        for (file, text) in files.iter().zip([first, second]) {
            std::fs::write(folder.path().join(file), text).expect("a file");
        }
        Duplicates::find(folder.path(), &files).pairs.len()
    }

    const CODE: &str = "use a::b;\nfn read(from: usize) -> usize {\n    let mut all = 1;\n    \
        // Doubled.\n    all *= from.max(all, 3);\n    while all < 10 {\n        all += step(\"x\", all);\n    }\n    \
        all\n}\n";

    #[test]
    fn code_of_one_shape_is_a_pair() {
        let renamed = CODE
            .replace("all", "sum")
            .replace("10", "7")
            .replace("x", "y");
        assert_eq!(pairs_of(CODE, CODE), 1);
        assert_eq!(pairs_of(CODE, &renamed), 1);
        assert_eq!(pairs_of(CODE, &renamed.replace("*=", "<<=")), 0);
        assert_eq!(pairs_of(&format!("{CODE}{renamed}"), ""), 1);
    }

    #[test]
    fn lists_and_declarations_are_pairs_if_their_texts_are_equal() {
        let list: String = (0..8).map(|n| format!("const A{n}: u8 = {n};\n")).collect();
        let fields = "struct A {\n    a: u8,\n    pub b: Vec<u8>,\n    c: [u8; 2],\n    \
            pub(super) d: Option<Vec<u8>>,\n    e: u8,\n}\n";
        for text in [&*list, fields] {
            assert_eq!(pairs_of(text, text), 1);
            let renamed = text.replace(['A', 'a', 'b', 'c', 'd', 'e'], "z");
            assert_eq!(pairs_of(text, &renamed), 0);
        }
    }
}
