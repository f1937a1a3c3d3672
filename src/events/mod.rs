//! The usage stream: reads after the checkpoint, parses and adds up, one batch at a time.
//!
//! Decides which entries of the usage stream are read, and by which daemon. Does not write counters or alerts itself:
//! it passes batches to `ledger/`, which commits them. Read next: [`worker`], the loop; [`parse`], the rules for an
//! event; [`lease`], one reader at a time; [`membership`], how daemons share the partitions.

pub mod assignment;
pub mod batch_builder;
mod batch_changes;
mod batch_sizer;
pub mod config;
mod counting_status;
pub mod daemon_name;
mod day_metrics;
mod grant_expiry;
mod in_flight_commit;
mod known_deployment;
mod large_entries;
mod largest_children;
mod lease;
mod levels;
pub mod membership;
pub mod parse;
pub mod read_ahead;
mod read_sizer;
pub mod report;
mod row_finder;
pub mod session;
mod session_error;
mod session_start;
mod state_loader;
mod stream_entry;
mod stream_maintenance;
pub mod worker;
pub mod worker_cache;
mod worker_context;

pub use counting_status::CountingStatus;
pub use daemon_name::{DaemonEntry, DaemonName};
pub use known_deployment::stored_deployment;
pub use lease::{PARTITION_LEASE_TTL, PartitionLease};
pub use membership::Membership;
pub use worker::EventWorker;
