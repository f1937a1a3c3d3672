//! The outcome of an attempt.

use std::time::Duration;

use super::DisableReason;
use super::text::is_control;
use super::text_form::text_enum;

text_enum! {
    /// Effect of an attempt's outcome on the delivery.
    #[derive(Default)]
    pub enum OutcomeClass {
        /// The receiver accepted it.
        #[default]
        Delivered = "delivered",
        /// A retry can't help: the delivery is dead.
        Permanent = "permanent",
        /// The receiver refuses it, and probably will again: retries for a day may help, but not longer.
        Rejected = "rejected",
        /// A retry may help.
        Transient = "transient",
    }
}

/// Maximum of [`Outcome::disables_after`].
pub const DISABLES_AFTER_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The outcome of one attempt: its class, the receiver's reply, its duration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The class.
    pub class: OutcomeClass,
    /// HTTP status or SMTP reply code, if there was one.
    pub status: Option<u16>,
    /// What went wrong in a few words, without address, URL or body; `None` when delivered.
    pub error: Option<String>,
    /// What the operator can do about it, if the error does not say it.
    pub hint: Option<&'static str>,
    /// The receiver's reply when it refused, from [`printable_reply`]. For the operator only: never logged, never shown
    /// to a subject.
    pub reply: Option<String>,
    /// Host and port of the receiver, if known. For the operator only.
    pub peer: Option<String>,
    /// Whether the receiver may have accepted the message although the attempt failed: its answer was lost, or does not
    /// tell.
    pub may_have_arrived: bool,
    /// Whether the reply is about this contact. It matters if many contacts share a server: what a server reports about
    /// the sender or itself is no contact's fault.
    pub is_about_contact: bool,
    /// Why the contact must be disabled, if so. A receiver may accept a delivery and disable the contact with the same
    /// reply.
    pub disables: Option<DisableReason>,
    /// How long after the first such reply another one must arrive before the contact is disabled; zero: the first
    /// disables it.
    pub disables_after: Duration,
    /// The delay that the receiver requested (Retry-After).
    pub retry_after: Option<Duration>,
    /// Duration of the attempt.
    pub took: Duration,
}

impl Outcome {
    /// A successful outcome; the caller adds the other fields.
    pub fn delivered() -> Self {
        Self { class: OutcomeClass::Delivered, ..Self::default() }
    }

    /// A failed outcome; the caller adds the other fields.
    pub fn failed(class: OutcomeClass, error: impl Into<String>) -> Self {
        Self { class, error: Some(error.into()), ..Self::default() }
    }
}

/// Maximum number of bytes stored of a receiver's reply.
const REPLY_BYTES_MAX: usize = 512;

/// A receiver's reply in a form for storage and display: its first 512 bytes on one line, without control characters.
/// `None` if nothing is left.
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

    /// The receiver controls the text: it must neither move an operator's cursor nor fill Redis.
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
