//! Keys: a setting's name, values, limits, documentation and default.

use std::collections::BTreeMap;
use std::path::PathBuf;

use floe_core::ByteSize;
use serde::Serialize;
use toml::{Table, Value};

/// One of the words that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The word.
    pub word: &'static str,
    /// Its meaning.
    pub doc: &'static str,
}

/// The kind of values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number, not negative.
    Integer,
    /// A number.
    Float,
    /// A number of bytes, such as `64KiB`.
    Size,
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// A list of texts; separated by commas in flags and variables.
    List,
    /// An IP address and a port, or `off`.
    Address,
    /// One of these words.
    Choice(&'static [Choice]),
    /// Pairs of access key and secret key: an array of tables in the file,
    /// `ACCESS:SECRET,…` in flags and variables.
    KeyPairs,
    /// Any TOML value, written as TOML in flags and variables.
    Toml,
}

impl Kind {
    /// A placeholder for help texts.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Kind::Bool => "BOOL",
            Kind::Integer => "COUNT",
            Kind::Float => "NUMBER",
            Kind::Size => "SIZE",
            Kind::Text => "TEXT",
            Kind::Path => "PATH",
            Kind::List => "LIST",
            Kind::Address => "ADDRESS",
            Kind::Choice(_) => "CHOICE",
            Kind::KeyPairs => "ACCESS:SECRET",
            Kind::Toml => "TOML",
        }
    }
}

/// Bounds that hold for every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Least value, for numbers and sizes.
    pub least: Option<u64>,
    /// Greatest value, for numbers and sizes.
    pub most: Option<u64>,
    /// The value must be a multiple of this, for sizes.
    pub multiple_of: Option<u64>,
}

impl Limits {
    /// No bounds.
    pub const NONE: Limits = Limits {
        least: None,
        most: None,
        multiple_of: None,
    };
    /// From `least` to `most`.
    pub const fn between(least: u64, most: u64) -> Limits {
        Limits {
            least: Some(least),
            most: Some(most),
            multiple_of: None,
        }
    }
    /// At least `least`.
    pub const fn at_least(least: u64) -> Limits {
        Limits {
            least: Some(least),
            most: None,
            multiple_of: None,
        }
    }
    /// The same limits, and a multiple of `unit`.
    pub const fn multiple_of(self, unit: u64) -> Limits {
        Limits {
            multiple_of: Some(unit),
            ..self
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its name inside the section, such as `open_zones`.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The bounds of its values.
    pub limits: Limits,
    /// The value if no source sets one; `None` if the setting is then unset or
    /// derived.
    pub default: Option<Value>,
    /// Its documentation; the first line is a summary.
    pub doc: String,
    /// Output hides its value.
    pub secret: bool,
    /// Of a key that chooses a profile: for each of its words, the defaults of other
    /// keys of the section.
    pub profiles: BTreeMap<String, Table>,
}

impl Key {
    /// A key without a default.
    pub fn new(name: &'static str, kind: Kind, doc: &str) -> Self {
        Key {
            name,
            kind,
            limits: Limits::NONE,
            default: None,
            doc: doc.to_owned(),
            secret: false,
            profiles: BTreeMap::new(),
        }
    }

    /// The same key within bounds.
    pub fn limits(self, limits: Limits) -> Self {
        Key { limits, ..self }
    }

    /// The same key with a default.
    pub fn default_to(self, default: impl Into<Value>) -> Self {
        Key {
            default: Some(default.into()),
            ..self
        }
    }

    /// The first line of the documentation.
    pub fn summary(&self) -> &str {
        self.doc.lines().next().unwrap_or_default()
    }

    /// Hides the value in output.
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }
}

/// A group of settings, a table of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its name, such as `chunk`.
    pub name: &'static str,
    /// Its documentation.
    pub doc: String,
    /// Its keys, in the order of documentation.
    pub keys: Vec<Key>,
    /// The key of each entry of a section whose entries have names of the user's choice,
    /// such as `[volume.NAME]`.
    pub entry: Option<Key>,
}

impl Section {
    /// A section whose struct is declared elsewhere. `keys` has the
    /// documentation, and `defaults`, as serde writes it, the defaults. Fields
    /// named in `without` are not settings.
    ///
    /// # Errors
    /// The names on which keys and struct disagree.
    pub fn adopt<T: Serialize>(
        name: &'static str,
        doc: &str,
        defaults: &T,
        without: &[&str],
        keys: Vec<Key>,
    ) -> Result<Self, String> {
        let table = Table::try_from(defaults).map_err(|error| format!("[{name}]: {error}"))?;
        let mut leaves = BTreeMap::new();
        flatten("", table, &keys, &mut leaves);
        let keys: Vec<Key> = keys
            .into_iter()
            .map(|key| Key {
                default: leaves.remove(key.name).or(key.default),
                ..key
            })
            .collect();
        leaves.retain(|path, _| !without.contains(&path.as_str()));
        if !leaves.is_empty() {
            let stray: Vec<&String> = leaves.keys().collect();
            return Err(format!("[{name}]: no key documents {stray:?}"));
        }
        Ok(Section {
            name,
            doc: doc.to_owned(),
            keys,
            entry: None,
        })
    }

