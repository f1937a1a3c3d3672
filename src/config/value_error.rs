//! Errors of serde in the words of somebody who writes TOML.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::tree::NotJson;
use crate::channels::REGISTRY;

/// What is wrong with a value. Its key and its place are known to whoever walks the tree.
#[derive(Debug)]
pub(super) enum ValueError {
    /// There is no key of this name.
    UnknownKey {
        /// The keys that there are.
        allowed: &'static [&'static str],
    },
    /// A key that must be there is missing.
    MissingKey(&'static str),
    /// Anything else, in words.
    Other(String),
    /// The text of a variable is not the JSON of a list or table.
    NotJson(NotJson),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { .. } => f.write_str("there is no such key"),
            Self::MissingKey(_) => f.write_str("must be set"),
            Self::Other(problem) => f.write_str(problem),
            Self::NotJson(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ValueError {}

impl Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string());
        if expected == WHOLE && matches!(found, Unexpected::Unsigned(_) | Unexpected::Signed(_)) {
            return Self::custom(format_args!("{} is out of range", Found(found)));
        }
        Self::custom(format_args!("found {}, expected {expected}", Found(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(_field: &str, allowed: &'static [&'static str]) -> Self {
        Self::UnknownKey { allowed }
    }

    fn unknown_variant(variant: &str, allowed: &'static [&'static str]) -> Self {
        let quoted: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        Self::custom(format_args!("found {variant:?}, expected {}", quoted.join(" or ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingKey(field)
    }
}

/// A found value in the words of somebody who writes TOML.
struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Bool(bool) => write!(f, "{bool}"),
            Unexpected::Unsigned(number) => write!(f, "the number {number}"),
            Unexpected::Signed(number) => write!(f, "the number {number}"),
            Unexpected::Float(number) => write!(f, "the number {number:?}"),
            // These may hold a password: one that stands in the wrong place is still one.
            Unexpected::Str(text) if text.contains("://") => f.write_str("a URL"),
            Unexpected::Str(text) if holds_secret(text) => f.write_str("a secret"),
            Unexpected::Str(text) => write!(f, "the text {text:?}"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Map => f.write_str("a table"),
            other => other.fmt(f),
        }
    }
}

/// Whether a text holds a secret of any channel.
fn holds_secret(text: &str) -> bool {
    REGISTRY.iter().filter_map(|definition| definition.secret.as_ref()).any(|secret| text.contains(secret.prefix))
}

/// A number of any integer type.
const WHOLE: &str = "a whole number";

/// What serde expects, in the same words.
fn in_words(expected: &str) -> String {
    let words = match expected {
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        // Which ones is the setting's own to say, in the hint: its range is narrower than that of the type.
        "u16" | "u32" | "u64" | "usize" => WHOLE,
        "f64" => "a number",
        "a sequence" => "a list",
        "path string" => "a path in quotes",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    words.to_owned()
}
