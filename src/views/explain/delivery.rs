//! Explains a delivery: the crossing, the recipient, the attempts, its state, and what happens next. Pure.

use std::time::Duration;

use super::content::{crossing, notice};
use super::daemons::{LiveDaemons, SENDS_NOTHING};
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::outbox::retry_policy::give_up_after;
use crate::outbox::{ENDED_DELIVERY_TTL, Pause, expires_after_hours, expires_at};
use crate::subjects::SubjectMutes;
use crate::types::{
    Channel, ContactId, DeliveryState, MetricFormat, NotificationKind, OutcomeClass, Period, QuotaNotification, Rate,
    UnixMs,
};
use crate::views::DeliveryDetailView;
use crate::views::deliveries::{AttemptView, DeliveryContactStatus, DestinationView};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The operator, who also sees the response of the other side.
    Operator,
    /// The platform, which may pass the text on.
    Platform,
}

pub(super) struct DeliveryFacts<'a> {
    pub(super) stream: &'a str,
    pub(super) detail: DeliveryDetailView,
    /// How people read the metric's counts, if it is about a quota.
    pub(super) format: MetricFormat,
    pub(super) now: UnixMs,
    /// The subject's present contacts and mutes.
    pub(super) contacts: &'a ResolvedContacts,
    pub(super) mutes: &'a SubjectMutes,
    pub(super) pause: Option<&'a Pause>,
    pub(super) destination: Option<DestinationView>,
    pub(super) cap: Option<CapState>,
    pub(super) give_up_after: Duration,
    /// When the first attempt after creation or replay began, plus the time for which sending was paused since.
    pub(super) first_attempt: Option<UnixMs>,
    pub(super) daemons: LiveDaemons,
}

/// The cap that applies to the delivery.
pub(super) struct CapState {
    pub(super) rate: Rate,
    /// How long until it allows a message; `None` if it does now, or if that is unknown.
    pub(super) exhausted_for: Option<Duration>,
}

/// All sentences, ordered by time.
pub(super) fn sentences(facts: &DeliveryFacts<'_>, audience: Audience) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(alert) = &facts.detail.alert {
        said.extend(crossing(alert, &facts.format, facts.stream));
    }
    if let Some(request) = &facts.detail.verification {
        said.push(format!(
            "{} asked a contact at {} to confirm its address; the request is of no use after {}.",
            facts.detail.delivery.subject, request.requested_at, request.expires_at
        ));
    }
    said.extend(notice(&facts.detail, &facts.format));
    said.push(fan_out(facts));
    if let Some(message) = &facts.detail.delivery.sent_in {
        said.push(format!("It is sent in one message with others of this contact, {message}."));
    }
    said.extend(attempts(facts, audience));
    said.extend(match facts.detail.delivery.state {
        DeliveryState::Pending => pending(facts),
        _ => vec![end(facts)],
    });
    said
}

fn fan_out(facts: &DeliveryFacts<'_>) -> String {
    let delivery = &facts.detail.delivery;
    let made = delivery.created_at;
    let Some(contact) = &facts.detail.contact else {
        return format!("It was fanned out at {made} to nobody: {}.", no_recipient_reason(facts.contacts));
    };
    let address = contact.address.as_deref().or(facts.detail.logged_address.as_deref());
    let (channel, address) = (delivery.channel.as_str(), address.unwrap_or("an address that is not known"));
    let status = match contact.status {
        DeliveryContactStatus::Current => String::new(),
        DeliveryContactStatus::Muted => {
            contact.mute.as_ref().map_or_else(String::new, |mute| format!(", which is now {}", mute))
        }
        DeliveryContactStatus::Disabled => disabled(facts, &contact.id),
        DeliveryContactStatus::Unverified => ", which is not confirmed".to_owned(),
        // The address of a removed own contact of the subject is not known.
        DeliveryContactStatus::Removed if contact.address.is_some() => {
            ", a fallback contact, which gets nothing while the subject has contacts of its own".to_owned()
        }
        DeliveryContactStatus::Removed => ", which the subject does not have any more".to_owned(),
        DeliveryContactStatus::Unreadable => ", which can't be read now".to_owned(),
    };
    format!("Delivery {} was made at {made} for contact {} ({channel} {address}){status}.", delivery.id, contact.id)
}

fn disabled(facts: &DeliveryFacts<'_>, id: &ContactId) -> String {
    let contact = facts.contacts.disabled.iter().find(|contact| contact.id == *id);
    match contact.and_then(|contact| contact.disabled.as_ref()) {
        Some(state) => format!(", which is disabled, because {} ({})", state.reason.sentence(), state.detail),
        None => ", which is disabled; `quotabell contact list` says why".to_owned(),
    }
}

