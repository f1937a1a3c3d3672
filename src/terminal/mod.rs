//! Terminal output: tables, printable text, progress, errors with their hint and exit code.

pub(crate) mod bar;
pub mod hint;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod wrap;
