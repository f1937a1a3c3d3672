//! Settings as a tree of values, each of which knows where it was written: TOML text, and the JSON of a variable.
//!
//! Knows nothing of which keys exist. Read next: [`layers`](super::layers), which lays the sources over each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::error::Mistake;
use super::place::{Place, Places};

/// The text of a variable is not the JSON of a list or table.
#[derive(Debug, thiserror::Error)]
#[error("lists and tables are written as JSON, and this is none: {0}")]
pub(super) struct NotJson(#[from] serde_json::Error);

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A value as its source wrote it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Text of a variable: the setting's own type decides what it means, so that a token `007` stays text.
    Untyped(String),
    Text(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    /// Something that no setting takes (a date), in the source's own words.
    Other(String),
    /// By position: one that is taken out leaves the others where they are.
    List(BTreeMap<usize, Node>),
    Table(BTreeMap<String, Node>),
}

/// What a TOML text is, for the places in it.
#[derive(Debug, Clone)]
pub(super) enum Document {
    Embedded,
    File(Arc<Path>),
}

impl Document {
    fn line(&self, text: &str, offset: usize) -> Place {
        let line = text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        match self {
            Self::Embedded => Place::Embedded { line },
            Self::File(path) => Place::File { path: path.clone(), line },
        }
    }
}

/// Parses TOML text. What can't be read of it is left out of the tree.
pub(super) fn from_toml(text: &str, document: &Document, mistakes: &mut Vec<Mistake>) -> Node {
    let (table, errors) = DeTable::parse_recoverable(text);
    mistakes.extend(errors.into_iter().map(|error| Mistake::Syntax {
        place: document.line(text, error.span().map_or(0, |span| span.start)),
        why: error.message().replace('\n', "; "),
    }));
    Node { place: document.line(text, 0), value: table_of(text, document, table.into_inner()) }
}

fn table_of(text: &str, document: &Document, table: DeTable<'_>) -> Value {
    let entries = table.into_iter().map(|(key, value)| {
        // The key's line: a value may begin lines later, and a table's own span is that of its header.
        let place = document.line(text, key.span().start);
        (key.into_inner().into_owned(), Node { place, value: value_of(text, document, value.into_inner()) })
    });
    Value::Table(entries.collect())
}

fn value_of(text: &str, document: &Document, value: DeValue<'_>) -> Value {
    match value {
        DeValue::String(string) => Value::Text(string.into_owned()),
        DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Other(format!("the number {integer}")),
        },
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other(format!("the number {float}")),
        },
        DeValue::Boolean(bool) => Value::Bool(bool),
        DeValue::Datetime(date) => Value::Other(format!("the date {date}")),
        DeValue::Array(array) => Value::List(
            array
                .into_iter()
                .map(|item| Node {
                    place: document.line(text, item.span().start),
                    value: value_of(text, document, item.into_inner()),
                })
                .enumerate()
                .collect(),
        ),
        DeValue::Table(table) => table_of(text, document, table),
    }
}

impl Node {
    /// A variable's text as the list or table that it writes in JSON; other values as they are.
    pub(super) fn into_parsed(self) -> Result<Self, NotJson> {
        let Value::Untyped(text) = &self.value else { return Ok(self) };
        Ok(Self::from_json(serde_json::from_str(text)?, &self.place))
    }

    /// Where each key of each table was written.
    pub(super) fn places(&self) -> Places {
        let mut places = Places::default();
        self.add_places(&mut Vec::new(), &mut places);
        places
    }

    fn add_places(&self, path: &mut Vec<String>, places: &mut Places) {
        let children: Vec<(String, &Self)> = match &self.value {
            Value::Table(entries) => entries.iter().map(|(key, node)| (key.clone(), node)).collect(),
            Value::List(items) => items.iter().map(|(index, node)| (format!("[{index}]"), node)).collect(),
            _ => return,
        };
        for (key, node) in children {
            path.push(key);
            places.0.insert(path.clone(), node.place.clone());
            node.add_places(path, places);
            path.pop();
        }
    }

    fn from_json(json: serde_json::Value, place: &Place) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Other("null".to_owned()),
            Json::Bool(bool) => Value::Bool(bool),
            Json::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(integer), _) => Value::Integer(integer),
                (None, Some(float)) => Value::Float(float),
                (None, None) => Value::Other(format!("the number {number}")),
            },
            Json::String(text) => Value::Text(text),
            Json::Array(items) => {
                Value::List(items.into_iter().map(|item| Self::from_json(item, place)).enumerate().collect())
            }
            Json::Object(entries) => {
                Value::Table(entries.into_iter().map(|(key, value)| (key, Self::from_json(value, place))).collect())
            }
        };
        Self { place: place.clone(), value }
    }

    /// The value at this path.
    pub(super) fn get(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, segment| node.child(segment))
    }

    /// The value at this path, and the segments that lead to it: as many of the path as there are.
    pub(super) fn deepest<'p>(&self, path: &'p [String]) -> (&Self, &'p [String]) {
        let mut node = self;
        for (depth, segment) in path.iter().enumerate() {
            match node.child(segment) {
                Some(child) => node = child,
                None => return (node, &path[..depth]),
            }
        }
        (node, path)
    }

    /// Where the value at this path was written; for a path that is not there (a field left out), where its nearest
    /// table was.
    pub(super) fn place_of(&self, path: &[String]) -> Place {
        self.deepest(path).0.place.clone()
    }

    /// Puts another value in the place of the one at this path, or takes it out.
    pub(super) fn replace(&mut self, path: &[String], with: Option<Self>) {
        let Some((last, parents)) = path.split_last() else { return };
        let parent = parents.iter().try_fold(self, |node, segment| match &mut node.value {
            Value::Table(entries) => entries.get_mut(segment),
            Value::List(items) => items.get_mut(&index_of(segment)?),
            _ => None,
        });
        match (parent.map(|parent| &mut parent.value), with, index_of(last)) {
            (Some(Value::Table(entries)), Some(with), _) => drop(entries.insert(last.clone(), with)),
            (Some(Value::Table(entries)), None, _) => drop(entries.remove(last)),
            (Some(Value::List(items)), Some(with), Some(index)) => drop(items.insert(index, with)),
            (Some(Value::List(items)), None, Some(index)) => drop(items.remove(&index)),
            _ => {}
        }
    }

    fn child(&self, segment: &str) -> Option<&Self> {
        match &self.value {
            Value::Table(entries) => entries.get(segment),
            Value::List(items) => items.get(&index_of(segment)?),
            _ => None,
        }
    }
}

/// `[2]` as a number.
fn index_of(segment: &str) -> Option<usize> {
    segment.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
