//! Sources of settings as one tree of values, each of which knows where it was written.
//!
//! Reads TOML text and environment variables; knows nothing of which keys exist. Read next: `read`, which turns the tree into
//! the settings.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use config::{Environment, Source as _};
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;

/// What every variable of ours begins with.
const PREFIX: &str = "QUOTABELL";
/// What separates sections and keys in a variable's name.
const SEPARATOR: &str = "__";

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In `config/default.toml`.
    Embedded {
        /// The line, 1 for the first.
        line: usize,
    },
    /// In the configuration file.
    File {
        /// The file, as it was named.
        path: Arc<Path>,
        /// The line, 1 for the first.
        line: usize,
    },
    /// In an environment variable.
    Variable(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { line } => write!(f, "embedded default.toml, line {line}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

impl Place {
    /// Whether somebody wrote it: not a default.
    pub(super) const fn is_own(&self) -> bool {
        !matches!(self, Self::Embedded { .. })
    }

    /// The layer that it belongs to; a later one is greater.
    pub(super) const fn layer(&self) -> Layer {
        match self {
            Self::Embedded { .. } => Layer::Defaults,
            Self::File { .. } => Layer::File,
            Self::Variable(_) => Layer::Variables,
        }
    }
}

/// The layers, each over the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Defaults,
    File,
    Variables,
}

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
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

/// What a TOML text is, for the places in it.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    Embedded,
    File(Arc<Path>),
}

impl Origin {
    fn line(&self, text: &str, offset: usize) -> Place {
        let line = text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        match self {
            Self::Embedded => Place::Embedded { line },
            Self::File(path) => Place::File { path: path.clone(), line },
        }
    }
}

/// Parses TOML text.
pub(super) fn from_toml(text: &str, origin: &Origin) -> Result<Node, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        place: origin.line(text, error.span().map_or(0, |span| span.start)),
        why: error.message().replace('\n', "; "),
    })?;
    Ok(Node { place: origin.line(text, 0), value: table_of(text, origin, table.into_inner()) })
}

fn table_of(text: &str, origin: &Origin, table: DeTable<'_>) -> Value {
    let entries = table.into_iter().map(|(key, value)| {
        // The key's line: a value may begin lines later, and a table's own span is that of its header.
        let place = origin.line(text, key.span().start);
        (key.into_inner().into_owned(), Node { place, value: value_of(text, origin, value.into_inner()) })
    });
    Value::Table(entries.collect())
}

fn value_of(text: &str, origin: &Origin, value: DeValue<'_>) -> Value {
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
                    place: origin.line(text, item.span().start),
                    value: value_of(text, origin, item.into_inner()),
                })
                .collect(),
        ),
        DeValue::Table(table) => table_of(text, origin, table),
    }
}

/// Our variables by the path of their setting, `section.key`. The `config` crate knows how a name becomes a path; its guessing of
/// types stays off, since it would turn a token `007` into 7.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut ours = HashMap::new();
    for (name, value) in environment {
        let Some(name) = name.into_string().ok().filter(|name| name.starts_with(&format!("{PREFIX}{SEPARATOR}")))
        else {
            continue;
        };
        let place = Place::Variable(name.as_str().into());
        ours.insert(name, value.into_string().map_err(|_| ConfigError::NotUtf8 { place })?);
    }
    let source = Environment::with_prefix(PREFIX).prefix_separator(SEPARATOR).separator(SEPARATOR).source(Some(ours));
    let collected = source.collect().expect("every variable is text, and nothing else is judged here");
    let text = |value: config::Value| value.into_string().expect("without guessing, a variable stays text");
    Ok(collected.into_iter().map(|(path, value)| (path, text(value))).collect())
}

/// The variable that sets the setting at this path.
fn variable_name(path: &str) -> String {
    format!("{PREFIX}{SEPARATOR}{}", path.replace('.', SEPARATOR).to_uppercase())
}

