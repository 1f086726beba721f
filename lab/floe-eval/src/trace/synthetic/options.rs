//! Options of generated traces.

/// Requests and seed of a trace whose name has none. The paper replays ten times
/// as many requests of each volume.
pub(super) const REQUESTS_DEFAULT: u64 = 1_000_000;
pub(super) const SEED_DEFAULT: u64 = 42;

/// Hands each `key=value` of `options` to `set`, which answers whether there is
/// such a key.
pub(super) fn each_option(
    options: &str,
    mut set: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<(), String> {
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let pair = option.split_once('=');
        let (key, value) = pair.ok_or_else(|| format!("`{option}` has no value"))?;
        match set(key.trim(), value.trim()) {
            Ok(true) => {}
            Ok(false) => return Err(format!("there is no option `{key}`")),
            Err(reason) => return Err(format!("{key}: {reason}")),
        }
    }
    Ok(())
}

pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    value: &str,
) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}
