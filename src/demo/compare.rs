//! ExpectedRun against seen: every number of the demonstration, judged. Pure. What differs makes the demonstration fail.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Instant;

use serde::Serialize;

use super::number_format::grouped;
use super::received::{AlertNumbers, FAILURES, ReceivedAttempt};
use super::redis_state::FinalState;
use super::scenario::SimulatedSubject;
use super::traffic::Traffic;
use crate::contacts::Contact;
use crate::types::alert::used_percent;
use crate::types::{AlertId, Percent, RefusalReason};

/// One number that was expected and one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Comparison {
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
    pub(super) result: ComparisonResult,
}

/// Whether expected and seen agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonResult {
    /// They do.
    Right,
    /// They don't.
    Wrong,
}

fn as_bool<S: serde::Serializer>(result: &ComparisonResult, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*result == ComparisonResult::Right)
}

/// What the demonstration did, from which everything else follows.
#[derive(Debug)]
pub(super) struct ExpectedRun<'a> {
    /// The subjects and what they used.
    pub(super) subjects: &'a [SimulatedSubject],
    /// What was sent.
    pub(super) traffic: &'a Traffic,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct ObservedRun {
    /// What Redis holds at the end.
    pub(super) state: FinalState,
    /// Everything that arrived, in order.
    pub(super) arrivals: Vec<ReceivedAttempt>,
    /// When the daemon that took over was ready; `None`: none did.
    pub(super) taken_over: Option<Instant>,
    /// How the last daemon ended, as [`ended`] says it.
    pub(super) ended: String,
}

/// How the last daemon ends when all is well.
const ENDED_WELL: &str = "exit 0";

/// How a process ended, in a few words.
pub(super) fn ended(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit {code}"))
}

/// Judges every number, in the order in which a reader wants them.
pub(super) fn compare(expected: &ExpectedRun<'_>, seen: &ObservedRun) -> Vec<Comparison> {
    let mut checks = counts(expected, seen);
    checks.extend(alerts(expected, seen));
    checks.extend(refusals(expected, seen));
    checks.extend(totals(expected, seen));
    checks.extend(messages(seen));
    checks
}

/// How many checks failed.
pub(super) fn wrong(checks: &[Comparison]) -> usize {
    checks.iter().filter(|check| check.result == ComparisonResult::Wrong).count()
}

/// A check of two numbers.
fn number(section: &'static str, what: impl Into<String>, expected: u64, seen: u64) -> Comparison {
    text(section, what, grouped(expected), grouped(seen))
}

fn text(section: &'static str, what: impl Into<String>, expected: String, seen: String) -> Comparison {
    let result = if expected == seen { ComparisonResult::Right } else { ComparisonResult::Wrong };
    Comparison { section, what: what.into(), expected, seen, note: String::new(), result }
}

fn counts(expected: &ExpectedRun<'_>, seen: &ObservedRun) -> Vec<Comparison> {
    let of = |(index, simulated): (usize, &SimulatedSubject)| {
        let counted = seen.state.counts.get(index).copied().unwrap_or(0);
        let what = format!("{}, {}", simulated.subject, simulated.metric);
        let mut check = number("units counted", what, simulated.total_units(), counted);
        check.note = simulated
            .limit
            .map_or_else(|| "no limit".to_owned(), |limit| format!("{:.1} %", used_percent(counted, limit.get())));
        check
    };
    expected.subjects.iter().enumerate().map(of).collect()
}

/// What one alert came to.
struct ExpectedAlert<'a> {
    simulated: &'a SimulatedSubject,
    percent: Percent,
    id: AlertId,
}

fn alerts(expected: &ExpectedRun<'_>, seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "alerts and deliveries";
    let expected_alerts: Vec<ExpectedAlert<'_>> = expected
        .subjects
        .iter()
        .flat_map(|simulated| simulated.reached().into_iter().map(move |percent| (simulated, percent)))
        .map(|(simulated, percent)| ExpectedAlert { simulated, percent, id: simulated.alert_id(percent) })
        .collect();
    let mut checks: Vec<Comparison> = expected_alerts.iter().map(|alert| one_alert(SECTION, alert, seen)).collect();
    let is_ours = |id: &AlertId| expected_alerts.iter().any(|alert| alert.id == *id);
    let unexpected = seen.state.raised.iter().filter(|alert| !is_ours(&alert.id)).count()
        + seen.arrivals.iter().filter(|arrival| !is_ours(&arrival.alert)).count();
    checks.push(number(SECTION, "any other", 0, unexpected as u64));
    checks
}

