//! The channels by name.

use std::str::FromStr;

use super::text::one_of;
use super::text_form::text_enum;

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

/// The text names no channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {}", one_of(&Channel::ALL.map(Channel::as_str)))]
pub struct ChannelNameError;

impl FromStr for Channel {
    type Err = ChannelNameError;

    fn from_str(text: &str) -> Result<Self, ChannelNameError> {
        Self::from_stored(text).ok_or(ChannelNameError)
    }
}

impl Channel {
    /// The channels that something can be sent through.
    pub const SENDING: [Self; 2] = [Self::Email, Self::Webhook];
}
