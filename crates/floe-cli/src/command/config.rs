//! `floe config`: print, check and explain settings.

use std::collections::BTreeMap;

use clap::ArgMatches;
use floe::config::{Effective, Schema};
use serde::Serialize;

use crate::args::ConfigAction;
use crate::failure::Failure;
use crate::output;
use crate::settings::{Plan, Request};
use crate::style::Style;

pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    action: ConfigAction,
    json: bool,
) -> Result<(), Failure> {
    match action {
        ConfigAction::Default => output::print(&schema.default_file()),
        ConfigAction::Reference => output::print(&schema.reference()),
        ConfigAction::Show => {
            let effective = Request::new(schema, matches)?.load(schema)?;
            if json {
                output::print_json(&shown(&effective))
            } else {
                output::print(&effective.show())
            }
        }
        ConfigAction::Check { file } => {
            let mut request = Request::new(schema, matches)?;
            if let Some(file) = file {
                request.read_file(file);
            }
            let effective = request.load(schema)?;
            let plan = Plan::new(&request, &effective)?;
            report_checked(&request, plan.warnings(), json)
        }
    }
}

#[derive(Serialize)]
struct Shown {
    value: Option<serde_json::Value>,
    source: String,
}

fn shown(effective: &Effective<'_>) -> BTreeMap<String, Shown> {
    let schema = effective.schema();
    let named = schema.sections().iter().filter_map(|section| {
        let entry = section.entry.as_ref()?;
        let settings = effective.entries_of(section.name);
        Some(settings.map(move |(name, _)| (format!("{}.{name}", section.name), entry)))
    });
    schema
        .keys()
        .chain(named.flatten())
        .map(|(setting, key)| {
            let shown = match effective.get(&setting) {
                Some(entry) => Shown {
                    value: if key.secret {
                        Some("(secret)".into())
                    } else {
                        serde_json::to_value(&entry.value).ok()
                    },
                    source: entry.source.to_string(),
                },
                None => Shown {
                    value: None,
                    source: "not set".to_owned(),
                },
            };
            (setting, shown)
        })
        .collect()
}

fn report_checked(request: &Request, warnings: Vec<String>, json: bool) -> Result<(), Failure> {
    let file = request
        .places
        .file
        .as_ref()
        .map(|path| path.display().to_string());
    if json {
        let checked = serde_json::json!({ "ok": true, "file": file, "warnings": warnings });
        return output::print_json(&checked);
    }
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    let what = file.unwrap_or_else(|| "the configuration without a file".to_owned());
    output::print(&format!("{} {what}\n", Style::stdout().green("ok:")))
}
