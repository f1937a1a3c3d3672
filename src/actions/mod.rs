//! What people and platforms may do, implemented once for the command line and the API.
//!
//! Each operation checks its input, changes Redis and returns what became of it. Never parses arguments or requests and
//! never prints. Read next: [`deliveries`].

pub(crate) mod deliveries;
pub(crate) mod sending;
pub(crate) mod test_message;
