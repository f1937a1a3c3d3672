//! Merges the contacts that an operator names into the stored ones. Pure.
//!
//! Naming a stored contact again keeps its id, its mute, its consent and the platform's own fields. Read next:
//! [`edit`](super::edit), the other changes to stored contacts.

use super::array::{ContactArray, ContactOrigin, StoredContact};
use super::edit::TooManyContacts;
use super::state::FilterChange;
use super::{Contact, ContactOptions};

/// A contact that the operator names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContactSpec {
    /// The contact. Its id, its mute, its consent and the options that were not named apply only if its address is new.
    pub contact: Contact,
    /// The options that were named beside the address.
    pub named: ExplicitOptions,
    /// The change to its filter. A new contact already has it.
    pub filter: FilterChange,
}

/// Which options of a contact the operator named. A stored contact keeps the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExplicitOptions {
    /// The secret. If none was named, one may have been generated; a stored secret that is valid is then kept.
    pub secret: bool,
    /// The format.
    pub format: bool,
    /// The headers.
    pub headers: bool,
}

/// What a merge does with stored contacts that were not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnlistedPolicy {
    /// It keeps all of them.
    KeepAll,
    /// It removes those of the operator. Those of the subject stay, and so do unreadable elements.
    RemoveOperators,
    /// It removes all of them.
    RemoveAll,
}

/// The contacts that a merge kept beside the named ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Stored webhooks that kept their secret instead of a generated one.
    pub kept_secrets: Vec<Contact>,
    /// Contacts of the subject that were not named.
    pub kept_of_subject: Vec<Contact>,
    /// Number of unreadable elements that were kept.
    pub kept_unreadable: usize,
}

impl ContactArray {
    /// Merges the contacts that the operator names into the stored ones, by address. A contact with a known address
    /// keeps its id, mute, consent and other fields, and its secret, format and headers unless others were named. If it
    /// waits for a consent, it becomes verified, because the operator vouches for it. A disabled contact is enabled.
    /// `is_sound` tells whether a contact can be used with its present secret.
    ///
    /// # Errors
    ///
    /// [`TooManyContacts`]: the subject would have more than `contacts_max` contacts. The array must not be stored
    /// then.
    pub fn merge(
        &mut self,
        named: &[ContactSpec],
        unnamed: UnlistedPolicy,
        contacts_max: usize,
        is_sound: impl Fn(&Contact) -> bool,
    ) -> Result<MergeReport, TooManyContacts> {
        let stored = self.contacts();
        let mut report = MergeReport::default();
        let mut named_positions = Vec::new();
        let mut added = Vec::new();
        for ContactSpec { contact, named, filter } in named {
            let of_address = stored.iter().filter(|other| other.contact.has_same_address(contact));
            // Among several contacts with one address, prefers the one that signs alerts today.
            let Some(found) = of_address.min_by_key(|other| (!other.contact.verified, !is_sound(&other.contact)))
            else {
                added.push(contact);
                continue;
            };
            named_positions.push(found.position);
            let kept_secret = with_named(&found.contact, contact, ExplicitOptions { secret: false, ..*named });
            let merged = match !named.secret && is_sound(&kept_secret) {
                true => {
                    report.kept_secrets.extend(contact.secret().map(|_| kept_secret.clone()));
                    kept_secret
                }
                false => with_named(&found.contact, contact, ExplicitOptions { secret: true, ..*named }),
            };
            self.set_options(found, &merged);
            if !found.contact.verified {
                self.set_verified(found.position);
            }
            self.set_enabled(found.position);
            self.change_filter(found.position, filter);
        }
        let mut position = 0;
        self.elements.retain(|_| {
            let is_named = named_positions.contains(&position);
            let readable = stored.iter().find(|stored| stored.position == position);
            position += 1;
            is_named || report.keeps(readable, unnamed)
        });
        self.check_count(added.len(), contacts_max)?;
        added.into_iter().for_each(|contact| self.push(contact));
        Ok(report)
    }
}

