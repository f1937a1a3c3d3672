//! Who has which plan, limits and zone: plans from the configuration, subjects from Redis, fresh within a second.
//!
//! Owns the reading of `quota_subject:<subject>` and the bounded memory of what was read. Never counts and never
//! alerts. Read next: [`profile`], what a subject's settings amount to; [`watch`], how changes are noticed.

pub mod cache;
pub mod config;
pub mod lookup;
pub mod mutes;
pub mod plan_use;
pub mod plans;
pub mod profile;
pub mod rates;
pub mod record;
pub mod watch;

pub use cache::SettingsCache;
pub use lookup::SettingsLookup;
pub use mutes::SubjectMutes;
pub use plans::Plans;
pub use profile::Profile;
pub use record::{FieldError, SubjectRecord};
