//! Which alerts another plan would have raised, and in how many messages, from the usage of past days. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use redis::RedisResult;
use serde::Serialize;

use super::message_count::MessageCount;
use crate::contacts::resolver::ContactResolver;
use crate::contacts::{Contact, masked_address};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::daily_usage;
use crate::ledger::query::metrics_of;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::ledger::thresholds::thresholds_of;
use crate::outbox::config::MultiplePolicy;
use crate::outbox::message_group::digest_group;
use crate::outbox::recipients::Recipients;
use crate::redis_client::{ErrorKind, Partition, Partitions, error_kind};
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertId, AlertKey, BillingStart, Day, DaySpan, DeploymentId, DigestInterval, Limits, Metric, MetricFormat,
    MetricUnit, Period, PeriodSpan, QuietTime, StreamId, Subject, Threshold, UnixMs, Window, WindowLimit,
};
use crate::zones::Zone;

/// Maximum number of alerts that are listed.
pub const LISTED_MAX: usize = 10_000;
/// Number of subjects whose settings are read at once.
const SETTINGS_AT_ONCE: usize = 100;

/// Limits and thresholds that are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedPlan {
    pub limits: BTreeMap<Metric, Limits>,
    pub thresholds: Vec<Threshold>,
    /// Whether they are those of a plan: then limits and thresholds of a subject itself win, as they do for its plan.
    pub is_plan: bool,
}

/// Whose usage is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhatIfScope {
    All,
    Subject(Subject),
    /// Subjects of the plan with this name.
    Plan(String),
}

#[derive(Debug, Clone)]
pub struct WhatIfRequest {
    pub tried: TriedPlan,
    pub scope: WhatIfScope,
    /// Alerts of earlier days are left out.
    pub since: UnixMs,
    pub now: UnixMs,
}

/// What a plan would have raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfView {
    pub since: Rfc3339,
    pub until: Rfc3339,
    /// Number of subjects that used one of the metrics.
    pub subjects: usize,
    /// Number of alerts under the limits and thresholds that hold now: of the same metrics, for days and longer.
    pub alerts_now: usize,
    /// Number of messages that they would have caused: one for each alert and contact, and one for what a contact's
    /// digest gathers, by whole days.
    pub messages: usize,
    /// The same without digests.
    pub messages_without_digests: usize,
    /// Limits that can't be replayed, because no usage by hour or in total is kept.
    pub not_replayed: Vec<String>,
    /// Metrics of which no usage is kept in this scope.
    #[serde(skip)]
    pub without_usage: Vec<Metric>,
    /// Number of subjects that are left out, because their settings can't be read.
    pub unreadable: usize,
    /// Number of alerts that are counted and not listed.
    pub left_out: usize,
    pub alerts: Vec<WhatIfAlertView>,
}

/// An alert that would have been raised.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WhatIfAlertView {
    /// The day, in the subject's zone, on which the threshold would have been reached.
    pub day: Day,
    pub subject: Subject,
    pub metric: Metric,
    #[serde(flatten)]
    pub format: MetricFormat,
    pub window: Window,
    pub period: Period,
    pub threshold: Threshold,
    pub limit: u64,
    /// Units used in the period until the end of the day.
    pub used: u64,
    /// Who would have been told.
    pub to: Vec<WhatIfRecipient>,
}

/// A contact that would have been told, and why the alert waits before it is sent there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WhatIfRecipient {
    /// The address, without its secrets: two contacts may have the same.
    pub address: String,
    /// It leaves in one message with others of this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<DigestInterval>,
    /// It waits for the end of this time if it was raised in it; the hour is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietTime>,
}

/// A threshold that the usage of a day reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reached {
    day: Day,
    limit: WindowLimit,
    period: Period,
    threshold: Threshold,
    threshold_units: u64,
    used: u64,
}

/// Replays the usage of all subjects in scope. Reads all counters of days and all archived days of the metrics, in
/// slices.
///
/// # Errors
///
/// The first error of Redis.
pub async fn read(
    partitions: &Partitions,
    plans: &Plans,
    contacts: &ContactResolver,
    request: &WhatIfRequest,
) -> RedisResult<WhatIfView> {
    let WhatIfRequest { tried, scope, since, now } = request;
    let mut view = WhatIfView {
        since: Rfc3339(*since),
        until: Rfc3339(*now),
        subjects: 0,
        alerts_now: 0,
        messages: 0,
        messages_without_digests: 0,
        not_replayed: not_replayed(tried),
        without_usage: tried.limits.keys().cloned().collect(),
        unreadable: 0,
        left_out: 0,
        alerts: Vec::new(),
    };
    let (mut seen, mut count) = (BTreeSet::new(), MessageCount::default());
    for partition in partitions.iter() {
        if matches!(scope, WhatIfScope::Subject(only) if partitions.partition_of(only).number() != partition.number()) {
            continue;
        }
        let counted = metrics_of(&partition.client, &partition.keys, &counted_days(*now)).await?;
        for metric in tried.limits.keys() {
            for bucket in buckets_of(scope) {
                let bucket = Bucket { partition, metric, number: bucket, counted: &counted };
                let found = (&mut view, &mut seen, &mut count);
                replay_bucket(&bucket, partitions.first(), plans, contacts, request, found).await?;
            }
        }
    }
    view.subjects = seen.len();
    (view.messages, view.messages_without_digests) = (count.messages(), count.alerts());
    view.alerts.sort();
    Ok(view)
}

