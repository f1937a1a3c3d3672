//! The changes that an edit may make to one stored contact of a subject. Pure.
//!
//! An edit writes only the fields that it changes: the platform's own fields and unreadable elements stay as they are.
//! Every writer of contacts (the HTTP API, the command line) edits through this file and stores the result with
//! [`super::store::edit_contacts`]. Read next: [`merge`](super::merge), which applies all contacts that an operator
//! names at once.

use super::Contact;
use super::array::{ContactArray, ContactOrigin, NONCE, StoredContact};
use crate::types::{ConsentId, ContactId, Mute};

/// Upper bound of `subjects.contacts_max`, and the maximum number of contacts of `[fallback]` and of `[operator]`: one
/// script creates the deliveries of an alert to all of them.
pub const CONTACTS_BOUND: usize = 1_000;

const MUTED: &str = "muted";
const MUTED_UNTIL: &str = "muted_until";
const MUTED_REASON: &str = "muted_reason";

/// Why a contact was not added.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddContactError {
    /// A contact with this address already exists; for a webhook, also with the same secret, format and headers.
    #[error("the contact already exists, with the id {}", .0.id)]
    Exists(Box<Contact>),
    #[error(transparent)]
    TooMany(#[from] TooManyContacts),
}

/// The contact would exceed the maximum. Each alert goes to each contact of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{contacts_max} contacts are the maximum of a subject (subjects.contacts_max): remove one to add another")]
pub struct TooManyContacts {
    /// The maximum in the configuration.
    pub contacts_max: usize,
}

/// The result of a consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyOutcome {
    /// The consent has verified the contact.
    Verified,
    /// The contact was already verified, with the same endpoint.
    AlreadyVerified,
    /// The contact was removed, or its endpoint has changed since it was asked.
    Outdated,
}

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// The removed contacts: the contact, and others with its address that the same side may remove.
    Removed(Vec<Contact>),
    /// The operator wrote the contact, so the subject may not remove it.
    OperatorsOwn,
    /// There is no such contact.
    NotFound,
}

impl ContactArray {
    /// Adds a contact as unverified and returns it as stored. Each call creates a new nonce.
    ///
    /// If a webhook with the same URL exists, its new secret, format or headers need a consent. An unverified webhook
    /// gets them at once. Beside a verified one, they are stored as a second element until the receiver has confirmed
    /// it, so that no alert is lost in the meantime.
    ///
    /// # Errors
    ///
    /// [`AddContactError`]; the array is then unchanged.
    pub fn add(
        &mut self,
        contact: &Contact,
        nonce: &str,
        contacts_max: usize,
    ) -> Result<StoredContact, AddContactError> {
        let mut same_address = self.contacts();
        same_address.retain(|other| other.contact.has_same_address(contact));
        if let Some(other) = same_address.iter().find(|other| other.contact.options() == contact.options()) {
            return Err(AddContactError::Exists(Box::new(other.contact.clone())));
        }
        if let Some(other) = same_address.iter().find(|other| !other.contact.verified) {
            self.set_options(other, contact);
            self.set(other.position, NONCE, Some(nonce));
            return Ok(self.contact_at(other.position));
        }
        self.check_count(1, contacts_max)?;
        let unverified = Contact { verified: false, ..contact.clone() };
        self.push(&unverified);
        self.set(self.elements.len() - 1, NONCE, Some(nonce));
        Ok(self.contact_at(self.elements.len() - 1))
    }

    /// Checks whether this number of contacts may be added.
    pub(super) fn check_count(&self, added: usize, contacts_max: usize) -> Result<(), TooManyContacts> {
        let fits = added == 0 || self.elements.len() + added <= contacts_max;
        if fits { Ok(()) } else { Err(TooManyContacts { contacts_max }) }
    }

    fn contact_at(&self, position: usize) -> StoredContact {
        let written = self.contacts().into_iter().find(|stored| stored.position == position);
        written.expect("a contact that was just written can be read")
    }

