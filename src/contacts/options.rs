//! Options of a contact beside its address, if its channel has them: secret, format and headers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::message_format::MessageFormat;
use crate::types::Secret;
use crate::types::text_form::inline_schema;

/// Options of a contact beside its address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactOptions {
    /// The signing secret or the routing key: see [`MessageFormat::secret_use`].
    pub secret: Option<Secret>,
    /// The format of messages.
    pub format: MessageFormat,
    /// Headers of requests, in addition to those of the format.
    pub headers: ExtraHeaders,
}

/// Headers by name. Each value is treated as a secret, because most receivers want `Authorization`.
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
    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Secret)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The same names with this value for each: for output, never for storage.
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
