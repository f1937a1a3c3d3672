//! What an answer of a receiver means: the table of `docs/delivery.md`. Pure.

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::retry_after;
use crate::types::{DisableReason, Outcome, OutcomeClass};

/// The header with which a receiver says what is to become of what it was sent.
const DIRECTIVE: &str = "webhook-delivery";
/// It wants no more.
const DISABLE: &str = "disable";
/// It does not want this one again.
const ABORT_MESSAGE: &str = "abort-message";
/// What to do about a receiver that wants no more.
const NO_MORE: &str = "the receiver wants no more webhooks: remove the contact, or ask its owner for another URL";
/// What to do about a receiver that dropped this one.
const ABORTED: &str = "the receiver asked for this webhook not to be sent again; its contact goes on as before";

/// The class of a status alone.
///
/// What a receiver refuses because of what we sent, or because of who we are, it will refuse again, until somebody
/// changes it or us: that is worth a day and no more. Every other one is about the moment, or not known.
fn class_of(status: StatusCode) -> OutcomeClass {
    match status.as_u16() {
        200..=299 => OutcomeClass::Delivered,
        410 => OutcomeClass::Permanent,
        400..=406 | 411..=417 | 422 | 426 | 428 | 431 | 451 => OutcomeClass::Rejected,
        _ => OutcomeClass::Transient,
    }
}

/// How an attempt ended that got this answer. `now_s` is Unix seconds, for a wait until a date.
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
    Outcome { status: Some(status.as_u16()), disables, retry_after, ..ended }
}

fn failed(class: OutcomeClass, status: StatusCode, hint: Option<&'static str>) -> Outcome {
    Outcome { hint, ..Outcome::failed(class, format!("HTTP {}", status.as_u16())) }
}