impl Node {
    /// Lays another source over this one: section by section, and in it key by key. What stands below that, as the limits of a
    /// plan, is replaced whole.
    pub(super) fn lay_over(&mut self, over: Self) {
        let (Value::Table(sections), Value::Table(over)) = (&mut self.value, over.value) else { return };
        for (name, section) in over {
            match sections.get_mut(&name) {
                Some(base) => base.lay_over_section(section),
                None => drop(sections.insert(name, section)),
            }
        }
    }

    fn lay_over_section(&mut self, over: Self) {
        match (&mut self.value, over) {
            (Value::Table(keys), Self { value: Value::Table(over), .. }) => keys.extend(over),
            (_, over) => *self = over,
        }
    }

    /// Lays variables named `QUOTABELL__SECTION__KEY` over this tree; others are left alone.
    pub(super) fn lay_variables_over(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(), ConfigError> {
        // Sorted by path, so that a whole table comes before a key inside it.
        variables(environment)?.into_iter().try_for_each(|(path, text)| self.set_variable(&path, text))
    }

    fn set_variable(&mut self, path: &str, text: String) -> Result<(), ConfigError> {
        let place = Place::Variable(variable_name(path).into());
        let segments: Vec<&str> = path.split('.').collect();
        let over = Self { place: place.clone(), value: Value::Untyped(text) };
        let mut node = self;
        for segment in &segments {
            let missing = || Self { place: place.clone(), value: Value::Table(BTreeMap::new()) };
            node = node.table_mut(&place)?.entry((*segment).to_owned()).or_insert_with(missing);
        }
        if segments.len() == 1 && matches!(&node.value, Value::Table(keys) if !keys.is_empty()) {
            node.lay_over_section(over.into_parsed()?);
        } else {
            *node = over;
        }
        Ok(())
    }

    /// The entries of this table. A variable's text becomes the table that it writes; anything else becomes an empty one, whose
    /// place is the variable that took it for a table, so that the reader of the tree refuses it there.
    fn table_mut(&mut self, place: &Place) -> Result<&mut BTreeMap<String, Self>, ConfigError> {
        if matches!(self.value, Value::Untyped(_)) {
            *self = self.clone().into_parsed()?;
        }
        if !matches!(self.value, Value::Table(_)) {
            *self = Self { place: place.clone(), value: Value::Table(BTreeMap::new()) };
        }
        match &mut self.value {
            Value::Table(entries) => Ok(entries),
            _ => unreachable!("made a table just above"),
        }
    }

    /// A variable's text as the list or table that it writes in JSON; other values as they are.
    pub(super) fn into_parsed(self) -> Result<Self, ConfigError> {
        let Value::Untyped(text) = &self.value else { return Ok(self) };
        match serde_json::from_str(text) {
            Ok(json) => Ok(Self::from_json(json, &self.place)),
            Err(error) => Err(ConfigError::Syntax {
                why: format!("lists and tables are written as JSON, and this is none: {error}"),
                place: self.place,
            }),
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
            Json::Array(items) => Value::List(items.into_iter().map(|item| Self::from_json(item, place)).collect()),
            Json::Object(entries) => {
                Value::Table(entries.into_iter().map(|(key, value)| (key, Self::from_json(value, place))).collect())
            }
        };
        Self { place: place.clone(), value }
    }

    /// The value at this path.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, segment| node.child(segment))
    }

    /// Takes a key out of a section.
    pub(super) fn remove(&mut self, section: &str, key: &str) {
        if let Value::Table(sections) = &mut self.value
            && let Some(Self { value: Value::Table(keys), .. }) = sections.get_mut(section)
        {
            keys.remove(key);
        }
    }

    /// Where the value at this path was written; for a path that is not there (a field left out), where its nearest table was.
    pub(super) fn place_of(&self, path: &[&str]) -> Place {
        let mut node = self;
        for segment in path {
            match node.child(segment) {
                Some(child) => node = child,
                None => break,
            }
        }
        node.place.clone()
    }

    fn child(&self, segment: &str) -> Option<&Self> {
        match &self.value {
            Value::Table(entries) => entries.get(segment),
            Value::List(items) => items.get(index_of(segment)?),
            _ => None,
        }
    }
}

/// `[2]` as a number.
fn index_of(segment: &str) -> Option<usize> {
    segment.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
