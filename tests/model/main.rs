//! Random histories on a real server, compared with plain models, and races that need many concurrent callers.

#[path = "../support/mod.rs"]
mod support;

mod outbox_model;
mod schedules;
mod simulated_store;
mod simulated_worker;
mod throttle_claims_model;
mod throttle_races;
mod throttle_rates_model;
mod worker_simulation;
