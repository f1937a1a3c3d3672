//! Random histories on a real server, compared with plain models, and races that need many concurrent callers.

#[path = "../support/mod.rs"]
mod support;

mod outbox_model;
mod simulated_store;
mod simulated_worker;
mod worker_simulation;
