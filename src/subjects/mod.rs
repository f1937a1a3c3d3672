//! Who has which plan, limits, zone and contacts.

pub mod config;
pub mod contacts;
