//! The meaning of a receiver's response: the table of `docs/delivery.md`. Pure.

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::retry_after;
use crate::channels::connection_error;
use crate::types::{DisableReason, Outcome, OutcomeClass};

/// The header with which a receiver asks to stop.
const DIRECTIVE: &str = "webhook-delivery";
/// The receiver wants no more webhooks.
const DISABLE: &str = "disable";
/// The receiver does not want this webhook again.
const ABORT_MESSAGE: &str = "abort-message";
/// The hint for a receiver that wants no more webhooks.
const NO_MORE: &str = "the receiver wants no more webhooks: remove the contact, or ask its owner for another URL";
/// The hint for a receiver that dropped this webhook.
const ABORTED: &str = "the receiver does not want this webhook again; its contact stays enabled";

/// The hint for a server that uses the certificate of an authority.
const AUTHORITYS_OWN: &str = "the receiver needs a certificate that the authority has signed; if the authority is your own, \
                              set webhook.ca_file to its PEM file";

/// The class of a status alone.
///
/// A receiver that refuses the content or the sender will refuse again until somebody changes something, so such
/// attempts are repeated for a day only. Every other status is about the moment, or unknown.
fn class_of(status: StatusCode) -> OutcomeClass {
    match status.as_u16() {
        200..=299 => OutcomeClass::Delivered,
        410 => OutcomeClass::Permanent,
        400..=406 | 411..=417 | 422 | 426 | 428 | 431 | 451 => OutcomeClass::Rejected,
        _ => OutcomeClass::Transient,
    }
}

/// The outcome of an attempt with this response. `now_s` is Unix seconds, for a wait until a date.
pub(super) fn outcome_of(status: StatusCode, headers: &HeaderMap, now_s: i64) -> Outcome {
    let class = class_of(status);
    let directive = headers.get(DIRECTIVE).and_then(|value| value.to_str().ok()).map(str::trim);
    let disables = match (directive, status) {
        (_, StatusCode::GONE) => Some(DisableReason::Gone),
        (Some(DISABLE), _) => Some(DisableReason::Asked),
        _ => None,
    };
    let ended = match (class, directive) {
        (OutcomeClass::Delivered, _) => Outcome::delivered(),
        (_, Some(ABORT_MESSAGE)) if disables.is_none() => failed(OutcomeClass::Permanent, status, Some(ABORTED)),
        _ if disables.is_some() => failed(OutcomeClass::Permanent, status, Some(NO_MORE)),
        _ => failed(class, status, None),
    };
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = asked.filter(|_| !status.is_success()).and_then(|value| retry_after::parse(value, now_s));
    // A gateway that gives up, and a receiver that fails, may have passed the webhook on.
    let may_have_arrived = !matches!(status.as_u16(), 300..=499 | 503);
    Outcome { status: Some(status.as_u16()), disables, retry_after, may_have_arrived, ..ended }
}

/// The hint for a webhook that was not accepted, if the outcome itself has none.
pub(in crate::channels) fn hint(outcome: &Outcome) -> &'static str {
    match outcome.status {
        Some(300..=399) => "redirects are not followed: name the new URL",
        Some(401 | 403 | 407) => "the receiver refuses access: compare the secret and the headers with what it expects",
        Some(404 | 405) => "the receiver accepts no webhook at this path: check the URL",
        Some(408 | 425 | 429) => "the receiver asks to try again later; an alert would be tried again",
        Some(400..=499) => "the receiver refuses what was sent: its answer or its log says why",
        Some(500..=599) => "the receiver failed: its answer or its log says why; an alert would be tried again",
        _ if outcome.class == OutcomeClass::Permanent => {
            "trying again can't help: check the URL, and webhook.allow_http and webhook.allowed_networks; an alert would \
             be dead at once"
        }
        _ => "check the receiver and the network between it and this machine; an alert would be tried again",
    }
}

/// The hint for a failed connection; `None` if there is none.
pub(super) fn hint_of_connection(found: &str) -> Option<&'static str> {
    Some(match found {
        connection_error::REFUSED => "nothing listens there: is the receiver running, and is this its port?",
        connection_error::UNTRUSTED => "if the certificate authority is your own, set webhook.ca_file to its PEM file",
        connection_error::AUTHORITYS_OWN => AUTHORITYS_OWN,
        connection_error::EXPIRED => "the operator of the receiver has to renew its certificate",
        connection_error::OTHER_NAME => "write the host in the URL as its certificate names it",
        connection_error::NO_TLS => "is this the port for https? http:// needs webhook.allow_http = true",
        connection_error::NO_HTTP => "something other than a web server answers there: is the port right?",
        _ => return connection_error::hint(found),
    })
}

fn failed(class: OutcomeClass, status: StatusCode, hint: Option<&'static str>) -> Outcome {
    Outcome { hint, ..Outcome::failed(class, format!("HTTP {}", status.as_u16())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Check the certificate" does not help with a misspelled name.
    #[test]
    fn each_cause_of_a_failed_connection_has_a_hint() {
        assert!(connection_error::WITH_HINT.iter().all(|cause| hint_of_connection(cause).is_some()));
        assert_eq!(hint_of_connection("connection reset"), None);
    }
}
