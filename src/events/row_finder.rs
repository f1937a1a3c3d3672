//! Finds the counters that an event changes: one for each window, for the period in the subject's calendar.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::totals::RowKey;
use crate::subjects::Profile;
use crate::types::metric::METRIC_DEFAULT;
use crate::types::{BillingStart, Metric, PeriodSpan, RefusalReason, Separator, UnixMs, Window};
use crate::zones::Zone;

use super::levels::Levels;
use super::parse::{InvalidEvent, UsageEvent};
use super::worker_cache::{LoadRequest, MissingCounter, WorkerCache};

/// Maximum number of periods in memory: zones times windows, and some past ones.
const SPANS_MAX: usize = 2_000;

/// Finds rows, and remembers the periods of one batch.
#[derive(Debug)]
pub(super) struct RowFinder {
    /// Events that arrive later than this after the end of their day are refused.
    late_max: Duration,
    separator: Separator,
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
    pub(super) const fn new(late_max: Duration, separator: Separator) -> Self {
        Self { late_max, separator, spans: Vec::new() }
    }

    /// Forgets the periods.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// Finds the rows of an event at all levels of its subject, and stores them with each level. Returns `None`, and
    /// adds to `missing` what must be read, if some are not in memory.
    ///
    /// # Errors
    ///
    /// The event arrived too long after the end of its day, or its day has the maximum number of metrics, at any of its
    /// levels. Whether `missing` is given makes no difference: an event that is refused waits for nothing.
    pub(super) fn find(
        &mut self,
        held: &mut WorkerCache,
        subject_index: u32,
        event: &UsageEvent<'_>,
        mut missing: Option<&mut LoadRequest>,
    ) -> Result<Option<Levels>, InvalidEvent> {
        let Some(levels) = held.levels(self.separator, subject_index, missing.is_some()) else { return Ok(None) };
        // Without the settings of all levels, nobody knows whether the metric has a limit, nor the zone of each level.
        let unknown = levels.as_slice().iter().filter(|at| held.cache.subject(**at).profile().is_none());
        if let Some(missing) = missing.as_deref_mut() {
            missing.settings.extend(unknown.clone());
        }
        if unknown.count() > 0 {
            return Ok(None);
        }
        let (mut are_found, mut above) = (true, None);
        for at in levels.as_slice().iter().copied() {
            are_found &= self.find_level(held, &levels, (at, above), event, missing.as_deref_mut())?;
            above = Some(at);
        }
        Ok(are_found.then_some(levels))
    }

    fn find_level(
        &mut self,
        held: &mut WorkerCache,
        levels: &Levels,
        (subject_index, above): (u32, Option<u32>),
        event: &UsageEvent<'_>,
        mut missing: Option<&mut LoadRequest>,
    ) -> Result<bool, InvalidEvent> {
        if is_ready(held, subject_index, above, event) {
            // The rows may come from an older event, and its day may have ended since. Lateness is judged for each
            // event.
            self.judge_lateness(held.cache.subject(subject_index).extra.day_end, event)?;
            return Ok(true);
        }
        let subject = held.cache.subject_mut(subject_index);
        let Some(own) = subject.profile().map(Arc::clone) else { return Ok(false) };
        let (bucket, number) = (subject.bucket, subject.used);
        let profile = held.inherit(subject_index, &own, above);
        let day = self.span(Window::Day, &profile, event.at).ok_or_else(|| in_no_day(event.at))?;
        self.judge_lateness(day.end, event)?;
        let name = event.metric.unwrap_or(METRIC_DEFAULT);
        let has_limit = |metric: &Metric| {
            let mut profiles = levels.as_slice().iter().filter_map(|at| held.cache.subject(*at).profile());
            profiles.any(|profile| !profile.limits_of(metric).is_empty())
        };
        if let Some(of_day) = day.period.day()
            && !held.day_metrics.admit(of_day, name, has_limit)?
        {
            if let Some(missing) = missing {
                missing.days.push(of_day);
            }
            return Ok(false);
        }
        let rows = &mut held.cache.subject_mut(subject_index).extra;
        rows.clear();
        rows.metric = held.totals.metric_id(name);
        (rows.start, rows.end, rows.day_end) = (UnixMs(i64::MIN), UnixMs(i64::MAX), day.end);
        let (metric_id, settings) = (rows.metric, rows.settings);
        let metric = held.totals.metric(metric_id).clone();
        let mut are_found = true;
        for window in profile.windows_of(&metric) {
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
fn is_ready(held: &WorkerCache, subject_index: u32, above: Option<u32>, event: &UsageEvent<'_>) -> bool {
    let subject = held.cache.subject(subject_index);
    let rows = &subject.extra;
    let above = above.and_then(|above| held.cache.subject(above).extra.profile.as_ref());
    subject.profile().is_some_and(|own| rows.is_made_from(own, above))
        && !rows.rows().is_empty()
        && rows.start <= event.at
        && event.at < rows.end
        && held.totals.metric(rows.metric).as_str() == event.metric.unwrap_or(METRIC_DEFAULT)
}

/// The broken rule for an event before the first or after the last day of the calendar.
fn in_no_day(at: UnixMs) -> InvalidEvent {
    let detail = format!("ts {at} lies outside the years 0001 to 9998, whose days have names");
    InvalidEvent::new(RefusalReason::TooLate, detail)
}
