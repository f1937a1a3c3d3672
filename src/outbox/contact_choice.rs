//! Chooses the contact of a leased delivery from the current contacts. Pure. Read next: [`super::delivery_worker`],
//! which uses it.

use super::expires_at;
use super::lease::LeasedDelivery;
use crate::channels::destination;
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::types::{Alert, Channel, UnixMs};

/// Whether an alert has waited for a contact until it expired.
pub(super) fn is_over(alert: &Alert, contacts: &ResolvedContacts, now: UnixMs) -> bool {
    contacts.readable.is_empty() && now >= expires_at(alert)
}

/// The contact that this delivery may be attempted to; [`ContactLookup::NotUsable`] if there is none.
pub(super) fn choose_contact(leased: &LeasedDelivery, contacts: &ResolvedContacts) -> ContactLookup {
    if leased.channel == Channel::None {
        return ContactLookup::NotUsable;
    }
    match contacts.find(&leased.contact) {
        // The contact with this id now has another channel, for which the lease may be too short, or another receiver,
        // which has another queue. A second fan-out stores the new one and makes the delivery due.
        ContactLookup::Found(contact)
            if contact.channel() != leased.channel || destination(&contact) != leased.destination =>
        {
            ContactLookup::NotUsable
        }
        found => found,
    }
}
