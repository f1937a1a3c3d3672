//! Compares the expected numbers of the demonstration with the observed ones. Pure. A difference makes the
//! demonstration fail.

use std::collections::BTreeSet;
use std::time::Instant;

use indicatif::HumanCount;
use serde::Serialize;

use super::expected::{SimulatedAlert, SimulatedKind};
use super::received::{AlertNumbers, FAILURES, ReceivedAttempt, Told};
use super::scenario::{Scenario, SimulatedSubject};
use crate::outbox::Totals;
use crate::types::AlertId;

/// An expected and an observed number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Comparison {
    /// The section of the summary.
    pub(super) section: &'static str,
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) seen: String,
    /// A remark; may be empty.
    pub(super) note: String,
    pub(super) ok: bool,
}

/// The result of the demonstration.
#[derive(Debug, Default)]
pub(super) struct ObservedRun {
    /// Counted units, in the order of the scenario.
    pub(super) counts: Vec<u64>,
    pub(super) totals: Totals,
    /// Number of unread stream entries.
    pub(super) unread: u64,
    /// The reason of each refused event.
    pub(super) refused: Vec<String>,
    /// Alerts of the days in question.
    pub(super) raised: Vec<(AlertId, AlertNumbers)>,
    /// All received attempts, in order.
    pub(super) arrivals: Vec<ReceivedAttempt>,
    /// When the second daemon was ready; `None` if it never was.
    pub(super) taken_over: Option<Instant>,
    /// How the last daemon ended, in a few words.
    pub(super) ended: String,
}

/// How the last daemon ends in a successful run.
const ENDED_WELL: &str = "exit 0";

/// Compares every number, in the order of the summary.
pub(super) fn compare(scenario: &Scenario, seen: &ObservedRun) -> Vec<Comparison> {
    let (counts, alerts) = (counts(scenario, seen), alerts(scenario, seen));
    let lives = [forecast(scenario, seen), end(seen), digest(scenario, seen)].into();
    [counts, alerts, lives, refusals(scenario, seen), totals(scenario, seen), messages(seen)].concat()
}

fn text(section: &'static str, what: impl Into<String>, expected: String, seen: String) -> Comparison {
    let ok = expected == seen;
    Comparison { section, what: what.into(), expected, seen, note: String::new(), ok }
}

fn number(section: &'static str, what: impl Into<String>, expected: u64, seen: u64) -> Comparison {
    text(section, what, HumanCount(expected).to_string(), HumanCount(seen).to_string())
}

fn counts(scenario: &Scenario, seen: &ObservedRun) -> Vec<Comparison> {
    let of = |(simulated, counted): (&SimulatedSubject, u64)| {
        let what = format!("{}, {}", simulated.uses.subject, simulated.uses.metric);
        number("units counted", what, scenario.total_units(simulated), counted)
    };
    let counted = seen.counts.iter().copied().chain(std::iter::repeat(0));
    scenario.subjects.iter().zip(counted).map(of).collect()
}

fn alerts(scenario: &Scenario, seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "alerts and deliveries";
    let (mut ours, mut checks) = (BTreeSet::new(), Vec::new());
    for simulated in &scenario.subjects {
        for expected in &simulated.alerts {
            ours.insert(expected.id.clone());
            checks.push(alert(SECTION, simulated, expected, seen));
        }
    }
    let raised = seen.raised.iter().map(|(id, _)| id);
    let others = raised.chain(seen.arrivals.iter().map(|arrival| &arrival.alert)).filter(|id| !ours.contains(id));
    checks.push(number(SECTION, "any other", 0, others.count() as u64));
    checks
}

fn alert(
    section: &'static str,
    simulated: &SimulatedSubject,
    expected: &SimulatedAlert,
    seen: &ObservedRun,
) -> Comparison {
    let SimulatedSubject { uses, contacts, .. } = simulated;
    let SimulatedAlert { what, id, .. } = expected;
    let raised = seen.raised.iter().filter(|(raised, _)| raised == id).count();
    let accepted: Vec<&ReceivedAttempt> =
        seen.arrivals.iter().filter(|arrival| arrival.alert == *id && arrival.is_accepted()).collect();
    let (mut sent, mut doubled, mut after_the_kill) = (0, 0, 0);
    for contact in contacts {
        let arrivals = accepted.iter().filter(|arrival| arrival.contact.as_ref() == Some(&contact.id));
        let times: Vec<Instant> = arrivals.map(|arrival| arrival.at).collect();
        sent += times.len().min(1);
        // At least once: deliveries that the killed daemon could not settle are sent again with the same id. Nothing
        // else may repeat.
        match (times.as_slice(), seen.taken_over) {
            ([first, second], Some(taken_over)) if *first <= taken_over && taken_over < *second => after_the_kill += 1,
            (all, _) => doubled += all.len().saturating_sub(1),
        }
    }
    let is_alert = expected.kind == SimulatedKind::Alert;
    // Notices leave no record.
    let came_to = |raised: usize, sent: usize| match is_alert {
        true => format!("{raised} alert, {sent} sent"),
        false => format!("{sent} sent"),
    };
    let doubled = if doubled > 0 { format!(", {doubled} again") } else { String::new() };
    let channels: Vec<&str> = contacts.iter().map(|contact| contact.channel().as_str()).collect();
    let what = format!("{} {what}, {}", uses.subject, channels.join(" + "));
    let mut check = text(section, what, came_to(1, contacts.len()), came_to(raised, sent) + &doubled);
    if after_the_kill > 0 {
        check.note = format!("{after_the_kill} sent again after the kill, same id");
    }
    check
}

