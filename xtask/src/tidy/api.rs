//! The public API of the library's crates, as recorded in `docs/api/`: a change
//! is seen in review, and none happens by accident.
//!
//! An item is public if it says `pub`: the lint `unreachable_pub` refuses the
//! word where users cannot reach the item. Items that a macro makes are recorded
//! as the macro's input.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::{
    Attribute, Block, Field, Fields, ImplItem, Item, ItemImpl, TraitItem, Type, TypeInfer,
    Visibility,
};

use super::modules::Source;
use super::rust_rules::attributes;
use super::violation::Violation;

/// The crates that users link.
const CRATES: &[&str] = &["floe", "floe-object-store"];

/// Attributes that belong to an item's contract.
const CONTRACT: &[&str] = &[
    "cfg",
    "derive",
    "deprecated",
    "must_use",
    "non_exhaustive",
    "repr",
];

/// Compares the recorded API with the sources'.
pub(super) fn check(root: &Path, sources: &[Source], violations: &mut Vec<Violation>) {
    for package in CRATES {
        let file = file(package);
        let recorded = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
        let current = record(package, sources);
        if current.is_empty() && recorded.is_empty() {
            continue;
        }
        if let Some((line, difference)) = difference(&recorded, &current) {
            let rule = format!("`cargo xtask api` records this change of {package}:{difference}");
            violations.push(Violation::new(&file, line, rule));
        }
    }
}

/// Writes the API of each crate.
pub(super) fn write(root: &Path, sources: &[Source]) -> Result<()> {
    for package in CRATES {
        let file = root.join(file(package));
        std::fs::create_dir_all(file.parent().context("the record has a folder")?)?;
        std::fs::write(&file, record(package, sources))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn file(package: &str) -> PathBuf {
    PathBuf::from(format!("docs/api/{package}.txt"))
}

/// The lines that came and went, and the first place.
fn difference(recorded: &str, current: &str) -> Option<(usize, String)> {
    let lines = |text: &str| -> BTreeSet<(String, String)> {
        let mut module = String::new();
        let named = text.lines().filter(|line| !line.is_empty()).map(|line| {
            if let Some(name) = line.strip_prefix("// ") {
                module = name.to_owned();
            }
            (module.clone(), line.to_owned())
        });
        named.collect()
    };
    let (old, new) = (lines(recorded), lines(current));
    let print = |sign, lines: Vec<&(String, String)>| -> String {
        let lines = lines
            .into_iter()
            .map(|(module, line)| format!("\n  {sign} {module}: {}", line.trim()));
        lines.collect()
    };
    let gone = print('-', old.difference(&new).collect());
    let come = print('+', new.difference(&old).collect());
    let first = recorded
        .lines()
        .zip(current.lines())
        .position(|(a, b)| a != b);
    (recorded != current).then(|| (first.map_or(1, |index| index + 1), gone + &come))
}

/// The public items of a crate, module by module.
fn record(package: &str, sources: &[Source]) -> String {
    let mut sources: Vec<_> = sources
        .iter()
        .filter(|source| source.package == package && !source.test)
        .collect();
    sources.sort_by_key(|source| &source.module);
    let types: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| &source.syntax.items)
        .filter_map(public_type)
        .collect();
    let mut text = String::new();
    for source in sources {
        let items = source
            .syntax
            .items
            .iter()
            .filter(|item| !is_test(attributes(item)));
        let items: Vec<Item> = items
            .filter_map(|item| public(item.clone(), &types))
            .collect();
        if items.is_empty() {
            continue;
        }
        let module = [package.replace('-', "_")]
            .into_iter()
            .chain(source.module.iter().cloned());
        let module: Vec<String> = module.collect();
        let file = syn::File {
            shebang: None,
            attrs: Vec::new(),
            items,
        };
        text += &format!(
            "// {}\n{}\n",
            module.join("::"),
            prettyplease::unparse(&file)
        );
    }
    text
}

fn public_type(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Enum(i) => (&i.vis, &i.ident),
        Item::Struct(i) => (&i.vis, &i.ident),
        Item::Trait(i) => (&i.vis, &i.ident),
        Item::Type(i) => (&i.vis, &i.ident),
        _ => return None,
    };
    is_public(visibility).then(|| name.to_string())
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg") && list.is_ok_and(|l| l.tokens.to_string() == "test")
    })
}

