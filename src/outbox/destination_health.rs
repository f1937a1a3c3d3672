//! What an attempt reveals about its destination, regardless of the delivery's outcome. Pure.
//!
//! A receiver that refuses one contact serves the others, so any answer means that it is available. A mail server that
//! does not know a mailbox, and a host that does not know a hook, are healthy.

use crate::types::text_form::text_enum;
use crate::types::{Outcome, OutcomeClass};

/// Statuses of the 400s that are not about one message: the receiver wants fewer messages, or none, from everybody. 421
/// is a mail server's "service not available".
const FAILURES: [u16; 4] = [408, 421, 425, 429];

text_enum! {
    /// What an attempt revealed about its destination, in the script's words.
    pub enum DestinationHealth {
        /// It is available and processes messages.
        Answered = "answered",
        /// It is unavailable, or must not get more concurrent attempts.
        Failed = "failed",
    }
}

impl DestinationHealth {
    /// What this outcome reveals; `None` if the destination was not contacted.
    pub(super) fn from_outcome(outcome: &Outcome) -> Option<Self> {
        match (outcome.class, outcome.status) {
            (OutcomeClass::Delivered, _) | (OutcomeClass::Permanent | OutcomeClass::Rejected, Some(_)) => {
                Some(Self::Answered)
            }
            // An address that must not be called, or a message that can't be built.
            (OutcomeClass::Permanent | OutcomeClass::Rejected, None) => None,
            (OutcomeClass::Transient, Some(status @ 400..=499)) if !FAILURES.contains(&status) => Some(Self::Answered),
            (OutcomeClass::Transient, _) if outcome.is_about_contact => Some(Self::Answered),
            (OutcomeClass::Transient, _) => Some(Self::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One customer's removed hook, or one full mailbox, must not delay others at the same receiver.
    #[test]
    fn what_is_about_one_message_says_nothing_against_the_receiver() {
        let told = |class, status| DestinationHealth::from_outcome(&Outcome { class, status, ..Outcome::delivered() });
        let (answered, failed) = (Some(DestinationHealth::Answered), Some(DestinationHealth::Failed));
        assert_eq!(told(OutcomeClass::Delivered, Some(204)), answered);
        for refused in [404, 410, 550] {
            assert_eq!(told(OutcomeClass::Permanent, Some(refused)), answered, "{refused}");
            assert_eq!(told(OutcomeClass::Rejected, Some(refused)), answered, "{refused}");
        }
        for (status, expected) in [
            (401, answered),
            (450, answered),
            (452, answered),
            (408, failed),
            (421, failed),
            (429, failed),
            (503, failed),
        ] {
            assert_eq!(told(OutcomeClass::Transient, Some(status)), expected, "{status}");
        }
        let full =
            Outcome { status: Some(552), is_about_contact: true, ..Outcome::failed(OutcomeClass::Transient, "full") };
        assert_eq!(DestinationHealth::from_outcome(&full), answered, "one mailbox is full");
        assert_eq!(told(OutcomeClass::Transient, None), failed, "no connection, or no answer");
        assert_eq!(told(OutcomeClass::Permanent, None), None, "nothing left this machine");
    }
}
