//! The array of contacts as it is stored, changed without touching what is not ours. Pure.
//!
//! Elements are kept as text, and of one that changes only our fields are written: the platform may keep its own notes beside them,
//! and an element that can't be read is left as it is. Read next: [`super::fields`].

use serde::Serialize;
use serde_json::value::RawValue;

use super::fields::Fields;
use super::{CONTACTS_MAX, added_as, fingerprint};
use crate::contacts::{Contact, Endpoint};
use crate::types::ContactId;

/// The field that says whether somebody at the address has agreed. An element without it is the operator's.
const VERIFIED: &str = "verified";
/// The field that tells an unverified element from one of the same address that was removed before: what was sent for that one
/// verifies nothing. It stays once the contact is verified: whoever pressed the link finds their code right all the same.
const NONCE: &str = "nonce";

/// Why the array is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// What is stored is no array: somebody has to look at it before anything is changed.
    Unreadable,
    /// There are as many as may be.
    Full,
}

/// A contact that waits for consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unverified {
    /// Which.
    pub(super) contact: Contact,
    /// What consent is asked for: this endpoint, as it was added this time.
    pub(super) asked: String,
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

/// The array without some of its contacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removed {
    /// What remains; empty for nothing.
    pub(super) remaining: String,
    /// Those that are gone.
    pub(super) contacts: Vec<Contact>,
}

/// The array with an unverified contact added; `None` where nothing is to be changed, since the contact is there already. The nonce is
/// another one for each call.
///
/// One whose address is there, unverified, takes its place: its secret is the one that was named last. Beside a verified webhook with
/// another secret it stands until its receiver has confirmed that secret, so that nobody loses an alert by it.
pub(super) fn add(stored: &[u8], contact: &Contact, nonce: &str) -> Result<Option<String>, Refused> {
    let mut elements = elements(stored).ok_or(Refused::Unreadable)?;
    // Also for one that is there: at the bound the answer tells as little as below it.
    if elements.len() >= CONTACTS_MAX {
        return Err(Refused::Full);
    }
    let known: Vec<Known> = known(&elements).into_iter().filter(|other| same_place(&other.contact, contact)).collect();
    if known.iter().any(|other| other.contact.verified && same_endpoint(&other.contact, contact)) {
        return Ok(None);
    }
    match known.iter().find(|other| !other.contact.verified) {
        Some(other) if same_endpoint(&other.contact, contact) => return Ok(None),
        Some(other) => set_secret(&mut elements[other.at], contact),
        None => {
            let text = serde_json::to_string(contact).expect("a contact is text and truth");
            let mut fields: Fields = serde_json::from_str(&text).expect("a contact is an object");
            fields.set(NONCE, &nonce);
            elements.push(fields.written());
        }
    }
    Ok(Some(write(&elements)))
}

/// The unverified contact of this id. What can't be read has none.
pub(super) fn unverified(stored: &[u8], id: &ContactId) -> Option<Unverified> {
    let known = known(&elements(stored).unwrap_or_default());
    let found = known.into_iter().find(|known| bears(&known.contact, id) && !known.contact.verified)?;
    Some(Unverified { asked: found.asked(), contact: found.contact })
}

/// What the contact of this id was asked for, whether it is verified by now or not; one that is not comes first.
pub(super) fn asked_of(stored: &[u8], id: &ContactId) -> Result<Option<String>, Refused> {
    let known = known(&elements(stored).ok_or(Refused::Unreadable)?);
    let named = known.into_iter().filter(|known| bears(&known.contact, id));
    Ok(named.min_by_key(|known| known.contact.verified).map(|known| known.asked()))
}

/// The array where this contact is verified, if it is still the one that was asked, at the same endpoint. Its secret becomes that of
/// a verified contact of the same URL, which stays in its place.
pub(super) fn verify(stored: &[u8], id: &ContactId, asked: &str) -> Result<Consent, Refused> {
    let mut elements = elements(stored).ok_or(Refused::Unreadable)?;
    let known = known(&elements);
    let with_id = || known.iter().filter(|known| bears(&known.contact, id));
    let Some(found) = with_id().find(|known| !known.contact.verified && known.asked() == asked) else {
        let before = |known: &Known| known.contact.verified && asked.starts_with(&fingerprint(&known.contact.endpoint));
        return Ok(if with_id().any(before) { Consent::Before } else { Consent::Void });
    };
    let twin = known.iter().find(|other| other.contact.verified && same_place(&other.contact, &found.contact));
    match twin {
        Some(twin) => {
            set_secret(&mut elements[twin.at], &found.contact);
            elements.remove(found.at);
        }
        None => {
            set(&mut elements[found.at], VERIFIED, &true);
        }
    }
    Ok(Consent::Given(write(&elements)))
}

