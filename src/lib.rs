//! The parts of the program `quotabell`, public for its own tests and benchmarks. This is no API: any release may
//! change or remove anything.
//!
//! ARCHITECTURE.md describes the data path and the layers: an import points only downwards in the list of layers. Read
//! next: [`events::worker`], the main loop, and [`ledger::commit`], the script behind the promises.

// Hidden from users of rustdoc. `make check` sets the flag to check the links between the parts.
#![cfg_attr(not(internal_docs), doc(hidden))]

pub mod actions;
pub mod api;
mod app;
pub mod channels;
pub mod cli;
pub mod config;
pub mod console;
pub mod contacts;
pub mod demo;
pub mod erasure;
pub mod evaluation;
pub mod events;
pub mod forecast;
pub mod html;
pub mod ledger;
pub mod migration;
pub mod outbox;
pub mod portal;
pub mod redis_client;
pub mod signing;
pub mod subjects;
pub mod terminal;
pub mod types;
pub mod verification;
pub mod views;
pub mod zones;
