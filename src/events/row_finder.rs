//! Finds the counters that an event changes: one for each window, for the period in the subject's calendar.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::totals::RowKey;
use crate::subjects::Profile;
use crate::types::metric::METRIC_DEFAULT;
use crate::types::{BillingStart, Metric, PeriodSpan, RefusalReason, UnixMs, Window};
use crate::zones::Zone;

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

#[derive(Debug)]
struct KnownSpan {
    window: Window,
    zone: Zone,
    billing: BillingStart,
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

    /// Finds the rows of an event, and stores them with its subject. Returns `false`, and adds to `missing` what must
    /// be read, if some are not in memory.
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
    ) -> Result<bool, InvalidEvent> {
        if is_ready(held, subject_index, event) {
            // The rows may come from an older event, and its day may have ended since. Lateness is judged for each
            // event.
            self.judge_lateness(held.cache.subject(subject_index).extra.day_end, event)?;
            return Ok(true);
        }
        let subject = held.cache.subject_mut(subject_index);
        let Some(profile) = subject.profile().map(Arc::clone) else {
            if let Some(missing) = missing {
                missing.settings.push(subject_index);
            }
            return Ok(false);
        };
        let (bucket, number) = (subject.bucket, subject.used);
        let day = self.span(Window::Day, &profile, event.at).ok_or_else(|| in_no_day(event.at))?;
        self.judge_lateness(day.end, event)?;
        let name = event.metric.unwrap_or(METRIC_DEFAULT);
        if let Some(of_day) = day.period.day()
            && !held.day_metrics.admit(of_day, name, |metric| !profile.limits_of(metric).is_empty())?
        {
            if let Some(missing) = missing {
                missing.days.push(of_day);
            }
            return Ok(false);
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
        let mut are_found = true;
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
                are_found = false;
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
        if !are_found {
            held.cache.subject_mut(subject_index).extra.clear();
        }
        Ok(are_found)
    }

    fn judge_lateness(&self, day_end: UnixMs, event: &UsageEvent<'_>) -> Result<(), InvalidEvent> {
        let UsageEvent { at, arrival, .. } = *event;
        if arrival <= day_end.after(self.late_max) {
            return Ok(());
        }
        let detail = format!("ts {at} lies in a day that ended more than stream.late_max before its arrival {arrival}");
        Err(InvalidEvent::new(RefusalReason::TooLate, detail))
    }

    /// The period of the subject's calendar that contains the instant.
    fn span(&mut self, window: Window, profile: &Profile, at: UnixMs) -> Option<PeriodSpan> {
        // Subjects share the periods that do not depend on their billing date.
        let billing = match window {
            Window::Hour | Window::Day | Window::Week | Window::Total => BillingStart::default(),
            Window::Month => profile.billing().day.into(),
            Window::Quarter | Window::Year => profile.billing(),
        };
        let zone = profile.zone();
        let is = |known: &&KnownSpan| {
            known.window == window && known.zone == zone && known.billing == billing && known.span.contains(at)
        };
        if let Some(known) = self.spans.iter().find(is) {
            return Some(known.span);
        }
        let span = PeriodSpan::containing(window, zone, billing, at)?;
        if self.spans.len() >= SPANS_MAX {
            self.spans.clear();
        }
        self.spans.push(KnownSpan { window, zone, billing, span });
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

/// The broken rule for an event before the first or after the last day of the calendar.
fn in_no_day(at: UnixMs) -> InvalidEvent {
    let detail = format!("ts {at} lies outside the years 0001 to 9998, whose days have names");
    InvalidEvent::new(RefusalReason::TooLate, detail)
}