/// The stored contact with the named options of `other`.
fn with_named(stored: &Contact, other: &Contact, named: ExplicitOptions) -> Contact {
    let (Some(before), Some(after)) = (stored.options(), other.options()) else { return stored.clone() };
    stored.clone().with_options(ContactOptions {
        secret: if named.secret { after } else { before }.secret.clone(),
        format: if named.format { after } else { before }.format.clone(),
        headers: if named.headers { after } else { before }.headers.clone(),
    })
}

impl MergeReport {
    /// Whether an element that was not named stays; `element` is `None` for an unreadable one. Notes the ones that
    /// stay.
    fn keeps(&mut self, element: Option<&StoredContact>, unnamed: UnlistedPolicy) -> bool {
        let origin = element.map(|stored| stored.origin);
        let stays = match unnamed {
            UnlistedPolicy::KeepAll => true,
            UnlistedPolicy::RemoveOperators => origin != Some(ContactOrigin::Operator),
            UnlistedPolicy::RemoveAll => false,
        };
        match element {
            Some(stored) if stays && stored.origin == ContactOrigin::Subject => {
                self.kept_of_subject.push(stored.contact.clone());
            }
            None if stays => self.kept_unreadable += 1,
            _ => {}
        }
        stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    const CONTACTS_MAX: usize = 16;

    fn array(stored: &str) -> ContactArray {
        ContactArray::parse(stored.as_bytes()).expect("an array")
    }

    fn read_all(stored: &str) -> Vec<Contact> {
        serde_json::from_str(stored).expect("contacts")
    }

    fn merged(stored: &str, named: &[ContactSpec], unnamed: UnlistedPolicy) -> String {
        let mut array = array(stored);
        let is_sound = |contact: &Contact| contact.address() != "https://broken.test/";
        array.merge(named, unnamed, CONTACTS_MAX, is_sound).expect("few enough");
        array.to_stored()
    }

    fn secret_of(contact: &Contact) -> &str {
        contact.secret().map_or("", Secret::reveal)
    }

    /// A contact whose secret was named, if it has one.
    fn named(contact: Contact) -> ContactSpec {
        ContactSpec {
            contact,
            named: ExplicitOptions { secret: true, ..ExplicitOptions::default() },
            filter: FilterChange::default(),
        }
    }

    /// A contact whose secret was generated.
    fn generated(contact: Contact) -> ContactSpec {
        ContactSpec { contact, named: ExplicitOptions::default(), filter: FilterChange::default() }
    }

    /// A nightly import must not drop a mute, an id, a note or a customer's consent.
    #[test]
    fn naming_contacts_again_keeps_what_is_known_of_them() {
        let main = r#"{"id":"main","channel":"email","address":"a@B.test","muted":true,"note":1e999}"#;
        let confirmed = r#"{"channel":"email","address":"own@b.test","verified":true}"#;
        let pending = r#"{"channel":"email","address":"new@b.test","verified":false}"#;
        let stored = format!(r#"[{main},{{"channel":"email","address":"old@b.test"}},7,{confirmed},{pending}]"#);
        let again = [named(Contact::email("a@b.test"))];
        let kept = merged(&stored, &again, UnlistedPolicy::RemoveOperators);
        assert_eq!(kept, format!("[{main},7,{confirmed},{pending}]"));
        assert_eq!(merged(&kept, &again, UnlistedPolicy::RemoveOperators), kept, "once more changes nothing");
        assert_eq!(merged(&stored, &again, UnlistedPolicy::RemoveAll), format!("[{main}]"));
        assert_eq!(merged(&stored, &again, UnlistedPolicy::KeepAll), stored);
        let merged_again = array(&stored).merge(&again, UnlistedPolicy::RemoveOperators, CONTACTS_MAX, |_| true);
        let report = merged_again.expect("few enough");
        let kept: Vec<&str> = report.kept_of_subject.iter().map(Contact::address).collect();
        assert_eq!((kept, report.kept_unreadable), (vec!["own@b.test", "new@b.test"], 1));
        // The operator vouches for a contact that was not confirmed.
        let both = [Contact::email("new@b.test"), Contact::email("first@b.test")];
        let both = both.map(named);
        let vouched = read_all(&merged(&stored, &both, UnlistedPolicy::RemoveAll));
        assert!(vouched.iter().all(|contact| contact.verified), "{vouched:?}");
        assert_eq!(vouched.iter().map(Contact::address).collect::<Vec<_>>(), ["new@b.test", "first@b.test"]);
    }

    /// An import that names thousands of contacts for a subject would create thousands of deliveries for each alert.
    /// Stored contacts may still be named again, changed and removed.
    #[test]
    fn no_more_contacts_are_stored_than_the_setting_allows() {
        let specs = |range: std::ops::Range<usize>| -> Vec<ContactSpec> {
            range.map(|number| named(Contact::email(&format!("{number}@b.test")))).collect()
        };
        let merge = |stored: &str, named: &[ContactSpec], unnamed| {
            let mut array = array(stored);
            array.merge(named, unnamed, 4, |_| true).map(|_| read_all(&array.to_stored()).len())
        };
        assert_eq!(merge("", &specs(0..4), UnlistedPolicy::KeepAll), Ok(4));
        assert_eq!(merge("", &specs(0..5), UnlistedPolicy::KeepAll), Err(TooManyContacts { contacts_max: 4 }));
        let stored = merged("", &specs(0..6), UnlistedPolicy::KeepAll);
        assert_eq!(merge(&stored, &specs(0..6), UnlistedPolicy::RemoveOperators), Ok(6));
        assert_eq!(merge(&stored, &specs(6..7), UnlistedPolicy::KeepAll), Err(TooManyContacts { contacts_max: 4 }));
        assert_eq!(merge(&stored, &specs(6..10), UnlistedPolicy::RemoveOperators), Ok(4));
    }

    /// A receiver checks signatures with the secret that it knows, so a generated one must not replace it.
    #[test]
    fn a_generated_secret_replaces_none_that_can_sign() {
        let hook = |url: &str, secret: &str| Contact::webhook(url, Secret::new(secret.to_owned()));
        let of = |url: &str, secret: &str| format!(r#"{{"channel":"webhook","url":"{url}","secret":"{secret}"}}"#);
        let (good, broken) = ("https://x.test/", "https://broken.test/");
        let stored = format!("[{},{}]", of(good, "old"), of(broken, "old"));
        let generated = [good, broken].map(|url| generated(hook(url, "made")));
        let expected = format!("[{},{}]", of(good, "old"), of(broken, "made"));
        assert_eq!(merged(&stored, &generated, UnlistedPolicy::RemoveOperators), expected);
        let explicit = [good, broken].map(|url| named(hook(url, "mine")));
        let expected = format!("[{},{}]", of(good, "mine"), of(broken, "mine"));
        assert_eq!(merged(&stored, &explicit, UnlistedPolicy::RemoveOperators), expected);
        // Of two contacts with one URL, the one that signs alerts keeps its secret.
        let twice = format!("[{},{}]", of(good, "cut off"), of(good, "old"));
        let mut array = array(&twice);
        let signs = |contact: &Contact| secret_of(contact) == "old";
        array.merge(&generated[..1], UnlistedPolicy::RemoveOperators, CONTACTS_MAX, signs).expect("few enough");
        assert_eq!(array.to_stored(), format!("[{}]", of(good, "old")));
        // A secret that was proposed through the API is not the one that the receiver checks with.
        let proposed = r#"{"channel":"webhook","url":"https://x.test/","secret":"new","verified":false}"#;
        let beside = format!("[{proposed},{}]", of(good, "old"));
        assert_eq!(merged(&beside, &generated[..1], UnlistedPolicy::RemoveOperators), beside);
    }
}
