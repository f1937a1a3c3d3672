//! The console: pages for operators, on a listener of its own.
//!
//! The server renders each page from a read model of `views/`, and every page works without JavaScript. The console
//! reads through its own connections to Redis and has its own connection limit, so that it delays nothing else. It
//! never writes to Redis, except the key that signs its cookies. Read next: [`router`], the pages; `access`, who may
//! see them.

mod access;
mod assets;
mod chart;
pub(crate) mod config;
mod error;
mod href;
mod lists;
mod login;
pub(crate) mod one_use_login;
mod render;
mod router;
mod session;
mod state;
mod subject;

pub(crate) use router::routes;
pub(crate) use state::{ConsoleState, LIMITS, listen};