    /// Marks the contact that gave its consent as verified, if it still exists as it was asked. A verified webhook with
    /// the same URL takes the new secret, format and headers instead, so that it stays one contact.
    pub fn verify(&mut self, consent: &ConsentId) -> VerifyOutcome {
        let contacts = self.contacts();
        let Some(asked) = contacts.iter().find(|stored| !stored.contact.verified && stored.consent == *consent) else {
            let is_same =
                |stored: &StoredContact| stored.contact.verified && stored.consent.is_of_same_endpoint(consent);
            let is_verified = contacts.iter().any(is_same);
            return if is_verified { VerifyOutcome::AlreadyVerified } else { VerifyOutcome::Outdated };
        };
        let is_replaced =
            |other: &&StoredContact| other.contact.verified && other.contact.has_same_address(&asked.contact);
        match contacts.iter().find(is_replaced) {
            Some(replaced) => {
                self.set_options(replaced, &asked.contact);
                self.elements.remove(asked.position);
            }
            None => self.set_verified(asked.position),
        }
        VerifyOutcome::Verified
    }

    /// Removes a contact and all others with its address, so that nothing more is sent there. The subject may not
    /// remove contacts of the operator.
    pub fn remove(&mut self, id: &ContactId, by: ContactOrigin) -> RemoveOutcome {
        let contacts = self.contacts();
        let may_remove = |stored: &StoredContact| by == ContactOrigin::Operator || stored.origin == by;
        let mut named = self.with_id(id);
        if named.is_empty() {
            return RemoveOutcome::NotFound;
        }
        named.retain(may_remove);
        let of_address = |stored: &&StoredContact| {
            may_remove(stored) && named.iter().any(|named| named.contact.has_same_address(&stored.contact))
        };
        let removed: Vec<&StoredContact> = contacts.iter().filter(of_address).collect();
        if removed.is_empty() {
            return RemoveOutcome::OperatorsOwn;
        }
        // Starts at the end, so that earlier positions stay valid.
        for stored in removed.iter().rev() {
            self.elements.remove(stored.position);
        }
        RemoveOutcome::Removed(removed.into_iter().map(|stored| stored.contact.clone()).collect())
    }