/// The array without this contact, and without every other of its address: that is to get nothing more. `None` where none was added
/// here: what the operator wrote stays, and so does what can't be read.
pub(super) fn remove(stored: &[u8], id: &ContactId) -> Result<Option<Removed>, Refused> {
    let mut elements = elements(stored).ok_or(Refused::Unreadable)?;
    let mut added = known(&elements);
    added.retain(|known| known.added);
    let named: Vec<Contact> =
        added.iter().filter(|known| bears(&known.contact, id)).map(|known| known.contact.clone()).collect();
    added.retain(|known| named.iter().any(|named| same_place(named, &known.contact)));
    if added.is_empty() {
        return Ok(None);
    }
    // From the back, so that the places before stay what they are.
    for known in added.iter().rev() {
        elements.remove(known.at);
    }
    let remaining = if elements.is_empty() { String::new() } else { write(&elements) };
    Ok(Some(Removed { remaining, contacts: added.into_iter().map(|known| known.contact).collect() }))
}

/// An element that can be read.
struct Known {
    /// Its place in the array.
    at: usize,
    contact: Contact,
    /// Empty for one that was not added here.
    nonce: String,
    /// Whether it was added here: what the operator wrote says nothing of consent.
    added: bool,
}

impl Known {
    fn asked(&self) -> String {
        format!("{}.{}", fingerprint(&self.contact.endpoint), self.nonce)
    }
}

fn known(elements: &[Box<RawValue>]) -> Vec<Known> {
    let read = |(at, element): (usize, &RawValue)| {
        let contact = Contact::of_element(element).ok()?;
        let fields = Fields::of(element)?;
        Some(Known { at, contact, nonce: fields.text(NONCE).unwrap_or_default(), added: fields.has(VERIFIED) })
    };
    elements.iter().map(AsRef::as_ref).enumerate().filter_map(read).collect()
}

/// Whether the contact is known by this id: its own, the one that follows from its address, or the one that is answered to whoever
/// adds that address.
fn bears(contact: &Contact, id: &ContactId) -> bool {
    contact.id == *id || contact.derived_id() == *id || added_as(contact) == *id
}

fn same_place(one: &Contact, other: &Contact) -> bool {
    (one.channel(), one.place()) == (other.channel(), other.place())
}

/// Of two contacts of one place: whether they share the secret too.
fn same_endpoint(one: &Contact, other: &Contact) -> bool {
    match (&one.endpoint, &other.endpoint) {
        (Endpoint::Webhook { secret: one, .. }, Endpoint::Webhook { secret: other, .. }) => one == other,
        _ => true,
    }
}

fn elements(stored: &[u8]) -> Option<Vec<Box<RawValue>>> {
    if stored.is_empty() { Some(Vec::new()) } else { serde_json::from_slice(stored).ok() }
}

fn set_secret(element: &mut Box<RawValue>, contact: &Contact) {
    if let Endpoint::Webhook { secret, .. } = &contact.endpoint {
        set(element, "secret", &secret.reveal());
    }
}

fn set(element: &mut Box<RawValue>, name: &str, value: &impl Serialize) {
    let mut fields = Fields::of(element).expect("a contact is an object");
    fields.set(name, value);
    *element = fields.written();
}