fn one_alert(section: &'static str, alert: &ExpectedAlert<'_>, seen: &ObservedRun) -> Comparison {
    let contacts = &alert.simulated.contacts;
    let raised = seen.state.raised.iter().filter(|raised| raised.id == alert.id).count();
    let reached: Vec<DeliveryResult> = contacts.iter().map(|contact| reached(&alert.id, contact, seen)).collect();
    let delivered = reached.iter().filter(|reached| reached.accepted > 0).count();
    let what = format!("{} {} %, {}", alert.simulated.subject, alert.percent, channels(contacts));
    let mut check = text(section, what, came_to(1, contacts.len()), came_to(raised, delivered));
    let mut notes = Vec::new();
    if let Some(attempt) = reached.iter().filter_map(|reached| reached.first_accepted).find(|attempt| *attempt > 1) {
        notes.push(format!("attempt {attempt}"));
    }
    let resent: usize = reached.iter().map(|reached| reached.accepted.saturating_sub(1)).sum();
    if resent > 0 {
        notes.push(format!("{resent} sent again"));
    }
    // At-least-once: what the killed daemon could not settle is sent again, with the same id. Nothing else may be.
    if reached.iter().any(|reached| reached.doubled == Repetition::WithoutExcuse) {
        notes.push("although no kill came between".to_owned());
        check.result = ComparisonResult::Wrong;
    } else if resent > 0 {
        notes.push("after the kill, same id".to_owned());
    }
    check.note = notes.join(" ");
    check
}

fn came_to(raised: usize, delivered: usize) -> String {
    format!("{raised} alert, {delivered} sent")
}

fn channels(contacts: &[Contact]) -> String {
    contacts.iter().map(|contact| contact.channel().as_str()).collect::<Vec<_>>().join(" + ")
}

/// How one delivery arrived.
struct DeliveryResult {
    /// How often it was taken.
    accepted: usize,
    /// At which attempt first; attempts are counted from 1.
    first_accepted: Option<usize>,
    doubled: Repetition,
}

#[derive(PartialEq, Eq)]
enum Repetition {
    No,
    ByTheKill,
    WithoutExcuse,
}

fn reached(alert: &AlertId, contact: &Contact, seen: &ObservedRun) -> DeliveryResult {
    let attempts: Vec<&ReceivedAttempt> =
        seen.arrivals.iter().filter(|one| one.alert == *alert && one.contact.as_ref() == Some(&contact.id)).collect();
    let accepted: Vec<&ReceivedAttempt> = attempts.iter().copied().filter(|arrival| arrival.is_accepted()).collect();
    let excused = |first: &ReceivedAttempt| seen.taken_over.is_some_and(|taken_over| first.at <= taken_over);
    let doubled = match accepted.as_slice() {
        [] | [_] => Repetition::No,
        [first, second] if excused(first) && !excused(second) => Repetition::ByTheKill,
        _ => Repetition::WithoutExcuse,
    };
    let first_accepted = attempts.iter().position(|arrival| arrival.is_accepted()).map(|index| index + 1);
    DeliveryResult { accepted: accepted.len(), first_accepted, doubled }
}

fn refusals(expected: &ExpectedRun<'_>, seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "events refused";
    let of = |(reason, count): (&RefusalReason, &u64)| {
        let seen = seen.state.refused.get(reason.as_str()).copied().unwrap_or(0);
        number(SECTION, reason.as_str(), *count, seen)
    };
    let mut checks: Vec<Comparison> = expected.traffic.refused.iter().map(of).collect();
    let known = |reason: &str| expected.traffic.refused.keys().any(|known| known.as_str() == reason);
    let unexpected: BTreeMap<_, _> = seen.state.refused.iter().filter(|(reason, _)| !known(reason)).collect();
    for (reason, count) in unexpected {
        checks.push(number(SECTION, reason.as_str(), 0, *count));
    }
    checks
}

fn totals(expected: &ExpectedRun<'_>, seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "the daemon's own books";
    let totals = &seen.state.totals;
    let counted: u64 = expected.subjects.iter().map(|simulated| u64::from(simulated.events)).sum();
    let reached = |simulated: &SimulatedSubject| simulated.reached().len() as u64;
    let raised: u64 = expected.subjects.iter().map(reached).sum();
    let made: u64 =
        expected.subjects.iter().map(|simulated| reached(simulated) * simulated.contacts.len() as u64).sum();
    let balance = totals.delivered + totals.dead + totals.muted + totals.expired + totals.cancelled + totals.pending;
    let mut repeated = number(SECTION, "ids seen before", expected.traffic.repeated, totals.duplicates);
    repeated.note = "not counted again".to_owned();
    vec![
        number(SECTION, "events counted", counted, totals.counted),
        repeated,
        number(SECTION, "events refused", expected.traffic.refused.values().sum(), totals.refused),
        number(SECTION, "events left unread", 0, seen.state.unread),
        number(SECTION, "alerts raised", raised, totals.raised),
        number(SECTION, "deliveries made", made, totals.made),
        number(SECTION, "deliveries delivered", made, totals.delivered),
        number(SECTION, "delivered + dead + ... + pending", totals.made, balance),
        number(SECTION, "kills survived", 1, u64::from(seen.taken_over.is_some())),
        text(SECTION, "end after SIGTERM", ENDED_WELL.to_owned(), seen.ended.clone()),
    ]
}

