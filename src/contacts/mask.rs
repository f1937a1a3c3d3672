//! Contacts as they may be shown: secrets and passwords as `***`.

use url::Url;

use super::{Contact, SecretUse};
use crate::types::text::{MASK, masked_url};

/// A contact whose secret and headers are `***`, for output; never to be stored. Of a URL that is as good as a secret
/// only the origin is shown.
pub fn masked_contact(contact: &Contact) -> Contact {
    let Some(options) = contact.options() else { return contact.clone() };
    let url = contact.address();
    let shown = match options.format.secret_use() {
        SecretUse::MaySign => origin(url).map_or_else(|| MASK.to_owned(), |origin| format!("{origin}/{MASK}")),
        SecretUse::Signs | SecretUse::RoutingKey => masked_url(url),
    };
    contact.clone().shown_as(&shown, MASK)
}

fn origin(url: &str) -> Option<String> {
    let origin = Url::parse(url).ok()?.origin();
    origin.is_tuple().then(|| origin.ascii_serialization())
}