/// The section on what the alerts of one limit are beside each other.
const LIVES: &str = "alerts in time";

/// A forecast comes true if the limit is reached about when it said: within the ten minutes to which it is rounded.
fn forecast(scenario: &Scenario, seen: &ObservedRun) -> Comparison {
    let expected = seen.arrivals.iter().find_map(|arrival| match &arrival.told {
        Told::Forecast(expected) => Some((arrival, (*expected)?)),
        _ => None,
    });
    let reached = expected.and_then(|(forecast, _)| {
        let of_subject = scenario.subjects.iter().find(|one| one.alerts.iter().any(|of| of.id == forecast.alert))?;
        let full = of_subject.raised().last()?;
        seen.arrivals.iter().find_map(|arrival| match arrival.told {
            Told::RaisedAt(at) if arrival.alert == full.id => Some(at),
            _ => None,
        })
    });
    let mut check = text(LIVES, "minutes from forecast to limit", "10 at most".to_owned(), "none".to_owned());
    if let (Some((_, expected)), Some(reached)) = (expected, reached) {
        let minutes = (expected - reached).num_seconds().unsigned_abs().div_ceil(60);
        (check.ok, check.seen) = (minutes <= 10, minutes.to_string());
        check.note = format!("foreseen for {}, reached at {}", expected.format("%H:%M"), reached.format("%H:%M"));
    }
    check
}

fn end(seen: &ObservedRun) -> Comparison {
    let reason = seen.arrivals.iter().find_map(|arrival| match &arrival.told {
        Told::End(reason) => Some(reason.clone()),
        _ => None,
    });
    text(LIVES, "reason of the end", "limit_raised".to_owned(), reason.unwrap_or_else(|| "none".to_owned()))
}

/// All alerts of the contact with a digest are in one message.
fn digest(scenario: &Scenario, seen: &ObservedRun) -> Comparison {
    let digests: BTreeSet<(&String, usize)> = seen.arrivals.iter().filter_map(ReceivedAttempt::digest).collect();
    let alerts = scenario.subjects.iter().filter(|one| one.has_digest()).map(|one| one.raised().count()).sum::<usize>();
    let text_of = |messages: usize, alerts: usize| format!("{messages} message, {alerts} alerts");
    let seen = digests.iter().map(|(_, alerts)| alerts).sum();
    text(LIVES, "digest", text_of(1, alerts), text_of(digests.len(), seen))
}

fn refusals(scenario: &Scenario, seen: &ObservedRun) -> Vec<Comparison> {
    let reasons: BTreeSet<&String> = scenario.refused.keys().chain(&seen.refused).collect();
    let of = |reason: &String| {
        let refused = seen.refused.iter().filter(|other| *other == reason).count() as u64;
        number("events refused", reason, scenario.refused.get(reason).copied().unwrap_or(0), refused)
    };
    reasons.into_iter().map(of).collect()
}

fn totals(scenario: &Scenario, seen: &ObservedRun) -> Vec<Comparison> {
    const SECTION: &str = "the daemon's own totals";
    let totals = &seen.totals;
    let sum = |of: fn(&SimulatedSubject) -> usize| scenario.subjects.iter().map(|one| of(one) as u64).sum::<u64>();
    let made = sum(|simulated| simulated.alerts.len() * simulated.contacts.len());
    let balance = totals.delivered + totals.dead + totals.muted + totals.expired + totals.cancelled + totals.pending;
    vec![
        number(SECTION, "events counted", sum(|simulated| simulated.uses.counted() as usize), totals.counted),
        number(SECTION, "ids seen before", scenario.repeated, totals.duplicates),
        number(SECTION, "events refused", scenario.refused.values().sum(), totals.refused),
        number(SECTION, "events left unread", 0, seen.unread),
        number(SECTION, "alerts raised", sum(|simulated| simulated.raised().count()), totals.raised),
        number(SECTION, "deliveries made", made, totals.made),
        number(SECTION, "deliveries delivered", made, totals.delivered),
        number(SECTION, "delivered + dead + ... + pending", totals.made, balance),
        number(SECTION, "kills survived", 1, u64::from(seen.taken_over.is_some())),
        text(SECTION, "end after SIGTERM", ENDED_WELL.to_owned(), seen.ended.clone()),
    ]
}

