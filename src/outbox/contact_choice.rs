//! What is to be done with a leased delivery, by the contacts as they are now. Pure. Read next:
//! [`super::delivery_worker`], which does it.

use super::expires_at;
use super::lease::LeasedDelivery;
use crate::channels::destination;
use crate::contacts::Contact;
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::types::{Alert, Channel, DisabledState, UnixMs};

/// What is to be done with a leased delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContactChoice {
    /// Attempt it to this contact.
    Send(Contact),
    /// Its contact is gone or none was known: fan out to those that are there now.
    FanOut,
    /// Its contact is disabled: the others are told, and it is fanned out to them.
    Disabled(Contact, DisabledState),
    /// Its contact may be among those that can't be read: wait until that is mended.
    Wait,
}

/// Whether an alert has waited for a contact until it expired.
pub(super) fn is_over(alert: &Alert, contacts: &ResolvedContacts, now: UnixMs) -> bool {
    contacts.readable.is_empty() && now >= expires_at(alert)
}

/// Pure: decides by the contacts as they are now.
pub(super) fn choose_contact(leased: &LeasedDelivery, contacts: &ResolvedContacts) -> ContactChoice {
    if leased.channel == Channel::None {
        return ContactChoice::FanOut;
    }
    match contacts.find(&leased.contact) {
        ContactLookup::Found(contact)
            if contact.channel() == leased.channel && destination(&contact) == leased.destination =>
        {
            ContactChoice::Send(contact)
        }
        // Under its id the contact now stands for another channel, and the lease is as long as the old one needs; or
        // for another receiver, in whose queue it has to wait. Fanning out again stores the new one and makes the
        // delivery due.
        ContactLookup::Found(_) | ContactLookup::Removed => ContactChoice::FanOut,
        ContactLookup::Disabled(contact) => match contact.disabled.clone() {
            Some(state) => ContactChoice::Disabled(contact, state),
            None => ContactChoice::FanOut,
        },
        ContactLookup::Unreadable => ContactChoice::Wait,
    }
}
