//! quotabell: quota alerts from a Redis stream of usage events, counted once, raised once, delivered.
//!
//! API nodes append usage events to a Redis stream. The daemon counts them per subject, metric and period. When a count
//! reaches 80 % or 100 % of its limit, it alerts the subject by email or webhook.
//!
//! ARCHITECTURE.md describes the data path and the layers: an import points only downwards in the list of layers. Read
//! next: [`events::worker`], the main loop, and [`ledger::commit`], the script behind the promises.

pub mod actions;
pub mod api;
mod app;
pub mod channels;
pub mod cli;
pub mod config;
pub mod contacts;
pub mod demo;
pub mod erasure;
pub mod events;
pub mod ledger;
pub mod migration;
pub mod outbox;
pub mod redis_client;
pub mod subjects;
pub mod terminal;
pub mod throttle;
pub mod types;
pub mod verification;
pub mod views;
pub mod zones;
