//! What a call site tells the log's cap (`app/log_cap.rs`).

/// Name of an event that describes a lasting state: one line a minute for each state. Used as
/// `tracing::warn!(name: ONCE_A_MINUTE, ...)`.
pub const ONCE_A_MINUTE: &str = "once a minute";

/// Lines of one call site in a minute, if each describes another thing (an alert, a delivery). About 200 kB.
pub const LOG_LINES_MAX: u32 = 1000;