/// Explains why an alert had no recipient.
pub(super) fn no_recipient_reason(contacts: &ResolvedContacts) -> String {
    let ResolvedContacts { unverified, unreadable, readable, disabled, .. } = contacts;
    if let (true, Some(state)) = (readable.is_empty(), disabled.iter().find_map(|contact| contact.disabled.as_ref())) {
        return format!(
            "its contacts are disabled ({state}); `quotabell contact enable` takes them back, and there is no other contact"
        );
    }
    match (readable.len(), unreadable.len(), unverified.len()) {
        (0, 0, 0) => "the subject has no contact, and there is no fallback contact".to_owned(),
        (0, 0, count) => format!("its contacts are not confirmed ({count}), and there is no fallback contact"),
        (0, count, _) => format!("contacts of it can't be read ({count}); `quotabell subject show` says why"),
        (count, ..) => format!("there was no contact then, and there is one now ({count})"),
    }
}

fn attempts(facts: &DeliveryFacts<'_>, audience: Audience) -> Vec<String> {
    let (delivery, log) = (&facts.detail.delivery, &facts.detail.attempt_log);
    // The lease counts the attempt that is in progress.
    let made = delivery.attempts.saturating_sub(u32::from(delivery.is_leased));
    let Some(last) = log.last() else {
        return match made {
            0 if delivery.is_leased => Vec::new(),
            0 => vec!["It has not been attempted.".to_owned()],
            _ => vec![format!(
                "{} without an outcome: a daemon ended, or lost Redis, before it recorded one.",
                times(made)
            )],
        };
    };
    let mut said = vec![format!("{}; {}", times(made), attempt(last))];
    if audience == Audience::Operator {
        said.extend(last.peer.as_ref().map(|peer| format!("The other side was {peer}.")));
        said.extend(last.reply.as_ref().map(|reply| format!("It said: {reply}")));
    }
    said.extend(last.hint.as_ref().map(|hint| format!("Hint: {hint}.")));
    said
}

fn times(attempts: u32) -> String {
    match attempts {
        1 => "It was attempted once".to_owned(),
        _ => format!("It was attempted {attempts} times"),
    }
}

fn attempt(AttemptView { at, outcome, status, duration_ms, error, .. }: &AttemptView) -> String {
    let what = match (error, status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "no more is known".to_owned(),
    };
    let ended = match outcome.as_str() {
        "delivered" => "succeeded",
        "permanent" => "failed for good",
        "rejected" => "was refused",
        _ => "failed, and may work later,",
    };
    format!("the last attempt {ended} at {at}, after {duration_ms} ms: {what}.")
}

