//! The registry: every channel, one line each.

use super::channel::ChannelDefinition;
use super::invalid_contact::InvalidContact;
use super::{email, webhook};
use crate::contacts::Contact;
use crate::types::{Channel, Destination};

/// Every channel. A new one is a line here.
pub const REGISTRY: [&ChannelDefinition; 2] = [&email::DEFINITION, &webhook::DEFINITION];

/// The definition of a channel; `None` for [`Channel::None`], through which nothing is sent.
pub fn definition(channel: Channel) -> Option<&'static ChannelDefinition> {
    REGISTRY.into_iter().find(|definition| definition.channel == channel)
}

/// What deliveries to this contact share with those to others at the same receiver.
pub fn destination(contact: &Contact) -> Destination {
    let origin = definition(contact.channel()).and_then(|definition| definition.origin?(contact.address()));
    Destination::derive(contact.channel(), origin.as_deref())
}

/// Judges a contact by its form: address, secret, headers.
///
/// # Errors
///
/// [`InvalidContact`] for the first field that is wrong.
pub fn check_contact(contact: &Contact) -> Result<(), InvalidContact> {
    let Some(definition) = definition(contact.channel()) else { return Ok(()) };
    (definition.check_address)(contact.address())?;
    contact.options().map_or(Ok(()), definition.check_options)
}
