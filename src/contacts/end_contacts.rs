//! The contacts that hear of the end of alerts. Pure.
//!
//! Those that got the alerts may not be the present ones: the subject may have contacts of its own meanwhile.

use super::Contact;
use super::resolver::{ContactsSource, ResolvedContacts};
use crate::types::{ContactId, ResolvedScope};

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

    /// The contacts that ask for such an end of alerts, whether or not they got one of them.
    pub fn asking_for_end(&self, scope: ResolvedScope) -> impl Iterator<Item = &Contact> {
        let operator = self.operator.iter().map(|one| &one.contact);
        let all = self.readable.iter().chain(self.fallback_beside_own()).chain(operator);
        all.filter(move |contact| contact.hears_end(scope))
    }

    /// The fallback contacts of a subject with contacts of its own, unless they are among those: a contact without an
    /// id of its own has the one that follows from its address.
    pub fn fallback_beside_own(&self) -> impl Iterator<Item = &Contact> {
        let is_used = self.source == ContactsSource::Fallback;
        let beside = self.fallback.iter().filter(move |_| !is_used);
        let own = || self.readable.iter().chain(&self.disabled).chain(&self.unverified);
        beside.filter(move |contact| own().all(|own| own.id != contact.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fallback contact would be sent to in place of the contact that the subject has disabled or never confirmed.
    #[test]
    fn a_fallback_contact_is_beside_those_of_a_subject_only_with_another_id() {
        let (own, same, other) =
            (Contact::email("own@b.test"), Contact::email("same@b.test"), Contact::email("o@b.test"));
        let fallback = [same.clone(), other.clone()].into();
        let contacts = ResolvedContacts { readable: vec![own], fallback, ..ResolvedContacts::default() };
        let beside = |contacts: &ResolvedContacts| contacts.fallback_beside_own().cloned().collect::<Vec<_>>();
        assert_eq!(beside(&contacts), [same.clone(), other.clone()]);
        let of_same = || vec![same.clone()];
        let disabled = ResolvedContacts { disabled: of_same(), ..contacts.clone() };
        let unverified = ResolvedContacts { unverified: of_same(), ..contacts.clone() };
        for with_same in [disabled, unverified] {
            assert_eq!(beside(&with_same), std::slice::from_ref(&other));
            assert_eq!(with_same.clone().for_end_to(&same.id), with_same);
        }
        assert_eq!(contacts.clone().for_end_to(&same.id).readable, [same, other]);
    }
}
