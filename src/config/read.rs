//! From the tree of sources to the settings' own types, by serde.
//!
//! The only reason for a reader of our own is its errors: which key, where it was written, what is allowed. It also lets the
//! setting's type decide what a variable's text means. Read next: `error`.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::ConfigError;
use super::tree::{Node, Place, Value};

/// Reads settings from the whole tree.
pub(super) fn read<T: DeserializeOwned>(root: &Node) -> Result<T, ConfigError> {
    T::deserialize(Reader(root)).map_err(|broken| broken.into_error(root))
}

/// What is wrong with a value; key and place are filled in on the way out of the tree.
#[derive(Debug)]
struct Broken {
    /// Segments of the key, innermost first.
    path: Vec<String>,
    place: Option<Place>,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Unknown { allowed: &'static [&'static str] },
    Other(String),
    Source(Box<ConfigError>),
}

impl Broken {
    fn new(problem: Problem) -> Self {
        Self { path: Vec::new(), place: None, problem }
    }

    /// The value with the problem lies under this key.
    fn under(mut self, segment: String, place: &Place) -> Self {
        self.path.push(segment);
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    fn into_error(mut self, root: &Node) -> ConfigError {
        self.path.reverse();
        let place = self.place.unwrap_or_else(|| root.place.clone());
        match self.problem {
            Problem::Unknown { allowed } => ConfigError::UnknownKey { path: self.path, place, allowed },
            Problem::Other(problem) => ConfigError::Value { path: self.path, place, problem },
            Problem::Source(error) => *error,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.problem)
    }
}

impl std::error::Error for Broken {}

impl Error for Broken {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Problem::Other(message.to_string()))
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

    fn unknown_field(field: &str, allowed: &'static [&'static str]) -> Self {
        Self { path: vec![field.to_owned()], ..Self::new(Problem::Unknown { allowed }) }
    }

    fn unknown_variant(variant: &str, allowed: &'static [&'static str]) -> Self {
        let quoted: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        Self::custom(format_args!("found {variant:?}, expected {}", quoted.join(" or ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: vec![field.to_owned()], ..Self::custom("must be set") }
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
            Unexpected::Str(text) if text.contains("whsec_") => f.write_str("a secret"),
            Unexpected::Str(text) => write!(f, "the text {text:?}"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Map => f.write_str("a table"),
            other => other.fmt(f),
        }
    }
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

#[derive(Clone, Copy)]
struct Reader<'a>(&'a Node);

impl Reader<'_> {
    /// The value is not what the setting takes.
    fn mismatch(&self, expected: &dyn Expected) -> Broken {
        let found = match &self.0.value {
            Value::Untyped(text) | Value::Text(text) => Unexpected::Str(text),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => Unexpected::Unsigned(number),
                (_, Ok(number)) => Unexpected::Signed(number),
                _ => Unexpected::Other("a number that is too large"),
            },
            Value::Float(number) => Unexpected::Float(*number),
            Value::Bool(bool) => Unexpected::Bool(*bool),
            Value::Other(words) => Unexpected::Other(words),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        };
        Broken::invalid_type(found, expected)
    }

    /// The list or table that a variable's text writes.
    fn parsed(self) -> Result<Option<Node>, Broken> {
        match self.0.value {
            Value::Untyped(_) => {
                self.0.clone().into_parsed().map(Some).map_err(|error| Broken::new(Problem::Source(Box::new(error))))
            }
            _ => Ok(None),
        }
    }
}

/// Numbers: a variable's text is one when it reads as one.
macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
            let number = match &self.0.value {
                Value::Integer(number) => Some(*number),
                Value::Untyped(text) => text.trim().parse().ok(),
                _ => None,
            };
            match number.map(|number| (u64::try_from(number), i64::try_from(number))) {
                Some((Ok(number), _)) => visitor.visit_u64(number),
                Some((_, Ok(number))) => visitor.visit_i64(number),
                _ => Err(self.mismatch(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Broken;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match &self.0.value {
            Value::Untyped(text) | Value::Text(text) => visitor.visit_str(text),
            Value::Integer(_) => self.deserialize_i64(visitor),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Table(entries) => visitor.visit_map(Entries { entries: entries.iter(), current: None }),
            Value::Other(_) => Err(self.mismatch(&visitor)),
        }
    }

    integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match &self.0.value {
            Value::Untyped(text) => match text.trim().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(self.mismatch(&visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match &self.0.value {
            Value::Untyped(text) => match text.trim().parse() {
                Ok(bool) => visitor.visit_bool(bool),
                Err(_) => Err(self.mismatch(&visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    /// An empty variable is a setting that is not set: compose files write `${NAME:-}` for that.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match &self.0.value {
            Value::Untyped(text) if text.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match self.parsed()? {
            Some(node) => Reader(&node).deserialize_any(visitor),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Broken> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Broken> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Broken> {
        match &self.0.value {
            Value::Untyped(text) | Value::Text(text) => {
                visitor.visit_enum(IntoDeserializer::<Broken>::into_deserializer(text.as_str()))
            }
            _ => Err(self.mismatch(&"text in quotes")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

struct Items<'n> {
    items: &'n [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Broken;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Broken> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Reader(item)).map(Some).map_err(|broken| broken.under(format!("[{index}]"), &item.place))
    }
}

struct Entries<'n> {
    entries: std::collections::btree_map::Iter<'n, String, Node>,
    current: Option<(&'n String, &'n Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Broken;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Broken> {
        self.current = self.entries.next();
        let Some((key, node)) = self.current else { return Ok(None) };
        let name: StrDeserializer<'_, Broken> = key.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|mut broken| {
            if broken.path.is_empty() {
                broken.path.push(key.clone());
            }
            broken.place.get_or_insert_with(|| node.place.clone());
            broken
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Broken> {
        let (key, node) = self.current.take().ok_or_else(|| Broken::custom("a value without its key"))?;
        seed.deserialize(Reader(node)).map_err(|broken| broken.under(key.clone(), &node.place))
    }
}