/// Checks of the messages by their receivers.
fn messages(seen: &ObservedRun) -> Vec<Comparison> {
    let all = seen.arrivals.len() as u64;
    let check = |what: &str, expected, is: &dyn Fn(&ReceivedAttempt) -> bool| {
        number("what the receivers say", what, expected, seen.arrivals.iter().filter(|one| is(one)).count() as u64)
    };
    let agrees = |arrival: &ReceivedAttempt| {
        // Notices leave no record.
        matches!(arrival.told, Told::Forecast(_) | Told::End(_))
            || seen.raised.contains(&(arrival.alert.clone(), arrival.numbers))
    };
    let mut sound = check("signatures and mails in order", all, &|arrival| arrival.problem.is_none());
    sound.note = seen.arrivals.iter().find_map(|arrival| arrival.problem.clone()).unwrap_or_default();
    let retried = check("attempts answered with 503", FAILURES as u64, &|arrival| !arrival.is_accepted());
    vec![sound, check("numbers as in the alert's record", all, &agrees), retried]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::scenario::tests::sample;
    use super::*;

    /// A correct demonstration: all messages arrived at once, and 5 s later the daemon was replaced.
    fn right(scenario: &Scenario) -> ObservedRun {
        let now = Instant::now();
        let mut seen = ObservedRun {
            ended: ENDED_WELL.to_owned(),
            taken_over: Some(now + Duration::from_secs(5)),
            ..Default::default()
        };
        for simulated in &scenario.subjects {
            seen.counts.push(scenario.total_units(simulated));
            seen.totals.counted += simulated.uses.counted();
            for expected in &simulated.alerts {
                let (id, numbers) = (expected.id.clone(), AlertNumbers { percent: 80, used: 101, limit: 100 });
                for contact in &simulated.contacts {
                    let arrival = ReceivedAttempt {
                        channel: contact.channel(),
                        contact: Some(contact.id.clone()),
                        alert: id.clone(),
                        status: 204,
                        numbers,
                        told: told(simulated, expected),
                        sound: String::new(),
                        problem: None,
                        at: now,
                    };
                    if contact.address().ends_with("/frank") {
                        seen.arrivals.extend(vec![ReceivedAttempt { status: 503, ..arrival.clone() }; FAILURES]);
                    }
                    seen.arrivals.push(arrival);
                    seen.totals.made += 1;
                }
                if expected.kind == SimulatedKind::Alert {
                    seen.raised.push((id, numbers));
                }
            }
        }
        for (reason, count) in &scenario.refused {
            seen.refused.extend(vec![reason.clone(); *count as usize]);
        }
        seen.totals.refused = seen.refused.len() as u64;
        seen.totals.duplicates = scenario.repeated;
        seen.totals.raised = seen.raised.len() as u64;
        seen.totals.delivered = seen.totals.made;
        seen
    }

    /// What its message says in a correct demonstration.
    fn told(simulated: &SimulatedSubject, expected: &SimulatedAlert) -> Told {
        let at = chrono::DateTime::from_timestamp_millis(1_795_250_000_000).expect("a time");
        match expected.kind {
            SimulatedKind::Forecast => Told::Forecast(Some(at + Duration::from_secs(600))),
            SimulatedKind::End => Told::End("limit_raised".to_owned()),
            SimulatedKind::Alert if simulated.has_digest() => {
                Told::Digest { message: "digest_1".to_owned(), alerts: simulated.alerts.len() }
            }
            SimulatedKind::Alert => Told::RaisedAt(at),
        }
    }

    /// The names of the wrong numbers after `spoil` changed a correct demonstration.
    fn wrong(scenario: &Scenario, spoil: impl FnOnce(&mut ObservedRun)) -> Vec<String> {
        let mut seen = right(scenario);
        spoil(&mut seen);
        compare(scenario, &seen).into_iter().filter(|check| !check.ok).map(|check| check.what).collect()
    }

    /// Each number alone must be able to fail the demonstration, and a correct demonstration must pass.
    #[test]
    fn each_number_can_be_wrong() {
        let scenario = sample();
        let wrong = |spoil: &dyn Fn(&mut ObservedRun)| wrong(&scenario, spoil);
        assert_eq!(wrong(&|_| {}), [""; 0]);
        assert_eq!(compare(&scenario, &right(&scenario)).len(), 68);
        assert_eq!(wrong(&|seen| seen.counts[0] += 1), ["alice, requests"]);
        assert_eq!(wrong(&|seen| seen.refused.clear()).len(), scenario.refused.len());
        assert_eq!(wrong(&|seen| seen.refused.push("wrong_partition".to_owned())), ["wrong_partition"]);
        assert_eq!(wrong(&|seen| seen.totals.counted += 1), ["events counted"]);
        assert_eq!(wrong(&|seen| seen.totals.duplicates -= 1), ["ids seen before"]);
        assert_eq!(wrong(&|seen| seen.totals.refused += 1), ["events refused"]);
        assert_eq!(wrong(&|seen| seen.unread = 1), ["events left unread"]);
        assert_eq!(wrong(&|seen| seen.totals.raised += 1), ["alerts raised"]);
        assert_eq!(wrong(&|seen| seen.totals.pending += 1), ["delivered + dead + ... + pending"]);
        assert_eq!(wrong(&|seen| seen.taken_over = None), ["kills survived"]);
        assert_eq!(wrong(&|seen| seen.ended = "signal: 9 (SIGKILL)".to_owned()), ["end after SIGTERM"]);
        let forged = |seen: &mut ObservedRun| seen.arrivals[0].problem = Some("no signature".to_owned());
        assert_eq!(wrong(&forged), ["signatures and mails in order"]);
        assert_eq!(wrong(&|seen| seen.arrivals[0].numbers.used += 1), ["numbers as in the alert's record"]);
        let change = |seen: &mut ObservedRun, from: fn(&Told) -> bool, to: &Told| {
            seen.arrivals.iter_mut().filter(|one| from(&one.told)).for_each(|one| one.told = to.clone());
        };
        let late = Told::Forecast(chrono::DateTime::from_timestamp_millis(1_795_250_660_000));
        assert_eq!(
            wrong(&|seen| change(seen, |told| matches!(told, Told::Forecast(_)), &late)),
            ["minutes from forecast to limit"]
        );
        let reset = Told::End("reset".to_owned());
        assert_eq!(wrong(&|seen| change(seen, |told| matches!(told, Told::End(_)), &reset)), ["reason of the end"]);
        let two = |seen: &mut ObservedRun| {
            let first = seen.arrivals.iter_mut().find(|one| one.digest().is_some()).expect("one");
            first.told = Told::Digest { message: "digest_2".to_owned(), alerts: 1 };
        };
        assert_eq!(wrong(&two), ["digest"]);
        // A missing alert, and an unexpected one.
        let strange = |seen: &mut ObservedRun| {
            seen.raised[0].0 = AlertId::from_stored("alert_0");
            seen.arrivals[0].alert = AlertId::from_stored("alert_0");
        };
        assert_eq!(wrong(&strange), ["alice 80 % of 5000/day, email", "any other"]);
    }

    /// A lost delivery to one of two contacts is wrong. Only messages that the killed daemon had sent and could not
    /// settle may arrive twice.
    #[test]
    fn a_delivery_comes_once_or_twice_across_the_kill() {
        let scenario = sample();
        let lost = &scenario.subjects[2].contacts[1].id;
        let undelivered = |seen: &mut ObservedRun| seen.arrivals.retain(|one| one.contact.as_ref() != Some(lost));
        assert_eq!(
            wrong(&scenario, undelivered),
            ["carol 80 % of 3000/day, email + webhook", "carol 100 % of 3000/day, email + webhook"]
        );
        let again = |seen: &mut ObservedRun, seconds: &[u64]| {
            let first = seen.arrivals[0].clone();
            let copies = seconds
                .iter()
                .map(|later| ReceivedAttempt { at: first.at + Duration::from_secs(*later), ..first.clone() });
            seen.arrivals.extend(copies.collect::<Vec<_>>());
        };
        let mut across = right(&scenario);
        again(&mut across, &[9]);
        let checks = compare(&scenario, &across);
        assert!(checks.iter().all(|check| check.ok), "{checks:?}");
        assert!(checks.iter().any(|check| check.note == "1 sent again after the kill, same id"), "{checks:?}");
        for seconds in [&[3][..], &[9, 10]] {
            assert_eq!(wrong(&scenario, |seen| again(seen, seconds)), ["alice 80 % of 5000/day, email"], "{seconds:?}");
        }
    }
}
