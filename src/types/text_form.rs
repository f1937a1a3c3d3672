//! Macros for types with one text form, which Redis, JSON, settings, metrics and the command line share.

use super::text::one_of;

/// Defines an id with a text form. Each kind of id defines how to create it.
macro_rules! text_id {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        $crate::types::text_form::inline_schema!($name, { "type": "string" });

        impl $name {
            /// Wraps an id that was stored, configured or given on the command line.
            pub fn from_stored(text: &str) -> Self {
                Self(text.to_owned())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        $crate::types::text_form::display_as_inner!($name);
    };
}

/// Defines an enum with one text per variant.
macro_rules! text_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$of_variant])* #[serde(rename = $text)] $variant,)+
        }

        #[allow(dead_code, reason = "not every enum is read back")]
        impl $name {
            /// All variants, in order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Its text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Parses its text.
            pub fn from_stored(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Implements serde by `FromStr` and `Display`.
macro_rules! serde_as_text {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Implements `FromStr` and serde for a type with a `parse` from text or bytes.
macro_rules! parsed_text {
    ($name:ty, $error:ty) => {
        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::parse(text.as_ref())
            }
        }

        $crate::types::text_form::serde_as_text!($name);
    };
}

/// Implements `Display` for a type that wraps a text or a number.
macro_rules! display_as_inner {
    ($name:ty) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// Defines the schema of a type with a simple JSON form. It is inlined, without a name.
macro_rules! inline_schema {
    ($name:ty, $schema:tt) => {
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// The text is not one of the type's values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not {what}: use {allowed}")]
pub struct UnknownVariant {
    word: String,
    what: &'static str,
    allowed: String,
}

impl UnknownVariant {
    pub(crate) fn new(word: &str, what: &'static str, allowed: &[&str]) -> Self {
        Self { word: word.to_owned(), what, allowed: one_of(allowed) }
    }
}

/// Implements parsing of a [`text_enum!`] for texts that people write. The error needs the name of the type with its
/// article.
macro_rules! parsed_text_enum {
    ($name:ty, $what:literal) => {
        impl std::str::FromStr for $name {
            type Err = $crate::types::UnknownVariant;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let unknown = || Self::Err::new(text, $what, &Self::ALL.map(Self::as_str));
                Self::from_stored(text).ok_or_else(unknown)
            }
        }
    };
}

pub(crate) use {display_as_inner, inline_schema, parsed_text, parsed_text_enum, serde_as_text, text_enum, text_id};
