//! Old names of settings, so that an error about one gives its present name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The list, which `cargo xtask` reads as well.
const LIST: &str = include_str!("renamed.toml");

/// Old names of settings and their present names.
static SETTINGS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    // A test reads the list: it is well formed.
    let list: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(LIST).unwrap_or_default();
    list.get("settings").cloned().unwrap_or_default()
});

/// The present name of the setting that was called `old`.
pub(super) fn renamed(old: &str) -> Option<&'static str> {
    SETTINGS.get(old).map(String::as_str)
}

/// The present name of the setting whose old name `spell` turns into `old`.
pub(super) fn renamed_as(spell: fn(&str) -> String, old: &str) -> Option<&'static str> {
    SETTINGS
        .iter()
        .find(|(setting, _)| spell(setting) == old)
        .map(|(_, name)| name.as_str())
}

#[cfg(test)]
pub(super) fn all() -> &'static BTreeMap<String, String> {
    &SETTINGS
}
