//! Imports between modules and files of one crate: which layer may import
//! which, and no import circles between files.
//!
//! An import is a path in the source, resolved to the file that defines its
//! item; re-exports are followed. Methods and macros are not resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

use super::modules::Source;
use super::rust_rules::attributes;
use super::violation::Violation;

/// Each crate and its top-level modules, lowest layer first. A module may
/// import from lower layers.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "floe-core",
        &[
            &[
                "content",
                "geometry",
                "hash",
                "list",
                "parse",
                "placement",
                "size",
                "tick",
            ],
            &["cells", "policy", "tiny"],
            &["volume"],
            // It encodes the objects of tiny engines and the blocks of volumes; the chunk
            // engine stores records of layouts.
            &["layout"],
            &["slots"],
            &["chunk", "ssd"],
        ],
    ),
    (
        "floe",
        &[
            &[
                "abort",
                "error",
                "gauge",
                "latency",
                "limit",
                "machine",
                "membership",
                "runtimes",
            ],
            &["backing", "metadata_log", "origin", "slots", "value"],
            &["chunk", "tiny", "volume"],
            &["store"],
            &["cache"],
            &["items", "object", "typed"],
            &["config", "inspect"],
        ],
    ),
    (
        "floe-server",
        &[
            &["config", "metrics", "reload"],
            &["net", "node"],
            &["commands", "frontend"],
            &["frontends"],
            &["server"],
        ],
    ),
];

/// Checks the shipped files of every crate.
pub(super) fn check(sources: &[Source], violations: &mut Vec<Violation>) {
    let packages: BTreeSet<&str> = sources.iter().map(|s| s.package.as_str()).collect();
    for package in packages {
        let files = sources.iter().filter(|s| s.package == package && !s.test);
        let house = House::new(files);
        let imports = house.imports();
        if let Some((_, layers)) = LAYERS.iter().find(|(name, _)| *name == package) {
            house.check_layers(layers, &imports, violations);
        }
        for circle in circles(&imports) {
            report_circle(&circle, &imports, violations);
        }
    }
}

/// The modules of one crate.
struct House<'a> {
    modules: BTreeMap<&'a [String], Module<'a>>,
}

struct Module<'a> {
    source: &'a Source,
    /// Names that `use` imports, with their paths.
    names: BTreeMap<String, Vec<String>>,
}

/// The lines on which one file imports from another.
type Imports<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, Import>>;

/// The first import of one file by another.
struct Import {
    line: usize,
    name: String,
}

/// Most re-exports to follow from one path, to end in a circle of them.
const RE_EXPORTS_MAX: usize = 8;

impl<'a> House<'a> {
    fn new(sources: impl Iterator<Item = &'a Source>) -> Self {
        let mut modules: BTreeMap<&'a [String], Module<'a>> = BTreeMap::new();
        for source in sources {
            let module = Module {
                source,
                names: names_of(&source.syntax.items),
            };
            // A library precedes a binary of the same package.
            let is_library = source.file.file_name().is_some_and(|name| name == "lib.rs");
            if is_library || !modules.contains_key(&*source.module) {
                modules.insert(&source.module, module);
            }
        }
        House { modules }
    }

