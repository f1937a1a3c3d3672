//! The JSON of a webhook: the standard body, and the same as a CloudEvent. Pure. The names and the order of members are
//! the contract with every receiver.

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::Value;

use crate::channels::channel::{AlertPurpose, ConsentProof, Content, MessageSet};
use crate::channels::labels::Labels;
use crate::types::alert::{percent_of_limit, used_percent};
use crate::types::text::is_control;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertThreshold, DailyDigest, DeadDelivery, DisabledNotice, GrantNotice, ResolvedNotice, Subject, UnixMs,
    UsageNotice, UsageNoticeKind,
};

/// The source of CloudEvents. Ids are unique across deployments, so all of them have the same source.
const SOURCE: &str = "/quotabell";

/// The content of a message, before it is written.
pub(super) struct Payload<'a> {
    /// The type, by which a receiver selects its handling.
    pub(super) kind: &'static str,
    pub(super) timestamp: String,
    /// A JSON object.
    pub(super) data: String,
    subject: Option<&'a Subject>,
}

impl<'a> Payload<'a> {
    /// The content of this message. `now` is the time of a question; all other messages have their own time, the same
    /// on every attempt.
    pub(super) fn new(content: Content<'a>, labels: &Labels, now: UnixMs) -> Self {
        let (kind, at, data, subject) = match content {
            Content::Set(set) => return Self::of_set(set, now),
            Content::Alert(alert, purpose) => {
                // Test alerts have their own type, so that receivers can't confuse them with real ones.
                let is_test = purpose == AlertPurpose::Test;
                let kind = if is_test { "quota.test" } else { "quota.threshold_reached" };
                (kind, alert.raised_at_ms, alert_data(alert, labels, purpose), Some(&alert.subject))
            }
            Content::GrantExpires(notice, purpose) => {
                let data = grant_data(notice, labels, purpose);
                (GrantNotice::WEBHOOK_TYPE, notice.raised_at.0, data, Some(&notice.subject))
            }
            Content::Usage(notice, purpose) => {
                let kind = notice.kind.webhook_type();
                (kind, notice.raised_at.0, usage_data(notice, labels, purpose), Some(&notice.subject))
            }
            Content::Resolved(notice, purpose) => {
                let data = resolved_data(notice, labels, purpose);
                (ResolvedNotice::WEBHOOK_TYPE, notice.raised_at.0, data, Some(&notice.subject))
            }
            Content::Verification(question) => {
                // A code is for people: a webhook is never asked for one.
                let challenge =
                    if let ConsentProof::Challenge(challenge) = question.proof { challenge.reveal() } else { "" };
                let data = object([("subject", json(question.subject)), ("challenge", json(challenge))]);
                ("contact.verification", now, data, Some(question.subject))
            }
            Content::ContactDisabled(notice) => {
                ("contact.disabled", notice.state.at, disabled_data(notice), Some(&notice.subject))
            }
            Content::Digest(digest) => ("operator.digest", digest.until_ms, digest_data(digest), None),
        };
        Self { kind, timestamp: at.to_string(), data, subject }
    }

    /// Each item has the type and the data of its notification; the time is that of the newest.
    fn of_set(set: &MessageSet<'a>, now: UnixMs) -> Self {
        let items: Vec<Self> = set.items.iter().map(|item| Self::new(item.content, &item.labels, now)).collect();
        let timestamp = items.iter().map(|item| item.timestamp.clone()).max().unwrap_or_default();
        let item = |item: Self| object([("type", json(item.kind)), ("data", item.data)]);
        let items: Vec<String> = items.into_iter().map(item).collect();
        let data = object([("items", format!("[{}]", items.join(",")))]);
        Self { kind: "quota.digest", timestamp, data, subject: None }
    }
}

/// Writes the standard body of a message.
pub fn standard(content: Content<'_>, labels: &Labels, now: UnixMs) -> String {
    let Payload { kind, timestamp, data, .. } = Payload::new(content, labels, now);
    object([("type", json(kind)), ("timestamp", json(timestamp)), ("data", data)])
}