/// The state of a pending delivery, and what happens next.
fn pending(facts: &DeliveryFacts<'_>) -> Vec<String> {
    let delivery = &facts.detail.delivery;
    let due = delivery.next_due.map_or(facts.now, |due| due.0);
    if delivery.is_leased {
        let unless = format!("If its outcome is not recorded by {due}, the delivery is attempted again.");
        return vec![format!("Attempt {} is in progress. {unless}", delivery.attempts)];
    }
    let mut said = Vec::new();
    if delivery.channel == Channel::None {
        let has_end = delivery.period.is_none_or(Period::has_end);
        let end = if has_end { format!(", and ends expired at {due} if none appears") } else { String::new() };
        said.push(format!("It waits for a contact: it goes out once the subject has one{end}."));
    }
    let status = facts.detail.contact.as_ref().map(|contact| contact.status);
    let quota = facts.detail.quota();
    let can_be_muted =
        delivery.r#type != NotificationKind::Verification && quota.is_none_or(QuotaNotification::can_be_muted);
    let muted = quota.filter(|_| can_be_muted).and_then(|quota| facts.mutes.mute_of(quota.metric()));
    if let Some(lost) = status.and_then(|status| lost_contact(status, delivery.r#type)) {
        said.push(lost.to_owned());
    } else if let Some(muted) = muted {
        let when = if delivery.channel == Channel::None { "then" } else { "at its next attempt" };
        said.push(format!("Now {muted}: {when} it ends muted."));
    } else if can_be_muted && status == Some(DeliveryContactStatus::Muted) {
        said.push("At its next attempt it ends muted.".to_owned());
    }
    said.extend(facts.pause.map(paused));
    match facts.daemons {
        LiveDaemons::None => said.push("No daemon runs on this stream: nothing is sent until one does.".to_owned()),
        LiveDaemons::ReadingOnly => said.push(SENDS_NOTHING.to_owned()),
        LiveDaemons::Sending => {}
    }
    if delivery.channel == Channel::None {
        return said;
    }
    said.extend(quiet(facts));
    said.extend(digest(facts, due));
    if facts.detail.resolved_notice.is_some() {
        said.push("It waits while one of its alerts is still on its way to the contact.".to_owned());
    }
    said.push(next_attempt(facts, due));
    said.extend(facts.cap.as_ref().map(|cap| capped(cap, facts.now)));
    said.extend(given_up(facts, due));
    said
}

/// Explains that it waits for the end of a quiet time.
fn quiet(facts: &DeliveryFacts<'_>) -> Option<String> {
    let (quota, contact) = (facts.detail.quota()?, &facts.detail.delivery.contact_id);
    let ContactLookup::Found(contact) = facts.contacts.find(contact) else { return None };
    let (quiet, until) = (contact.filter.quiet?, contact.filter.quiet_until(quota, facts.contacts.zone, facts.now)?);
    let but = if contact.filter.quiet_all { "" } else { "; alerts at 100 % do not wait" };
    let zone = facts.contacts.zone.map_or_else(|| quota.timezone(), |zone| zone.name());
    Some(format!("Its contact is quiet at {quiet} ({zone}): nothing is sent before {until}{but}."))
}

/// Explains that it waits for others of its contact.
fn digest(facts: &DeliveryFacts<'_>, due: UnixMs) -> Option<String> {
    let (quota, contact) = (facts.detail.quota()?, &facts.detail.delivery.contact_id);
    let ContactLookup::Found(contact) = facts.contacts.find(contact) else { return None };
    let interval = contact.digest_of(quota).filter(|_| facts.detail.delivery.attempts == 0 && due > facts.now)?;
    let but = if contact.filter.digest_all { "" } else { "; alerts at 100 % of a day or longer do not wait" };
    Some(format!("Its contact has a digest: one message tells what comes within {interval}{but}."))
}

/// Explains that sending is paused.
pub(super) fn paused(Pause { since, reason }: &Pause) -> String {
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let reason = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("All sending is paused{since}{reason}: nothing leaves until `quotabell deliveries resume`.")
}

fn capped(CapState { rate, exhausted_for }: &CapState, now: UnixMs) -> String {
    match exhausted_for {
        Some(wait) => format!(
            "The cap of {rate} that holds there is used up: no message leaves before {}. A delivery is put off, which counts as no \
             attempt.",
            now.after(*wait)
        ),
        None => format!(
            "Its cap is {rate}. If the cap is exhausted, a delivery is delayed, which does not count as an attempt."
        ),
    }
}

/// Explains when it is given up.
fn given_up(facts: &DeliveryFacts<'_>, due: UnixMs) -> Option<String> {
    if let Some(request) = &facts.detail.verification {
        return Some(format!("It expires when its next attempt would come after {}.", request.expires_at));
    }
    let grant = facts.detail.grant_notice.as_ref();
    let expires = grant.map_or_else(String::new, |notice| {
        format!(" It expires when its next attempt would come after {}.", notice.expires_at)
    });
    let after = |began: UnixMs, class| began.after(give_up_after(class, facts.give_up_after));
    let Some(first) = facts.first_attempt else {
        // Behind an open circuit, the time starts even without an attempt.
        facts.destination.as_ref()?.next_probe?;
        let until = after(due, OutcomeClass::Transient);
        return Some(format!(
            "It is dead if the circuit is still open at {until}. The time in which no daemon sends does not count.{expires}"
        ));
    };
    let (refused, failed) = (after(first, OutcomeClass::Rejected), after(first, OutcomeClass::Transient));
    Some(match refused == failed {
        true => format!("It is dead when an attempt fails after {failed}.{expires}"),
        false => format!("It is dead when an attempt is refused after {refused}, or fails after {failed}.{expires}"),
    })
}

/// Explains what happens to a delivery whose contact is not usable any more.
const fn lost_contact(status: DeliveryContactStatus, kind: NotificationKind) -> Option<&'static str> {
    use DeliveryContactStatus::{Current, Disabled, Muted, Removed, Unreadable, Unverified};
    match (status, kind) {
        // Requests for consent and the operator's digest do not depend on the list of the subject's contacts.
        (_, NotificationKind::Verification | NotificationKind::Digest) => None,
        (Disabled | Removed | Unverified, NotificationKind::Alert) => Some(
            "Its next attempt sends nothing: the alert goes to the subject's contacts at that time, or waits for one.",
        ),
        (Disabled | Removed | Unverified, NotificationKind::GrantExpires | NotificationKind::Usage) => Some(
            "Its next attempt sends nothing: the notice goes to the subject's contacts at that time, or waits for one.",
        ),
        (Disabled | Removed | Unverified, NotificationKind::ContactDisabled | NotificationKind::Resolved) => {
            Some("At its next attempt it is cancelled.")
        }
        (Unreadable, _) => Some("It waits until the contact can be read; `quotabell subject show` says what is wrong."),
        (Current | Muted, _) => None,
    }
}

