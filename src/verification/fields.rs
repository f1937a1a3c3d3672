//! The fields of one element of the array, each as it was written. Pure.
//!
//! What is not ours is never read as a value: a number beyond what we count with, a key's place and a text that is no Unicode stay what
//! they are.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An object, in its order. Of a field that is there twice the last one counts.
#[derive(Debug)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// `None` for what is no object.
    pub(super) fn of(element: &RawValue) -> Option<Self> {
        serde_json::from_str(element.get()).ok()
    }

    /// The field as text; `None` where it is none, or is not there.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Puts a value into the field's place, or behind the others.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) {
        let value = to_raw_value(value).expect("text and truth are JSON");
        match self.0.iter_mut().rfind(|(other, _)| other == name) {
            Some((_, place)) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(super) fn written(&self) -> Box<RawValue> {
        to_raw_value(self).expect("what was read from JSON is JSON")
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_ref())
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}
