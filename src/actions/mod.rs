//! What people and platforms may do, implemented once for the command line and the API.
//!
//! Each operation checks its input, changes Redis and returns what became of it. Never parses arguments or requests and
//! never prints. Read next: [`deliveries`]; [`subject_patch`], the settings of a subject.

pub(crate) mod action_log;
pub mod append_events;
pub mod contact_spec;
pub mod contacts;
pub(crate) mod deliveries;
pub mod grants;
pub(crate) mod many_deliveries;
pub mod portal;
pub(crate) mod refused_events;
pub(crate) mod sending;
pub mod subject_change;
pub mod subject_patch;
pub(crate) mod test_message;
