//! Merges the sources: the embedded defaults, the file, the variables.
//!
//! Each value keeps its [`Place`]. The `config` crate maps the names of variables to paths. It does not merge the
//! layers, because it would mix a plan of the file with the embedded plan, and its conversions round 2.7 to 3. Read
//! next: [`read`](super::read), which turns the values into the settings.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

use config::{Environment, Source as _};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::allowed::{PREFIX, SEPARATOR, variable, variable_meant_by};
use super::error::ConfigError;
use super::place::{Place, Places};
use crate::channels::REGISTRY;
use crate::contacts::config::{FALLBACK_KEYS, OPERATOR_KEYS};

/// The merged values of the layers so far, and the place of each.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) values: Value,
    pub(super) places: Places,
}

impl Layers {
    /// Parses TOML text. `place` maps a line number, from 1, to its place.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Syntax`], without the text, which may be half a password.
    pub(super) fn from_toml(text: &str, place: impl Fn(usize) -> Place) -> Result<Self, ConfigError> {
        let place = |offset: usize| {
            place(text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1)
        };
        let syntax = |error: toml::de::Error| ConfigError::Syntax {
            place: place(error.span().map_or(0, |span| span.start)),
            why: error.message().replace('\n', "; "),
        };
        let mut places = Places::default();
        let table = DeTable::parse(text).map_err(syntax)?.into_inner();
        let values = value_of(&DeValue::Table(table), &place, &mut Vec::new(), &mut places);
        Ok(Self { values, places })
    }

    /// Merges a later source into this one, section by section and key by key. A value below that, such as the limits
    /// of a plan, is replaced as a whole.
    pub(super) fn lay_over(&mut self, over: Self) {
        let (Value::Object(sections), Value::Object(over_sections)) = (&mut self.values, over.values) else { return };
        for (section, over) in over_sections {
            match (sections.get_mut(&section), over) {
                (Some(Value::Object(keys)), Value::Object(over)) => {
                    for (key, value) in over {
                        self.places.remove(&[section.clone(), key.clone()]);
                        keys.insert(key, value);
                    }
                }
                (_, over) => {
                    self.places.remove(std::slice::from_ref(&section));
                    sections.insert(section, over);
                }
            }
        }
        self.places.0.extend(over.places.0);
    }

