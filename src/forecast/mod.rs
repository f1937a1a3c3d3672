//! What a subject will probably use until its day ends. Pure.
//!
//! Compares today with the subject's usual share of a day by this hour, and trusts the result as far as earlier
//! forecasts were right. `docs/forecast.md` has the method and its figures. Read next: [`profile`], what is known of a
//! subject; [`day`], the forecast of a day's limit; [`spike`], the rule for unusual usage.

pub mod day;
pub mod profile;
pub mod spike;

pub use day::{DayForecast, DayUsage, PastDays};
pub use profile::UsageProfile;
pub use spike::is_spike;
