//! The JSON of a webhook. Pure; field names and their order are the contract with every receiver.

use chrono::SecondsFormat;
use serde::Serialize;

use crate::channels::channel::AlertPurpose;
use crate::types::{Alert, DailyDigest, DisabledNotice, Subject, UnixMs};

#[derive(Serialize)]
struct Payload<D> {
    r#type: &'static str,
    timestamp: String,
    data: D,
}

/// What a receiver is to send back, and about whom it is asked.
#[derive(Debug, Serialize)]
pub(super) struct ChallengeData<'a> {
    subject: &'a str,
    challenge: &'a str,
}

/// The facts of an alert.
#[derive(Debug, Serialize)]
pub(super) struct AlertData<'a> {
    subject: &'a str,
    metric: &'a str,
    window: &'a str,
    period: String,
    threshold_percent: u16,
    used: u64,
    limit: u64,
    used_percent: f64,
    plan: &'a str,
    timezone: &'a str,
    resets_at: String,
    /// There and true where a contact of the operator gets a copy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    copy: bool,
}

#[derive(Serialize)]
struct DisabledData<'a> {
    subject: &'a str,
    contact: &'a str,
    channel: &'a str,
    address: &'a str,
    reason: &'a str,
    detail: &'a str,
}

#[derive(Serialize)]
struct DigestData<'a> {
    from: String,
    until: String,
    dead: u64,
    dead_first: Vec<DeadData<'a>>,
    waiting: u64,
    waiting_first: Vec<&'a str>,
}

#[derive(Serialize)]
struct DeadData<'a> {
    delivery: &'a str,
    subject: &'a str,
    channel: &'a str,
    error: &'a str,
    at: String,
}

/// The type of a question for consent.
pub(super) const VERIFICATION: &str = "contact.verification";

/// The type of a message about an alert: `quota.test` for one that is made up, so that no receiver takes it for the
/// other.
pub(super) const fn type_of(purpose: AlertPurpose) -> &'static str {
    match purpose {
        AlertPurpose::Alert | AlertPurpose::Copy => "quota.threshold_reached",
        AlertPurpose::Test => "quota.test",
    }
}

impl<'a> ChallengeData<'a> {
    pub(super) fn new(subject: &'a Subject, challenge: &'a str) -> Self {
        Self { subject: subject.as_str(), challenge }
    }
}

impl<'a> AlertData<'a> {
    pub(super) fn new(alert: &'a Alert, purpose: AlertPurpose) -> Self {
        Self {
            subject: alert.subject.as_str(),
            metric: alert.metric.as_str(),
            window: alert.window.as_str(),
            period: alert.period.to_string(),
            threshold_percent: alert.threshold_percent.get(),
            used: alert.used,
            limit: alert.limit,
            used_percent: alert.used_percent(),
            plan: &alert.plan,
            timezone: &alert.timezone,
            resets_at: shortest(alert.resets_at_ms),
            copy: purpose == AlertPurpose::Copy,
        }
    }
}

/// Writes the body of a webhook about an alert.
///
/// `timestamp` is when the alert was raised, the same on every attempt.
pub fn alert(alert: &Alert, purpose: AlertPurpose) -> String {
    let data = AlertData::new(alert, purpose);
    payload(type_of(purpose), alert.raised_at_ms, data)
}

/// Writes the body of the question whether a receiver wants alerts about a subject: it has to send `challenge` back.
pub fn challenge(subject: &Subject, challenge: &str, now: UnixMs) -> String {
    let data = ChallengeData::new(subject, challenge);
    payload(VERIFICATION, now, data)
}

/// Writes the body of a notice that a contact of a subject is disabled.
pub fn contact_disabled(notice: &DisabledNotice) -> String {
    let DisabledNotice { subject, contact, channel, address, state, .. } = notice;
    let data = DisabledData {
        subject: subject.as_str(),
        contact: contact.as_str(),
        channel: channel.as_str(),
        address,
        reason: state.reason.as_str(),
        detail: &state.detail,
    };
    payload("contact.disabled", state.at, data)
}

/// Writes the body of the operator's digest of a day.
pub fn digest(digest: &DailyDigest) -> String {
    let dead = digest.dead_first.iter().map(|dead| DeadData {
        delivery: dead.id.as_str(),
        subject: &dead.subject,
        channel: dead.channel.as_str(),
        error: &dead.error,
        at: dead.at_ms.to_string(),
    });
    let data = DigestData {
        from: shortest(digest.from_ms),
        until: shortest(digest.until_ms),
        dead: digest.dead,
        dead_first: dead.collect(),
        waiting: digest.waiting,
        waiting_first: digest.waiting_first.iter().map(Subject::as_str).collect(),
    };
    payload("operator.digest", digest.until_ms, data)
}

fn payload(r#type: &'static str, at: UnixMs, data: impl Serialize) -> String {
    let payload = Payload { r#type, timestamp: at.to_string(), data };
    serde_json::to_string(&payload).expect("strings and finite numbers serialise")
}

/// RFC 3339 in UTC, without a fraction where there is none.
fn shortest(at: UnixMs) -> String {
    at.to_utc().map_or_else(|| at.to_string(), |at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}
