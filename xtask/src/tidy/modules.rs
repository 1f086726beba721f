//! Walks every crate from its roots along `mod` items, to find the compiled
//! files (and whether only tests compile them) and the dead ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::arrows::Package;
use super::violation::Violation;

/// A compiled source file.
pub(super) struct Source {
    /// Its package.
    pub(super) package: String,
    /// Relative to the project's root.
    pub(super) file: PathBuf,
    /// Its module path; the crate's root has none.
    pub(super) module: Vec<String>,
    /// Only tests, benches or examples compile it.
    pub(super) test: bool,
    pub(super) text: String,
    pub(super) syntax: syn::File,
}

/// Every file reachable from a crate root. A file that tests and shipped code
/// reach counts as shipped.
pub(super) fn walk(
    root: &Path,
    packages: &[Package],
    violations: &mut Vec<Violation>,
) -> Result<Vec<Source>> {
    let mut reached = BTreeMap::new();
    for package in packages {
        for target in &package.targets {
            let mut walker = Walker {
                root,
                package: &package.name,
                reached: &mut reached,
                violations,
            };
            let folder = target
                .root_file
                .parent()
                .unwrap_or(Path::new(""))
                .to_path_buf();
            walker.file(&target.root_file, &folder, &[], target.test)?;
        }
    }
    Ok(reached.into_values().collect())
}

struct Walker<'a> {
    root: &'a Path,
    package: &'a str,
    reached: &'a mut BTreeMap<PathBuf, Source>,
    violations: &'a mut Vec<Violation>,
}

impl Walker<'_> {
    /// `children` is the directory of the file's own `mod x;`.
    fn file(&mut self, file: &Path, children: &Path, at: &[String], test: bool) -> Result<()> {
        if self
            .reached
            .get(file)
            .is_some_and(|known| test || !known.test)
        {
            return Ok(());
        }
        let text = std::fs::read_to_string(self.root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        let syntax = match syn::parse_file(&text) {
            Ok(syntax) => syntax,
            Err(error) => {
                let line = error.span().start().line;
                self.violations.push(Violation::new(
                    file,
                    line,
                    format!("does not parse: {error}"),
                ));
                return Ok(());
            }
        };
        let test = test || is_test_only(&syntax.attrs);
        let modules: Vec<ItemMod> = modules_of(&syntax.items);
        self.reached.insert(
            file.to_path_buf(),
            Source {
                package: self.package.to_owned(),
                file: file.to_path_buf(),
                module: at.to_vec(),
                test,
                text,
                syntax,
            },
        );
        let here = file.parent().unwrap_or(Path::new("")).to_path_buf();
        for module in &modules {
            self.module(module, &here, children, at, test)?;
        }
        Ok(())
    }

    fn module(
        &mut self,
        module: &ItemMod,
        here: &Path,
        children: &Path,
        at: &[String],
        test: bool,
    ) -> Result<()> {
        let test = test || is_test_only(&module.attrs);
        let name = module.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        let at: Vec<String> = at.iter().cloned().chain([name.to_owned()]).collect();
        if let Some((_, items)) = &module.content {
            for inner in modules_of(items) {
                let inside = children.join(name);
                self.module(&inner, &inside, &inside, &at, test)?;
            }
            return Ok(());
        }
        let candidates = match path_attribute(&module.attrs) {
            Some(path) => vec![(here.join(&path), here.join(&path).with_extension(""))],
            None => vec![
                (children.join(format!("{name}.rs")), children.join(name)),
                (children.join(name).join("mod.rs"), children.join(name)),
            ],
        };
        for (candidate, inside) in candidates {
            if self.root.join(&candidate).is_file() {
                return self.file(&candidate, &inside, &at, test);
            }
        }
        Ok(()) // The compiler reports the missing file better.
    }
}

fn modules_of(items: &[Item]) -> Vec<ItemMod> {
    items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(module) => Some(module.clone()),
            _ => None,
        })
        .collect()
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(path),
                    ..
                }) => Some(path.value()),
                _ => None,
            },
            _ => None,
        })
}

/// True if attributes limit the item to tests.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|s| s.ident == "test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test")
        }
        Meta::List(list) => list.path.segments.last().is_some_and(|s| s.ident == "test"),
        Meta::NameValue(_) => false,
    })
}

/// Reports files of a package that no target reaches.
pub(super) fn check_dead(
    root: &Path,
    packages: &[Package],
    files: &[PathBuf],
    reached: &[Source],
    violations: &mut Vec<Violation>,
) {
    let compiled: Vec<&Path> = reached.iter().map(|s| s.file.as_path()).collect();
    for file in files {
        let rust = file.extension().is_some_and(|e| e == "rs");
        let owned = packages.iter().any(|p| file.starts_with(&p.folder));
        let build_script = file.file_name().is_some_and(|n| n == "build.rs");
        // Sources of programs that tests compile are data here.
        let fixture = file.components().any(|c| c.as_os_str() == "fixtures");
        if rust && owned && !build_script && !fixture && !compiled.contains(&file.as_path()) {
            debug_assert!(root.join(file).is_file());
            violations.push(Violation::new(
                file,
                1,
                "dead file: no `mod` item reaches it from a crate root, test, bench or example",
            ));
        }
    }
}
