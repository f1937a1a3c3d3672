//! Unsubscribing: a link in each email that needs no stored state, and the action of its button.
//!
//! The link contains subject and contact, signed with a key of the deployment (HMAC-SHA256). The signature also covers
//! the address, so a link is invalid for another address that later gets the same id. Mail software opens links and
//! providers press buttons (RFC 8058), so a link is valid forever and can be used repeatedly.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::{VerificationError, VerificationService};
use crate::contacts::{Contact, ContactArray};
use crate::redis_client::Partition;
use crate::signing::stored_key;
use crate::types::{ContactId, Mute, ONCE_A_MINUTE, Subject};

/// The reason of such a mute, as operators see it.
const REASON: &str = "unsubscribed by the link of a mail";

/// The contact that a link mutes.
#[derive(Debug, PartialEq, Eq)]
struct UnsubscribeToken {
    subject: Subject,
    contact: ContactId,
    signature: Vec<u8>,
}

impl VerificationService {
    /// Mutes the contact of a link, unless an earlier use did. Returns whether the contact exists: the link may be
    /// forged, or its contact gone. Repeatable.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. The link stays valid.
    pub async fn unsubscribe(&self, token: &str) -> Result<bool, VerificationError> {
        let Some(token) = read(token) else { return Ok(false) };
        let key = self.unsubscribe_key().await?;
        let edit = |array: &mut ContactArray| {
            let mut contacts = array.contacts().into_iter().map(|stored| stored.contact);
            let is_meant = |contact: &Contact| contact.id == token.contact && token.is_of(&key, contact);
            let Some(contact) = contacts.find(is_meant) else { return Ok(false) };
            // A permanent mute keeps its reason; a temporary one becomes permanent.
            if contact.mute.is_none_or(|mute| mute.until.is_some()) {
                let mute = Mute { until: None, reason: Some(REASON.to_owned()) };
                array.set_mute(&token.contact, Some(&mute));
            }
            Ok(true)
        };
        let is_muted = self.edit(&token.subject, edit).await?;
        if is_muted {
            let UnsubscribeToken { subject, contact, .. } = &token;
            tracing::info!(%subject, %contact, "contact has unsubscribed and is muted");
        } else {
            // Everybody may post to this path.
            tracing::info!(name: ONCE_A_MINUTE, "somebody used an unsubscribe link that is invalid or whose contact no longer exists");
        }
        Ok(is_muted)
    }

    /// The key that signs links.
    pub(super) async fn unsubscribe_key(&self) -> Result<hmac::Key, VerificationError> {
        let Partition { client, keys } = self.partitions.first();
        let stored = stored_key(client, &keys.unsubscribe_key()).await?;
        Ok(hmac::Key::new(hmac::HMAC_SHA256, stored.as_bytes()))
    }
}

/// The signed text: each part preceded by its length, so that different contacts sign different texts.
fn signed_text(subject: &Subject, contact: &Contact) -> Vec<u8> {
    let address = contact.normalized_address();
    let parts = ["unsubscribe", subject.as_str(), contact.id.as_str(), contact.channel().as_str(), &address];
    parts.into_iter().flat_map(|part| [&(part.len() as u64).to_be_bytes(), part.as_bytes()].concat()).collect()
}

/// The token of the link with which this contact of the subject mutes itself.
pub(super) fn write(key: &hmac::Key, subject: &Subject, contact: &Contact) -> String {
    let signature = hmac::sign(key, &signed_text(subject, contact));
    let parts = [subject.as_str().as_bytes(), contact.id.as_str().as_bytes(), signature.as_ref()];
    parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

/// Parses a token. The signature decides whether it is genuine.
fn read(token: &str) -> Option<UnsubscribeToken> {
    let parts: Option<Vec<Vec<u8>>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).ok()).collect();
    let [subject, contact, signature] = <[Vec<u8>; 3]>::try_from(parts?).ok()?;
    let subject = Subject::parse(&subject).ok()?;
    let contact = ContactId::from_stored(std::str::from_utf8(&contact).ok()?);
    Some(UnsubscribeToken { subject, contact, signature })
}

impl UnsubscribeToken {
    /// Whether the link was made for this contact, compared in constant time.
    fn is_of(&self, key: &hmac::Key, contact: &Contact) -> bool {
        hmac::verify(key, &signed_text(&self.subject, contact), &self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes())
    }

    fn subject(name: &str) -> Subject {
        Subject::parse(name.as_bytes()).expect("legal")
    }

    /// The owner of one link must not be able to make another one, nor use it for a later address.
    #[test]
    fn a_link_is_of_one_contact_alone() {
        let contact = Contact::email("a@b.test");
        let token = read(&write(&key("k"), &subject("alice"), &contact)).expect("a token");
        assert!(token.is_of(&key("k"), &contact) && token.is_of(&key("k"), &Contact::email("a@B.test")));
        assert!(!token.is_of(&key("other"), &contact));
        let other = Contact { id: contact.id.clone(), ..Contact::email("other@b.test") };
        assert!(!token.is_of(&key("k"), &other), "another address under the same id");
        assert!(!UnsubscribeToken { subject: subject("bob"), ..token }.is_of(&key("k"), &contact));
    }

    proptest! {
        /// Anybody may send anything.
        #[test]
        fn any_token_is_judged(token in "\\PC{0,60}", parts in "[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,50}") {
            let forged = |text: &str| read(text).is_some_and(|token| token.is_of(&key("k"), &Contact::email("a@b.test")));
            prop_assert!(!forged(&token) && !forged(&parts));
        }

        /// An encoded token decodes to the same.
        #[test]
        fn tokens_round_trip(name in "[^\\p{Cc}]{1,60}") {
            let contact = Contact::email("a@b.test");
            let token = read(&write(&key("k"), &subject(&name), &contact)).expect("a token");
            prop_assert_eq!((token.subject.as_str(), &token.contact), (name.as_str(), &contact.id));
        }
    }
}
