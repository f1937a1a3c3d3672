//! Finds the counters that an event changes: one for each window, for the period in the subject's calendar.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::totals::RowKey;
use crate::subjects::Profile;
use crate::types::metric::METRIC_DEFAULT;
use crate::types::{BillingDay, Day, Metric, PeriodSpan, RefusalReason, UnixMs, Window};
use crate::zones::Zone;

use super::day_metrics::MetricAdmission;
use super::parse::{InvalidEvent, UsageEvent};
use super::worker_cache::{LoadRequest, MissingCounter, WorkerCache};

/// Maximum number of periods in memory: zones times windows, and some past ones.
const SPANS_MAX: usize = 2_000;

/// Finds rows, and remembers the periods of one batch.
#[derive(Debug)]
pub(super) struct RowFinder {
    /// Events that arrive later than this after the end of their day are refused.
    late_max: Duration,
    spans: Vec<KnownSpan>,
}

/// Whether the rows of an event are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsFound {
    /// They are the rows that its subject holds.
    All,
    /// Some must be read first.
    NotAll,
}

#[derive(Debug)]
struct KnownSpan {
    window: Window,
    zone: Zone,
    billing_day: BillingDay,
    span: PeriodSpan,
}

impl RowFinder {
    /// Knows no period yet.
    pub(super) fn new(late_max: Duration) -> Self {
        Self { late_max, spans: Vec::new() }
    }

    /// Forgets the periods.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// Finds the rows of an event, and stores them with its subject. Adds to `missing` what is not in memory.
    ///
    /// # Errors
    ///
    /// The event arrived too long after the end of its day, or its day has the maximum number of metrics. Then nothing
    /// is read or stored for it.
    pub(super) fn find(
        &mut self,
        held: &mut WorkerCache,
        subject_index: u32,
        event: &UsageEvent<'_>,
        mut missing: Option<&mut LoadRequest>,
    ) -> Result<RowsFound, InvalidEvent> {
        if is_ready(held, subject_index, event) {
            // The rows may come from an older event whose day has ended since. Lateness is judged for each event.
            self.judge_lateness(held.cache.subject(subject_index).extra.day_end, event)?;
            return Ok(RowsFound::All);
        }
        let subject = held.cache.subject_mut(subject_index);
        let Some(profile) = subject.profile().map(Arc::clone) else {
            if let Some(missing) = missing {
                missing.settings.push(subject_index);
            }
            return Ok(RowsFound::NotAll);
        };
        let (bucket, number) = (subject.bucket, subject.used);
        let day = self.span(Window::Day, &profile, event.at).ok_or_else(|| in_no_day(event.at))?;
        self.judge_lateness(day.end, event)?;
        let name = event.metric.unwrap_or(METRIC_DEFAULT);
        if let Some(of_day) = day.period.day() {
            match held.day_metrics.admit(of_day, name, |metric| !profile.limits_of(metric).is_empty()) {
                MetricAdmission::Admitted => {}
                MetricAdmission::Full { metrics_max } => return Err(too_many_metrics(of_day, metrics_max)),
                MetricAdmission::NotHeld => {
                    if let Some(missing) = missing {
                        missing.days.push(of_day);
                    }
                    return Ok(RowsFound::NotAll);
                }
            }
        }
        let subject = held.cache.subject_mut(subject_index);
        let rows = &mut subject.extra;
        rows.clear();
        rows.metric = held.totals.metric_id(name);
        if !rows.profile.as_ref().is_some_and(|known| Arc::ptr_eq(known, &profile)) {
            rows.profile = Some(Arc::clone(&profile));
            rows.settings = rows.settings.wrapping_add(1);
        }
        (rows.start, rows.end, rows.day_end) = (UnixMs(i64::MIN), UnixMs(i64::MAX), day.end);
        let (metric_id, settings) = (rows.metric, rows.settings);
        let metric = held.totals.metric(metric_id).clone();
        let mut outcome = RowsFound::All;
        for window in windows_of(&profile, &metric) {
            let span = self.span(window, &profile, event.at).ok_or_else(|| in_no_day(event.at))?;
            let key = RowKey { subject_index, hash_id: held.totals.hash_id(metric_id, span.period, bucket) };
            let found = held.totals.find(key);
            let rows = &mut held.cache.subject_mut(subject_index).extra;
            (rows.start, rows.end) = (rows.start.max(span.start), rows.end.min(span.end));
            let Some(found) = found else {
                if let Some(missing) = missing.as_deref_mut() {
                    missing.counters.push(MissingCounter { key, end: span.end });
                }
                outcome = RowsFound::NotAll;
                continue;
            };
            rows.push(found);
            if held.totals.row(found).settings_version != settings {
                let next = held.lowest_threshold(key);
                let row = held.totals.row_mut(found);
                (row.settings_version, row.next_threshold_units) = (settings, next);
            }
            let row = held.totals.row_mut(found);
            // A period with the same name ends at another time in another zone.
            (row.needed_by_batch, row.end) = (number, span.end);
        }
        if outcome == RowsFound::NotAll {
            held.cache.subject_mut(subject_index).extra.clear();
        }
        Ok(outcome)
    }

