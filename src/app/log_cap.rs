//! Limits the log: a repeated line is written a number of times per minute, and the rest is counted.
//!
//! A storm of alerts, or a producer of invalid events, must not fill the disk. The limit applies per call site; for
//! lines that describe a lasting state (see [`ONCE_A_MINUTE`]) also per value of the state's fields.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::types::{LOG_LINES_MAX, ONCE_A_MINUTE};

const INTERVAL: Duration = Duration::from_secs(60);
/// The fields that distinguish the states of one call site. Each has few values.
const STATE_FIELDS: [&str; 4] = ["channel", "error_kind", "partition", "reason"];

/// Counts the lines of each call site.
#[derive(Debug, Default)]
pub(super) struct LogCap(Mutex<HashMap<Key, Interval>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    call_site: Identifier,
    /// Hash of [`STATE_FIELDS`].
    state: u64,
}

/// The lines of one key in a minute that begins with the first line.
#[derive(Debug)]
struct Interval {
    began: Instant,
    lines: u32,
    suppressed: u64,
    level: Level,
    /// Message and state, for the report.
    example: String,
}

impl LogCap {
    /// Whether to write the event.
    fn admit(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        let is_state = metadata.name() == ONCE_A_MINUTE;
        let mut fields = Fields::default();
        if is_state {
            event.record(&mut fields);
        }
        let key = Key { call_site: metadata.callsite(), state: fields.state.finish() };
        let mut intervals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = intervals.entry(key).or_insert_with(|| {
            if !is_state {
                event.record(&mut fields);
            }
            let (level, example) = (*metadata.level(), fields.example);
            Interval { began: now, lines: 0, suppressed: 0, level, example }
        });
        // A suppressed interval ends with its report instead.
        if interval.suppressed == 0 && now.duration_since(interval.began) >= INTERVAL {
            (interval.began, interval.lines) = (now, 0);
        }
        let is_admitted = interval.lines < if is_state { 1 } else { LOG_LINES_MAX };
        if is_admitted {
            interval.lines += 1;
        } else {
            interval.suppressed += 1;
        }
        is_admitted
    }

    /// Logs the number of suppressed lines of intervals that began before `began_before`, and restarts these.
    pub(super) fn report(&self, began_before: Instant, now: Instant) {
        let mut reports = Vec::new();
        for interval in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            if interval.suppressed > 0 && interval.began <= began_before {
                reports.push((interval.level, std::mem::take(&mut interval.suppressed), interval.example.clone()));
                (interval.began, interval.lines) = (now, 0);
            }
        }
        // Outside the lock, because each line takes it.
        for (level, lines, like) in reports {
            match level {
                Level::ERROR => tracing::error!(lines, like, "more such lines were not logged"),
                Level::WARN => tracing::warn!(lines, like, "more such lines were not logged"),
                _ => tracing::info!(lines, like, "more such lines were not logged"),
            }
        }
    }

    /// Reports every past minute.
    pub(super) fn report_each_second(&self) {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = Instant::now();
            if let Some(began_before) = now.checked_sub(INTERVAL) {
                self.report(began_before, now);
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for &'static LogCap {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admit(event, Instant::now())
    }
}

#[derive(Default)]
struct Fields {
    state: DefaultHasher,
    example: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.example.insert_str(0, &format!("{value:?}"));
        } else if STATE_FIELDS.contains(&field.name()) {
            let value = format!("{value:?}");
            value.hash(&mut self.state);
            self.example.push_str(&format!(" {}={}", field.name(), value.trim_matches('"')));
        }
    }
}
