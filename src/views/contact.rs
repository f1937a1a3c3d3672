//! A contact for output.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::contacts::array::StoredContact;
use crate::contacts::contact_json::schema_with;
use crate::contacts::{Contact, ContactOrigin, masked_contact};
use crate::types::UnixMs;

/// A contact without its secrets. Its JSON is the stored form, with `muted` and `verified` even if that leaves them
/// out, and with who added it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContactView {
    pub contact: Contact,
    pub added_by: ContactOrigin,
}

impl ContactView {
    /// The contact at the time `now`, without a mute that has ended.
    pub fn new(StoredContact { contact, origin, .. }: &StoredContact, now: UnixMs) -> Self {
        Self { contact: masked_contact(contact).shown_at(now), added_by: *origin }
    }
}

impl JsonSchema for ContactView {
    fn schema_name() -> Cow<'static, str> {
        "Contact".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = schema_with(generator, &["id", "muted", "verified", "added_by"]);
        let added_by = generator.subschema_for::<ContactOrigin>();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert("added_by".to_owned(), added_by.into());
        }
        schema
    }
}

impl Serialize for ContactView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serde_json::to_value(&self.contact).map_err(S::Error::custom)?;
        json["muted"] = self.contact.mute.is_some().into();
        json["verified"] = self.contact.verified.into();
        json["added_by"] = self.added_by.as_str().into();
        json.serialize(serializer)
    }
}