    /// Mutes every contact of this id, or ends its mute.
    pub fn set_mute(&mut self, id: &ContactId, mute: Option<&Mute>) {
        for StoredContact { position, .. } in self.with_id(id) {
            self.set(position, MUTED, Some(mute.is_some()));
            self.set(position, MUTED_UNTIL, mute.and_then(|mute| mute.until).map(|until| until.to_string()));
            self.set(position, MUTED_REASON, mute.and_then(|mute| mute.reason.as_ref()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    /// `subjects.contacts_max` of the default configuration.
    const CONTACTS_MAX: usize = 16;
    const FULL: AddContactError = AddContactError::TooMany(TooManyContacts { contacts_max: CONTACTS_MAX });

    fn email(address: &str) -> Contact {
        Contact { verified: false, ..Contact::email(address) }
    }

    fn webhook(secret: &str) -> Contact {
        Contact { verified: false, ..Contact::webhook("https://x.test/", Secret::new(secret.to_owned())) }
    }

    fn array(stored: &str) -> ContactArray {
        ContactArray::parse(stored.as_bytes()).expect("an array")
    }

    fn add_with_nonce(stored: &str, contact: &Contact, nonce: &str) -> Result<String, AddContactError> {
        let mut array = array(stored);
        array.add(contact, nonce, CONTACTS_MAX).map(|_| array.to_stored())
    }

    /// Most tests add a contact once, so one nonce is enough.
    fn add(stored: &str, contact: &Contact) -> Result<String, AddContactError> {
        add_with_nonce(stored, contact, "n1")
    }

    /// The id of the stored contact with the address of this one.
    fn existing(stored: &str, contact: &Contact) -> Option<ContactId> {
        match add(stored, contact) {
            Err(AddContactError::Exists(existing)) => Some(existing.id),
            _ => None,
        }
    }

    fn consent_of(stored: &str, id: &ContactId) -> ConsentId {
        array(stored).find(id).expect("it is there").consent
    }

    /// The consent to this contact, if it was the only one.
    fn consent(contact: &Contact) -> ConsentId {
        consent_of(&add("", contact).expect("new"), &contact.id)
    }

    fn verify(stored: &str, consent: &ConsentId) -> (VerifyOutcome, String) {
        let mut array = array(stored);
        (array.verify(consent), array.to_stored())
    }

    fn verified(stored: &str, consent: &ConsentId) -> String {
        let (outcome, verified) = verify(stored, consent);
        assert_eq!(outcome, VerifyOutcome::Verified, "{stored}");
        verified
    }

    /// The array without this contact; `None` if nothing is removed.
    fn without(stored: &str, id: &str, by: ContactOrigin) -> Option<String> {
        let mut array = array(stored);
        let outcome = array.remove(&ContactId::from_stored(id), by);
        let RemoveOutcome::Removed(removed) = outcome else {
            assert_eq!(array.to_stored(), self::array(stored).to_stored());
            return None;
        };
        assert!(!removed.is_empty());
        Some(array.to_stored())
    }

    fn read_all(stored: &str) -> Vec<Contact> {
        serde_json::from_str(stored).expect("contacts")
    }

    /// The platform's own fields and unreadable elements must not be lost.
    #[test]
    fn what_is_not_ours_stays() {
        let stored = r#"[{"channel":"sms","to":"+1"},{"address":"a@b.test","channel":"email","note":{"x":1.5}}]"#;
        let added = add(stored, &email("new@b.test")).expect("new");
        assert!(added.starts_with(stored.trim_end_matches(']')), "{added}");
        let verified = verified(&added, &consent(&email("new@b.test")));
        assert!(verified.starts_with(stored.trim_end_matches(']')) && verified.contains(r#""verified":true"#));
    }

    /// The platform's own fields must not be rounded, sorted or refused.
    #[test]
    fn notes_stay_as_they_were_written() {
        let odd = r#"{"z":12345678901234567890123,"a": 1e999,"lone":"\ud800","deep":{"b":1.0,"a":[1, 2]}}"#;
        let hook = r#"{"secret":"old","z":1e400,"url":"https://x.test/","a":"\udc00","channel":"webhook"}"#;
        let stored = format!("[{odd},{hook}]");
        let waiting = add(&stored, &webhook("new")).expect("changed");
        assert!(waiting.starts_with(stored.trim_end_matches(']')), "{waiting}");
        assert_eq!(verified(&waiting, &consent(&webhook("new"))), stored.replace("\"old\"", "\"new\""));

        let own = r#"{"verified": false, "z":1e400, "channel":"email", "a":0.10, "address":"a@b.test"}"#;
        let stored = format!("[{odd},{own}]");
        let id = email("a@b.test").id;
        let verified = verified(&stored, &consent_of(&stored, &id));
        let expected = r#"{"verified":true,"z":1e400,"channel":"email","a":0.10,"address":"a@b.test"}"#;
        assert_eq!(verified, format!("[{odd},{expected}]"));
        let mut muted = array(&stored);
        muted.set_mute(&id, Some(&Mute::default()));
        let expected = r#"{"verified":false,"z":1e400,"channel":"email","a":0.10,"address":"a@b.test","muted":true}"#;
        assert_eq!(muted.to_stored(), format!("[{odd},{expected}]"));
        assert_eq!(without(&stored, id.as_str(), ContactOrigin::Subject), Some(format!("[{odd}]")));
    }

    /// A contact that is added twice must not get alerts twice, and a verified one must not wait again.
    #[test]
    fn an_address_that_is_there_is_not_added_again() {
        let contact = email("a@b.test");
        let added = add("", &contact).expect("new");
        assert_eq!(existing(&added, &contact), Some(contact.id.clone()));
        let verified = verified(&added, &consent(&contact));
        assert_eq!(existing(&verified, &contact), Some(contact.id.clone()));
        assert_eq!(verify(&verified, &consent(&contact)), (VerifyOutcome::AlreadyVerified, verified.clone()));
        // The contact's own id does not make the address different.
        let own = r#"[{"id":"main","channel":"email","address":"a@b.test"}]"#;
        assert_eq!(existing(own, &contact), Some(ContactId::from_stored("main")));
    }

    /// Adding a verified URL again with another secret must not silence it.
    #[test]
    fn another_secret_waits_beside_the_verified_one() {
        let stored = r#"[{"id":"main","channel":"webhook","url":"https://x.test/","secret":"old","note":1}]"#;
        let waiting = add(stored, &webhook("new")).expect("changed");
        assert_eq!(read_all(&waiting).iter().map(|contact| contact.verified).collect::<Vec<_>>(), [true, false]);
        let asked = consent_of(&waiting, &webhook("new").id);
        let newer = add_with_nonce(&waiting, &webhook("newer"), "n2").expect("changed");
        assert_eq!(read_all(&newer).len(), 2);
        // The challenge that was signed with the earlier secret is no proof for this one.
        assert_eq!(verify(&newer, &asked), (VerifyOutcome::Outdated, newer.clone()));
        let asked = consent_of(&newer, &webhook("newer").id);
        let verified = verified(&newer, &asked);
        assert_eq!(
            verified,
            r#"[{"id":"main","channel":"webhook","url":"https://x.test/","secret":"newer","note":1}]"#
        );
        // The receiver echoes again because the first answer was lost.
        assert_eq!(verify(&verified, &asked).0, VerifyOutcome::AlreadyVerified);
    }

    /// The platform may set its own ids.
    #[test]
    fn a_contact_with_an_id_of_its_own_is_verified_under_it() {
        let stored = r#"[{"id":"main","channel":"email","address":"a@b.test","verified":false}]"#;
        let main = ContactId::from_stored("main");
        assert_eq!(existing(stored, &email("a@b.test")), Some(main.clone()));
        assert!(read_all(&verified(stored, &consent_of(stored, &main)))[0].verified);
    }

    /// The platform may write anything: a list that fits the fields by chance can't be changed as an object.
    #[test]
    fn a_list_of_fields_is_left_alone() {
        let stored = r#"[[null,"webhook",null,"https://x.test/","old",false,false]]"#;
        let added = add(stored, &webhook("new")).expect("new");
        assert!(added.starts_with(stored.trim_end_matches(']')), "{added}");
        assert_eq!(verify(stored, &consent(&webhook("old"))).0, VerifyOutcome::Outdated);
    }

    /// A consent is valid for the address that was asked.
    #[test]
    fn another_address_under_the_same_id_is_not_verified() {
        let asked = email("a@b.test");
        let moved = format!(r#"[{{"id":"{}","channel":"email","address":"evil@b.test","verified":false}}]"#, asked.id);
        for stored in [moved.as_str(), "[]", ""] {
            assert_eq!(verify(stored, &consent(&asked)).0, VerifyOutcome::Outdated, "{stored}");
        }
        for broken in ["{", "{}", "[", "1"] {
            assert!(ContactArray::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    /// Every alert goes to every contact, so their number must be limited.
    #[test]
    fn contacts_are_bounded() {
        let mut stored = String::new();
        for number in 0..CONTACTS_MAX {
            stored = add(&stored, &email(&format!("{number}@b.test"))).expect("new");
        }
        assert_eq!(add(&stored, &email("one@too.many")), Err(FULL));
        assert!(existing(&stored, &email("0@b.test")).is_some());
    }

    /// One mailbox is one contact, however its domain is spelled. Otherwise it would get every alert twice.
    #[test]
    fn an_address_that_is_there_with_another_spelling_of_its_domain_is_not_added_again() {
        for stored in ["a@B.Test", "a@b.test"] {
            for verified in ["", r#","verified":false"#, r#","verified":true"#] {
                let stored = format!(r#"[{{"id":"main","channel":"email","address":"{stored}"{verified}}}]"#);
                assert!(existing(&stored, &email("a@b.test")).is_some(), "{stored}");
                assert!(add(&stored, &email("A@b.test")).is_ok(), "{stored}");
            }
        }
        let stored = r#"[{"id":"main","channel":"email","address":"a@Bücher.Test","verified":false}]"#;
        assert!(existing(stored, &email("a@xn--bcher-kva.test")).is_some());
    }

    /// A confirmation email that is on its way must not bring a removed contact back.
    #[test]
    fn a_contact_that_was_removed_and_added_again_needs_another_consent() {
        for contact in [email("a@b.test"), webhook("secret")] {
            let first = add("", &contact).expect("new");
            let asked = consent_of(&first, &contact.id);
            assert_eq!(without(&first, contact.id.as_str(), ContactOrigin::Subject).as_deref(), Some(""));
            assert_eq!(verify("", &asked).0, VerifyOutcome::Outdated);
            let again = add_with_nonce("", &contact, "n2").expect("new");
            assert_eq!(verify(&again, &asked), (VerifyOutcome::Outdated, again.clone()));
            let asked = consent_of(&again, &contact.id);
            let verified = verified(&again, &asked);
            assert_eq!(consent_of(&verified, &contact.id), asked);
            // Another call with the same consent, because the answer was lost.
            assert_eq!(verify(&verified, &asked).0, VerifyOutcome::AlreadyVerified);
        }
    }

    /// The subject may not remove a contact of the operator, and an unreadable element may be one.
    #[test]
    fn the_subjects_side_removes_only_what_it_added() {
        let id = email("a@b.test").id;
        let operators = r#"[{"id":"main","channel":"email","address":"a@b.test"}]"#;
        let unreadable = r#"[{"id":"main","channel":"webhook","url":"https://x.test/","verified":false},{"id":"main","channel":"email","address":"a@b.test","verified":null},"main",7]"#;
        for stored in [operators, unreadable, "[]", ""] {
            for id in [id.as_str(), "main"] {
                assert_eq!(without(stored, id, ContactOrigin::Subject), None, "{stored}");
            }
        }
        let main = ContactId::from_stored("main");
        assert_eq!(array(operators).remove(&main, ContactOrigin::Subject), RemoveOutcome::OperatorsOwn);
        assert_eq!(array(unreadable).remove(&main, ContactOrigin::Subject), RemoveOutcome::NotFound);
        assert_eq!(without(operators, "main", ContactOrigin::Operator).as_deref(), Some(""));

        let others = r#"{"channel":"sms","to":"+1"},{"address":"c@b.test","channel":"email","note":{"x":1.5}}"#;
        for verified in ["true", "false"] {
            let added = format!(r#"{{"id":"own","channel":"email","address":"a@B.test","verified":{verified}}}"#);
            let alone = format!("[{others}]");
            for stored in [format!("[{added},{others}]"), format!("[{others},{added}]")] {
                assert_eq!(
                    without(&stored, "own", ContactOrigin::Subject).as_deref(),
                    Some(alone.as_str()),
                    "{stored}"
                );
                assert_eq!(without(&stored, "c_0", ContactOrigin::Subject), None);
                assert_eq!(without(&stored, email("c@b.test").id.as_str(), ContactOrigin::Subject), None);
            }
            assert_eq!(without(&alone, "own", ContactOrigin::Subject), None, "a second time");
            assert_eq!(without(&format!("[{added}]"), "own", ContactOrigin::Subject).as_deref(), Some(""));
        }
    }

    /// A removed receiver must not come back with the secret that was proposed for it.
    #[test]
    fn a_receiver_is_removed_with_the_secret_that_waits_beside_it() {
        let of = |id: &str, secret: &str, more: &str| {
            format!(r#"{{"channel":"webhook","id":"{id}","secret":"{secret}","url":"https://x.test/"{more}}}"#)
        };
        let (id, unverified) = (webhook("new").id, r#","verified":false"#);
        let both = format!("[{},{}]", of("main", "old", r#","verified":true"#), of(id.as_str(), "new", unverified));
        for named in ["main", id.as_str()] {
            assert_eq!(without(&both, named, ContactOrigin::Subject).as_deref(), Some(""), "{named}");
        }
        let operators = of("main", "old", "");
        let beside = format!("[{operators},{}]", of(id.as_str(), "new", unverified));
        assert_eq!(without(&beside, id.as_str(), ContactOrigin::Subject), Some(format!("[{operators}]")));
        assert_eq!(without(&beside, "main", ContactOrigin::Subject), None, "that is the operator's");
        assert_eq!(without(&beside, "main", ContactOrigin::Operator).as_deref(), Some(""));
    }

    /// A subject with the maximum number of contacts can remove one and add another.
    #[test]
    fn after_one_is_removed_another_may_be_added() {
        let many: Vec<Contact> = (0..CONTACTS_MAX).map(|number| email(&format!("{number}@b.test"))).collect();
        let full = serde_json::to_string(&many).expect("JSON");
        assert_eq!(add(&full, &email("new@b.test")), Err(FULL));
        let fewer = without(&full, many[3].id.as_str(), ContactOrigin::Subject).expect("it was added");
        assert_eq!(read_all(&add(&fewer, &email("new@b.test")).expect("new")).len(), CONTACTS_MAX);
    }
}
