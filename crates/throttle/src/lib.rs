//! Limiters on Redis: fixed window, sliding window, GCRA, expiring set, one-time token, cooldown, lease.
//!
//! Each call is one atomic script on the server's clock. Each key has a TTL from its first write and a bound on what it
//! holds. A call touches one key, so every limiter works in a cluster. The caller chooses keys and rates.
//!
//! Any asynchronous connection of the [`redis`] crate will do: `MultiplexedConnection`, `ConnectionManager`, the
//! connection of a cluster. A call has the timeouts of its connection. If Redis is unreachable, the call returns an
//! error, and the caller decides whether to proceed.
//!
//! A call loads its script and repeats once if the server does not know the script, for example after a restart. If the
//! server loses its scripts again before the second try, the call returns the server's `NOSCRIPT` error: nothing was
//! taken, and another call may succeed.
//!
//! ```no_run
//! use std::time::Duration;
//! use quotabell_throttle::{Admission, Gcra, Rate};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut connection = redis::Client::open("redis://127.0.0.1:6379")?.get_multiplexed_async_connection().await?;
//! let limiter = Gcra::new(Rate::new(60, Duration::from_secs(60))?);
//! let decision = limiter.take(&mut connection, "requests:alice", 1).await?;
//! match decision.admission {
//!     Admission::Admitted => println!("{} more at once", decision.remaining),
//!     Admission::Rejected { retry_after: Some(wait) } => println!("retry after {wait:?}"),
//!     Admission::Rejected { retry_after: None } => println!("more than the limit of {}", decision.limit),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | type | rule |
//! |---|---|
//! | [`FixedWindow`] | n units from the first call of a window to its end |
//! | [`SlidingWindow`] | n units in any window, wherever it begins |
//! | [`Gcra`] | n units at once, which come back steadily, all of them in a window |
//! | [`ExpiringSet`] | n members alive, each of which expires by itself |
//! | [`one_time_token`] | created with its metadata, consumed once |
//! | [`Cooldown`] | one call in an interval |
//! | [`Lease`] | one holder, for a limited time |
//!
//! The first three reply with a [`RateDecision`]. A limiter holds no state: create it when you need it, or keep it.
//! `examples/limiters.rs` uses all of them. Read next: [`fixed_window`], the simplest.

mod bounds;
pub mod cooldown;
mod decision;
pub mod expiring_set;
pub mod fixed_window;
pub mod gcra;
pub mod lease;
pub mod one_time_token;
pub mod sliding_window;

pub use bounds::{
    KEY_BYTES_MAX, MEMBERS_MAX, Rate, RateError, STORED_KEY_BYTES_MAX, TooManyMembers, UNITS_MAX, stored_key,
};
pub use cooldown::{Cooldown, CooldownDecision};
pub use decision::{Admission, RateDecision};
pub use expiring_set::{ExpiringSet, ExpiringSetDecision};
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use lease::{Lease, LeaseDecision};
pub use sliding_window::SlidingWindow;