    /// The file that defines the item of `path`, seen from the module `from`;
    /// `None` for a module itself and for items of other crates.
    fn definition(&self, from: &[String], path: &[String], re_exports: usize) -> Option<&'a Path> {
        let (first, rest) = path.split_first()?;
        let (mut at, rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (from.to_vec(), rest),
            "super" => (from[..from.len().checked_sub(1)?].to_vec(), rest),
            _ => (from.to_vec(), path),
        };
        for (index, segment) in rest.iter().enumerate() {
            if segment == "super" {
                at.pop()?;
                continue;
            }
            at.push(segment.clone());
            if self.modules.contains_key(&*at) {
                continue;
            }
            at.pop();
            let module = self.modules.get(&*at)?;
            let Some(stands_for) = module.names.get(segment) else {
                // An unknown first name is another crate's, or defined in this module.
                let is_bare = index == 0 && rest.len() == path.len();
                return (!is_bare).then_some(&module.source.file);
            };
            let mut path = stands_for.clone();
            path.extend_from_slice(&rest[index + 1..]);
            if re_exports == RE_EXPORTS_MAX {
                return None;
            }
            return self.definition(&at, &path, re_exports + 1);
        }
        None
    }

    fn imports(&self) -> Imports<'a> {
        let mut imports = Imports::new();
        for (at, module) in &self.modules {
            let mut paths = Paths::default();
            paths.visit_file(&module.source.syntax);
            for (path, span) in paths.found {
                let from = &*module.source.file;
                let Some(to) = self.definition(at, &path, 0).filter(|to| *to != from) else {
                    continue;
                };
                let name = path.last().cloned().unwrap_or_default();
                let line = span.start().line;
                imports
                    .entry(from)
                    .or_default()
                    .entry(to)
                    .or_insert(Import { line, name });
            }
        }
        imports
    }

    fn check_layers(
        &self,
        layers: &[&[&str]],
        imports: &Imports<'a>,
        violations: &mut Vec<Violation>,
    ) {
        let top_level: BTreeMap<&Path, &str> = self
            .modules
            .values()
            .filter_map(|m| Some((&*m.source.file, m.source.module.first()?.as_str())))
            .collect();
        let layer = |module: &str| layers.iter().position(|names| names.contains(&module));
        for (&file, &module) in &top_level {
            let Some(layer_of_file) = layer(module) else {
                let rule = format!(
                    "the module `{module}` has no layer: add it to LAYERS in xtask/src/tidy/module_arrows.rs"
                );
                violations.push(Violation::new(file, 1, rule));
                continue;
            };
            for (to, import) in imports.get(file).into_iter().flatten() {
                // The crate's root defines only macros.
                let Some(&below) = top_level.get(to) else {
                    continue;
                };
                if below != module && layer(below).is_none_or(|layer| layer >= layer_of_file) {
                    let rule = format!(
                        "`{module}` must not import `{}` from `{below}`, which lies no lower: \
                         move what both need below both",
                        import.name
                    );
                    violations.push(Violation::new(file, import.line, rule));
                }
            }
        }
    }
}

/// The names that `use` items import into a module.
fn names_of(items: &[Item]) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    for item in items {
        if let Item::Use(item) = item {
            leaves(&item.tree, &mut Vec::new(), &mut |name, path| {
                names.insert(name, path);
            });
        }
    }
    names
}

/// Calls `leaf` with each name that a `use` imports, and its path.
fn leaves(tree: &UseTree, prefix: &mut Vec<String>, leaf: &mut impl FnMut(String, Vec<String>)) {
    let mut end = |name: String, last: String| {
        let mut path = prefix.clone();
        if last != "self" {
            path.push(last);
        }
        leaf(name, path);
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            leaves(&path.tree, prefix, leaf);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let name = prefix.last().cloned().unwrap_or_default();
            end(name, "self".to_owned());
        }
        UseTree::Name(name) => end(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => end(rename.rename.to_string(), rename.ident.to_string()),
        UseTree::Glob(_) => {}
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, prefix, leaf);
            }
        }
    }
}

/// The paths in a file, without tests.
#[derive(Default)]
struct Paths {
    found: Vec<(Vec<String>, Span)>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !super::modules::is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export is not a use.
        if matches!(item.vis, Visibility::Inherited) {
            let span = item.span();
            leaves(&item.tree, &mut Vec::new(), &mut |_, path| {
                self.found.push((path, span));
            });
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.found.push((segments, path.span()));
        visit::visit_path(self, path);
    }
}

/// Groups of files that import each other in a circle, each in order of name.
fn circles<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a Path>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = imports
        .keys()
        .map(|&file| (file, reachable(imports, file)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (&file, to) in &reached {
        if !to.contains(file) || !seen.insert(file) {
            continue;
        }
        let returns = |other: &&&Path| reached.get(**other).is_some_and(|r| r.contains(file));
        let circle: Vec<&Path> = to.iter().filter(returns).copied().collect();
        seen.extend(&circle);
        circles.push(circle);
    }
    circles
}

fn reachable<'a>(imports: &Imports<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for &to in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

/// Reports the imports of `circle`.
fn report_circle(circle: &[&Path], imports: &Imports<'_>, violations: &mut Vec<Violation>) {
    for file in circle {
        for (to, import) in imports.get(file).into_iter().flatten() {
            if circle.contains(to) {
                let rule = format!(
                    "imports `{}` from {}, which imports from here in turn ({} files in the circle): \
                     move what both need into a file below both",
                    import.name,
                    to.display(),
                    circle.len()
                );
                violations.push(Violation::new(PathBuf::from(file), import.line, rule));
            }
        }
    }
}
