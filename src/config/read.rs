//! From the tree of sources to the settings' own types, by serde; `serde_path_to_error` says at which key it failed.
//!
//! The type of a setting decides what a variable's text means: text where it takes text, else JSON, as `5`, `true` or
//! `[80,100]`. Read next: [`value_error`](super::value_error), which words what serde says.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Segment;

use super::error::Mistake;
use super::tree::{Node, Value};
use super::value_error::ValueError;

/// A bound on the mistakes of one configuration; each of them takes something out of the tree, so it ends before that.
const MISTAKES_MAX: usize = 100;

/// Reads settings from the whole tree. What is wrong is noted, and the defaults stand in its place, so that the rest is
/// judged too. `None` only where that does not help.
pub(super) fn read<T: DeserializeOwned>(tree: &mut Node, defaults: &Node, mistakes: &mut Vec<Mistake>) -> Option<T> {
    for _ in 0..MISTAKES_MAX {
        let (path, error) = match serde_path_to_error::deserialize(&*tree) {
            Ok(settings) => return Some(settings),
            Err(error) => (path_in(tree, error.path()), error.into_inner()),
        };
        let wrong = tree.deepest(&path).1.to_vec();
        let default = defaults.get(&wrong).filter(|_| tree.place_of(&wrong).is_own()).cloned();
        // A table that lacks something because that was wrong is no mistake of its own.
        if !mistakes.iter().any(|told| !path.is_empty() && told.path().starts_with(&path)) {
            mistakes.push(mistake_of(tree, path, error));
        }
        if wrong.is_empty() {
            return None;
        }
        tree.replace(&wrong, default);
    }
    None
}

/// The segments of a key: `plans`, `free`, `thresholds`, `[0]`.
fn path_in(tree: &Node, path: &serde_path_to_error::Path) -> Vec<String> {
    let mut segments: Vec<String> = Vec::new();
    for segment in path {
        match segment {
            Segment::Map { key } => segments.push(key.clone()),
            Segment::Seq { index } => {
                // Serde counts the items that are there; those before it may have been taken out.
                let position = match tree.get(&segments).map(|node| &node.value) {
                    Some(Value::List(items)) => items.keys().nth(*index).copied(),
                    _ => None,
                };
                segments.push(format!("[{}]", position.unwrap_or(*index)));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    segments
}

fn mistake_of(tree: &Node, mut path: Vec<String>, error: ValueError) -> Mistake {
    let (node, found) = tree.deepest(&path);
    let (found, place) = (found.to_vec(), node.place.clone());
    let problem = match error {
        ValueError::UnknownKey { allowed } => return Mistake::UnknownKey { path, place, allowed },
        ValueError::NotJson(error) => return Mistake::Syntax { place, why: error.to_string() },
        ValueError::MissingKey(key) => {
            path.push(key.to_owned());
            ValueError::MissingKey(key).to_string()
        }
        ValueError::Other(problem) => problem,
    };
    if let [plans, _, limits, metric] = found.as_slice()
        && plans == "plans"
        && (limits == "limits" || limits == "rate")
        && let Some(rest) = dotted(node)
    {
        let metric = format!("{metric}.{rest}");
        return Mistake::UnquotedMetric { path, place, metric };
    }
    Mistake::Value { path, place, problem }
}

/// The first key of a table, and of the table below it: `in` for `tokens.in = 5`.
fn dotted(node: &Node) -> Option<String> {
    let Value::Table(entries) = &node.value else { return None };
    let (key, below) = entries.first_key_value()?;
    Some(dotted(below).map_or_else(|| key.clone(), |rest| format!("{key}.{rest}")))
}

impl Node {
    /// The value is not what the setting takes.
    fn mismatch(&self, expected: &dyn Expected) -> ValueError {
        let found = match &self.value {
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
        ValueError::invalid_type(found, expected)
    }
}

impl<'de> Deserializer<'de> for &Node {
    type Error = ValueError;

    /// A setting that does not take text alone: a variable's text is read as JSON where it is some.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match &self.value {
            Value::Untyped(text) => match self.clone().into_parsed() {
                Ok(parsed) => parsed.deserialize_any(visitor),
                Err(error) if text.trim_start().starts_with(['[', '{']) => Err(ValueError::NotJson(error)),
                Err(_) => visitor.visit_str(text),
            },
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => Err(self.mismatch(&visitor)),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.values())),
            Value::Table(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.iter().map(|(key, node)| (key.as_str(), node))))
            }
            Value::Other(_) => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match &self.value {
            Value::Untyped(text) => visitor.visit_str(text),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_str(visitor)
    }

    /// An empty variable is a setting that is not set: compose files write `${NAME:-}` for that.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match &self.value {
            Value::Untyped(text) if text.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match &self.value {
            Value::Untyped(_) => match self.clone().into_parsed() {
                Ok(parsed) => parsed.deserialize_any(visitor),
                Err(error) => Err(ValueError::NotJson(error)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match &self.value {
            Value::Untyped(text) | Value::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(self.mismatch(&"text in quotes")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

impl<'de> IntoDeserializer<'de, ValueError> for &Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