    /// A section whose entries have names of the user's choice. Each is a table, as `doc`
    /// says.
    pub fn of_entries(name: &'static str, doc: &str) -> Self {
        Section {
            name,
            doc: doc.to_owned(),
            keys: Vec::new(),
            entry: Some(Key::new("NAME", Kind::Toml, doc)),
        }
    }
}

/// Splits `table` into the values that `keys` name. Values that no key names
/// are kept too, so that the caller can report them.
fn flatten(prefix: &str, table: Table, keys: &[Key], leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let path = match prefix {
            "" => name,
            _ => format!("{prefix}.{name}"),
        };
        match value {
            Value::Table(inner) if !keys.iter().any(|key| key.name == path) => {
                flatten(&path, inner, keys, leaves);
            }
            value => {
                leaves.insert(path, value);
            }
        }
    }
}

/// A type of a setting's value.
pub trait Setting {
    /// The kind of its values.
    const KIND: Kind;
    /// The value as TOML; `None` for an unset one.
    fn to_toml(&self) -> Option<Value>;
}

macro_rules! settings {
    ($($ty:ty => $kind:expr, |$value:ident| $toml:expr;)*) => {
        $(impl Setting for $ty {
            const KIND: Kind = $kind;
            fn to_toml(&self) -> Option<Value> {
                let $value = self;
                Some($toml)
            }
        })*
    };
}

settings! {
    bool => Kind::Bool, |value| Value::Boolean(*value);
    u16 => Kind::Integer, |value| Value::Integer(i64::from(*value));
    u32 => Kind::Integer, |value| Value::Integer(i64::from(*value));
    u64 => Kind::Integer, |value| Value::Integer(i64::try_from(*value).unwrap_or(i64::MAX));
    usize => Kind::Integer, |value| Value::Integer(i64::try_from(*value).unwrap_or(i64::MAX));
    f64 => Kind::Float, |value| Value::Float(*value);
    ByteSize => Kind::Size, |value| Value::String(value.to_string());
    String => Kind::Text, |value| Value::String(value.clone());
    PathBuf => Kind::Path, |value| Value::String(value.display().to_string());
    Vec<String> => Kind::List, |value| {
        Value::Array(value.iter().cloned().map(Value::String).collect())
    };
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;
    fn to_toml(&self) -> Option<Value> {
        self.as_ref().and_then(T::to_toml)
    }
}

/// Joins the lines of a doc comment into paragraphs.
#[doc(hidden)]
pub fn join_doc(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.trim();
        if line.is_empty() {
            text.push('\n');
        } else {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push(' ');
            }
            text.push_str(line);
        }
    }
    text.trim().to_owned()
}

/// Declares a section of the configuration in one place: the struct that serde
/// reads, its defaults, and the table of keys.
///
/// ```
/// floe::section! {
///     /// How tea is made.
///     pub struct TeaConfig in "tea" {
///         /// Cups at a time.
///         pub cups: u32 = 2, limits floe::config::Limits::between(1, 8);
///         /// Where the kettle is.
///         pub kettle: Option<String> = None;
///     }
/// }
/// assert_eq!(TeaConfig::default().cups, 2);
/// assert_eq!(TeaConfig::section().keys[0].summary(), "Cups at a time.");
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])*
        pub struct $name:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])*
                pub $field:ident : $ty:ty = $default:expr $(, limits $limits:expr)? $(, secret $secret:expr)? ;
            )*
        }
    ) => {
        $(#[doc = $section_doc])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            /// The section's keys and their documentation.
            pub fn section() -> $crate::config::Section {
                let defaults = $name::default();
                $crate::config::Section {
                    name: $section,
                    entry: None,
                    doc: $crate::config::join_doc(&[$($section_doc),*]),
                    keys: vec![$(
                        $crate::config::Key {
                            name: stringify!($field),
                            kind: <$ty as $crate::config::Setting>::KIND,
                            #[allow(unused_mut, unused_assignments)]
                            limits: { let mut limits = $crate::config::Limits::NONE; $(limits = $limits;)? limits },
                            default: $crate::config::Setting::to_toml(&defaults.$field),
                            doc: $crate::config::join_doc(&[$($doc),*]),
                            #[allow(unused_mut, unused_assignments)]
                            secret: { let mut secret = false; $(secret = $secret;)? secret },
                            profiles: Default::default(),
                        },
                    )*],
                }
            }
        }
    };
}

/// Declares a setting that accepts one of a few words.
#[macro_export]
macro_rules! choices {
    (
        $(#[doc = $enum_doc:literal])*
        pub enum $name:ident, default $default:ident {
            $( $(#[doc = $doc:literal])* $variant:ident = $word:literal, )*
        }
    ) => {
        $(#[doc = $enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $( $(#[doc = $doc])* #[serde(rename = $word)] $variant, )*
        }

        #[allow(clippy::derivable_impls)]
        impl Default for $name {
            fn default() -> Self {
                $name::$default
            }
        }

        impl $crate::config::Setting for $name {
            const KIND: $crate::config::Kind = $crate::config::Kind::Choice(&[
                $($crate::config::Choice { word: $word, doc: concat!($($doc),*) },)*
            ]);
            fn to_toml(&self) -> Option<$crate::config::Value> {
                Some($crate::config::Value::String(match self { $($name::$variant => $word,)* }.to_owned()))
            }
        }
    };
}
