//! Random histories on a real server, compared with plain models, and races that need many concurrent callers.

#[path = "../support/mod.rs"]
mod support;

mod grant_model;
mod notice_model;
mod outbox_model;
mod simulated_grants;
mod simulated_store;
mod simulated_worker;
mod worker_simulation;
