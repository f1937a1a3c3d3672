//! The fields of one element of the stored array of contacts, each as it was written. Pure.
//!
//! Fields of the platform's own are kept as text and never read as values: the order of the fields, numbers beyond any
//! range and text that is not Unicode stay as they are.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The fields of an object, in their order. Where a name stands twice, the last one counts.
#[derive(Debug)]
pub(super) struct ElementFields(Vec<(String, Box<RawValue>)>);

impl ElementFields {
    /// Reads an element; `None` where it is not an object.
    pub(super) fn parse(element: &RawValue) -> Option<Self> {
        serde_json::from_str(element.get()).ok()
    }

    /// The field's text; `None` where the field is missing or holds something else.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Whether there is a field of this name.
    pub(super) fn has_field(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a field in its place; appends it where it is missing.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) {
        let value = to_raw_value(value).expect("strings, booleans and objects of strings are JSON");
        match self.0.iter_mut().rfind(|(other, _)| other == name) {
            Some((_, place)) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Removes a field.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(other, _)| other != name);
    }

    /// Sets a field where there is a value; removes it else.
    pub(super) fn set_or_remove(&mut self, name: &str, value: Option<impl Serialize>) {
        match value {
            Some(value) => self.set(name, &value),
            None => self.remove(name),
        }
    }

    /// The element's JSON.
    pub(super) fn to_json(&self) -> Box<RawValue> {
        to_raw_value(self).expect("what was read from JSON is JSON")
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_ref())
    }
}

impl Serialize for ElementFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for ElementFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = ElementFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ElementFields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(ElementFields(fields))
    }
}
