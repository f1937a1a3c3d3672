//! The limiters: fixed window, sliding window, GCRA, expiring set, one-time token, cooldown, lease.
//!
//! Owns what they promise: each call is one atomic script on the server's clock, each key has an end from its first write and a
//! bound on what it holds. Never decides what is limited: keys and rates are the caller's. One key a call, so any of them works in
//! a cluster. Read next: [`fixed_window`], the simplest, and docs/limiters.md, which helps to choose.

mod bounds;
pub mod cooldown;
mod decision;
pub mod expiring_set;
pub mod fixed_window;
pub mod gcra;
pub mod lease;
pub mod limiter;
pub mod one_time_token;
pub mod sliding_window;

pub(crate) use bounds::bounded;
pub use bounds::{KEY_BYTES_MAX, MEMBERS_MAX, TooManyMembers};
pub use cooldown::{Cooldown, Passage};
pub use decision::{Decision, Verdict};
pub use expiring_set::{Added, ExpiringSet};
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use lease::{Held, Lease};
pub use limiter::{Algorithm, Limiter};
pub use sliding_window::SlidingWindow;
