//! HTTP: health, readiness, metrics.

pub mod config;
