//! The stream in: reading after the checkpoint, parsing, adding up, one batch at a time.
//!
//! Owns the position in the usage stream, and whose turn it is to read it. Never writes Redis itself: it hands batches to `ledger/`,
//! which commits them. Read next: [`worker`], the loop; [`parse`], the rules of the event table; [`lease`], one reader at a time.

mod closing;
mod committing;
pub mod config;
pub mod fold;
mod lease;
mod pace;
pub mod parse;
pub mod report;
mod room;
mod trouble;
pub mod worker;

pub use lease::{LEASE_LASTS, PartitionLease};
pub use worker::Worker;
