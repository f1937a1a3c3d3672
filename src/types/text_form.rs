//! Types with one text, which is their form in Redis, in JSON, in settings, in metrics and on the command line.

use super::text::one_of;

/// Defines an id that is read back, shown and stored as its text. How one is made is for each kind of id to say.
macro_rules! text_id {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        $crate::types::text_form::inline_schema!($name, { "type": "string" });

        impl $name {
            /// Takes an id that was stored, configured or named on the command line.
            pub fn from_stored(text: &str) -> Self {
                Self(text.to_owned())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        $crate::types::text_form::shown_as_text!($name);
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
            /// Each of them, in order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Its text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Reads its text.
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

/// Lets serde read a type by `FromStr` and write it by `Display`.
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

/// Has a type that is read by its `parse`, from text or bytes, read by `FromStr` too, and by serde.
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

/// Has a type shown as the text that it holds.
macro_rules! shown_as_text {
    ($name:ty) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Defines the schema of a type whose JSON form is simple. It stands wherever the type is used, without a name.
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

/// A text that is not one of the type's values.
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

/// Has a [`text_enum!`] parsed where people write it. An error says what it is, with its article.
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

pub(crate) use {inline_schema, parsed_text, parsed_text_enum, serde_as_text, shown_as_text, text_enum, text_id};
