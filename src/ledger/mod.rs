//! The ledger: counters, raised alerts, the checkpoint. One script commits each batch atomically.
//!
//! Owns the layout of counters, records and the checkpoint in Redis. Never interprets usage events and never decides
//! who has which limit. Read next: [`commit`], the script behind all promises.

pub mod alert_ends;
pub mod alert_judge;
pub mod audit;
pub mod batch;
pub mod check;
pub mod children;
pub mod commit;
pub mod commit_settings;
pub mod counter_scan;
pub mod daily_usage;
pub mod decision;
pub mod dry_run;
pub mod ends_feed;
pub mod erasures;
pub mod event_ids;
pub mod forget;
pub mod grant_group;
pub mod grant_store;
pub mod grants;
pub mod grants_due;
pub mod history;
pub mod query;
pub mod raised_scan;
pub mod read_totals;
pub mod retention;
pub mod stored_partitions;
pub mod thresholds;
pub mod totals;
pub mod trim;
pub mod usage_notices;
pub mod usage_profiles;

pub use batch::{Batch, RefusedEvent, Row};
pub use check::{CheckError, check};
pub use commit::{CommitReply, Committer};
pub use decision::{CheckDecision, CheckRequest};
pub use event_ids::{CountedEventIds, EventIdDigest, RememberedWindows};
pub use totals::CounterCache;
