//! The names of enums' variants, and enums from names: an enum of settings
//! parses from the names that its variants have in configuration files.

use std::fmt::Display;

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

/// The one of `all` that `text` names. Case, hyphens and underscores do not
/// count, for names that people type.
///
/// # Errors
/// [`UnknownName`] says that `text` is not `kind`, and lists the names that
/// there are.
pub fn by_spelling<T: Copy + Display>(text: &str, kind: &str, all: &[T]) -> Result<T, UnknownName> {
    let letters = |name: &str| name.trim().to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = letters(text);
    let found = all.iter().find(|one| letters(&one.to_string()) == wanted);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        let names = names.join(", ");
        UnknownName(format!("`{text}` is not {kind}; choose one of {names}"))
    })
}

/// Names the variants of an enum: `ALL`, `name` and `Display`. With a word for
/// the enum, `FromStr` as in [`by_spelling`](crate::parse::by_spelling).
#[macro_export]
macro_rules! names {
    ($named:ident: $kind:literal { $($names:tt)+ }) => {
        $crate::names!($named { $($names)+ });

        impl ::std::str::FromStr for $named {
            type Err = $crate::parse::UnknownName;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                $crate::parse::by_spelling(text, $kind, &Self::ALL)
            }
        }
    };
    ($named:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $named {
            /// Every variant, in the order of reports.
            pub const ALL: [$named; [$($name),+].len()] = [$($named::$variant),+];

            /// The variant's name in settings, reports and messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($named::$variant => $name),+
                }
            }
        }

        $crate::display_name!($named);
    };
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

#[cfg(test)]
mod tests {
    use crate::policy::admission::AdmissionKind;

    #[test]
    fn names_are_shown_listed_and_read_in_any_spelling() {
        assert_eq!(format!("{:>4}", AdmissionKind::All), " all");
        assert_eq!(AdmissionKind::ALL[2], AdmissionKind::WriteBudget);
        for text in ["write-budget", " Write_Budget ", "WRITEBUDGET"] {
            assert_eq!(text.parse(), Ok(AdmissionKind::WriteBudget), "{text}");
        }
        let unknown = "budget".parse::<AdmissionKind>().unwrap_err().to_string();
        let names = "all, probabilistic, write-budget, frequency, reject-first";
        let message = format!("`budget` is not an admission policy; choose one of {names}");
        assert_eq!(unknown, message);
    }
}
