//! The Redis client: connections, the embedded server, the in-place stream reader, script calls, delays between
//! retries.
//!
//! Owns the communication with Redis. Within this package it imports only `types`, for stream ids, the keys of a
//! [`Partition`] and the encoding of URLs. It does not interpret keys or values; callers do. Read next: [`endpoint`],
//! the address of Redis, and [`client`], the shared connection.

pub mod backoff;
pub mod client;
pub mod clock;
mod cluster;
pub mod config;
mod connection;
pub mod deployment_error;
pub mod embedded;
pub mod embedded_error;
mod embedded_listener;
mod embedded_password;
pub mod endpoint;
pub mod entries;
pub mod error_kind;
mod file_lock;
mod hash_slots;
pub mod index;
mod launch;
mod login;
pub mod node;
pub mod partition;
mod prelude;
pub mod raw;
mod redirect;
pub mod redis_url;
mod redis_url_error;
pub mod replace_field;
pub mod resp;
mod router;
pub mod scan;
pub mod script;
mod sentinel;
pub mod server;
pub mod tls;
mod topology;
pub mod xread;

pub use client::RedisClient;
pub use clock::ServerClock;
pub use config::RedisConfig;
pub use deployment_error::DeploymentError;
pub use embedded::{EmbeddedError, EmbeddedServer};
pub use endpoint::{EndpointError, RedisEndpoint};
pub use entries::{StreamField, TruncatedEntry, XreadEntry};
pub use error_kind::{ERROR_CLASSES, ErrorKind, error_kind};
pub use node::RedisNode;
pub use partition::{Partition, Partitions};
pub use raw::ReadError;
pub use scan::Scan;
pub use script::{Script, ScriptFunction};
pub use server::{ServerInfo, inspect};
pub use tls::install_crypto;
pub use xread::{StreamReader, XreadReply};
