//! The channels by name.

use serde::{Deserialize, Serialize};

/// How a delivery travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// An e-mail through the configured SMTP server.
    Email,
    /// A signed POST (Standard Webhooks).
    Webhook,
    /// No contact is known: the delivery waits until one appears.
    None,
}

impl Channel {
    /// The channels that something can be sent through.
    pub const SENDING: [Self; 2] = [Self::Email, Self::Webhook];

    /// The channel as it stands in Redis, in metrics and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Webhook => "webhook",
            Self::None => "none",
        }
    }

    /// Reads the form that [`Self::as_str`] writes.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::SENDING.into_iter().chain([Self::None]).find(|channel| channel.as_str() == text)
    }
}
