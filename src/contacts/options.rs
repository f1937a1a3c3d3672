//! What a contact has beside its address, where its channel knows of such things: secret, format and headers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::message_format::MessageFormat;
use crate::types::Secret;
use crate::types::text_form::inline_schema;

/// What a contact has beside its address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactOptions {
    /// What signs messages, or the routing key: see [`MessageFormat::secret_use`].
    pub secret: Option<Secret>,
    /// How messages are written.
    pub format: MessageFormat,
    /// Headers that requests bear beside those of the format.
    pub headers: ExtraHeaders,
}

/// Headers by name. Each value counts as a secret: `Authorization` is the one that most receivers want.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct ExtraHeaders(BTreeMap<String, Secret>);

inline_schema!(ExtraHeaders, {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"},
    "additionalProperties": {"type": "string", "pattern": "^[ -~]*$", "maxLength": 2048},
});

impl ExtraHeaders {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Secret)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The same names, each with this value: for output, never to be stored.
    pub fn shown_as(&self, value: &str) -> Self {
        self.iter().map(|(name, _)| (name.to_owned(), Secret::new(value.to_owned()))).collect()
    }
}

impl FromIterator<(String, Secret)> for ExtraHeaders {
    fn from_iter<T: IntoIterator<Item = (String, Secret)>>(headers: T) -> Self {
        Self(headers.into_iter().collect())
    }
}

/// The stored form, with the values.
impl Serialize for ExtraHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, value)| (name, value.reveal())))
    }
}
