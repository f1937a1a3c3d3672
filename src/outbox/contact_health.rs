//! What an attempt reveals about its contact: whether messages reach it, since when none has, and since when its server
//! reports an unknown mailbox. Pure except for one read.
//!
//! Only failures are recorded, in a hash of the subject that expires; a healthy contact costs nothing. `settle.lua`
//! writes the hash.

use std::time::Duration;

use redis::RedisResult;

use crate::channels::definition;
use crate::redis_client::RedisClient;
use crate::types::text_form::text_enum;
use crate::types::{Channel, ContactId, DISABLES_AFTER_MAX, Keys, Outcome, OutcomeClass, Subject, UnixMs};

/// How long a report of an unknown mailbox is remembered after its latest repetition: [`DISABLES_AFTER_MAX`], within
/// which an alert causes the next attempt, and time for outages of the daemon.
pub(super) const UNKNOWN_KEPT: Duration = Duration::from_secs(14 * 86_400);
const _: () = assert!(UNKNOWN_KEPT.as_secs() >= 2 * DISABLES_AFTER_MAX.as_secs());

text_enum! {
    /// What an attempt revealed about its contact, in the script's words.
    pub enum ContactHealth {
        /// A message reached it.
        Reached = "reached",
        /// It could not be reached, and a shared server is not the cause.
        Failing = "failing",
        /// Its server reports an unknown mailbox, which counts only after a repetition.
        Unknown = "unknown",
    }
}

impl ContactHealth {
    /// What this outcome reveals; `None` if it is not about the contact. If all messages of a channel go through one
    /// server, only a reply about this contact counts: an unavailable or refusing server is no contact's fault.
    pub(super) fn from_outcome(channel: Channel, outcome: &Outcome) -> Option<Self> {
        if outcome.class == OutcomeClass::Delivered {
            return Some(Self::Reached);
        }
        if outcome.disables.is_some() && !outcome.disables_after.is_zero() {
            return Some(Self::Unknown);
        }
        let is_shared = definition(channel).is_none_or(|definition| definition.server_absence.is_some());
        let is_put_off = outcome.class == OutcomeClass::Transient && outcome.is_about_contact;
        (!is_shared || is_put_off).then_some(Self::Failing)
    }
}

/// The time of the first record of this kind for the contact; `None` if the latest record is older than `kept`.
pub(super) async fn noted_since(
    client: &RedisClient,
    keys: &Keys,
    (subject, contact): (&Subject, &ContactId),
    note: ContactHealth,
    (now, kept): (UnixMs, Duration),
) -> RedisResult<Option<UnixMs>> {
    let field = match note {
        ContactHealth::Unknown => format!("{contact} unknown"),
        _ => contact.to_string(),
    };
    let key = format!("{}{subject}", keys.failing_prefix());
    let noted: Option<String> = client.query(redis::cmd("HGET").arg(key).arg(field)).await?;
    let times = noted.as_deref().and_then(|noted| {
        let (first, newest) = noted.split_once(' ')?;
        Some((UnixMs(first.parse().ok()?), UnixMs(newest.parse().ok()?)))
    });
    Ok(times.filter(|(_, newest)| now.since(*newest) <= kept).map(|(first, _)| first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outage of the operator's own mail server must not disable every customer's address.
    #[test]
    fn a_mail_server_that_is_away_says_nothing_of_a_mailbox() {
        let told = |channel, class, status| {
            let is_about_contact = status == Some(450);
            ContactHealth::from_outcome(channel, &Outcome { class, status, is_about_contact, ..Outcome::delivered() })
        };
        assert_eq!(told(Channel::Email, OutcomeClass::Delivered, Some(250)), Some(ContactHealth::Reached));
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, None), None);
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, Some(421)), None);
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, Some(451)), None, "it may be about us");
        assert_eq!(told(Channel::Email, OutcomeClass::Permanent, Some(550)), None, "it may refuse us");
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, Some(450)), Some(ContactHealth::Failing));
        assert_eq!(told(Channel::Webhook, OutcomeClass::Transient, None), Some(ContactHealth::Failing));
        assert_eq!(told(Channel::Webhook, OutcomeClass::Rejected, Some(401)), Some(ContactHealth::Failing));
    }
}
