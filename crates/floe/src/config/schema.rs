//! The settings of a program.

use super::error::ConfigError;
use super::key::{Key, Section};
use super::renamed::{renamed, renamed_as};
use super::value::nearest;

/// An ordered list of sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    sections: Vec<Section>,
}

impl Schema {
    /// A schema of these sections, in the order of documentation.
    pub fn new(sections: Vec<Section>) -> Self {
        Schema { sections }
    }

    /// The sections in order.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Every key with its full name, in order.
    pub fn keys(&self) -> impl Iterator<Item = (String, &Key)> {
        self.sections.iter().flat_map(|section| {
            section
                .keys
                .iter()
                .map(move |key| (format!("{}.{}", section.name, key.name), key))
        })
    }

    /// The key with the name `setting`.
    pub fn key(&self, setting: &str) -> Option<&Key> {
        self.sections.iter().find_map(|section| {
            let name = setting.strip_prefix(section.name)?.strip_prefix('.')?;
            let entry = section.entry.as_ref().filter(|_| !name.is_empty());
            entry.or_else(|| section.keys.iter().find(|key| key.name == name))
        })
    }

    /// The variable that sets `setting`: `FLOE_CHUNK_SIZE` for `chunk.size`.
    pub fn variable(setting: &str) -> String {
        format!(
            "FLOE_{}",
            setting.replace(['.', '-'], "_").to_ascii_uppercase()
        )
    }

    /// The flag that sets `setting`, without its dashes: `chunk-size` for `chunk.size`.
    pub fn flag(setting: &str) -> String {
        setting.replace(['.', '_'], "-")
    }

    /// Variables that start with `FLOE_` and name no setting, each with the
    /// nearest variable. The caller reports them without failing, because
    /// orchestrators set variables of their own, such as `FLOE_SERVICE_HOST`.
    pub fn unknown_variables(
        &self,
        environment: &[(String, String)],
        others: &[&str],
    ) -> Vec<(String, Option<String>)> {
        let known: Vec<String> = self.keys().map(|(s, _)| Schema::variable(&s)).collect();
        environment
            .iter()
            .filter(|(name, _)| name.starts_with("FLOE_"))
            .filter(|(name, _)| !known.contains(name) && !others.contains(&name.as_str()))
            .map(|(name, _)| {
                let near = match renamed_as(Schema::variable, name) {
                    Some(setting) => Some(Schema::variable(setting)),
                    None => nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
                };
                (name.clone(), near)
            })
            .collect()
    }

    /// The present flag, without its dashes, of the setting that had the flag `old`.
    pub fn renamed_flag(old: &str) -> Option<String> {
        renamed_as(Schema::flag, old).map(Schema::flag)
    }

    /// True if `name` is a table: a section, or a table in one.
    pub(super) fn has_table(&self, name: &str) -> bool {
        self.sections.iter().any(|section| section.name == name)
            || self.keys().any(|(setting, _)| {
                setting
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('.'))
            })
    }

    /// The error for an unknown key.
    pub(super) fn unknown(&self, place: String, setting: &str) -> ConfigError {
        if let Some(name) = renamed(setting) {
            return ConfigError::RenamedKey {
                place,
                key: setting.to_owned(),
                name,
            };
        }
        let known: Vec<String> = self
            .keys()
            .map(|(name, _)| name)
            .chain(self.sections.iter().map(|s| s.name.to_owned()))
            .collect();
        // First looks for a slip of the pen, then for a key of this name in another
        // section.
        let slips = |name: &&String| strsim::levenshtein(name, setting) == 1;
        if let Some(near) = known.iter().find(slips) {
            return ConfigError::UnknownKey {
                place,
                key: setting.to_owned(),
                nearest: Some(near.clone()),
            };
        }
        let own_name = setting.rsplit('.').next().unwrap_or(setting);
        let same_name: Vec<&String> = known
            .iter()
            .filter(|name| name.rsplit('.').next() == Some(own_name) && name.contains('.'))
            .collect();
        let near = match same_name.as_slice() {
            [only] => Some((*only).clone()),
            _ => nearest(setting, known.iter().map(String::as_str)).map(str::to_owned),
        };
        ConfigError::UnknownKey {
            place,
            key: setting.to_owned(),
            nearest: near,
        }
    }
}
