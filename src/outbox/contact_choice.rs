//! To whom a leased delivery goes, by the contacts as they are now. Pure. Read next: [`super::delivery_worker`], which
//! does it.

use super::expires_at;
use super::lease::LeasedDelivery;
use crate::channels::destination;
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::types::{Alert, Channel, UnixMs};

/// Whether an alert has waited for a contact until it expired.
pub(super) fn is_over(alert: &Alert, contacts: &ResolvedContacts, now: UnixMs) -> bool {
    contacts.readable.is_empty() && now >= expires_at(alert)
}

/// The contact that this delivery may be attempted to. [`ContactLookup::NotUsable`] also where none was known.
pub(super) fn choose_contact(leased: &LeasedDelivery, contacts: &ResolvedContacts) -> ContactLookup {
    if leased.channel == Channel::None {
        return ContactLookup::NotUsable;
    }
    match contacts.find(&leased.contact) {
        // Under its id the contact now stands for another channel, and the lease is as long as the old one needs; or
        // for another receiver, in whose queue it has to wait. Fanning out again stores the new one and makes the
        // delivery due.
        ContactLookup::Found(contact)
            if contact.channel() != leased.channel || destination(&contact) != leased.destination =>
        {
            ContactLookup::NotUsable
        }
        found => found,
    }
}
