//! The daemon is killed anywhere, and every number is right afterwards.

#[path = "../support/mod.rs"]
mod support;

mod api_check_kill;
mod disabling_kill;
mod erasure_kill;
mod history_kill;
mod kill;
mod partitions_kill;
