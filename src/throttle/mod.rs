//! The limiters: fixed window, sliding window, GCRA, expiring set, one-time token, cooldown, lease.
//!
//! Owns what they promise: each call is one atomic script on the server's clock, each key has an end from its first
//! write and a bound on what it holds. Never decides what is limited: keys and rates are the caller's. One key a call,
//! so any of them works in a cluster. Read next: [`fixed_window`], the simplest, and docs/limiters.md, which helps to
//! choose.
//!
//! ```no_run
//! use quotabell::throttle::{Gcra, Admission};
//! use quotabell::types::Units;
//! use quotabell::redis_client::RedisClient;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = RedisClient::open("redis://127.0.0.1:6379")?;
//! let limiter = Gcra::new("60/1m".parse()?);
//! let decision = limiter.take(&client, "requests:alice", Units::ONE).await?;
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
//! | [`ExpiringSet`] | n members alive, each of which leaves by itself |
//! | [`one_time_token`] | created with its metadata, consumed once |
//! | [`Cooldown`] | one call in an interval |
//! | [`Lease`] | one holder, for a limited time |
//!
//! The first three answer with a [`RateDecision`]. A limiter holds nothing itself: make one where it is needed, or keep
//! it. When Redis is away a call ends with an error after a bounded time ([`client`](crate::redis_client::client) says
//! which); whether the caller may proceed then is the caller's to decide. `examples/limiters.rs` uses all of them.

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
pub use bounds::{KEY_BYTES_MAX, MEMBERS_MAX, STORED_KEY_BYTES_MAX, TooManyMembers};
pub use cooldown::{Cooldown, CooldownDecision};
pub use decision::{Admission, RateDecision};
pub use expiring_set::{ExpiringSet, ExpiringSetDecision};
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use lease::{Lease, LeaseDecision};
pub use limiter::{Algorithm, Limiter};
pub use sliding_window::SlidingWindow;
