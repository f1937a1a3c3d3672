//! Contacts as they may be shown: secrets and passwords as `***`.

use super::{Contact, Endpoint};
use crate::types::Secret;
use crate::types::text::{MASK, masked_url};

/// A contact whose secret is `***`, for output; never to be stored.
#[must_use]
pub fn masked_contact(contact: &Contact) -> Contact {
    let mut shown = contact.clone();
    if let Endpoint::Webhook { url, secret } = &mut shown.endpoint {
        *url = masked_url(url);
        *secret = Secret::new(MASK.to_owned());
    }
    shown
}
