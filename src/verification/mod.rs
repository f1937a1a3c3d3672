//! Consent of the owner of an address, before a contact that the subject's own side added gets alerts.
//!
//! Such a contact is stored with `"verified": false` and gets nothing but a verification: a mail with a code and a
//! confirm link, or a signed challenge that a webhook's receiver has to echo. It is a delivery of the outbox, which
//! draws code and link for each attempt ([`messages`]). One that nobody confirms is removed ([`unverified`]). Whoever
//! has consented to mails can take that back by a link in each of them ([`unsubscribe`]). Owns codes and links, of
//! which Redis holds only digests, and the limits on requests and guesses. Never learns who is calling: the API checks
//! its token. Read next: [`service`], what can be asked for.

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
    /// What happened in the course of a verification, as it is counted.
    pub enum VerificationEvent {
        /// A message left.
        Sent = "sent",
        /// A request exceeded a limit.
        Throttled = "throttled",
        /// A message could not be sent.
        Failed = "failed",
        /// A contact is verified.
        Verified = "verified",
        /// A code, link or echo was not the right one.
        Rejected = "rejected",
    }
}

impl VerificationEvent {
    fn count(self) {
        metrics::counter!(meters::VERIFICATIONS, "outcome" => self.as_str()).increment(1);
    }

    /// Counts it, and logs it with its contact.
    fn record(self, subject: &Subject, contact: &ContactId) {
        self.count();
        match self {
            Self::Verified => tracing::info!(%subject, %contact, "contact is verified"),
            _ => tracing::info!(%subject, %contact, "verification refused"),
        }
    }
}
