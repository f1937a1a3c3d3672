//! Redis on the wire: connections, the embedded server, the in-place reader of streams, script calls, delays between tries.
//!
//! Owns every byte that is exchanged with Redis. Imports nothing of ours: keys reach it as text, replies leave it as values or
//! spans, and what they mean is decided elsewhere. Read next: [`link`], the shared connection.

pub mod backoff;
pub mod config;
pub mod link;
pub mod script;

pub use config::RedisConfig;
pub use link::{Fault, Link, fault_of};
pub use script::Script;
