//! What a subject will probably use until a day, week or month ends. Pure.
//!
//! Compares today with the subject's usual share of a day by this hour, and trusts the result as far as earlier
//! forecasts were right. `docs/forecast.md` has the method and its figures. Read next: [`profile`], what is known of a
//! subject; [`mod@stored_profile`], how that is stored; [`observation`], how it learns from counters; [`day`] and
//! [`long`], the forecasts of limits; [`window`], what is told of them; [`spike`] and [`silence`], the rules for
//! unusual usage.

mod bit_stream;
pub mod day;
pub mod long;
pub mod observation;
pub mod profile;
pub mod silence;
pub mod spike;
mod stored_profile;
pub mod window;

pub use day::{DayForecast, DayUsage, PastDays};
pub use observation::DayCount;
pub use profile::UsageProfile;
pub use spike::is_spike;
pub use window::{ForecastState, WindowForecast};
