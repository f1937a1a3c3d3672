//! Who is reached: the model of a contact, its stored form, and what an edit may do.
//!
//! Read next: [`contact`], the model; [`book`], which finds the contacts of a subject; [`edit`], what may be changed.

pub mod book;
pub mod config;
pub mod consent;
pub mod contact;
pub mod edit;
mod element;
mod mask;
pub mod store;
pub mod stored;

pub use config::FallbackConfig;
pub use consent::ConsentId;
pub use contact::{Contact, ContactError, Endpoint};
pub use edit::{CONTACTS_MAX, ContactArray, ContactOrigin};
pub use mask::masked_contact;