/// What users see of an item: no bodies, private fields or comments.
fn public(mut item: Item, types: &BTreeSet<String>) -> Option<Item> {
    match &mut item {
        Item::Const(i) if is_public(&i.vis) => keep_contract(&mut i.attrs),
        Item::Enum(i) if is_public(&i.vis) => {
            keep_contract(&mut i.attrs);
            for variant in &mut i.variants {
                keep_contract(&mut variant.attrs);
                variant
                    .fields
                    .iter_mut()
                    .for_each(|field| keep_contract(&mut field.attrs));
            }
        }
        Item::Fn(i) if is_public(&i.vis) => {
            keep_contract(&mut i.attrs);
            *i.block = empty();
        }
        Item::Impl(i) => return public_impl(i, types).then_some(item),
        // Declarations of macros are `macro_rules!`, which users reach by `#[macro_export]`.
        Item::Macro(i) => {
            i.attrs
                .retain(|attribute| attribute.path().is_ident("macro_export"));
            if i.ident.is_some() && i.attrs.is_empty() {
                return None;
            }
            i.mac.tokens = without_docs(std::mem::take(&mut i.mac.tokens));
        }
        Item::Mod(i) if is_public(&i.vis) && i.content.is_none() => keep_contract(&mut i.attrs),
        Item::Struct(i) if is_public(&i.vis) => {
            keep_contract(&mut i.attrs);
            hide_private(&mut i.fields);
        }
        Item::Trait(i) if is_public(&i.vis) => {
            keep_contract(&mut i.attrs);
            for item in &mut i.items {
                if let TraitItem::Fn(function) = item {
                    keep_contract(&mut function.attrs);
                    function.default = function.default.as_ref().map(|_| empty());
                }
            }
        }
        Item::Type(i) if is_public(&i.vis) => keep_contract(&mut i.attrs),
        Item::Use(i) if is_public(&i.vis) => keep_contract(&mut i.attrs),
        _ => return None,
    }
    Some(item)
}

/// Whether anything of the block is public; the rest is left out.
fn public_impl(block: &mut ItemImpl, types: &BTreeSet<String>) -> bool {
    keep_contract(&mut block.attrs);
    let Type::Path(path) = &*block.self_ty else {
        return false;
    };
    let name = path
        .path
        .segments
        .last()
        .map(|segment| segment.ident.to_string());
    if !name.is_some_and(|name| types.contains(&name)) {
        return false;
    }
    if block.trait_.is_some() {
        block.items.retain(|item| matches!(item, ImplItem::Type(_)));
        return true;
    }
    block.items.retain_mut(|item| match item {
        ImplItem::Const(i) => {
            keep_contract(&mut i.attrs);
            is_public(&i.vis)
        }
        ImplItem::Fn(i) => {
            keep_contract(&mut i.attrs);
            i.block = empty();
            is_public(&i.vis)
        }
        _ => false,
    });
    !block.items.is_empty()
}

/// Private fields become one that has no name, and no type.
fn hide_private(fields: &mut Fields) {
    let hidden = || {
        Type::Infer(TypeInfer {
            underscore_token: Default::default(),
        })
    };
    match fields {
        Fields::Named(named) => {
            let all = std::mem::take(&mut named.named);
            let count = all.len();
            named.named = all
                .into_iter()
                .filter(|field| is_public(&field.vis))
                .collect();
            if named.named.len() < count {
                named.named.push(Field {
                    attrs: Vec::new(),
                    vis: Visibility::Inherited,
                    mutability: syn::FieldMutability::None,
                    ident: Some(Ident::new("_", Span::call_site())),
                    colon_token: Some(Default::default()),
                    ty: hidden(),
                });
            }
        }
        Fields::Unnamed(unnamed) => {
            let private = unnamed
                .unnamed
                .iter_mut()
                .filter(|field| !is_public(&field.vis));
            private.for_each(|field| field.ty = hidden());
        }
        Fields::Unit => {}
    }
    fields
        .iter_mut()
        .for_each(|field| keep_contract(&mut field.attrs));
}

fn keep_contract(attributes: &mut Vec<Attribute>) {
    attributes.retain(|attribute| CONTRACT.iter().any(|name| attribute.path().is_ident(name)));
}

fn empty() -> Block {
    Block {
        brace_token: Default::default(),
        stmts: Vec::new(),
    }
}

/// The tokens without `#[doc = …]`, which comments are.
fn without_docs(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            let is_doc = group.delimiter() == Delimiter::Bracket
                && group.stream().to_string().starts_with("doc =");
            if is_doc {
                // The `#` before it.
                kept.pop();
                continue;
            }
            let stream = without_docs(group.stream());
            kept.push(proc_macro2::Group::new(group.delimiter(), stream).into());
            continue;
        }
        kept.push(token);
    }
    kept.into_iter().collect()
}