/// The counters of a metric that are read together.
struct Bucket<'a> {
    partition: &'a Partition,
    metric: &'a Metric,
    number: u8,
    counted: &'a [MetricPeriod],
}

async fn replay_bucket(
    Bucket { partition, metric, number, counted }: &Bucket<'_>,
    first: &Partition,
    plans: &Plans,
    contacts: &ContactResolver,
    request: &WhatIfRequest,
    (view, seen, count): (&mut WhatIfView, &mut BTreeSet<Subject>, &mut MessageCount),
) -> RedisResult<()> {
    let WhatIfRequest { tried, scope, since, .. } = request;
    let Partition { client, keys } = partition;
    let mut usage = daily_usage::read_bucket(client, keys, metric, *number, counted).await?;
    if let WhatIfScope::Subject(only) = scope {
        usage.retain(|subject, _| subject == only);
    }
    if !usage.is_empty() {
        view.without_usage.retain(|of| of != *metric);
    }
    let usage: Vec<(Subject, BTreeMap<Day, u64>)> = usage.into_iter().collect();
    for part in usage.chunks(SETTINGS_AT_ONCE) {
        // Settings of subjects belong to no partition.
        let settings = part.iter().map(|(subject, _)| StoredLevels::read(&first.client, &first.keys, subject));
        for ((subject, days), stored) in part.iter().zip(join_all(settings).await) {
            let stored = match stored {
                Err(error) if error_kind(&error) == ErrorKind::WrongType => {
                    view.unreadable += 1;
                    continue;
                }
                stored => stored?,
            };
            let (levels, _) = stored.settings(plans);
            let profile = &levels.first().expect("the subject is a level of itself").profile;
            // The daemon counts it, and judges nothing.
            if !profile.has_known_limits() {
                view.unreadable += 1;
                continue;
            }
            if matches!(scope, WhatIfScope::Plan(name) if **profile.plan() != **name) {
                continue;
            }
            let (zone, billing) = (profile.zone(), profile.billing());
            let from = DaySpan::containing(zone, *since).map(|span| span.day);
            let is_asked = |reached: &Reached| from.is_none_or(|from| reached.day >= from);
            if days.keys().any(|day| from.is_none_or(|from| *day >= from)) {
                seen.insert(subject.clone());
            }
            let limits_now = profile.limits_of(metric);
            let now = replay(days, zone, billing, limits_now, profile.thresholds());
            view.alerts_now += now.iter().filter(|reached| is_asked(reached)).count();
            let own = profile.own_limits_of(metric).filter(|_| tried.is_plan);
            let limits = own.or_else(|| tried.limits.get(*metric)).map_or(&[][..], Limits::as_slice);
            let own = profile.own_thresholds().filter(|_| tried.is_plan);
            let raised: Vec<Reached> = replay(days, zone, billing, limits, own.unwrap_or(&tried.thresholds));
            let raised: Vec<Reached> = raised.into_iter().filter(is_asked).collect();
            if raised.is_empty() {
                continue;
            }
            let resolved = contacts.read_contacts(&stored);
            for reached in raised {
                let alert = alert_of(subject, metric, profile, &reached);
                let Recipients { contacts: told, source, .. } =
                    Recipients::select(&alert, &resolved, MultiplePolicy::Each);
                for contact in &told {
                    let digest = digest_group((&alert).into(), contact, source);
                    count.add(partition.number(), reached.day, digest);
                }
                if view.alerts.len() < LISTED_MAX {
                    view.alerts.push(reached.shown(&alert, plans.format_of(metric), &told));
                } else {
                    view.left_out += 1;
                }
            }
        }
    }
    Ok(())
}

/// The thresholds that the usage of each day reaches. A period whose first days are no longer kept counts from the
/// first day that is.
fn replay(
    days: &BTreeMap<Day, u64>,
    zone: Zone,
    billing: BillingStart,
    limits: &[WindowLimit],
    thresholds: &[Threshold],
) -> Vec<Reached> {
    let mut raised = Vec::new();
    for limit in limits.iter().filter(|limit| is_replayed(limit.window)) {
        let thresholds = thresholds_of(limit.units, thresholds);
        let mut current: Option<(Period, u64)> = None;
        for (day, units) in days {
            let start = DaySpan::for_day(zone, *day).map(|span| span.start);
            let span = start.and_then(|start| PeriodSpan::containing(limit.window, zone, billing, start));
            let Some(PeriodSpan { period, .. }) = span else { continue };
            let before = current.filter(|(of, _)| *of == period).map_or(0, |(_, used)| used);
            let used = before.saturating_add(*units);
            current = Some((period, used));
            let reached = thresholds.iter().filter(|of| before < of.units && of.units <= used);
            raised.extend(reached.map(|of| Reached {
                day: *day,
                limit: *limit,
                period,
                threshold: of.threshold,
                threshold_units: of.units,
                used,
            }));
        }
    }
    raised
}

