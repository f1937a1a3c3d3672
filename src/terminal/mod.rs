//! What a person sees on a terminal: tables, printable text, progress, errors with their hint and exit code.

pub mod hint;
pub mod output;
pub mod progress;
pub mod table;
pub mod wrap;
