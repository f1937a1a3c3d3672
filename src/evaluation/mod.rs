//! Once an hour, learns from the counters what is usual for each subject.
//!
//! Works beside the commits, in slices with pauses, at the daemon that reads the partition. Never writes counters. Read
//! next: [`hourly_loop`], when; [`pass`], what; `forecast/`, the pure rules.

pub mod hourly_loop;
pub mod pass;

pub use hourly_loop::HourlyLoop;
pub use pass::HourlyPass;
