//! The recipients: the model of a contact, its stored form, and the changes to it.
//!
//! Read next: [`contact`], the model; [`mod@array`], its stored form; [`resolver`], which finds the contacts of a
//! subject; [`edit`], what may be changed.

pub mod array;
pub mod config;
pub mod contact;
pub mod contact_json;
pub mod edit;
mod end_contacts;
pub mod mail_domain;
pub mod merge;
pub mod message_format;
pub mod options;
pub mod resolver;
pub mod select;
pub mod state;
pub mod store;
pub mod text_settings;
mod unverified;

pub use array::{ContactArray, ContactOrigin};
pub use config::{FallbackConfig, OperatorConfig, OperatorContact};
pub use contact::{Contact, distinct, logged_address, masked_address, masked_contact};
pub use contact_json::ContactError;
pub use edit::{CONTACTS_BOUND, TooManyContacts};
pub use message_format::{MessageFormat, SecretUse};
pub use options::{ContactOptions, ExtraHeaders};