/// Writes a message as a CloudEvent 1.0 in structured mode. Its id is that of the alert, question or notice, because a
/// receiver drops repetitions by source and id.
pub(super) fn cloud_event(content: Content<'_>, labels: &Labels, now: UnixMs) -> String {
    let Payload { kind, timestamp, data, subject } = Payload::new(content, labels, now);
    // An attribute must not contain control characters; `data` has the unchanged subject.
    let subject = subject.map(|subject| ("subject", json(subject.as_str().replace(is_control, "\u{fffd}"))));
    let first =
        [("specversion", json("1.0")), ("id", json(content.id())), ("source", json(SOURCE)), ("type", json(kind))];
    let last = [("time", json(timestamp)), ("datacontenttype", json("application/json")), ("data", data)];
    let event = object(first.into_iter().chain(subject).chain(last));
    match content {
        Content::Alert(..)
        | Content::GrantExpires(..)
        | Content::Usage(..)
        | Content::Resolved(..)
        | Content::Verification(_)
        | Content::Set(_) => event,
        // The members of these notices are sorted, as receivers know them.
        Content::ContactDisabled(_) | Content::Digest(_) => {
            serde_json::from_str::<Value>(&event).expect("it was just written").to_string()
        }
    }
}

fn alert_data(alert: &Alert, labels: &Labels, purpose: AlertPurpose) -> String {
    let first = [
        ("subject", json(&alert.subject)),
        ("metric", json(alert.metric.as_str())),
        ("window", json(alert.window.as_str())),
        ("period", json(alert.period.to_string())),
    ];
    let percent = alert.threshold.percent().map(|percent| ("threshold_percent", json(percent.get())));
    let rest = [
        ("threshold", json(AlertThreshold::from(alert.threshold))),
        ("used", json(alert.used)),
        ("limit", json(alert.limit)),
        ("used_percent", json(alert.used_percent())),
        ("plan", json(&alert.plan)),
        ("timezone", json(&alert.timezone)),
        ("resets_at", json(alert.resets_at.map(|end| shortest(end.0)))),
    ];
    let largest = (!alert.largest.is_empty()).then(|| ("largest", json(&alert.largest)));
    // The type tells that it is a test.
    let mark = mark(purpose).filter(|_| purpose != AlertPurpose::Test);
    let last = largest.into_iter().chain(label_members(labels)).chain(mark);
    object(first.into_iter().chain(percent).chain(rest).chain(last))
}

fn grant_data(notice: &GrantNotice, labels: &Labels, purpose: AlertPurpose) -> String {
    let note = notice.note.as_ref().map(|note| ("note", json(note)));
    let grant = [
        ("id", json(notice.grant.as_str())),
        ("units", json(notice.units.get())),
        ("remaining", json(notice.remaining)),
        ("expires_at", json(shortest(notice.expires_at.0))),
    ];
    let members = [
        ("subject", json(&notice.subject)),
        ("metric", json(notice.metric.as_str())),
        ("window", json(notice.window.as_str())),
        ("grant", object(grant.into_iter().chain(note))),
        ("used", json(notice.used)),
        ("limit", json(notice.limit)),
        ("used_percent", json(used_percent(notice.used, notice.limit))),
        ("plan", json(&notice.plan)),
        ("timezone", json(&notice.timezone)),
    ];
    object(members.into_iter().chain(label_members(labels)).chain(mark(purpose)))
}

/// The names, the unit and the scale of the counts, which stay whole numbers, and the links; each only if it is
/// configured.
fn label_members(
    Labels { subject_name, format, upgrade_url, usage_url }: &Labels,
) -> impl Iterator<Item = (&'static str, String)> {
    let names = [("subject_name", subject_name), ("metric_name", &format.name)];
    let names = names.into_iter().filter_map(|(member, name)| Some((member, json(name.as_ref()?))));
    let unit = format.unit.as_ref().map(|unit| ("unit", json(unit)));
    let scale = (format.scale > 0).then(|| ("scale", json(format.scale)));
    let links = [("upgrade", upgrade_url), ("usage", usage_url)];
    let links = links.into_iter().filter_map(|(name, url)| Some((name, json(url.as_ref()?)))).collect::<Vec<_>>();
    let links = (!links.is_empty()).then(|| ("links", object(links)));
    names.chain(unit).chain(scale).chain(links).collect::<Vec<_>>().into_iter()
}

