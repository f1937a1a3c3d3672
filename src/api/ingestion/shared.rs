//! What all requests with events share: connections, rules, and the memory for bodies.

use std::sync::{Arc, PoisonError, RwLock};

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
