//! Who has which plan, limits, zone and contacts.

pub mod config;
pub mod contact_check;
pub mod record;

pub use record::{FieldError, SubjectRecord};
