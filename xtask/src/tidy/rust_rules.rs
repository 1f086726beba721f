//! Rules on Rust sources, checked on their syntax trees.

use std::path::Path;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, ItemEnum, Lit, Macro, PathArguments, UseTree, Visibility};

use super::modules::{Source, is_test_only};
use super::violation::Violation;

/// The only crate that may have `unsafe` code.
const UNSAFE_CRATE: &str = "floe-device";

/// Paths that engine cores must not use: prefix and reason.
const BANNED_IN_CORE: &[(&str, &str)] = &[
    ("std::time::Instant", "brains read no clock: take a `Tick`"),
    (
        "std::time::SystemTime",
        "brains read no clock: take a `Tick`",
    ),
    (
        "std::time::UNIX_EPOCH",
        "brains read no clock: take a `Tick`",
    ),
    (
        "std::time",
        "brains read no clock: of `std::time` only `Duration` is allowed",
    ),
    ("std::thread", "brains start no thread"),
    ("std::fs", "brains do no I/O"),
    ("std::net", "brains do no I/O"),
    ("std::process", "brains do no I/O"),
    (
        "std::env",
        "brains read no environment: configuration is a parameter",
    ),
    ("std::io::stdin", "brains do no I/O"),
    ("std::io::stdout", "brains do no I/O"),
    ("std::io::stderr", "brains do no I/O"),
    (
        "std::collections::hash_map::RandomState",
        "a randomly seeded map makes runs differ",
    ),
    (
        "std::hash::RandomState",
        "a randomly seeded map makes runs differ",
    ),
    ("tokio", "brains are synchronous"),
    (
        "rand::rng",
        "randomness is a seeded generator that is passed in",
    ),
    (
        "rand::random",
        "randomness is a seeded generator that is passed in",
    ),
    (
        "rand::thread_rng",
        "randomness is a seeded generator that is passed in",
    ),
];

/// Calls that drivers must not wait through, with the reason.
const BANNED_IN_FLOWS: &[(&str, &str)] = &[(
    "tokio::time",
    "flows wait only through `floe_device::Clock`, so that they run in virtual time",
)];

pub(super) fn check(source: &Source, violations: &mut Vec<Violation>) {
    let mut checker = Checker {
        source,
        test_depth: usize::from(source.test),
        violations,
    };
    checker.visit_file(&source.syntax);
}

struct Checker<'a> {
    source: &'a Source,
    /// Greater than 0 inside test code.
    test_depth: usize,
    violations: &'a mut Vec<Violation>,
}

impl Checker<'_> {
    fn shipped(&self) -> bool {
        self.test_depth == 0
    }

    fn report(&mut self, span: Span, rule: impl Into<String>) {
        let line = span.start().line;
        self.violations
            .push(Violation::new(&self.source.file, line, rule));
    }

    fn banned(&self) -> &'static [(&'static str, &'static str)] {
        match self.source.package.as_str() {
            "floe-core" => BANNED_IN_CORE,
            "floe" => BANNED_IN_FLOWS,
            _ => &[],
        }
    }

    fn path(&mut self, path: &str, span: Span) {
        if !self.shipped()
            || path == "std::time::Duration"
            || path.starts_with("std::time::Duration::")
        {
            return;
        }
        let path = path
            .strip_prefix("core::")
            .map_or_else(|| path.to_owned(), |rest| format!("std::{rest}"));
        let hit = self.banned().iter().find(|(banned, _)| {
            path == *banned
                || path
                    .strip_prefix(banned)
                    .is_some_and(|rest| rest.starts_with("::"))
        });
        // `use std::time::{self}` also names the whole module.
        if let Some((banned, why)) = hit
            && path != "std::time::Duration"
        {
            self.report(
                span,
                format!("`{banned}` in {}: {why}", self.source.package),
            );
        }
    }

    fn use_tree(&mut self, prefix: &str, tree: &UseTree) {
        let join = |name: &str| {
            if prefix.is_empty() {
                name.to_owned()
            } else {
                format!("{prefix}::{name}")
            }
        };
        match tree {
            UseTree::Path(path) => self.use_tree(&join(&path.ident.to_string()), &path.tree),
            UseTree::Name(name) if name.ident == "self" => self.path(prefix, name.span()),
            UseTree::Name(name) => self.path(&join(&name.ident.to_string()), name.span()),
            UseTree::Rename(rename) => self.path(&join(&rename.ident.to_string()), rename.span()),
            UseTree::Glob(glob) => self.path(prefix, glob.span()),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.use_tree(prefix, item);
                }
            }
        }
    }

    /// A map type with the default hasher is seeded randomly.
    fn random_map(&mut self, path: &syn::Path) {
        if self.source.package != "floe-core" || !self.shipped() {
            return;
        }
        let mut segments = path.segments.iter().peekable();
        while let Some(segment) = segments.next() {
            let wanted = match segment.ident.to_string().as_str() {
                "HashMap" => 3,
                "HashSet" => 2,
                _ => continue,
            };
            let given = match &segment.arguments {
                PathArguments::AngleBracketed(list) => list.args.len(),
                _ => 0,
            };
            let seeded = match segments.peek() {
                Some(next) => matches!(
                    next.ident.to_string().as_str(),
                    "new" | "with_capacity" | "from"
                ),
                None => given > 0 && given < wanted,
            };
            if seeded {
                self.report(
                    path.span(),
                    format!(
                        "`{}` without an explicit hasher is seeded at random: runs would differ; \
                         use a BTreeMap or name a hasher",
                        segment.ident
                    ),
                );
            }
        }
    }

    /// Checks the calls in a macro's tokens, which the syntax tree does not have.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "unwrap" && self.shipped() => {
                    let dot = index.checked_sub(1).map(|i| tokens[i].to_string());
                    if dot.as_deref() == Some(".") {
                        self.report(ident.span(), UNWRAP);
                    }
                }
                _ => {}
            }
        }
    }

    fn macro_call(&mut self, call: &Macro) {
        let Some(name) = call.path.segments.last().map(|s| s.ident.to_string()) else {
            return;
        };
        match name.as_str() {
            "dbg" | "todo" | "unimplemented" => {
                self.report(call.span(), format!("`{name}!` must not be committed"));
            }
            "panic" | "unreachable" if self.shipped() && call.tokens.is_empty() => {
                self.report(
                    call.span(),
                    format!("`{name}!` needs a message that says why it cannot happen"),
                );
            }
            _ => {}
        }
    }

    fn safety(&mut self, span: Span, what: &str) {
        if self.source.package != UNSAFE_CRATE {
            self.report(
                span,
                format!("{what} outside {UNSAFE_CRATE}, the only crate that may hold `unsafe`"),
            );
        } else if !has_safety_comment(&self.source.text, span.start().line) {
            self.report(
                span,
                format!("{what} without a `// SAFETY:` comment that proves it"),
            );
        }
    }

    fn error_enum(&mut self, item: &ItemEnum) {
        let name = item.ident.to_string();
        let public = matches!(item.vis, Visibility::Public(_));
        if public && name.ends_with("Error") && self.shipped() && !derives_error(&item.attrs) {
            self.report(
                item.ident.span(),
                format!("the public error `{name}` must derive `thiserror::Error`"),
            );
        }
    }
}

