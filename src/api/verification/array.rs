//! The array of contacts as it is stored, changed without touching what is not ours. Pure.
//!
//! Elements are changed as JSON: the platform may keep its own notes beside our fields, and an element that can't be read is left as
//! it is.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CONTACTS_MAX, fingerprint};
use crate::types::{Contact, ContactId, Endpoint};

/// Why no contact can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// What is stored is no array: somebody has to look at it before anything is changed.
    Unreadable,
    /// There are as many as may be.
    Full,
}

/// What became of a consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consent {
    /// This is the array with the contact verified.
    Given(String),
    /// It is verified already.
    Before,
    /// There is no such contact any more, or another address has its id.
    Void,
}

/// The array with an unverified contact added; `None` where nothing is to be changed, since the contact is there already.
///
/// One whose address is there, unverified, takes its place: its secret is the one that was named last. Beside a verified webhook with
/// another secret it stands until its receiver has confirmed that secret, so that nobody loses an alert by it.
pub(super) fn add(stored: &[u8], contact: &Contact) -> Result<Option<String>, Refused> {
    let mut elements = elements(stored).ok_or(Refused::Unreadable)?;
    // Also for one that is there: at the bound the answer tells as little as below it.
    if elements.len() >= CONTACTS_MAX {
        return Err(Refused::Full);
    }
    let same_address = |other: &Contact| (other.channel(), other.address()) == (contact.channel(), contact.address());
    let known: Vec<Option<Contact>> = elements.iter().map(|element| read(element).filter(same_address)).collect();
    if known.iter().flatten().any(|other| other.verified && other.endpoint == contact.endpoint) {
        return Ok(None);
    }
    let unverified = known.iter().position(|other| other.as_ref().is_some_and(|other| !other.verified));
    let verified_twin = known.iter().flatten().any(|other| other.verified);
    let email = matches!(contact.endpoint, Endpoint::Email { .. });
    match unverified {
        Some(at) if known[at].as_ref().is_some_and(|other| other.endpoint == contact.endpoint) => return Ok(None),
        Some(at) => set_secret(&mut elements[at], contact),
        None if email && verified_twin => return Ok(None),
        None => elements.push(serde_json::to_value(contact).expect("a contact is text and truth")),
    }
    Ok(Some(write(&elements)))
}

/// The unverified contact of this id.
pub(super) fn unverified(stored: &[u8], id: &ContactId) -> Option<Contact> {
    let contacts = elements(stored).unwrap_or_default();
    contacts.iter().filter_map(read).find(|contact| bears(contact, id) && !contact.verified)
}

/// The contact of this id, whether it is verified or not; one that is not comes first.
pub(super) fn of_id(stored: &[u8], id: &ContactId) -> Option<Contact> {
    unverified(stored, id).or_else(|| {
        let contacts = elements(stored).unwrap_or_default();
        contacts.iter().filter_map(read).find(|contact| bears(contact, id))
    })
}

/// The array where this contact is verified, if its endpoint is still the one of the fingerprint. Its secret becomes that of a
/// verified contact of the same URL, which stays in its place.
pub(super) fn verify(stored: &[u8], id: &ContactId, asked: &str) -> Consent {
    let mut elements = elements(stored).unwrap_or_default();
    let contacts: Vec<Option<Contact>> = elements.iter().map(read).collect();
    let is_it = |contact: &Contact| bears(contact, id) && fingerprint(&contact.endpoint) == asked;
    let of = |verified: bool| {
        let found = contacts.iter().flatten().find(|contact| is_it(contact) && contact.verified == verified);
        found.and_then(|found| contacts.iter().position(|contact| contact.as_ref() == Some(found)))
    };
    let Some(at) = of(false) else {
        return if of(true).is_some() { Consent::Before } else { Consent::Void };
    };
    let contact = contacts[at].as_ref().expect("it was just found");
    let twin = contacts.iter().position(|other| {
        other.as_ref().is_some_and(|other| {
            other.verified && (other.channel(), other.address()) == (contact.channel(), contact.address())
        })
    });
    match twin {
        Some(twin) => {
            set_secret(&mut elements[twin], contact);
            elements.remove(at);
        }
        None => elements[at]["verified"] = Value::Bool(true),
    }
    Consent::Given(write(&elements))
}

/// Whether the contact is known by this id: its own, or the one that is answered to whoever adds its address.
fn bears(contact: &Contact, id: &ContactId) -> bool {
    contact.id == *id || contact.derived_id() == *id
}

fn elements(stored: &[u8]) -> Option<Vec<Value>> {
    if stored.is_empty() { Some(Vec::new()) } else { serde_json::from_slice(stored).ok() }
}

fn read(element: &Value) -> Option<Contact> {
    Contact::deserialize(element).ok()
}

fn set_secret(element: &mut Value, contact: &Contact) {
    if let Endpoint::Webhook { secret, .. } = &contact.endpoint {
        element["secret"] = json!(secret.reveal());
    }
}

