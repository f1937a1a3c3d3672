//! The books: counters, raised alerts, the checkpoint. Everything here is committed by one script, all or nothing.
//!
//! Owns the layout of counters and records in Redis, and is the only folder besides `types/keys.rs` that knows it. Never reads the
//! stream and never decides who has which limit. Read next: [`commit`], the script that all the promises rest on.

pub mod admission;
mod arguments;
pub mod audit;
pub mod batch;
pub mod check;
pub mod commit;
mod naming;
pub mod probe;
pub mod query;
pub mod renewal;
pub mod retention;
pub mod seen;
pub mod thresholds;

pub use admission::Judgement;
pub use batch::{Batch, Refused, Row, SeenId};
pub use check::{Check, CheckError, Question};
pub use commit::{Answer, Committer};
pub use thresholds::Ladder;
