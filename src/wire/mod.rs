//! Redis on the wire: connections, the embedded server, the in-place reader of streams, script calls, delays between tries.
//!
//! Owns every byte that is exchanged with Redis. Imports nothing of ours: keys reach it as text, replies leave it as values or
//! spans, and what they mean is decided elsewhere. Read next: [`target`], where Redis is, and [`link`], the shared connection.

pub mod backoff;
mod claim;
pub mod clock;
pub mod config;
pub mod embedded;
pub mod embedded_error;
pub mod entries;
pub mod fault;
pub mod index;
mod launch;
pub mod link;
pub mod raw;
pub mod redis_url;
pub mod resp;
pub mod script;
pub mod server;
pub mod target;
pub mod tls;
pub mod xread;

pub use clock::ServerClock;
pub use config::RedisConfig;
pub use embedded::{Embedded, EmbeddedError};
pub use entries::{Entry, EntryId, Field};
pub use fault::{Fault, fault_of};
pub use link::Link;
pub use raw::ReadError;
pub use script::{Function, Script};
pub use server::{ServerInfo, inspect};
pub use target::{Target, TargetError};
pub use tls::install_crypto;
pub use xread::{Received, StreamReader};
