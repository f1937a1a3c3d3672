//! Learns from the counters once an hour what is usual for each subject, and notices within seconds that alerts have
//! ended. Raises notices for plans and contacts that ask.
//!
//! Works beside the commits, in slices with pauses, at the daemon that reads the partition. Never writes counters. Read
//! next: [`hourly_loop`], when; [`pass`], what; [`notices`] and [`silence`], what is raised; `forecast/`, the pure
//! rules. Of the ends of alerts: [`ends_loop`], when; [`alert_ends`], what; [`resolved`], what is true when it is sent.

mod alert_ends;
mod ends_agenda;
pub mod ends_loop;
pub mod hourly_loop;
mod notices;
pub mod pass;
mod reader;
mod resolved;
mod silence;
mod waited_alert;

pub use ends_loop::EndsLoop;
pub use hourly_loop::HourlyLoop;
pub use notices::StoredNoticeJudge;
pub use pass::HourlyPass;
