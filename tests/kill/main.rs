//! The daemon is killed at any moment, and all numbers are correct afterwards.

#[path = "../support/mod.rs"]
mod support;

mod api_check_kill;
mod api_events_kill;
mod digest_kill;
mod disabling_kill;
mod ends_kill;
mod erasure_kill;
mod grants_kill;
mod history_kill;
mod kill;
mod partitions_kill;
mod seed;
mod usage_notices_kill;
