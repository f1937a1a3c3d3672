//! A recorder of metrics that waits for a number of counted events, so that a contender learns that the worker is done
//! without polling Redis during the measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use quotabell::types::meters;
use tokio::sync::Notify;

/// Counts the events that the worker reports as counted.
#[derive(Debug, Clone, Default)]
pub struct CountedEvents(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    events: AtomicU64,
    grew: Notify,
}

impl CountedEvents {
    /// Waits until this number of events was counted.
    pub async fn reach(&self, events: u64) {
        while self.0.events.load(Ordering::Acquire) < events {
            self.0.grew.notified().await;
        }
    }
}

impl CounterFn for Shared {
    fn increment(&self, value: u64) {
        self.events.fetch_add(value, Ordering::AcqRel);
        self.grew.notify_one();
    }

    fn absolute(&self, value: u64) {
        self.events.store(value, Ordering::Release);
        self.grew.notify_one();
    }
}

impl Recorder for CountedEvents {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == meters::EVENTS_COUNTED { Counter::from_arc(Arc::clone(&self.0)) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
