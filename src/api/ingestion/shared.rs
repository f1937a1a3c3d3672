//! What all requests with events share: connections, rules, and the memory for bodies.

use std::num::NonZero;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Semaphore;

use super::body_budget::BodyBudget;
use super::config::EventsConfig;
use crate::redis_client::Partitions;

/// What the routes for events share.
#[derive(Debug)]
pub struct Ingestion {
    /// Connections that only appended events use, so that a large request delays nothing else.
    pub partitions: Partitions,
    /// The rules for types of CloudEvents.
    pub rules: CurrentRules,
    /// The memory of all bodies in flight.
    pub budget: BodyBudget,
    /// Large bodies are decoded by at most this many threads: the allocator keeps memory for each thread that ever did.
    pub decoding: Semaphore,
}

impl Ingestion {
    /// With a thread for each core.
    pub fn new(partitions: Partitions, rules: CurrentRules) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { partitions, rules, budget: BodyBudget::default(), decoding: Semaphore::new(threads) }
    }
}

/// The rules in effect. Clones share them: a reload replaces them for all.
#[derive(Debug, Clone, Default)]
pub struct CurrentRules(Arc<RwLock<Arc<EventsConfig>>>);

impl CurrentRules {
    /// The rules of a start.
    pub fn new(rules: EventsConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules for the next request.
    pub fn current(&self) -> Arc<EventsConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other rules into effect. Returns whether they differ from those before.
    pub fn replace(&self, rules: &EventsConfig) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differs = **current != *rules;
        *current = Arc::new(rules.clone());
        differs
    }
}
