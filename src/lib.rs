//! quotabell rings once, and never forgets to ring.

pub mod api;
pub mod cli;
pub mod config;
pub mod events;
pub mod ledger;
pub mod outbox;
pub mod sender;
pub mod subjects;
pub mod transport;
pub mod types;
pub mod wire;
