//! The command line: a file per verb.

pub mod catcher;
