//! Who is reached: the model of a contact, its stored form, and what an edit may do.
//!
//! Read next: [`contact`], the model, then [`book`], which finds the contacts of a subject.

pub mod book;
pub mod check;
pub mod config;
pub mod contact;
mod mask;
pub mod store;
pub mod stored;

pub use config::FallbackConfig;
pub use contact::{Contact, ContactError, Endpoint};
pub use mask::masked_contact;
