//! Once an hour, learns from the counters what is usual for each subject, and raises notices for plans that ask.
//!
//! Works beside the commits, in slices with pauses, at the daemon that reads the partition. Never writes counters. Read
//! next: [`hourly_loop`], when; [`pass`], what; [`notices`] and [`silence`],
//! what is raised; `forecast/`, the pure rules.

pub mod hourly_loop;
mod known_days;
mod notices;
pub mod pass;
mod silence;

pub use hourly_loop::HourlyLoop;
pub use notices::StoredNoticeJudge;
pub use pass::HourlyPass;