fn usage_data(notice: &UsageNotice, labels: &Labels, purpose: AlertPurpose) -> String {
    let members = [
        ("subject", json(&notice.subject)),
        ("metric", json(notice.metric.as_str())),
        ("window", json(notice.window.as_str())),
        ("period", json(notice.period.to_string())),
        ("used", json(notice.used)),
        ("limit", json(notice.limit)),
        ("used_percent", json(notice.limit.map(|limit| used_percent(notice.used, limit)))),
        ("plan", json(&notice.plan)),
        ("timezone", json(&notice.timezone)),
        ("resets_at", json(shortest(notice.resets_at.0))),
    ];
    let time = |at: Option<Rfc3339>| json(at.map(|Rfc3339(at)| shortest(at)));
    let of_kind = match notice.kind {
        UsageNoticeKind::Forecast => vec![
            ("probability", json(notice.probability())),
            ("expected_at", time(notice.expected_at)),
            ("earliest_at", time(notice.earliest_at)),
            ("latest_at", time(notice.latest_at)),
        ],
        UsageNoticeKind::Spike => vec![("times_usual", json(notice.times_usual()))],
        UsageNoticeKind::Silence => vec![("silent_since", time(notice.silent_since))],
    };
    let usual = match notice.usual_per_day {
        Some(units) => ("usual_per_day", json(units)),
        None => ("usual_by_now", json(notice.usual_by_now)),
    };
    let members = members.into_iter().chain(of_kind).chain([usual]);
    object(members.chain(label_members(labels)).chain(mark(purpose)))
}

fn resolved_data(notice: &ResolvedNotice, labels: &Labels, purpose: AlertPurpose) -> String {
    let first = [
        ("subject", json(&notice.subject)),
        ("metric", json(notice.metric.as_str())),
        ("window", json(notice.window.as_str())),
        ("period", json(notice.period.to_string())),
    ];
    let highest = notice.highest();
    let percent = highest.percent().map(|percent| ("threshold_percent", json(percent.get())));
    let rest = [
        ("threshold", json(AlertThreshold::from(highest))),
        ("used", json(notice.used)),
        ("limit", json(notice.limit)),
        ("used_percent", json(notice.limit.and_then(|limit| percent_of_limit(notice.used, limit)))),
        ("plan", json(&notice.plan)),
        ("timezone", json(&notice.timezone)),
        ("resets_at", json(notice.resets_at.map(|end| shortest(end.0)))),
        ("reason", json(notice.reason.as_str())),
        ("resolved_at", json(shortest(notice.resolved_at.0))),
        ("thresholds", json(&notice.thresholds)),
    ];
    object(first.into_iter().chain(percent).chain(rest).chain(label_members(labels)).chain(mark(purpose)))
}

/// A copy for a contact of the operator is marked, and a test of a notice.
fn mark(purpose: AlertPurpose) -> Option<(&'static str, String)> {
    let name = match purpose {
        AlertPurpose::Alert => return None,
        AlertPurpose::Copy => "copy",
        AlertPurpose::Test => "test",
    };
    Some((name, json(true)))
}

fn disabled_data(DisabledNotice { subject, contact, channel, address, state, .. }: &DisabledNotice) -> String {
    object([
        ("subject", json(subject)),
        ("contact", json(contact.as_str())),
        ("channel", json(channel.as_str())),
        ("address", json(address)),
        ("reason", json(state.reason.as_str())),
        ("detail", json(&state.detail)),
    ])
}

fn digest_data(digest: &DailyDigest) -> String {
    let dead = |dead: &DeadDelivery| {
        object([
            ("delivery", json(dead.id.as_str())),
            ("subject", json(&dead.subject)),
            ("channel", json(dead.channel.as_str())),
            ("error", json(&dead.error)),
            ("at", json(dead.at_ms.to_string())),
        ])
    };
    let dead_first: Vec<String> = digest.dead_first.iter().map(dead).collect();
    object([
        ("from", json(shortest(digest.from_ms))),
        ("until", json(shortest(digest.until_ms))),
        ("dead", json(digest.dead)),
        ("dead_first", format!("[{}]", dead_first.join(","))),
        ("waiting", json(digest.waiting)),
        ("waiting_first", json(&digest.waiting_first)),
    ])
}

/// A JSON object with these members in this order. The values are JSON.
fn object(members: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let members: Vec<String> = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn json(value: impl Serialize) -> String {
    serde_json::to_string(&value).expect("strings and finite numbers serialize")
}

/// RFC 3339 in UTC, without a fraction if it is zero.
fn shortest(at: UnixMs) -> String {
    at.to_utc().map_or_else(|| at.to_string(), |at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}
