//! How one attempt ended.

use std::time::Duration;

use super::DisableReason;
use super::text::is_control;
use super::text_form::text_enum;

text_enum! {
    /// What the outcome of an attempt means for the delivery.
    pub enum OutcomeClass {
        /// The other side took it.
        Delivered = "delivered",
        /// Trying again can't help: the delivery is dead.
        Permanent = "permanent",
        /// The other side refuses it, and will most likely refuse it again: trying again for a day may help, but not
        /// for longer.
        Rejected = "rejected",
        /// Trying again may help.
        Transient = "transient",
    }
}

/// The longest [`Outcome::disables_after`].
pub const DISABLES_AFTER_MAX: Duration = Duration::from_secs(7 * 86_400);

/// How one attempt ended: its class, what the other side said, how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The class.
    pub class: OutcomeClass,
    /// HTTP status or SMTP reply code, when there was one.
    pub status: Option<u16>,
    /// What went wrong in a few words, without address, URL or body; `None` when delivered.
    pub error: Option<String>,
    /// What the operator can do about it, where the error does not say it.
    pub hint: Option<&'static str>,
    /// What the other side said when it refused, as [`printable_reply`] made it. For the operator alone: never in a
    /// log, never shown to a subject.
    pub reply: Option<String>,
    /// Host and port of the other side, where it was known. For the operator alone, as the reply.
    pub peer: Option<String>,
    /// Whether the other side spoke of this contact. Tells where many contacts share a server: what it says of us, or
    /// of itself, is no contact's fault.
    pub is_about_contact: bool,
    /// Why the contact is to get nothing more, if so. It may come with a delivery: a receiver can take its last one.
    pub disables: Option<DisableReason>,
    /// How long after the first such answer a contact must get another one before it is disabled; zero: the first
    /// disables it.
    pub disables_after: Duration,
    /// How long the receiver asked us to wait (Retry-After).
    pub retry_after: Option<Duration>,
    /// How long the attempt took.
    pub took: Duration,
}

impl Outcome {
    /// The other side took it. To be completed by what else is known.
    pub const fn delivered() -> Self {
        Self {
            class: OutcomeClass::Delivered,
            status: None,
            error: None,
            hint: None,
            reply: None,
            peer: None,
            is_about_contact: false,
            disables: None,
            disables_after: Duration::ZERO,
            retry_after: None,
            took: Duration::ZERO,
        }
    }

    /// It failed. To be completed by what else is known.
    pub fn failed(class: OutcomeClass, error: impl Into<String>) -> Self {
        Self { class, error: Some(error.into()), ..Self::delivered() }
    }
}

/// The most bytes that are kept of what the other side said.
const REPLY_BYTES_MAX: usize = 512;

/// What the other side said, as it may be stored and printed: its first 512 bytes on one line, without control
/// characters. `None` where that leaves nothing.
pub fn printable_reply(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&said[..said.len().min(REPLY_BYTES_MAX)]);
    let text = text.trim_end_matches('\u{fffd}');
    let spaced: String = text.chars().map(|letter| if is_control(letter) { ' ' } else { letter }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver chooses the text: it must neither move an operator's cursor nor fill Redis.
    #[test]
    fn a_reply_is_one_short_line_without_control_characters() {
        let printed = |said: &[u8]| printable_reply(said);
        assert_eq!(printed(b"5.1.1 no\r\n such\x1b[2J user\0"), Some("5.1.1 no such [2J user".to_owned()));
        assert_eq!(printed(b" \r\n"), None);
        assert_eq!(printed(&[0xff; 3]), None);
        assert_eq!(printed("\u{e9}".repeat(400).as_bytes()).map(|text| text.len()), Some(512));
        assert_eq!(printed(format!("a{}", "\u{e9}".repeat(400)).as_bytes()).map(|text| text.len()), Some(511));
    }
}
