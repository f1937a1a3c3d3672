//! Contacts as they may be shown: secrets and passwords as `***`.

use super::Contact;
use crate::types::text::{MASK, masked_url};

/// A contact whose secret is `***`, for output; never to be stored.
#[must_use]
pub fn masked_contact(contact: &Contact) -> Contact {
    match contact.secret() {
        Some(_) => contact.clone().shown_as(&masked_url(contact.address()), MASK),
        None => contact.clone(),
    }
}
