//! Consent of the owner of an address, before a contact that the subject's own side added gets alerts.
//!
//! Such a contact is stored with `"verified": false` and receives only a verification: an email with a code and a
//! confirm link, or a signed challenge that a webhook's receiver must echo. The verification is a delivery of the
//! outbox, which generates a code and a link for each attempt ([`messages`]). Unconfirmed contacts are removed
//! ([`unverified`]). A link in each email lets its reader withdraw consent ([`unsubscribe`]). Owns codes and links
//! (Redis holds only digests) and the limits on requests and guesses. Never identifies its caller: the API checks the
//! token. Read next: [`service`], the operations.

mod code;
pub mod config;
mod confirm_link;
mod forget;
mod issue;
mod messages;
mod open_requests;
mod request;
pub mod service;
mod unsubscribe;
mod unverified;

use crate::types::text_form::text_enum;
use crate::types::{ContactId, Subject, meters};

pub use code::CODE_DIGITS;
pub use config::VerificationConfig;
pub use forget::{ForgottenRequests, forget_requests};
pub use open_requests::OPEN_REQUESTS_MAX;
pub use service::{VerificationError, VerificationService};

text_enum! {
    /// Events of a verification, as counted in metrics.
    pub enum VerificationEvent {
        /// A message was sent.
        Sent = "sent",
        /// A request exceeded a limit.
        Throttled = "throttled",
        /// A message could not be sent.
        Failed = "failed",
        /// A contact is verified.
        Verified = "verified",
        /// A code, link or echo was wrong.
        Rejected = "rejected",
    }
}

impl VerificationEvent {
    fn count(self) {
        metrics::counter!(meters::VERIFICATIONS, "outcome" => self.as_str()).increment(1);
    }

    /// Counts the event, and logs it with its contact.
    fn record(self, subject: &Subject, contact: &ContactId) {
        self.count();
        match self {
            Self::Verified => tracing::info!(%subject, %contact, "contact is verified"),
            _ => tracing::info!(%subject, %contact, "verification refused"),
        }
    }
}
