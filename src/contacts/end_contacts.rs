//! The contacts that hear of the end of alerts. Pure.
//!
//! Those that got the alerts may not be the present ones: the subject may have contacts of its own meanwhile.

use super::Contact;
use super::resolver::{ContactsSource, ResolvedContacts};
use crate::types::ContactId;

impl ResolvedContacts {
    /// The contacts by which the end of alerts goes to this one: a fallback contact hears of the end of an alert that
    /// it got before the subject had contacts of its own.
    #[must_use]
    pub fn for_end_to(self, id: &ContactId) -> Self {
        if !self.fallback_beside_own().any(|contact| contact.id == *id) {
            return self;
        }
        Self { source: ContactsSource::Fallback, readable: self.fallback.to_vec(), ..self }
    }

    /// The fallback contacts of a subject with contacts of its own, unless they are among those.
    pub fn fallback_beside_own(&self) -> impl Iterator<Item = &Contact> {
        let is_used = self.source == ContactsSource::Fallback;
        let beside = self.fallback.iter().filter(move |_| !is_used);
        beside.filter(|contact| self.readable.iter().all(|own| own.id != contact.id))
    }
}
