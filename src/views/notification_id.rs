//! Ids of notices and of messages with several deliveries, as receivers quote them: a `webhook-id` or a Message-ID.

use std::fmt;
use std::str::FromStr;

/// The words with which these ids begin, and the fields of a delivery that hold the notification or the message's id.
const WORDS: [(&str, &[&str]); 8] = [
    ("forecast_", &["usage_notice"]),
    ("spike_", &["usage_notice"]),
    ("silence_", &["usage_notice"]),
    ("resolved_", &["resolved"]),
    ("grant_notice_", &["grant_expires"]),
    ("disabled_", &["contact_disabled"]),
    ("verification_", &["verification"]),
    ("digest_", &["sent_in", "digest"]),
];
/// The words of ids from which a Message-ID is made.
const IN_MESSAGE_ID: [&str; 2] = ["delivery_", "digest_"];
/// Number of hex digits of a complete id.
const DIGITS: usize = 32;

/// The id of a notification that is no alert, or of a message; complete, or its word and its first digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationId {
    text: String,
    fields: &'static [&'static str],
}

/// The text does not begin like the id of a notice or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNotificationId;

/// The id in the Message-ID of an email, such as `<digest_…@example.com>`; other text as it is.
pub fn without_message_id(text: &str) -> &str {
    let quoted = text.strip_prefix('<').and_then(|rest| rest.split_once('@'));
    quoted.map_or(text, |(id, _)| if IN_MESSAGE_ID.iter().any(|word| id.starts_with(word)) { id } else { text })
}

impl NotificationId {
    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The fields of a delivery that may hold it.
    pub fn fields(&self) -> &'static [&'static str] {
        self.fields
    }

    /// The complete id in the value of a field, if it is this one.
    pub fn matching(&self, value: String) -> Option<String> {
        let id = match value.starts_with('{') {
            true => serde_json::from_str::<serde_json::Value>(&value).ok()?["id"].as_str()?.to_owned(),
            false => value,
        };
        id.starts_with(&self.text).then_some(id)
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NotificationId {
    type Err = NoNotificationId;

    fn from_str(text: &str) -> Result<Self, NoNotificationId> {
        let of_word = |(word, fields): (&'static str, _)| Some((word, text.strip_prefix(word)?, fields));
        let (word, digits, fields) = WORDS.into_iter().find_map(of_word).ok_or(NoNotificationId)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match is_hex && (1..=DIGITS).contains(&digits.len()) {
            true => Ok(Self { text: format!("{word}{}", digits.to_ascii_lowercase()), fields }),
            false => Err(NoNotificationId),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subject whose name contains an `@` must not become another one.
    #[test]
    fn only_ids_of_messages_are_taken_out_of_a_message_id() {
        for (text, id) in [
            ("<digest_1@b.test>", "digest_1"),
            ("<delivery_1@b.test>", "delivery_1"),
            ("delivery_1", "delivery_1"),
            ("<alice@b.test>", "<alice@b.test>"),
            ("digest_1@b.test", "digest_1@b.test"),
        ] {
            assert_eq!(without_message_id(text), id);
        }
    }

    /// A new kind of notice whose id is unknown here would be explained as a subject.
    #[test]
    fn ids_are_a_word_and_hex_digits() {
        for kind in crate::types::UsageNoticeKind::ALL {
            assert!(format!("{kind}_09Ba").parse::<NotificationId>().is_ok(), "{kind}");
        }
        for text in ["forecast_", "forecast_x", "forecast", "alert_1", "grant_1", &format!("digest_{:033}", 0)] {
            assert_eq!(text.parse::<NotificationId>(), Err(NoNotificationId), "{text}");
        }
        let id: NotificationId = "spike_0A".parse().expect("an id");
        let value = |id: &str| id.to_owned();
        assert_eq!(id.matching(value(r#"{"id":"spike_0a1","kind":"spike"}"#)).as_deref(), Some("spike_0a1"));
        for other in [r#"{"id":"forecast_0a1"}"#, r#"{"id":"spike_1"}"#, "{}", "{"] {
            assert_eq!(id.matching(value(other)), None, "{other}");
        }
    }
}
