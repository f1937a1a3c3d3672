//! The stored form of a subject's contacts: a JSON array in the field `contacts` of `quota_subject:<subject>`. Pure.
//!
//! [`ContactArray`] keeps each element as text, and an edit replaces single fields of it. Therefore the order of
//! fields, the platform's own fields, numbers out of range and text that is not Unicode stay as they were written.
//! Every reader and writer of the field uses it. Read next: [`super::edit`], the changes to stored contacts.

use indexmap::IndexMap;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::{RawValue, to_raw_value};

use super::{Contact, ContactOptions, MessageFormat};
use crate::types::text_form::text_enum;
use crate::types::{ConsentId, ContactId, Secret, Subject, UnixMs};

/// The field of a subject's hash that holds the contacts.
pub const CONTACTS: &str = "contacts";
/// The field that says whether the contact is verified. An element without it was written by the operator.
pub(super) const VERIFIED: &str = "verified";
/// The field that distinguishes an unverified contact from a removed one with the same address: a code that was sent
/// for the removed one does not verify this one. The field stays after verification.
pub(super) const NONCE: &str = "nonce";
/// The field with the time at which an unverified contact is removed.
pub(super) const UNVERIFIED_UNTIL: &str = "unverified_until";

/// The stored contacts of one subject.
#[derive(Debug, Default)]
pub struct ContactArray {
    pub(super) elements: Vec<Box<RawValue>>,
}

/// The fields of an element in their order, each as it was written. The last value of a repeated name counts.
type ElementFields = IndexMap<String, Box<RawValue>>;

/// The stored value is not a JSON array. Contacts are not changed until the operator has repaired it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contacts is not a JSON array: {place}")]
pub struct ContactArrayError {
    /// The kind and position of the error. Does not quote the value, which may contain an address or a secret.
    place: String,
}

/// An element that is not a valid contact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableContact {
    /// Its id, if it can be read.
    pub id: Option<ContactId>,
    /// The fault of the element. Does not quote its values.
    pub why: String,
}

impl UnreadableContact {
    /// The element as a level below its subject finds it.
    pub(super) fn inherited_from(self, subject: &Subject) -> Self {
        Self { id: self.id.map(|id| id.inherited_from(subject)), ..self }
    }
}

/// A readable element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContact {
    /// The contact.
    pub contact: Contact,
    /// Who added it.
    pub origin: ContactOrigin,
    /// Identifies what the consent for this contact refers to. It changes with the address, with the secret, and when
    /// the contact is added again.
    pub consent: ConsentId,
    /// When it is removed if nobody confirms it; `None` if it is verified or stays unverified.
    pub unverified_until: Option<UnixMs>,
    pub(super) position: usize,
}

text_enum! {
    /// `subject` for a contact that was added through the HTTP API, `operator` for every other.
    pub enum ContactOrigin {
        /// The operator, through the command line or directly in Redis. These contacts need no consent.
        Operator = "operator",
        /// The subject, through the API.
        Subject = "subject",
    }
}

impl ContactArray {
    /// Reads the stored field; empty for a subject without contacts.
    pub fn parse(stored: &[u8]) -> Result<Self, ContactArrayError> {
        if stored.is_empty() {
            return Ok(Self::default());
        }
        let not_an_array = |error: serde_json::Error| {
            let place = format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column());
            ContactArrayError { place: place.to_lowercase() }
        };
        let elements = serde_json::from_slice(stored).map_err(not_an_array)?;
        Ok(Self { elements })
    }

    /// Number of elements, including unreadable ones.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The field's new value; empty if no element is left.
    pub fn to_stored(&self) -> String {
        if self.elements.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.elements).expect("what was read from JSON is JSON")
    }

    /// Every element in its stored order: the contact, or its fault.
    pub fn read(&self) -> impl Iterator<Item = Result<StoredContact, UnreadableContact>> {
        self.elements.iter().enumerate().map(|(position, element)| read(position, element))
    }

    /// Like [`Self::read`], for callers that only send: skips the origin and the consent of each contact, which cost
    /// time.
    pub fn read_contacts(&self) -> impl Iterator<Item = Result<Contact, UnreadableContact>> {
        self.elements.iter().map(|element| contact_of(&fields_of(element)?))
    }

    /// The contacts that can be read, in their stored order.
    pub fn contacts(&self) -> Vec<StoredContact> {
        self.read().filter_map(Result::ok).collect()
    }

    /// The contacts of this id, in their stored order.
    pub(super) fn with_id(&self, id: &ContactId) -> Vec<StoredContact> {
        self.read().filter_map(Result::ok).filter(|stored| stored.contact.id == *id).collect()
    }

    /// The contact with this id. If a verified webhook and its unconfirmed replacement share the id, returns the
    /// unverified one.
    pub fn find(&self, id: &ContactId) -> Option<StoredContact> {
        self.with_id(id).into_iter().min_by_key(|stored| stored.contact.verified)
    }

    pub(super) fn push(&mut self, contact: &Contact) {
        self.elements.push(raw(contact));
    }

    /// Writes secret, format and headers of `contact` if they differ from the stored ones.
    pub(super) fn set_options(&mut self, stored: &StoredContact, contact: &Contact) {
        let (Some(before), Some(ContactOptions { secret, format, headers })) =
            (stored.contact.options(), contact.options())
        else {
            return;
        };
        if *secret != before.secret {
            self.set(stored.position, "secret", secret.as_ref().map(Secret::reveal));
        }
        if *format != before.format {
            self.set(stored.position, "format", (*format != MessageFormat::default()).then(|| format.to_string()));
        }
        if *headers != before.headers {
            self.set(stored.position, "headers", (!headers.is_empty()).then_some(headers));
        }
    }

    /// Sets a field of an element in its place; removes it if there is no value.
    pub(super) fn set(&mut self, position: usize, name: &str, value: Option<impl Serialize>) {
        let mut fields = fields_of(&self.elements[position]).expect("a contact is an object");
        match value {
            Some(value) => drop(fields.insert(name.to_owned(), raw(&value))),
            None => drop(fields.shift_remove(name)),
        }
        self.elements[position] = raw(&fields);
    }
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("contacts, strings, booleans and objects of strings are JSON")
}