    /// Merges variables named `QUOTABELL__SECTION__KEY`; ignores all others.
    ///
    /// # Errors
    ///
    /// A variable of quotabell is misspelled or is not UTF-8.
    pub(super) fn lay_variables_over(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(), ConfigError> {
        // Sorted by path, so that a whole table comes before a key inside it.
        for (path, text) in variables(environment)? {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let place = Place::Variable(variable(&path).into());
            // Lists and tables are written as JSON. Other text stays text until the type of the setting is known.
            let json = Some(&text)
                .filter(|text| text.starts_with(['[', '{']))
                .and_then(|text| serde_json::from_str(text).ok());
            self.set_variable(path, json.unwrap_or(Value::String(text)), place);
        }
        Ok(())
    }

    fn set_variable(&mut self, path: Vec<String>, value: Value, place: Place) {
        if let (1, Value::Object(keys)) = (path.len(), &value) {
            let of_keys = keys.keys().map(|key| vec![path[0].clone(), key.clone()]);
            let places = Places(of_keys.chain([path.clone()]).map(|path| (path, place.clone())).collect());
            return self
                .lay_over(Self { values: Value::Object(Map::from_iter(path.into_iter().zip([value]))), places });
        }
        let mut path = path;
        let mut node = &mut self.values;
        for depth in 0..path.len() {
            if !node.is_object() {
                // The variable replaces a setting by a table. The reader refuses the table and names the variable.
                *node = Value::Object(Map::new());
                self.places.0.insert(path[..depth].to_vec(), place.clone());
            }
            let Value::Object(keys) = node else { unreachable!("made an object just above") };
            // Variable names ignore case, so a name that differs only in case means the existing key.
            if let Some(known) = keys.keys().find(|known| known.eq_ignore_ascii_case(&path[depth])) {
                path[depth].clone_from(known);
            }
            node = keys.entry(&path[depth]).or_insert(Value::Null);
            self.places.0.entry(path[..=depth].to_vec()).or_insert_with(|| place.clone());
        }
        *node = value;
        self.places.remove(&path);
        self.places.0.insert(path, place);
    }

    pub(super) fn get_mut(&mut self, path: &[String]) -> Option<&mut Value> {
        path.iter().try_fold(&mut self.values, |value, segment| match value {
            Value::Object(keys) => keys.get_mut(segment),
            Value::Array(items) => items.get_mut(segment.strip_prefix('[')?.strip_suffix(']')?.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Refuses unknown keys of contacts. In contacts of subjects unknown keys are notes of the platform; in the file
    /// they are mistakes, because only the operator writes it.
    pub(super) fn refuse_unknown_contact_keys(&self) -> Result<(), ConfigError> {
        for (section, allowed) in [("fallback", FALLBACK_KEYS), ("operator", OPERATOR_KEYS)] {
            let Some(contacts) = self.values[section]["contacts"].as_array() else { continue };
            for (index, contact) in contacts.iter().enumerate() {
                let Some(keys) = contact.as_object().filter(|keys| !names_no_channel(keys)) else { continue };
                if let Some(key) = keys.keys().find(|key| !allowed.contains(&key.as_str())) {
                    let path = vec![section.to_owned(), "contacts".to_owned(), format!("[{index}]"), key.clone()];
                    let allowed = allowed.iter().map(ToString::to_string).collect();
                    return Err(ConfigError::UnknownKey { place: self.places.place_of(&path), path, allowed });
                }
            }
        }
        Ok(())
    }

    /// If both a value and the key that names its file are set, keeps the one from the later layer.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Both`]: one layer sets both.
    pub(super) fn drop_earlier(&mut self) -> Result<(), ConfigError> {
        let of_channels = REGISTRY.into_iter().flat_map(|definition| {
            let section = definition.channel.as_str();
            definition.file_settings.iter().map(move |(value, file)| (section, *value, *file))
        });
        for (section, value, file) in VALUES_OR_FILES.into_iter().chain(of_channels) {
            let place = |key: &str| self.places.0.get([section, key].map(str::to_owned).as_slice()).cloned();
            let (Some(value_place), Some(file_place)) = (place(value), place(file)) else { continue };
            let dropped = match value_place.layer().cmp(&file_place.layer()) {
                std::cmp::Ordering::Less => value,
                std::cmp::Ordering::Greater => file,
                std::cmp::Ordering::Equal => {
                    return Err(ConfigError::Both { section, value, value_place, file, file_place });
                }
            };
            if let Some(keys) = self.values[section].as_object_mut() {
                keys.remove(dropped);
            }
        }
        Ok(())
    }
}

/// Settings with a second key that names a file: section, value, file.
const VALUES_OR_FILES: [(&str, &str, &str); 2] = [("redis", "url", "url_file"), ("http", "token", "token_file")];

/// Converts a TOML value and records the places of all keys below it.
fn value_of(
    value: &DeValue<'_>,
    place: &impl Fn(usize) -> Place,
    path: &mut Vec<String>,
    places: &mut Places,
) -> Value {
    let mut below = |segment: String, offset: usize, value: &DeValue<'_>| {
        path.push(segment);
        places.0.insert(path.clone(), place(offset));
        let value = value_of(value, place, path, places);
        path.pop();
        value
    };
    match value {
        DeValue::Boolean(bool) => Value::Bool(*bool),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::String(integer.to_string()),
        },
        DeValue::Float(float) => match float.as_str().parse().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => Value::String(float.to_string()),
        },
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().enumerate();
            items.map(|(index, item)| below(format!("[{index}]"), item.span().start, item.get_ref())).collect()
        }
        DeValue::Table(keys) => {
            // The key's line: the value may begin lines later.
            let entry = |(key, value): (&Spanned<_>, &Spanned<_>)| {
                let name: &std::borrow::Cow<'_, str> = key.get_ref();
                (name.to_string(), below(name.to_string(), key.span().start, value.get_ref()))
            };
            Value::Object(keys.iter().map(entry).collect())
        }
    }
}

/// The variables of quotabell, by the path of their setting, `section.key`.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut ours = HashMap::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else { continue };
        let place = || Place::Variable(name.as_str().into());
        if !name.starts_with(&format!("{PREFIX}{SEPARATOR}")) {
            if let Some(meant) = variable_meant_by(&name) {
                return Err(ConfigError::Misspelt { place: place(), meant });
            }
            continue;
        }
        let value = value.into_string().map_err(|_| ConfigError::NotUtf8 { place: place() })?;
        // Compose files write `${NAME:-}` for a variable that is not set.
        if !value.is_empty() {
            ours.insert(name, value);
        }
    }
    let source = Environment::with_prefix(PREFIX).prefix_separator(SEPARATOR).separator(SEPARATOR).source(Some(ours));
    let collected = source.collect().expect("every variable is text, and nothing else is judged here");
    let text = |value: config::Value| value.into_string().expect("without guessing, a variable stays text");
    Ok(collected.into_iter().map(|(path, value)| (path, text(value))).collect())
}

/// Whether the contact's channel does not exist. If so, the error is about the channel, because only the channel knows
/// its keys.
fn names_no_channel(contact: &Map<String, Value>) -> bool {
    let Some(Value::String(channel)) = contact.get("channel") else { return false };
    REGISTRY.into_iter().all(|definition| definition.channel.as_str() != channel)
}
