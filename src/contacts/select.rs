//! Selects contacts of a subject by an id, by the start of an id, or by an address. Pure.

use super::{Contact, ContactOptions};
use crate::types::ContactId;

/// Why no contact is selected.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectContactError {
    #[error("there is no contact {0:?}")]
    NotFound(String),
    #[error("several contacts begin with {text:?}: {}", list(.ids))]
    Ambiguous { text: String, ids: Vec<ContactId> },
}

/// The ids of the contacts that `text` selects: the one with this id, else those with this address, else the one whose
/// id starts with it.
pub fn select(contacts: &[&Contact], text: &str) -> Result<Vec<ContactId>, SelectContactError> {
    let with_id = ids(contacts, |contact| contact.id.as_str() == text);
    if !with_id.is_empty() {
        return Ok(with_id);
    }
    let of_address = ids(contacts, |contact| {
        let named = Contact::of_channel(contact.channel(), text, ContactOptions::default());
        named.is_some_and(|named| named.has_same_address(contact))
    });
    if !of_address.is_empty() {
        return Ok(of_address);
    }
    let beginning = ids(contacts, |contact| !text.is_empty() && contact.id.as_str().starts_with(text));
    match beginning.len() {
        0 => Err(SelectContactError::NotFound(text.to_owned())),
        1 => Ok(beginning),
        _ => Err(SelectContactError::Ambiguous { text: text.to_owned(), ids: beginning }),
    }
}

/// The ids of the selected contacts, without duplicates.
fn ids(contacts: &[&Contact], is_meant: impl Fn(&Contact) -> bool) -> Vec<ContactId> {
    let mut ids = Vec::new();
    for contact in contacts {
        if is_meant(contact) && !ids.contains(&contact.id) {
            ids.push(contact.id.clone());
        }
    }
    ids
}

fn list(ids: &[ContactId]) -> String {
    ids.iter().map(ContactId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::ContactArray;

    fn selected(text: &str) -> Result<Vec<String>, SelectContactError> {
        let stored = r#"[
            {"id":"main","channel":"email","address":"a@B.test"},
            {"id":"mail2","channel":"email","address":"b@b.test"},
            {"id":"hook","channel":"webhook","url":"https://x.test/","secret":"old"},
            {"id":"hook","channel":"webhook","url":"https://x.test/","secret":"new","verified":false},
            {"id":"m","channel":"email","address":"c@b.test"}
        ]"#;
        let array = ContactArray::parse(stored.as_bytes()).expect("an array");
        let stored = array.contacts();
        let ids = select(&stored.iter().map(|stored| &stored.contact).collect::<Vec<_>>(), text)?;
        Ok(ids.iter().map(ToString::to_string).collect())
    }

    /// The first letters of an id must not mute another contact.
    #[test]
    fn an_id_counts_before_an_address_and_an_address_before_the_beginning_of_an_id() {
        assert_eq!(selected("m"), Ok(vec!["m".to_owned()]));
        assert_eq!(selected("a@b.TEST"), Ok(vec!["main".to_owned()]));
        assert_eq!(selected("https://x.test/"), Ok(vec!["hook".to_owned()]));
        assert_eq!(selected("mail"), Ok(vec!["mail2".to_owned()]));
        assert!(matches!(selected("ma"), Err(SelectContactError::Ambiguous { ids, .. }) if ids.len() == 2));
        for unknown in ["", "A@b.test", "x", "https://x.test"] {
            assert!(matches!(selected(unknown), Err(SelectContactError::NotFound(_))), "{unknown}");
        }
    }
}
