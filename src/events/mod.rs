//! The stream in: reading after the checkpoint, parsing, adding up.

pub mod config;
