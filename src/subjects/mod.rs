//! The plan, limits and zone of each subject: plans from the configuration, subjects from Redis, fresh within a second.
//!
//! Owns the reading of settings and of what grants add to limits, a bounded cache of both, and mutes. Never counts and
//! never alerts. Read next: [`profile`], the settings of a subject; [`watch`], how changes are noticed.

pub mod added_units;
pub mod cache;
pub mod config;
pub mod forecast_config;
pub mod levels;
pub mod limiter;
pub mod lookup;
pub mod mutes;
pub mod plan_use;
pub mod plans;
pub mod profile;
pub mod rates;
pub mod record;
pub mod refuse_at;
pub mod watch;

pub use added_units::AddedUnits;
pub use cache::SettingsCache;
pub use levels::{StoredLevel, StoredLevels, SubjectLevel};
pub use limiter::{Algorithm, Limiter};
pub use lookup::SettingsLookup;
pub use mutes::SubjectMutes;
pub use plans::Plans;
pub use profile::Profile;
pub use record::{FieldError, SubjectRecord};
pub use refuse_at::RefuseAt;