fn next_attempt(facts: &DeliveryFacts<'_>, due: UnixMs) -> String {
    let destination = &facts.detail.delivery.destination;
    let state = facts.destination.as_ref();
    if let Some((state, probe)) = state.zip(facts.detail.delivery.next_probe) {
        let (failures, others) = (state.failures.unwrap_or_default(), state.waiting.saturating_sub(1));
        return format!(
            "The circuit of {destination} is open after {failures} failures in a row: one attempt is made there at {probe}, \
             `quotabell deliveries retry` makes it now. Other deliveries that wait there: {others}."
        );
    }
    if due > facts.now {
        return format!(
            "Its next attempt is due at {due}; `quotabell deliveries retry {}` makes it due now.",
            facts.detail.delivery.id
        );
    }
    let (bound, in_flight) = state.map_or((1, 0), |state| (state.bound.unwrap_or(1), state.in_flight));
    format!("It has been due since {due}. Attempts under way at {destination}: {in_flight} of at most {bound}.")
}

/// Whether an alert expired before its period was over for long: because it was not true any more.
fn was_untrue(DeliveryFacts { detail, .. }: &DeliveryFacts<'_>) -> bool {
    detail.alert.as_ref().zip(detail.delivery.ended_at).is_some_and(|(alert, at)| at.0 <= expires_at(alert.into()))
}

/// Whether the contact is disabled now.
fn is_disabled(facts: &DeliveryFacts<'_>) -> bool {
    facts.detail.contact.as_ref().is_some_and(|contact| contact.status == DeliveryContactStatus::Disabled)
}

/// Explains how it ended, and what can be done.
fn end(facts: &DeliveryFacts<'_>) -> String {
    let delivery = &facts.detail.delivery;
    let ended = delivery.ended_at.map_or_else(|| "a time that is not known".to_owned(), |ended| ended.to_string());
    let why = delivery.last_error.as_deref();
    let word = match facts.detail.quota() {
        Some(QuotaNotification::GrantExpires(_) | QuotaNotification::Usage(_) | QuotaNotification::Resolved(_)) => {
            "notice"
        }
        Some(QuotaNotification::Alert(_)) | None => "alert",
    };
    match delivery.state {
        DeliveryState::Delivered => format!("The other side took it at {ended}; nothing is left to do."),
        DeliveryState::Dead => {
            let why = why.unwrap_or("no reason is known");
            let until = delivery
                .ended_at
                .map_or_else(String::new, |ended| format!(" until {}", ended.0.after(ENDED_DELIVERY_TTL)));
            let discarded =
                delivery.discarded_at.map_or_else(String::new, |at| format!(" An operator discarded it at {at}."));
            format!(
                "It was given up at {ended}: {why}.{discarded} `quotabell deliveries replay {}` sends it again{until}.",
                delivery.id
            )
        }
        DeliveryState::Muted => {
            format!("It ended muted at {ended}, and was not sent: {}.", why.unwrap_or("the contact was muted"))
        }
        DeliveryState::Expired if facts.detail.verification.is_some() => {
            format!("It expired at {ended}: nobody waited for it any more.")
        }
        DeliveryState::Expired if facts.detail.grant_notice.is_some() => {
            format!("It expired at {ended}: the units of the grant expired before the notice could be sent.")
        }
        DeliveryState::Expired if facts.detail.resolved_notice.is_some() => format!(
            "It expired at {ended}: its contact got none of the alerts, one was open again, or a later notice tells the end."
        ),
        DeliveryState::Expired if facts.detail.usage_notice.is_some() => {
            format!("It expired at {ended}: what it tells was not true any more.")
        }
        DeliveryState::Expired if was_untrue(facts) => format!(
            "It expired at {ended}: before it could be told, a higher limit or a credit had ended the alert, or the contact \
             had been told of a higher threshold."
        ),
        DeliveryState::Expired => {
            let hours = facts.detail.alert.as_ref().map_or(48, |alert| expires_after_hours(alert.window));
            format!("It expired at {ended}: its period had been over for {hours} h before anybody could be told.")
        }
        DeliveryState::Cancelled if facts.detail.is_cancelled_by_operator => {
            format!("An operator cancelled it at {ended}, so it is not sent.")
        }
        DeliveryState::Cancelled if delivery.channel == Channel::None => {
            format!("It ended at {ended} because a contact appeared, which got a delivery of its own.")
        }
        DeliveryState::Cancelled if is_disabled(facts) => {
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            format!(
                "It was cancelled at {ended}, because its contact was disabled{why}. The {word} went to the other contacts, or \
                 waits for one."
            )
        }
        DeliveryState::Cancelled => match why {
            Some(why) => format!("It was cancelled at {ended}: {why}."),
            None => format!(
                "It was cancelled at {ended}: its contact was removed or changed. The contacts that are there got the {word}."
            ),
        },
        DeliveryState::Pending => String::new(),
    }
}