impl Reached {
    fn shown(self, alert: &Alert, format: MetricFormat, told: &[Contact]) -> WhatIfAlertView {
        let Self { day, limit, period, threshold, used, .. } = self;
        let (subject, metric) = (alert.subject.clone(), alert.metric.clone());
        let (window, limit) = (limit.window, limit.units.get());
        let recipient = |contact: &Contact| WhatIfRecipient {
            address: masked_address(contact),
            digest: contact.digest_of(alert),
            quiet: contact.filter.quiet_of(alert),
        };
        let to = told.iter().map(recipient).collect();
        WhatIfAlertView { day, subject, metric, format, window, period, threshold, limit, used, to }
    }
}

/// The alert, as far as the filters of contacts look at it.
fn alert_of(subject: &Subject, metric: &Metric, profile: &Profile, reached: &Reached) -> Alert {
    let Reached { limit, period, threshold, threshold_units: units, used, .. } = *reached;
    let key = AlertKey { subject, metric, period, threshold, units };
    Alert {
        id: AlertId::derive(&DeploymentId::from_stored("whatif"), &key),
        subject: subject.clone(),
        metric: metric.clone(),
        window: limit.window,
        period,
        threshold,
        threshold_units: units,
        limit: limit.units.get(),
        plan: profile.plan().to_string(),
        timezone: profile.zone().name().to_owned(),
        resets_at: None,
        used_before: 0,
        used,
        first_entry: StreamId::ZERO,
        last_entry: StreamId::ZERO,
        raised_at_ms: UnixMs(0),
        higher_thresholds: Vec::new(),
        largest: Vec::new(),
        traceparent: None,
        status: None,
        unit: MetricUnit::default(),
    }
}

fn is_replayed(window: Window) -> bool {
    !matches!(window, Window::Hour | Window::Total)
}

fn not_replayed(tried: &TriedPlan) -> Vec<String> {
    let of = |(metric, limits): (&Metric, &Limits)| {
        let left_out = limits.as_slice().iter().filter(|limit| !is_replayed(limit.window));
        left_out.map(|limit| format!("{metric}={limit}")).collect::<Vec<_>>()
    };
    tried.limits.iter().flat_map(of).collect()
}

/// The days that may still have counters.
fn counted_days(now: UnixMs) -> Vec<Period> {
    let Some(utc) = Day::in_utc(now) else { return Vec::new() };
    let days =
        std::iter::successors(utc.before(KEPT_DAYS_MAX), |day| day.next().filter(|day| Some(*day) <= utc.next()));
    days.map(Period::from).collect()
}

fn buckets_of(scope: &WhatIfScope) -> Vec<u8> {
    match scope {
        WhatIfScope::Subject(only) => vec![crate::types::keys::bucket(only.as_str())],
        WhatIfScope::All | WhatIfScope::Plan(_) => (0..=u8::MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BillingDay;

    fn reached(days: &[(&str, u64)], limits: &str, thresholds: &[&str]) -> Vec<String> {
        let days = days.iter().map(|(day, units)| (Day::parse(day).expect("a day"), *units)).collect();
        let limits: Limits = limits.parse().expect("limits");
        let thresholds: Vec<Threshold> = thresholds.iter().map(|of| of.parse().expect("a threshold")).collect();
        let all = replay(&days, Zone::UTC, BillingDay::FIRST.into(), limits.as_slice(), &thresholds);
        all.iter().map(|of| format!("{} {} {} {}", of.day, of.period, of.threshold, of.used)).collect()
    }

    /// Each threshold is reached once a period, on the day that brings the count to it.
    #[test]
    fn days_and_months_are_replayed() {
        let days = [("2026-10-30", 60), ("2026-10-31", 100), ("2026-11-01", 79), ("2026-11-02", 80), ("2026-11-03", 1)];
        assert_eq!(
            reached(&days, "100/day", &["80", "100"]),
            ["2026-10-31 2026-10-31 80 100", "2026-10-31 2026-10-31 100 100", "2026-11-02 2026-11-02 80 80"]
        );
        assert_eq!(
            reached(&days, "160/month", &["50", "used:160"]),
            [
                "2026-10-31 2026-10 50 160",
                "2026-10-31 2026-10 used:160 160",
                "2026-11-02 2026-11 50 159",
                "2026-11-03 2026-11 used:160 160"
            ]
        );
    }

    #[test]
    fn hours_and_totals_are_left_out() {
        assert!(reached(&[("2026-11-01", 1_000)], "5/hour 7/total", &["80"]).is_empty());
        let limits = [("requests".parse().expect("legal"), "5/hour 9/day 0/total".parse().expect("legal"))].into();
        let tried = TriedPlan { limits, thresholds: Vec::new(), is_plan: false };
        assert_eq!(not_replayed(&tried), ["requests=5/hour", "requests=0/total"]);
    }
}
