//! Expected against seen: every number of the demonstration, judged. Pure; this is the part that can say no.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::books::LastPage;
use super::cast::Actor;
use super::inbox::{Arrival, FAILURES, Facts};
use super::traffic::Traffic;
use super::words::grouped;
use crate::types::{AlertId, Contact, Percent, Reason};

/// One number that was expected and one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// What it belongs to.
    pub(super) section: &'static str,
    /// What was looked at.
    pub(super) what: String,
    /// What it ought to be.
    pub(super) expected: String,
    /// What it is.
    pub(super) seen: String,
    /// What else is worth a word; empty: nothing.
    pub(super) note: String,
    /// Whether they agree.
    #[serde(rename = "ok", serialize_with = "as_bool")]
    pub(super) verdict: Verdict,
}

/// Whether expected and seen agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They do.
    Right,
    /// They don't.
    Wrong,
}

fn as_bool<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*verdict == Verdict::Right)
}

/// What the demonstration did, from which everything else follows.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    /// Who used what.
    pub(super) cast: &'a [Actor],
    /// What was sent.
    pub(super) traffic: &'a Traffic,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What Redis holds at the end.
    pub(super) books: LastPage,
    /// Everything that arrived, in order.
    pub(super) arrivals: Vec<Arrival>,
    /// When the daemon that took over was ready; `None`: none did.
    pub(super) taken_over: Option<Instant>,
    /// How the last daemon ended, as `exit status: 0`.
    pub(super) ended: String,
}

/// How the last daemon ends when all is well.
pub(super) const ENDED_WELL: &str = "exit status: 0";

/// Judges every number, in the order in which a reader wants them.
pub(super) fn compare(expected: &Expected<'_>, seen: &Seen) -> Vec<Check> {
    let mut checks = counts(expected, seen);
    checks.extend(alerts(expected, seen));
    checks.extend(refusals(expected, seen));
    checks.extend(totals(expected, seen));
    checks.extend(messages(seen));
    checks
}

/// How many checks failed.
pub(super) fn wrong(checks: &[Check]) -> usize {
    checks.iter().filter(|check| check.verdict == Verdict::Wrong).count()
}

/// A check of two numbers.
fn number(section: &'static str, what: impl Into<String>, expected: u64, seen: u64) -> Check {
    text(section, what, grouped(expected), grouped(seen))
}

fn text(section: &'static str, what: impl Into<String>, expected: String, seen: String) -> Check {
    let verdict = if expected == seen { Verdict::Right } else { Verdict::Wrong };
    Check { section, what: what.into(), expected, seen, note: String::new(), verdict }
}

fn counts(expected: &Expected<'_>, seen: &Seen) -> Vec<Check> {
    let of = |(index, actor): (usize, &Actor)| {
        let counted = seen.books.counts.get(index).copied().unwrap_or(0);
        let what = format!("{}, {}", actor.subject, actor.metric);
        let mut check = number("units counted", what, actor.total_units(), counted);
        check.note = actor.limit.map_or_else(
            || "no limit".to_owned(),
            |limit| {
                let percent = crate::types::alert::used_percent(counted, limit.get());
                format!("{percent:.1} % of {}", grouped(limit.get()))
            },
        );
        check
    };
    expected.cast.iter().enumerate().map(of).collect()
}

/// What one alert came to.
struct Fate<'a> {
    actor: &'a Actor,
    percent: Percent,
    id: AlertId,
}

fn alerts(expected: &Expected<'_>, seen: &Seen) -> Vec<Check> {
    const SECTION: &str = "alerts and deliveries";
    let fates: Vec<Fate<'_>> = expected
        .cast
        .iter()
        .flat_map(|actor| actor.reached().into_iter().map(move |percent| (actor, percent)))
        .map(|(actor, percent)| Fate { actor, percent, id: actor.alert_id(percent) })
        .collect();
    let mut checks: Vec<Check> = fates.iter().map(|fate| one_alert(SECTION, fate, seen)).collect();
    let is_ours = |id: &AlertId| fates.iter().any(|fate| fate.id == *id);
    let unexpected = seen.books.raised.iter().filter(|alert| !is_ours(&alert.id)).count()
        + seen.arrivals.iter().filter(|arrival| !is_ours(&arrival.alert)).count();
    checks.push(number(SECTION, "any other", 0, unexpected as u64));
    checks
}

fn one_alert(section: &'static str, fate: &Fate<'_>, seen: &Seen) -> Check {
    let contacts = &fate.actor.contacts;
    let raised = seen.books.raised.iter().filter(|alert| alert.id == fate.id).count();
    let reached: Vec<Reached> = contacts.iter().map(|contact| reached(&fate.id, contact, seen)).collect();
    let delivered = reached.iter().filter(|reached| reached.accepted > 0).count();
    let what = format!("{} {} %, {}", fate.actor.subject, fate.percent, channels(contacts));
    let mut check = text(section, what, came_to(1, contacts.len()), came_to(raised, delivered));
    let mut notes = Vec::new();
    if let Some(attempt) = reached.iter().filter_map(|reached| reached.first_accepted).find(|attempt| *attempt > 1) {
        notes.push(format!("at attempt {attempt}"));
    }
    let resent: usize = reached.iter().map(|reached| reached.accepted.saturating_sub(1)).sum();
    if resent > 0 {
        notes.push(format!("{resent} sent again"));
    }
    // At-least-once: what the killed daemon could not settle is sent again, with the same id. Nothing else may be.
    if reached.iter().any(|reached| reached.doubled == Doubled::WithoutExcuse) {
        notes.push("although no kill came between".to_owned());
        check.verdict = Verdict::Wrong;
    } else if resent > 0 {
        notes.push("after the kill, same id".to_owned());
    }
    check.note = notes.join(" ");
    check
}

