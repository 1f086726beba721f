//! Renders the table of keys: the commented default file, the effective
//! settings, the reference page.

use std::fmt::Write as _;

use super::value::{shown, toml_text};
use super::{Effective, Key, Kind, Schema};

const COMMENT_WIDTH: usize = 78;

impl Schema {
    /// A file with every key, its documentation and its default. Keys without a
    /// default are commented out. Loading the file changes nothing.
    pub fn default_file(&self) -> String {
        let mut out = String::from(
            "# Every setting of Floe with its default. Each is also a flag and a variable:\n\
             # chunk.size is --chunk-size and FLOE_CHUNK_SIZE. A flag wins over a variable,\n\
             # a variable over this file, this file over the default.\n",
        );
        for section in self.sections() {
            out.push('\n');
            push_comment(&mut out, &section.doc);
            if section.entry.is_some() {
                let _ = writeln!(out, "# [{}.NAME]", section.name);
                continue;
            }
            let _ = writeln!(out, "[{}]", section.name);
            for key in &section.keys {
                out.push('\n');
                push_comment(&mut out, &key.doc);
                push_choices(&mut out, key);
                match &key.default {
                    Some(value) => {
                        let _ = writeln!(out, "{} = {}", key.name, toml_text(value));
                    }
                    None => {
                        let _ = writeln!(out, "# {} = {}", key.name, example(key));
                    }
                }
            }
        }
        out
    }

    /// The reference page, in Markdown.
    pub fn reference(&self) -> String {
        let mut out = String::from(
            "# Configuration\n\n\
             <!-- Generated from the table of keys; `FLOE_BLESS=1 cargo test -p floe-cli` rewrites it. -->\n\n\
             One TOML file, given with `--config FILE` or `FLOE_CONFIG`. Every key is also a flag and an\n\
             environment variable, and `--set section.key=value` sets any of them. A flag wins over a\n\
             variable, a variable over the file, the file over the default.\n\n\
             An unknown key is an error that names the nearest known one and the line. An unknown\n\
             variable that starts with `FLOE_` is only warned about, because orchestrators invent such\n\
             names (`FLOE_SERVICE_HOST`).\n\n\
             Sizes are written `64KiB`, `1.5GiB`, `2TB` or as a number of bytes. `floe config default`\n\
             prints a file with every key, `floe config check` checks one, `floe config show` says what\n\
             holds and where each value came from.\n",
        );
        for section in self.sections() {
            let name = match section.entry {
                Some(_) => format!("{}.NAME", section.name),
                None => section.name.to_owned(),
            };
            let _ = write!(out, "\n## [{name}]\n\n{}\n", section.doc);
            for key in &section.keys {
                let setting = format!("{}.{}", section.name, key.name);
                let _ = write!(
                    out,
                    "\n### `{setting}`\n\n{}\n\n{}",
                    key.doc,
                    facts(&setting, key)
                );
            }
        }
        out
    }
}

impl Effective<'_> {
    /// The effective settings as TOML, each with its source in a comment, without secrets.
    pub fn show(&self) -> String {
        let mut out = String::new();
        for section in self.schema().sections() {
            let entries = section
                .entry
                .iter()
                .flat_map(|_| self.entries_of(section.name));
            let entries: Vec<_> = entries.collect();
            if section.entry.is_some() && entries.is_empty() {
                continue;
            }
            let _ = writeln!(out, "[{}]", section.name);
            for (name, entry) in entries {
                let pair = format!("{} = {}", toml_text(&name.into()), toml_text(&entry.value));
                let _ = writeln!(out, "{pair:<40}  # {}", entry.source);
            }
            for key in &section.keys {
                let setting = format!("{}.{}", section.name, key.name);
                let line = match self.get(&setting) {
                    Some(entry) if key.secret => {
                        format!("# {} is set and kept secret  # {}", key.name, entry.source)
                    }
                    Some(entry) => {
                        let pair = format!("{} = {}", key.name, shown(key, &entry.value));
                        format!("{pair:<40}  # {}", entry.source)
                    }
                    None => format!("{:<40}  # not set", format!("# {} =", key.name)),
                };
                let _ = writeln!(out, "{line}");
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

fn facts(setting: &str, key: &Key) -> String {
    let mut out = String::new();
    let takes = match key.kind {
        Kind::Bool => "`true` or `false`".to_owned(),
        Kind::Integer => "a whole number".to_owned(),
        Kind::Float => "a number".to_owned(),
        Kind::Size => "a size".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Address => "an address and port, or `off`".to_owned(),
        Kind::List => "a list of texts".to_owned(),
        Kind::KeyPairs => "pairs of keys".to_owned(),
        Kind::Toml => "a TOML value".to_owned(),
        Kind::Choice(choices) => {
            for choice in choices {
                let _ = writeln!(out, "- `{}`: {}", choice.word, choice.doc.trim());
            }
            out.push('\n');
            "one of the above".to_owned()
        }
    };
    let default = key
        .default
        .as_ref()
        .map_or_else(|| "not set".to_owned(), |v| format!("`{}`", toml_text(v)));
    let _ = writeln!(
        out,
        "Takes {takes}{}. Default: {default}. Flag `--{}`, variable `{}`.",
        bounds(key),
        Schema::flag(setting),
        Schema::variable(setting)
    );
    out
}

fn bounds(key: &Key) -> String {
    let text = |n: u64| match key.kind {
        Kind::Size => floe_core::ByteSize(n).to_string(),
        _ => n.to_string(),
    };
    let mut out = match (key.limits.least, key.limits.most) {
        (Some(least), Some(most)) => format!(" from {} to {}", text(least), text(most)),
        (Some(least), None) => format!(" of at least {}", text(least)),
        (None, Some(most)) => format!(" of at most {}", text(most)),
        (None, None) => String::new(),
    };
    if let Some(unit) = key.limits.multiple_of {
        let _ = write!(out, ", a multiple of {}", text(unit));
    }
    out
}

fn push_choices(out: &mut String, key: &Key) {
    if let Kind::Choice(choices) = key.kind {
        for choice in choices {
            push_comment(
                out,
                &format!("- \"{}\": {}", choice.word, choice.doc.trim()),
            );
        }
    }
}

fn example(key: &Key) -> &'static str {
    match key.kind {
        Kind::Bool => "true",
        Kind::Integer => "1",
        Kind::Float => "1.0",
        Kind::Size => "\"1GiB\"",
        Kind::Text | Kind::Path => "\"\"",
        Kind::Address => "\"127.0.0.1:9000\"",
        Kind::List | Kind::Toml => "[]",
        Kind::KeyPairs => "[{ access_key = \"…\", secret_key = \"…\" }]",
        Kind::Choice(_) => "\"…\"",
    }
}

fn push_comment(out: &mut String, text: &str) {
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > COMMENT_WIDTH - 2 {
                let _ = writeln!(out, "# {line}");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(out, "# {line}");
    }
}