fn write(elements: &[Value]) -> String {
    serde_json::to_string(elements).expect("what was read from JSON is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    fn email(address: &str) -> Contact {
        Contact { verified: false, ..Contact::email(address) }
    }

    fn webhook(secret: &str) -> Contact {
        Contact { verified: false, ..Contact::webhook("https://x.test/", Secret::new(secret.to_owned())) }
    }

    fn consent(stored: &str, contact: &Contact) -> Consent {
        verify(stored.as_bytes(), &contact.id, &fingerprint(&contact.endpoint))
    }

    fn read_all(stored: &str) -> Vec<Contact> {
        serde_json::from_str(stored).expect("contacts")
    }

    /// The platform's own fields, and elements that we can't read, are not ours to lose.
    #[test]
    fn what_is_not_ours_stays() {
        let stored = r#"[{"channel":"sms","to":"+1"},{"address":"a@b.test","channel":"email","note":{"x":1.5}}]"#;
        let added = add(stored.as_bytes(), &email("new@b.test")).expect("room").expect("new");
        assert!(added.starts_with(stored.trim_end_matches(']')), "{added}");
        let Consent::Given(verified) = consent(&added, &email("new@b.test")) else { panic!("not given") };
        assert!(verified.starts_with(stored.trim_end_matches(']')) && verified.contains(r#""verified":true"#));
    }

    /// Adding twice must neither alert twice nor make a verified contact wait again.
    #[test]
    fn an_address_that_is_there_is_not_added_again() {
        let added = add(b"", &email("a@b.test")).expect("room").expect("new");
        assert_eq!(add(added.as_bytes(), &email("a@b.test")), Ok(None));
        let Consent::Given(verified) = consent(&added, &email("a@b.test")) else { panic!("not given") };
        assert_eq!(add(verified.as_bytes(), &email("a@b.test")), Ok(None));
        assert_eq!(consent(&verified, &email("a@b.test")), Consent::Before);
        // An id of the operator's own is the same address all the same.
        let own = r#"[{"id":"main","channel":"email","address":"a@b.test"}]"#;
        assert_eq!(add(own.as_bytes(), &email("a@b.test")), Ok(None));
    }

    /// Whoever adds a verified URL again with a secret of their own must not silence it.
    #[test]
    fn another_secret_waits_beside_the_verified_one() {
        let stored = r#"[{"id":"main","channel":"webhook","url":"https://x.test/","secret":"old","note":1}]"#;
        let waiting = add(stored.as_bytes(), &webhook("new")).expect("room").expect("changed");
        assert_eq!(read_all(&waiting).iter().map(|contact| contact.verified).collect::<Vec<_>>(), [true, false]);
        let newer = add(waiting.as_bytes(), &webhook("newer")).expect("room").expect("changed");
        assert_eq!(read_all(&newer).len(), 2);
        // The challenge that was signed with the secret before says nothing about this one.
        assert_eq!(consent(&newer, &webhook("new")), Consent::Void);
        let Consent::Given(verified) = consent(&newer, &webhook("newer")) else { panic!("not given") };
        assert_eq!(
            verified,
            r#"[{"channel":"webhook","id":"main","note":1,"secret":"newer","url":"https://x.test/"}]"#
        );
    }

    /// The id that is answered to whoever adds an address follows from the address: where the platform gave it another, the message
    /// must be sent and its code be good all the same.
    #[test]
    fn a_contact_with_an_id_of_its_own_is_found_by_the_one_of_its_address() {
        let stored = r#"[{"id":"main","channel":"email","address":"a@b.test","verified":false}]"#;
        let added = email("a@b.test");
        assert_eq!(add(stored.as_bytes(), &added), Ok(None));
        let main = ContactId::from_stored("main");
        for id in [&added.id, &main] {
            assert_eq!(unverified(stored.as_bytes(), id).map(|contact| contact.id), Some(main.clone()));
            let consent = verify(stored.as_bytes(), id, &fingerprint(&added.endpoint));
            let Consent::Given(verified) = consent else { panic!("{consent:?}") };
            assert!(read_all(&verified)[0].verified, "{verified}");
        }
    }

    /// What the platform wrote may be anything: a list that fits the fields by chance can't be changed as an object.
    #[test]
    fn a_list_of_fields_is_left_alone() {
        let stored = r#"[[null,"webhook",null,"https://x.test/","old",false,false]]"#;
        let added = add(stored.as_bytes(), &webhook("new")).expect("room").expect("new");
        assert!(added.starts_with(stored.trim_end_matches(']')), "{added}");
        assert!(matches!(consent(stored, &webhook("old")), Consent::Void));
    }

    /// Consent is for the address that was asked.
    #[test]
    fn another_address_under_the_same_id_is_not_verified() {
        let asked = email("a@b.test");
        let moved = format!(r#"[{{"id":"{}","channel":"email","address":"evil@b.test","verified":false}}]"#, asked.id);
        assert_eq!(consent(&moved, &asked), Consent::Void);
        assert_eq!(consent("[]", &asked), Consent::Void);
        assert_eq!(consent("", &asked), Consent::Void);
        assert_eq!(consent("{", &asked), Consent::Void);
    }

    /// Every alert goes to every contact: somebody who adds without end must be stopped.
    #[test]
    fn contacts_are_bounded_and_what_is_broken_is_left_alone() {
        let mut stored = String::new();
        for number in 0..CONTACTS_MAX {
            stored = add(stored.as_bytes(), &email(&format!("{number}@b.test"))).expect("room").expect("new");
        }
        assert_eq!(add(stored.as_bytes(), &email("one@too.many")), Err(Refused::Full));
        assert_eq!(add(stored.as_bytes(), &email("0@b.test")), Err(Refused::Full));
        assert_eq!(add(b"{}", &email("a@b.test")), Err(Refused::Unreadable));
    }
}
