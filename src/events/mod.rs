//! The stream in: reading after the checkpoint, parsing, adding up, one batch at a time.
//!
//! Owns the position in the usage stream. Never writes Redis itself: it hands batches to `ledger/`, which commits them. Read next:
//! [`worker`], the loop; [`parse`], the rules of the event table.

mod closing;
pub mod config;
pub mod fold;
mod pace;
pub mod parse;
pub mod report;
mod room;
mod trouble;
pub mod worker;

pub use worker::Worker;
