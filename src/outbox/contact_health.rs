//! What an attempt tells of its contact: whether messages reach it, and since when none has. Pure but for one reading.
//!
//! Only failures are noted, in a hash of the subject that expires; a contact that is reached costs nothing.
//! `settle.lua` writes it.

use std::time::Duration;

use redis::RedisResult;

use super::destination_health::DestinationHealth;
use crate::channels::definition;
use crate::types::text_form::text_enum;
use crate::types::{Channel, ContactId, Keys, Outcome, OutcomeClass, Subject, UnixMs};
use crate::wire::RedisClient;

text_enum! {
    /// What an attempt told of its contact, and the script's word for it.
    pub enum ContactHealth {
        /// A message reached it.
        Reached = "reached",
        /// It could not be reached, and that is its own fault.
        Failing = "failing",
    }
}

impl ContactHealth {
    /// What this outcome tells; `None` where it says nothing of the contact. Where all messages of a channel go through
    /// one server, only its "not now" about one message counts: that it is away, or refuses us, is no contact's fault.
    pub(super) fn of(channel: Channel, outcome: &Outcome) -> Option<Self> {
        if outcome.class == OutcomeClass::Delivered {
            return Some(Self::Reached);
        }
        let is_shared = definition(channel).is_none_or(|definition| definition.server.is_some());
        let is_put_off = outcome.class == OutcomeClass::Transient
            && DestinationHealth::of(outcome) == Some(DestinationHealth::Answered);
        (!is_shared || is_put_off).then_some(Self::Failing)
    }
}

/// Since when every attempt to this contact has failed, as far as that was noted and the newest failure is not older
/// than `kept`.
pub(super) async fn failing_since(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    contact: &ContactId,
    (now, kept): (UnixMs, Duration),
) -> RedisResult<Option<UnixMs>> {
    let mut command = redis::cmd("HGET");
    command.arg(format!("{}{subject}", keys.failing_prefix())).arg(contact.as_str());
    let noted: Option<String> = client.query(&command).await?;
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
        let told =
            |channel, class, status| ContactHealth::of(channel, &Outcome { class, status, ..Outcome::delivered() });
        assert_eq!(told(Channel::Email, OutcomeClass::Delivered, Some(250)), Some(ContactHealth::Reached));
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, None), None);
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, Some(421)), None);
        assert_eq!(told(Channel::Email, OutcomeClass::Permanent, Some(550)), None, "it may refuse us");
        assert_eq!(told(Channel::Email, OutcomeClass::Transient, Some(450)), Some(ContactHealth::Failing));
        assert_eq!(told(Channel::Webhook, OutcomeClass::Transient, None), Some(ContactHealth::Failing));
        assert_eq!(told(Channel::Webhook, OutcomeClass::Rejected, Some(401)), Some(ContactHealth::Failing));
    }
}
