//! Settings from strings and back: an enum parses from the names that its variants
//! have in configuration files, and prints as its name.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

/// A string that names no variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownName(String);

/// The variant that configuration files call `name`.
///
/// # Errors
/// [`UnknownName`] lists the names that there are.
pub fn by_name<T: DeserializeOwned>(name: &str) -> Result<T, UnknownName> {
    let deserializer: StrDeserializer<'_, Error> = StrDeserializer::new(name);
    T::deserialize(deserializer).map_err(|error| UnknownName(error.to_string()))
}

/// Implements `FromStr` for enums of settings.
#[macro_export]
macro_rules! parse_by_name {
    ($($setting:ty),+ $(,)?) => {$(
        impl ::std::str::FromStr for $setting {
            type Err = $crate::parse::UnknownName;

            fn from_str(name: &str) -> ::std::result::Result<Self, Self::Err> {
                $crate::parse::by_name(name)
            }
        }
    )+};
}

/// Implements `Display` for enums that have a `name`.
#[macro_export]
macro_rules! display_name {
    ($($named:ty),+ $(,)?) => {$(
        impl ::std::fmt::Display for $named {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    )+};
}
