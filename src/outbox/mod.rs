//! Alerts on their way out: fan-out, lease, settle.

pub mod config;
