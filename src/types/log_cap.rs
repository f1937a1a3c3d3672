//! Constants of the cap on log lines (`app/log_cap.rs`).

/// Name of events that describe a lasting state: the log shows one line per minute for each state. Used as
/// `tracing::warn!(name: ONCE_A_MINUTE, ...)`.
pub const ONCE_A_MINUTE: &str = "once a minute";

/// Maximum number of lines per call site and minute, if each describes another object (an alert, a delivery). About 200
/// kB.
pub const LOG_LINES_MAX: u32 = 1000;
