//! The channels.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::text_form::{parsed_text_enum, text_enum};

text_enum! {
    /// The channel of a delivery; `none` while the delivery waits for a contact.
    pub enum Channel {
        /// An email through the configured SMTP server.
        Email = "email",
        /// A signed POST (Standard Webhooks).
        Webhook = "webhook",
        /// No contact is known: the delivery waits until one appears.
        None = "none",
    }
}

parsed_text_enum!(Channel, "a channel");

impl Channel {
    /// The channels that send: all except the last.
    pub const SENDING: [Self; Self::ALL.len() - 1] = *Self::ALL.first_chunk().expect("there is one more");

    /// The field of a contact that holds its address; `None` for the channel `none`.
    pub const fn address_field(self) -> Option<&'static str> {
        match self {
            Self::Email => Some("address"),
            Self::Webhook => Some("url"),
            Self::None => None,
        }
    }
}

/// The schema of a channel among [`Channel::SENDING`].
#[derive(Debug)]
pub struct ContactChannel;

impl JsonSchema for ContactChannel {
    fn schema_name() -> Cow<'static, str> {
        "ContactChannel".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": Channel::SENDING, "description": "How a contact is reached."})
    }
}

const _: () = assert!(matches!(Channel::ALL[Channel::SENDING.len()], Channel::None));
