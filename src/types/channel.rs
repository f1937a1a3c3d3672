//! The channels by name.

use super::text_form::{parsed_text_enum, text_enum};

text_enum! {
    /// How a delivery travels.
    pub enum Channel {
        /// An e-mail through the configured SMTP server.
        Email = "email",
        /// A signed POST (Standard Webhooks).
        Webhook = "webhook",
        /// No contact is known: the delivery waits until one appears.
        None = "none",
    }
}

parsed_text_enum!(Channel, "a channel");

impl Channel {
    /// The channels that something can be sent through.
    pub const SENDING: [Self; 2] = [Self::Email, Self::Webhook];
}