    fn judge_lateness(&self, day_end: UnixMs, event: &UsageEvent<'_>) -> Result<(), InvalidEvent> {
        let UsageEvent { at, arrival, .. } = *event;
        if arrival > day_end.after(self.late_max) { Err(too_late(at, arrival)) } else { Ok(()) }
    }

    /// The period of the subject's calendar that contains the instant.
    fn span(&mut self, window: Window, profile: &Profile, at: UnixMs) -> Option<PeriodSpan> {
        let (zone, billing_day) = (profile.zone(), profile.billing_day());
        let is = |known: &&KnownSpan| {
            known.window == window && known.zone == zone && known.billing_day == billing_day && known.span.contains(at)
        };
        if let Some(known) = self.spans.iter().find(is) {
            return Some(known.span);
        }
        let span = PeriodSpan::containing(window, zone, billing_day, at)?;
        if self.spans.len() >= SPANS_MAX {
            self.spans.clear();
        }
        self.spans.push(KnownSpan { window, zone, billing_day, span });
        Some(span)
    }
}

/// Whether the rows of the subject's last event are those of this event.
fn is_ready(held: &WorkerCache, subject_index: u32, event: &UsageEvent<'_>) -> bool {
    let subject = held.cache.subject(subject_index);
    let rows = &subject.extra;
    let is_current = match (subject.profile(), &rows.profile) {
        (Some(profile), Some(known)) => Arc::ptr_eq(profile, known),
        _ => false,
    };
    is_current
        && !rows.rows().is_empty()
        && rows.start <= event.at
        && event.at < rows.end
        && held.totals.metric(rows.metric).as_str() == event.metric.unwrap_or(METRIC_DEFAULT)
}

/// The windows in which a metric is counted: always the day, and others if a limit needs them.
fn windows_of(profile: &Profile, metric: &Metric) -> impl Iterator<Item = Window> {
    let limits = profile.limits_of(metric);
    let asked = Window::ALL.map(|window| window == Window::Day || limits.iter().any(|limit| limit.window == window));
    Window::ALL.into_iter().zip(asked).filter_map(|(window, asked)| asked.then_some(window))
}

/// The broken rule for a metric above the maximum of its day.
fn too_many_metrics(day: Day, metrics_max: usize) -> InvalidEvent {
    let detail = format!("{day} has {metrics_max} metrics already, as many as stream.metrics_max allows");
    InvalidEvent::new(RefusalReason::TooManyMetrics, detail)
}

/// The broken rule for an event before the first or after the last day of the calendar.
fn in_no_day(at: UnixMs) -> InvalidEvent {
    let detail = format!("ts {at} lies outside the years 0001 to 9998, whose days have names");
    InvalidEvent::new(RefusalReason::TooLate, detail)
}

/// The broken rule for an event whose day ended too long before its arrival.
fn too_late(at: UnixMs, arrival: UnixMs) -> InvalidEvent {
    InvalidEvent::new(
        RefusalReason::TooLate,
        format!("ts {at} lies in a day that ended more than stream.late_max before its arrival {arrival}"),
    )
}
