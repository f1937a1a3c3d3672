//! How long an unconfirmed contact stays. Pure.
//!
//! The time is stored in the contact itself, so the remover judges the same value that its conditional write replaces:
//! a contact that is confirmed or asked again at that moment stays.

use super::array::{ContactArray, StoredContact, UNVERIFIED_UNTIL, VERIFIED};
use super::contact::Contact;
use crate::types::{ConsentId, UnixMs};

impl ContactArray {
    /// Keeps an unverified contact until this time.
    pub fn keep_unverified(&mut self, asked: &StoredContact, until: UnixMs) {
        self.set(asked.position, UNVERIFIED_UNTIL, Some(until.to_string()));
    }

    /// Until when the unverified contact of this consent stays; `None` if there is none or it has no time.
    pub fn unverified_until(&self, consent: &ConsentId) -> Option<UnixMs> {
        self.contacts().into_iter().find(|stored| stored.consent == *consent)?.unverified_until
    }

    /// Removes the contacts that were not confirmed in time, and returns them.
    pub fn remove_unverified(&mut self, now: UnixMs) -> Vec<Contact> {
        let mut expired = self.contacts();
        expired.retain(|stored| stored.unverified_until.is_some_and(|until| until <= now));
        // Starts at the end, so that earlier positions stay valid.
        for stored in expired.iter().rev() {
            self.elements.remove(stored.position);
        }
        expired.into_iter().map(|stored| stored.contact).collect()
    }

    pub(super) fn set_verified(&mut self, position: usize) {
        self.set(position, VERIFIED, Some(true));
        self.set(position, UNVERIFIED_UNTIL, None::<()>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: UnixMs = UnixMs(1_763_714_220_000);

    fn asked() -> (ContactArray, ConsentId) {
        let stored = r#"[7,{"channel":"email","address":"own@b.test"},{"channel":"email","address":"old@b.test","verified":false}]"#;
        let mut array = ContactArray::parse(stored.as_bytes()).expect("an array");
        let added = array.add(&Contact::email("a@b.test"), "n1", 16).expect("new");
        array.keep_unverified(&added, UNTIL);
        (array, added.consent)
    }

    fn addresses(array: &ContactArray) -> Vec<String> {
        array.contacts().iter().map(|stored| stored.contact.address().to_owned()).collect()
    }

    /// Contacts of the operator, unreadable ones and those without a time must stay when unconfirmed ones are removed.
    #[test]
    fn only_what_nobody_confirmed_in_time_is_removed() {
        let (mut array, consent) = asked();
        assert_eq!(array.unverified_until(&consent), Some(UNTIL));
        assert!(array.remove_unverified(UNTIL.plus(-1)).is_empty());
        let removed = array.remove_unverified(UNTIL);
        assert_eq!(removed.iter().map(Contact::address).collect::<Vec<_>>(), ["a@b.test"]);
        assert_eq!(addresses(&array), ["own@b.test", "old@b.test"]);
        assert!(array.to_stored().starts_with("[7,"));
        assert_eq!(array.unverified_until(&consent), None);
    }

    /// A contact that is confirmed at the last moment stays for good, and so does one that the operator vouches for.
    #[test]
    fn a_confirmed_contact_has_no_end() {
        let (mut array, consent) = asked();
        array.verify(&consent);
        assert_eq!(array.unverified_until(&consent), None);
        assert!(!array.to_stored().contains(UNVERIFIED_UNTIL));
        assert!(array.remove_unverified(UnixMs(i64::MAX)).is_empty());
        assert_eq!(addresses(&array), ["own@b.test", "old@b.test", "a@b.test"]);
        // A client that does not know the other field has verified the contact.
        let stored =
            r#"[{"channel":"email","address":"a@b.test","verified":true,"unverified_until":"2026-01-01T00:00:00Z"}]"#;
        let mut array = ContactArray::parse(stored.as_bytes()).expect("an array");
        assert!(array.remove_unverified(UnixMs(i64::MAX)).is_empty());
    }
}