fn fields_of(element: &RawValue) -> Result<ElementFields, UnreadableContact> {
    let not_an_object = |_| UnreadableContact { id: None, why: "not an object".to_owned() };
    serde_json::from_str(element.get()).map_err(not_an_object)
}

/// The field's text; `None` if the field is missing or holds something else.
fn text(fields: &ElementFields, name: &str) -> Option<String> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}

fn read(position: usize, element: &RawValue) -> Result<StoredContact, UnreadableContact> {
    let fields = fields_of(element)?;
    let contact = contact_of(&fields)?;
    let mut endpoint = vec![contact.channel().as_str(), contact.address()];
    endpoint.extend(contact.secret().map(Secret::reveal));
    let consent = ConsentId::derive(&endpoint, &text(&fields, NONCE).unwrap_or_default());
    let origin = if fields.contains_key(VERIFIED) { ContactOrigin::Subject } else { ContactOrigin::Operator };
    let unverified_until = text(&fields, UNVERIFIED_UNTIL).filter(|_| !contact.verified);
    let unverified_until = unverified_until.and_then(|text| text.parse().ok());
    Ok(StoredContact { contact, origin, consent, unverified_until, position })
}

fn contact_of(fields: &ElementFields) -> Result<Contact, UnreadableContact> {
    let known = fields.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
    Contact::deserialize(MapDeserializer::new(known)).map_err(|error: serde_json::Error| {
        let id = text(fields, "id").filter(|id| !id.is_empty());
        UnreadableContact { id: id.map(|id| ContactId::from_stored(&id)), why: without_values(&error) }
    })
}

/// The error message without the place, and without the values that it may quote: one could be a secret.
fn without_values(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    let quotes = what.starts_with("invalid") || error.classify() != Category::Data;
    if quotes { "a value of the wrong type".to_owned() } else { what.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn why(stored: &str) -> String {
        match ContactArray::parse(stored.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(array) => {
                let whys = array.read().filter_map(Result::err).map(|unreadable| unreadable.why);
                whys.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// An error about contacts is logged, so it must not contain a secret.
    #[test]
    fn an_unreadable_contact_shows_no_secret() {
        for json in [
            r#"[{"channel":"webhook","url":"https://x.test","secret":["whsec_topsecret"]}]"#,
            r#"[{"channel":"webhook","url":"https://x.test","secret":"x","muted":"whsec_topsecret"}]"#,
            r#"["whsec_topsecret"]"#,
            r#"[{"channel":"webhook","url":"https://x.test","secret":"whsec_topsecret]"#,
            r#""whsec_topsecret""#,
        ] {
            let why = why(json);
            assert!(!why.is_empty() && !why.contains("topsecret"), "{why}");
        }
    }

    /// The error must tell an operator what is wrong with a contact.
    #[test]
    fn an_unreadable_contact_says_what_is_wrong_with_it() {
        assert_eq!(why(r#"[7,{"channel":"email"}]"#), "not an object; email contact has no \"address\"");
        // A list whose parts fit by chance.
        assert_eq!(why(r#"[[null,"webhook",null,"http://x/echo","whsec_x",false,false]]"#), "not an object");
        assert!(why(r#"[{"channel":"sms"}]"#).contains("allowed are \"email\" and \"webhook\""));
        assert_eq!(why("[{]"), "contacts is not a JSON array: syntax error at line 1 column 3");
    }

    proptest! {
        /// A written value is read back unchanged.
        #[test]
        fn contacts_round_trip(local in "[a-z]{1,9}") {
            let mut array = ContactArray::default();
            let contact = Contact::email(&format!("{local}@b.test"));
            array.push(&contact);
            let stored = ContactArray::parse(array.to_stored().as_bytes()).expect("an array").contacts();
            prop_assert_eq!(stored.into_iter().map(|stored| stored.contact).collect::<Vec<_>>(), vec![contact]);
        }

        /// The platform may write anything.
        #[test]
        fn bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = ContactArray::parse(&value).map(|array| array.read().count());
        }
    }
}
