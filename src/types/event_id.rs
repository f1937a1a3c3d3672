//! The id of a usage event. An event is counted once, however often it is sent.

use super::text_form::{display_as_inner, inline_schema, serde_as_text};

/// Maximum length of an event id, bytes.
pub const EVENT_ID_BYTES_MAX: usize = 128;

/// An event id: 1 to 128 bytes, in this type as UTF-8. Producers may use any bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventId(String);

serde_as_text!(EventId);
inline_schema!(EventId, { "type": "string", "minLength": 1, "maxLength": EVENT_ID_BYTES_MAX });
display_as_inner!(EventId);

/// The text is not an event id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event id has {0} bytes, 1 to {EVENT_ID_BYTES_MAX} are allowed")]
pub struct EventIdError(usize);

impl EventId {
    /// The id with this number as 32 hex digits. A random number gives a unique id.
    pub fn numbered(number: u128) -> Self {
        Self(format!("{number:032x}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for EventId {
    type Err = EventIdError;
    fn from_str(text: &str) -> Result<Self, EventIdError> {
        match text.len() {
            1..=EVENT_ID_BYTES_MAX => Ok(Self(text.to_owned())),
            bytes => Err(EventIdError(bytes)),
        }
    }
}