const UNWRAP: &str = "`.unwrap()` in shipped code: return an error, or `.expect(\"why it holds\")` where a proof is at hand";

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let test = is_test_only(attributes(item));
        self.test_depth += usize::from(test);
        visit::visit_item(self, item);
        self.test_depth -= usize::from(test);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let test = is_test_only(&item.attrs);
        self.test_depth += usize::from(test);
        visit::visit_impl_item_fn(self, item);
        self.test_depth -= usize::from(test);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree("", &item.tree);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.error_enum(item);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(keyword) = &item.unsafety {
            self.safety(keyword.span(), "an unsafe impl");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.safety(block.unsafe_token.span(), "an unsafe block");
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let joined: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.path(&joined.join("::"), path.span());
        self.random_map(path);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.shipped() {
            if call.method == "unwrap" && call.args.is_empty() {
                self.report(call.method.span(), UNWRAP);
            }
            if call.method == "expect" && call.args.len() == 1 && !explains(&call.args[0]) {
                self.report(
                    call.method.span(),
                    "`.expect(…)` must say in words why it holds, or be an error instead",
                );
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.macro_call(call);
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// The attributes of `item`.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// A string literal of at least two words is a reason. An argument that is no
/// literal belongs to another `expect`, for instance a parser's.
fn explains(argument: &Expr) -> bool {
    match argument {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => text.value().split_whitespace().count() >= 2,
            _ => true,
        },
        _ => true,
    }
}

fn derives_error(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut found = false;
        if attribute.path().is_ident("derive") {
            // The compiler reports a derive that does not parse.
            let _ = attribute.parse_nested_meta(|meta| {
                found |= meta
                    .path
                    .segments
                    .last()
                    .is_some_and(|s| s.ident == "Error");
                Ok(())
            });
        }
        found
    })
}

/// Looks for a safety comment above `line` (from 1), across the statement's
/// start and its comments and attributes.
fn has_safety_comment(text: &str, line: usize) -> bool {
    const STATEMENT_LINES: usize = 4;
    let lines: Vec<&str> = text.lines().collect();
    let mut statement_lines = 0;
    for index in (0..line).rev() {
        let trimmed = lines.get(index).map_or("", |l| l.trim());
        if trimmed.contains("SAFETY:") {
            return true;
        }
        let comment = trimmed.starts_with("//") || trimmed.starts_with("#[");
        if !comment {
            statement_lines += 1;
            if statement_lines > STATEMENT_LINES {
                return false;
            }
        }
    }
    false
}

/// True if `file` is Rust source.
pub(super) fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "rs")
}
