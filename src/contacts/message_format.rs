//! The format of messages to a contact. Pure.

use std::fmt;
use std::str::FromStr;

/// Precedes the name of a template.
const TEMPLATE_PREFIX: &str = "template:";
/// Maximum length of a template's name, in bytes.
const TEMPLATE_NAME_BYTES_MAX: usize = 64;

/// The format of messages to a contact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MessageFormat {
    /// The JSON of Standard Webhooks.
    #[default]
    Standard,
    /// CloudEvents 1.0, structured JSON.
    CloudEvents,
    /// Slack's incoming webhooks.
    Slack,
    /// Discord's webhooks.
    Discord,
    /// Workflows of Microsoft Teams.
    Teams,
    /// PagerDuty's Events API, version 2.
    PagerDuty,
    /// A template of the operator, by name.
    Template(String),
}

/// The use of a contact's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretUse {
    /// It signs messages, and is required.
    Signs,
    /// It signs messages if there is one. The URL itself is as good as a secret.
    MaySign,
    /// It is the routing key in the body, and signs nothing.
    RoutingKey,
}

/// A text that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("format is {0:?}, allowed are {ALLOWED}")]
pub struct InvalidFormat(String);

/// Every format, for error texts.
const ALLOWED: &str =
    "standard, cloudevents, slack, discord, teams, pagerduty and template:NAME (1 to 64 of A-Z, a-z, 0-9, _ and -)";

impl MessageFormat {
    /// Every format that needs no template.
    pub const BUILT_IN: [Self; 6] =
        [Self::Standard, Self::CloudEvents, Self::Slack, Self::Discord, Self::Teams, Self::PagerDuty];

    /// The use of a contact's secret in this format.
    pub const fn secret_use(&self) -> SecretUse {
        match self {
            Self::Standard | Self::CloudEvents => SecretUse::Signs,
            Self::Slack | Self::Discord | Self::Teams | Self::Template(_) => SecretUse::MaySign,
            Self::PagerDuty => SecretUse::RoutingKey,
        }
    }

    /// Whether a receiver of this format can return a challenge. A chat can't, and a template has no field for it.
    pub const fn has_challenge(&self) -> bool {
        matches!(self, Self::Standard | Self::CloudEvents)
    }

    /// Whether people read messages of this format.
    pub const fn is_for_people(&self) -> bool {
        matches!(self, Self::Slack | Self::Discord | Self::Teams)
    }

    /// Whether one message may hold several notifications. An incident is one alert, and so is a template.
    pub const fn holds_several(&self) -> bool {
        !matches!(self, Self::PagerDuty | Self::Template(_))
    }

    /// Whether its receiver has an incident for each alert, which the end of the alert closes.
    pub const fn has_incidents(&self) -> bool {
        matches!(self, Self::PagerDuty)
    }

    /// The name of its template, if it has one.
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::Template(name) => Some(name),
            _ => None,
        }
    }
}

/// Whether a template may have this name.
pub fn is_template_name(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=TEMPLATE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal)
}

impl fmt::Display for MessageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::CloudEvents => f.write_str("cloudevents"),
            Self::Slack => f.write_str("slack"),
            Self::Discord => f.write_str("discord"),
            Self::Teams => f.write_str("teams"),
            Self::PagerDuty => f.write_str("pagerduty"),
            Self::Template(name) => write!(f, "{TEMPLATE_PREFIX}{name}"),
        }
    }
}

impl FromStr for MessageFormat {
    type Err = InvalidFormat;

    fn from_str(text: &str) -> Result<Self, InvalidFormat> {
        let template = || text.strip_prefix(TEMPLATE_PREFIX).filter(|name| is_template_name(name));
        let built_in = Self::BUILT_IN.into_iter().find(|format| format.to_string() == text);
        built_in
            .or_else(|| template().map(|name| Self::Template(name.to_owned())))
            .ok_or_else(|| InvalidFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format that is written and read back as another one would send messages that the receiver does not understand.
    #[test]
    fn every_format_is_read_as_it_is_written() {
        let formats = MessageFormat::BUILT_IN.into_iter().chain([MessageFormat::Template("a-B_1".to_owned())]);
        for format in formats {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let long = format!("template:{}", "a".repeat(65));
        for wrong in ["", "Slack", "template:", "template:a/b", "template:..", "template:a.json", " slack", &long] {
            let error = wrong.parse::<MessageFormat>().expect_err(wrong).to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("cloudevents"), "{error}");
        }
    }
}