fn came_to(raised: usize, delivered: usize) -> String {
    format!("{raised} raised, {delivered} delivered")
}

fn channels(contacts: &[Contact]) -> String {
    contacts.iter().map(|contact| contact.channel().as_str()).collect::<Vec<_>>().join(" and ")
}

/// How one delivery arrived.
struct Reached {
    /// How often it was taken.
    accepted: usize,
    /// At which attempt first; attempts are counted from 1.
    first_accepted: Option<usize>,
    doubled: Doubled,
}

#[derive(PartialEq, Eq)]
enum Doubled {
    No,
    ByTheKill,
    WithoutExcuse,
}

fn reached(alert: &AlertId, contact: &Contact, seen: &Seen) -> Reached {
    let attempts: Vec<&Arrival> =
        seen.arrivals.iter().filter(|one| one.alert == *alert && one.contact.as_ref() == Some(&contact.id)).collect();
    let accepted: Vec<&Arrival> = attempts.iter().copied().filter(|arrival| arrival.is_accepted()).collect();
    let excused = |first: &Arrival| seen.taken_over.is_some_and(|taken_over| first.at <= taken_over);
    let doubled = match accepted.as_slice() {
        [] | [_] => Doubled::No,
        [first, second] if excused(first) && !excused(second) => Doubled::ByTheKill,
        _ => Doubled::WithoutExcuse,
    };
    let first_accepted = attempts.iter().position(|arrival| arrival.is_accepted()).map(|index| index + 1);
    Reached { accepted: accepted.len(), first_accepted, doubled }
}

fn refusals(expected: &Expected<'_>, seen: &Seen) -> Vec<Check> {
    const SECTION: &str = "events refused";
    let of = |(reason, count): (&Reason, &u64)| {
        let seen = seen.books.refused.get(reason.as_str()).copied().unwrap_or(0);
        number(SECTION, reason.as_str(), *count, seen)
    };
    let mut checks: Vec<Check> = expected.traffic.refused.iter().map(of).collect();
    let known = |reason: &str| expected.traffic.refused.keys().any(|known| known.as_str() == reason);
    let unexpected: BTreeMap<_, _> = seen.books.refused.iter().filter(|(reason, _)| !known(reason)).collect();
    for (reason, count) in unexpected {
        checks.push(number(SECTION, reason.as_str(), 0, *count));
    }
    checks
}

fn totals(expected: &Expected<'_>, seen: &Seen) -> Vec<Check> {
    const SECTION: &str = "the daemon's own books";
    let totals = &seen.books.totals;
    let counted: u64 = expected.cast.iter().map(|actor| u64::from(actor.events)).sum();
    let reached = |actor: &Actor| actor.reached().len() as u64;
    let raised: u64 = expected.cast.iter().map(reached).sum();
    let made: u64 = expected.cast.iter().map(|actor| reached(actor) * actor.contacts.len() as u64).sum();
    let balance = totals.delivered + totals.dead + totals.muted + totals.expired + totals.cancelled + totals.pending;
    let mut balanced = number(SECTION, "delivered + dead + ... + pending", totals.made, balance);
    balanced.note = "equals the deliveries made".to_owned();
    let mut repeated = number(SECTION, "ids seen before", expected.traffic.repeated, totals.duplicates);
    repeated.note = "not counted again".to_owned();
    vec![
        number(SECTION, "events counted", counted, totals.counted),
        repeated,
        number(SECTION, "events refused", expected.traffic.refused.values().sum(), totals.refused),
        number(SECTION, "events left unread", 0, seen.books.unread),
        number(SECTION, "alerts raised", raised, totals.raised),
        number(SECTION, "deliveries made", made, totals.made),
        number(SECTION, "deliveries delivered", made, totals.delivered),
        balanced,
        number(SECTION, "kills survived", 1, u64::from(seen.taken_over.is_some())),
        text(SECTION, "end after SIGTERM", ENDED_WELL.to_owned(), seen.ended.clone()),
    ]
}

/// What the receivers say about what they got.
fn messages(seen: &Seen) -> Vec<Check> {
    const SECTION: &str = "what the receivers say";
    let arrivals = &seen.arrivals;
    let sound = arrivals.iter().filter(|arrival| arrival.trouble.is_none()).count();
    let mut signed = number(SECTION, "signatures and mails in order", arrivals.len() as u64, sound as u64);
    signed.note = arrivals.iter().find_map(|arrival| arrival.trouble.clone()).unwrap_or_default();
    let agrees = |arrival: &&Arrival| {
        let record = seen.books.raised.iter().find(|alert| alert.id == arrival.alert);
        let facts = record.map(|alert| Facts {
            percent: u64::from(alert.threshold_percent.get()),
            used: alert.used,
            limit: alert.limit,
        });
        facts.is_some() && arrival.facts == facts
    };
    let agreeing = arrivals.iter().filter(agrees).count();
    let failed = arrivals.iter().filter(|arrival| !arrival.is_accepted()).count();
    let mut retried = number(SECTION, "attempts answered with 503", FAILURES as u64, failed as u64);
    retried.note = "and tried again".to_owned();
    vec![signed, number(SECTION, "numbers as in the alert's record", arrivals.len() as u64, agreeing as u64), retried]
}
