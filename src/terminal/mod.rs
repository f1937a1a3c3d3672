//! What a person sees on a terminal: tables, printable text, errors with their hint and exit code.

pub mod hint;
pub mod output;