/// What the receivers say about what they got.
fn messages(seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "what the receivers say";
    let arrivals = &seen.arrivals;
    let sound = arrivals.iter().filter(|arrival| arrival.problem.is_none()).count();
    let mut signed = number(SECTION, "signatures and mails in order", arrivals.len() as u64, sound as u64);
    signed.note = arrivals.iter().find_map(|arrival| arrival.problem.clone()).unwrap_or_default();
    let agrees = |arrival: &&ReceivedAttempt| {
        let record = seen.state.raised.iter().find(|alert| alert.id == arrival.alert);
        let facts = record.map(|alert| AlertNumbers {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::received::FAILURE;
    use super::super::scenario::{ReceiverUrls, subjects};
    use super::*;
    use crate::channels::sample_alert;
    use crate::outbox::Totals;
    use crate::types::{Alert, UnixMs};

    const NOW: UnixMs = UnixMs(1_795_250_000_000);

    struct Script {
        subjects: Vec<SimulatedSubject>,
        traffic: Traffic,
        began: Instant,
    }

    impl Script {
        fn new() -> Self {
            let receivers = ReceiverUrls { steady: "http://127.0.0.1:1", flaky: "http://127.0.0.1:2" };
            let subjects = subjects(NOW, receivers).expect("a scenario");
            Self { traffic: Traffic::plan(&subjects), subjects, began: Instant::now() }
        }

        fn checks(&self, seen: &ObservedRun) -> Vec<Comparison> {
            compare(&ExpectedRun { subjects: &self.subjects, traffic: &self.traffic }, seen)
        }

        /// What is wrong, by name.
        fn wrong(&self, seen: &ObservedRun) -> Vec<String> {
            let checks = self.checks(seen).into_iter();
            checks.filter(|check| check.result == ComparisonResult::Wrong).map(|check| check.what).collect()
        }

        fn alert(simulated: &SimulatedSubject, percent: Percent) -> Alert {
            let limit = simulated.limit.expect("only limits alert");
            Alert {
                id: simulated.alert_id(percent),
                subject: simulated.subject.clone(),
                metric: simulated.metric.clone(),
                period: simulated.day.into(),
                limit: limit.get(),
                used: u64::try_from(percent.threshold_units(limit)).expect("small"),
                ..sample_alert(percent, NOW)
            }
        }

        fn arrival(&self, alert: &Alert, contact: &Contact, second: u64) -> ReceivedAttempt {
            let percent = u64::from(alert.threshold_percent.get());
            ReceivedAttempt {
                channel: contact.channel(),
                contact: Some(contact.id.clone()),
                alert: alert.id.clone(),
                status: 204,
                facts: Some(AlertNumbers { percent, used: alert.used, limit: alert.limit }),
                problem: None,
                at: self.began + Duration::from_secs(second),
            }
        }

        /// A demonstration in which everything is right; the daemon was replaced at second 5, everything arrived at second 2.
        fn right(&self) -> ObservedRun {
            let mut seen = ObservedRun {
                taken_over: Some(self.began + Duration::from_secs(5)),
                ended: ENDED_WELL.to_owned(),
                ..ObservedRun::default()
            };
            let state = &mut seen.state;
            state.counts = self.subjects.iter().map(SimulatedSubject::total_units).collect();
            state.refused = self.traffic.refused.iter().map(|(reason, n)| (reason.to_string(), *n)).collect();
            for simulated in &self.subjects {
                for alert in simulated.reached().into_iter().map(|percent| Self::alert(simulated, percent)) {
                    for contact in &simulated.contacts {
                        let arrival = self.arrival(&alert, contact, 2);
                        if contact.address().ends_with("/frank") {
                            seen.arrivals
                                .extend(vec![ReceivedAttempt { status: FAILURE, ..arrival.clone() }; FAILURES]);
                        }
                        seen.arrivals.push(arrival);
                        state.totals.made += 1;
                    }
                    state.raised.push(alert);
                }
            }
            state.totals = Totals {
                counted: self.subjects.iter().map(|simulated| u64::from(simulated.events)).sum(),
                refused: self.traffic.refused.values().sum(),
                duplicates: self.traffic.repeated,
                raised: state.raised.len() as u64,
                delivered: state.totals.made,
                ..state.totals.clone()
            };
            seen
        }

        /// One more copy of the first arrival, at this second.
        fn again(&self, seen: &mut ObservedRun, second: u64) {
            let copy = ReceivedAttempt { at: self.began + Duration::from_secs(second), ..seen.arrivals[0].clone() };
            seen.arrivals.push(copy);
        }
    }

    /// Without this one, every other test here could pass because everything is always wrong.
    #[test]
    fn a_right_demonstration_has_nothing_wrong() {
        let script = Script::new();
        assert_eq!(script.wrong(&script.right()), [""; 0]);
        assert!(script.checks(&script.right()).len() > 35);
    }

    /// One unit too few or too many is what the whole daemon is about.
    #[test]
    fn a_count_that_is_off_by_one_is_wrong() {
        let script = Script::new();
        for off in [-1, 1] {
            let mut seen = script.right();
            seen.state.counts[0] = seen.state.counts[0].saturating_add_signed(off);
            assert_eq!(script.wrong(&seen), ["alice, requests"]);
        }
    }

    /// A lost alert: not raised, or raised and not delivered to one of two contacts.
    #[test]
    fn an_alert_that_is_missing_is_wrong() {
        let script = Script::new();
        let mut unraised = script.right();
        unraised.state.raised.remove(0);
        assert!(script.wrong(&unraised).contains(&"alice 80 %, email".to_owned()));
        let mut undelivered = script.right();
        let carol = script.subjects.iter().find(|simulated| simulated.contacts.len() == 2).expect("two contacts");
        let lost = &carol.contacts[1].id;
        undelivered.arrivals.retain(|arrival| arrival.contact.as_ref() != Some(lost));
        assert_eq!(script.wrong(&undelivered), ["carol 80 %, email + webhook", "carol 100 %, email + webhook"]);
    }

    /// What the killed daemon had sent and could not settle is sent again; nothing else may be.
    #[test]
    fn a_delivery_may_come_twice_only_across_the_kill() {
        let script = Script::new();
        let mut across = script.right();
        script.again(&mut across, 9);
        assert_eq!(script.wrong(&across), [""; 0]);
        let notes: Vec<String> = script.checks(&across).into_iter().map(|check| check.note).collect();
        assert!(notes.contains(&"1 sent again after the kill, same id".to_owned()), "{notes:?}");
        for seconds in [&[3][..], &[9, 10]] {
            let mut doubled = script.right();
            seconds.iter().for_each(|second| script.again(&mut doubled, *second));
            assert_eq!(script.wrong(&doubled), ["alice 80 %, email"], "{seconds:?}");
        }
    }

    /// An alert that nobody expected is as wrong as one that is missing.
    #[test]
    fn an_alert_of_another_id_is_wrong() {
        let script = Script::new();
        let mut seen = script.right();
        let stranger = AlertId::from_stored("alert_0");
        seen.state.raised[0].id = stranger.clone();
        seen.arrivals[0].alert = stranger;
        assert_eq!(script.wrong(&seen), ["alice 80 %, email", "any other"]);
    }

    /// The rest of the table: each number alone must be able to fail it.
    #[test]
    fn each_other_number_can_be_wrong() {
        let script = Script::new();
        let wrong = |spoil: fn(&mut ObservedRun)| {
            let mut seen = script.right();
            spoil(&mut seen);
            script.wrong(&seen)
        };
        assert_eq!(wrong(|seen| seen.state.refused = BTreeMap::new()).len(), script.traffic.refused.len());
        assert_eq!(
            wrong(|seen| *seen.state.refused.entry("wrong_partition".to_owned()).or_default() += 1),
            ["wrong_partition"]
        );
        assert_eq!(wrong(|seen| seen.state.totals.counted += 1), ["events counted"]);
        assert_eq!(wrong(|seen| seen.state.totals.duplicates -= 1), ["ids seen before"]);
        assert_eq!(wrong(|seen| seen.state.totals.refused += 1), ["events refused"]);
        assert_eq!(wrong(|seen| seen.state.unread = 1), ["events left unread"]);
        assert_eq!(wrong(|seen| seen.state.totals.raised += 1), ["alerts raised"]);
        assert_eq!(wrong(|seen| seen.state.totals.pending += 1), ["delivered + dead + ... + pending"]);
        assert_eq!(wrong(|seen| seen.taken_over = None), ["kills survived"]);
        assert_eq!(wrong(|seen| seen.ended = "signal: 9 (SIGKILL)".to_owned()), ["end after SIGTERM"]);
        assert_eq!(
            wrong(|seen| seen.arrivals[0].problem = Some("signature invalid".to_owned())),
            ["signatures and mails in order"]
        );
        assert_eq!(wrong(|seen| seen.arrivals[0].facts = None), ["numbers as in the alert's record"]);
    }
}
