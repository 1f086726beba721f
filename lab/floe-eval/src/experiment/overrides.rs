//! Keys that a command line sets: one more `[[adjust]]`, of all cases. It is part of the
//! experiment's text, so that results tell what they are of.

/// A key of an experiment and its value, read from `bench.requests=100`. A value that is not
/// TOML is a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    key: String,
    value: toml::Value,
}

impl std::str::FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not of the form bench.requests=100");
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim());
        if key.split('.').any(str::is_empty) {
            return Err(wrong());
        }
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"));
        let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
        Ok(Override {
            key: key.to_owned(),
            value: parsed.unwrap_or_else(|| value.into()),
        })
    }
}

/// The experiment's text with `overrides`.
pub(super) fn applied(mut text: String, overrides: &[Override]) -> String {
    if overrides.is_empty() {
        return text;
    }
    let set = overrides.iter().map(|Override { key, value }| {
        let key = toml::Value::from(key.as_str());
        format!("{key} = {value}")
    });
    let set = set.collect::<Vec<String>>().join(", ");
    text.push_str(&format!("\n\n[[adjust]]\nonly = {{}}\nset = {{ {set} }}\n"));
    text
}