fn write(elements: &[Box<RawValue>]) -> String {
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

    /// Adds it; each test adds a contact once, so one nonce will do.
    fn add(stored: &[u8], contact: &Contact) -> Result<Option<String>, Refused> {
        super::add(stored, contact, "n1")
    }

    /// What it is asked for once it was added.
    fn asked(contact: &Contact) -> String {
        let added = add(b"", contact).expect("room").expect("new");
        unverified(added.as_bytes(), &contact.id).expect("it was added").asked
    }

    fn consent(stored: &str, contact: &Contact) -> Consent {
        verify(stored.as_bytes(), &contact.id, &asked(contact)).expect("an array")
    }

    /// What remains without this contact; `None` where nothing is taken away.
    fn without(stored: &str, id: &str) -> Option<String> {
        let removed = remove(stored.as_bytes(), &ContactId::from_stored(id)).expect("an array")?;
        assert!(!removed.contacts.is_empty());
        Some(removed.remaining)
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

    /// What the platform notes beside our fields is not ours to round, to sort or to refuse.
    #[test]
    fn notes_stay_as_they_were_written() {
        let odd = r#"{"z":12345678901234567890123,"a": 1e999,"lone":"\ud800","deep":{"b":1.0,"a":[1, 2]}}"#;
        let hook = r#"{"secret":"old","z":1e400,"url":"https://x.test/","a":"\udc00","channel":"webhook"}"#;
        let stored = format!("[{odd},{hook}]");
        let waiting = add(stored.as_bytes(), &webhook("new")).expect("room").expect("changed");
        assert!(waiting.starts_with(stored.trim_end_matches(']')), "{waiting}");
        let verified = verify(waiting.as_bytes(), &webhook("new").id, &asked(&webhook("new")));
        assert_eq!(verified, Ok(Consent::Given(stored.replace("\"old\"", "\"new\""))));

        let own = r#"{"verified": false, "z":1e400, "channel":"email", "a":0.10, "address":"a@b.test"}"#;
        let stored = format!("[{odd},{own}]");
        let id = email("a@b.test").id;
        let asked = asked_of(stored.as_bytes(), &id).expect("an array").expect("it is there");
        let verified = verify(stored.as_bytes(), &id, &asked);
        let expected = r#"{"verified":true,"z":1e400,"channel":"email","a":0.10,"address":"a@b.test"}"#;
        assert_eq!(verified, Ok(Consent::Given(format!("[{odd},{expected}]"))));
        assert_eq!(without(&stored, id.as_str()), Some(format!("[{odd}]")));
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
            r#"[{"id":"main","channel":"webhook","url":"https://x.test/","secret":"newer","note":1}]"#
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
            let found = unverified(stored.as_bytes(), id).expect("it is there");
            assert_eq!(found.contact.id, main);
            let consent = verify(stored.as_bytes(), id, &found.asked);
            let Ok(Consent::Given(verified)) = consent else { panic!("{consent:?}") };
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
        assert_eq!(verify(b"{", &asked.id, "x"), Err(Refused::Unreadable));
        assert_eq!(asked_of(b"{}", &asked.id), Err(Refused::Unreadable));
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

    /// One mailbox is one contact, however its domain was spelled by whoever came first; it would get every alert twice.
    #[test]
    fn an_address_that_is_there_with_another_spelling_of_its_domain_is_not_added_again() {
        for stored in ["a@B.Test", "a@b.test"] {
            for verified in ["", r#","verified":false"#, r#","verified":true"#] {
                let stored = format!(r#"[{{"id":"main","channel":"email","address":"{stored}"{verified}}}]"#);
                assert_eq!(add(stored.as_bytes(), &email("a@b.test")), Ok(None), "{stored}");
                assert!(add(stored.as_bytes(), &email("A@b.test")).expect("room").is_some(), "{stored}");
            }
        }
        // What is answered to whoever adds it finds it, too.
        let stored = r#"[{"id":"main","channel":"email","address":"a@Bücher.Test","verified":false}]"#;
        let added = email("a@xn--bcher-kva.test");
        assert_eq!(add(stored.as_bytes(), &added), Ok(None));
        assert!(unverified(stored.as_bytes(), &added.id).is_some());
    }

    /// Whoever removed a contact did not mean that a mail which is on its way brings it back.
    #[test]
    fn what_was_asked_for_a_contact_that_was_removed_verifies_nothing_when_it_is_added_again() {
        for contact in [email("a@b.test"), webhook("secret")] {
            let first = add(b"", &contact).expect("room").expect("new");
            let asked = unverified(first.as_bytes(), &contact.id).expect("it was added").asked;
            assert_eq!(without(&first, contact.id.as_str()).as_deref(), Some(""));
            assert_eq!(verify(b"", &contact.id, &asked), Ok(Consent::Void));
            let again = super::add(b"", &contact, "n2").expect("room").expect("new");
            assert_eq!(verify(again.as_bytes(), &contact.id, &asked), Ok(Consent::Void));
            let anew = unverified(again.as_bytes(), &contact.id).expect("it was added").asked;
            let verified = verify(again.as_bytes(), &contact.id, &anew);
            let Ok(Consent::Given(verified)) = verified else { panic!("not given") };
            // The code is kept under it, and shown by whoever has pressed the link as well.
            assert_eq!(asked_of(verified.as_bytes(), &contact.id), Ok(Some(anew.clone())));
            // Another call of the same, of which the answer was lost.
            assert_eq!(verify(verified.as_bytes(), &contact.id, &anew), Ok(Consent::Before));
        }
    }

    /// An operator's contact was not theirs to take away, and what can't be read may be one.
    #[test]
    fn only_what_was_added_here_is_taken_away() {
        let id = email("a@b.test").id;
        let operators = r#"[{"id":"main","channel":"email","address":"a@b.test"}]"#;
        let unreadable = r#"[{"id":"main","channel":"webhook","url":"https://x.test/","verified":false},{"id":"main","channel":"email","address":"a@b.test","verified":null},"main",7]"#;
        for stored in [operators, unreadable, "[]", ""] {
            for id in [id.as_str(), "main"] {
                assert_eq!(without(stored, id), None, "{stored}");
            }
        }
        assert_eq!(remove(b"{}", &id), Err(Refused::Unreadable));
        assert_eq!(remove(b"[", &id), Err(Refused::Unreadable));

        let others = r#"{"channel":"sms","to":"+1"},{"address":"c@b.test","channel":"email","note":{"x":1.5}}"#;
        for verified in ["true", "false"] {
            let added = format!(r#"{{"id":"own","channel":"email","address":"a@B.test","verified":{verified}}}"#);
            let alone = format!("[{others}]");
            for stored in [format!("[{added},{others}]"), format!("[{others},{added}]")] {
                for id in ["own", id.as_str()] {
                    assert_eq!(without(&stored, id).as_deref(), Some(alone.as_str()), "{stored}");
                }
                assert_eq!(without(&stored, "c_0"), None);
                assert_eq!(without(&stored, email("c@b.test").id.as_str()), None);
            }
            assert_eq!(without(&alone, id.as_str()), None, "a second time");
            assert_eq!(without(&format!("[{added}]"), "own").as_deref(), Some(""));
        }
    }

    /// Whoever takes a receiver away must not find it back with the secret that was proposed for it.
    #[test]
    fn a_receiver_goes_with_the_secret_that_waits_beside_it() {
        let of = |id: &str, secret: &str, more: &str| {
            format!(r#"{{"channel":"webhook","id":"{id}","secret":"{secret}","url":"https://x.test/"{more}}}"#)
        };
        let (id, unverified) = (webhook("new").id, r#","verified":false"#);
        let both = format!("[{},{}]", of("main", "old", r#","verified":true"#), of(id.as_str(), "new", unverified));
        for named in ["main", id.as_str()] {
            assert_eq!(without(&both, named).as_deref(), Some(""), "{named}");
        }
        let operators = of("main", "old", "");
        let beside = format!("[{operators},{}]", of(id.as_str(), "new", unverified));
        assert_eq!(without(&beside, id.as_str()), Some(format!("[{operators}]")));
        assert_eq!(without(&beside, "main"), None, "that is the operator's");
    }

    /// Somebody who has as many contacts as may be takes one away to add another.
    #[test]
    fn a_contact_that_is_removed_makes_room() {
        let many: Vec<Contact> = (0..CONTACTS_MAX).map(|number| email(&format!("{number}@b.test"))).collect();
        let full = serde_json::to_string(&many).expect("JSON");
        assert_eq!(add(full.as_bytes(), &email("new@b.test")), Err(Refused::Full));
        let room = without(&full, many[3].id.as_str()).expect("it was added");
        let added = add(room.as_bytes(), &email("new@b.test")).expect("room").expect("new");
        assert_eq!(read_all(&added).len(), CONTACTS_MAX);
    }
}
