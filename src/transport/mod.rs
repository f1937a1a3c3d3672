//! The outside world: e-mail and webhooks. Touches no Redis.

pub mod config;
