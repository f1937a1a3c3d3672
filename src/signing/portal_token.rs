//! Tokens of the portal: what its visitor may see and do, as text with a signature (HMAC-SHA256). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::types::text_form::text_enum;
use crate::types::{Locale, Metric, Subject, UnixMs};

text_enum! {
    /// What a visitor of the portal may do.
    pub enum PortalRight {
        /// See usage, history, alerts and the subject's own contacts.
        View = "view",
        /// Change the subject's own contacts, and send them test messages.
        Contacts = "contacts",
    }
}

/// What a token says. The names are short, because URLs in chats are bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortalClaims {
    /// Whose portal it opens.
    #[serde(rename = "s")]
    pub subject: Subject,
    /// Tells tokens apart.
    #[serde(rename = "i")]
    pub id: String,
    /// When it was made, server time. A revocation ends the tokens that were made before.
    #[serde(rename = "a")]
    pub issued_at: UnixMs,
    /// When it ends, server time.
    #[serde(rename = "e")]
    pub expires_at: UnixMs,
    /// The most that it permits.
    #[serde(rename = "r")]
    pub right: PortalRight,
    /// The metrics that are shown; `None` for all.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<Metric>>,
    /// The language of the pages; `None` for that of the subject or of the browser.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Locale>,
    /// The address that the pages link back to.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
}

impl PortalClaims {
    /// The token. Equal claims have equal tokens.
    pub fn signed(&self, key: &str) -> String {
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("texts and numbers are JSON"));
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&hmac_key(key), text.as_bytes()));
        format!("{text}.{signature}")
    }
}

/// A token that can be read. Its signature is not verified yet, so nothing of it may be shown; it may decide the
/// language of an error.
pub struct UnverifiedToken<'a> {
    text: &'a str,
    signature: Vec<u8>,
    pub(super) claims: PortalClaims,
}

impl<'a> UnverifiedToken<'a> {
    /// `None` for a text that is no token, such as one that was cut.
    pub fn read(token: &'a str) -> Option<Self> {
        let (text, signature) = token.split_once('.')?;
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        Some(Self { text, signature: URL_SAFE_NO_PAD.decode(signature).ok()?, claims })
    }

    /// The language of the pages, if the token names one. It only chooses among texts, so anybody may set it.
    pub const fn locale(&self) -> Option<&Locale> {
        self.claims.locale.as_ref()
    }

    /// Compares the signature in constant time.
    pub(super) fn is_signed_with(&self, key: &str) -> bool {
        hmac::verify(&hmac_key(key), self.text.as_bytes(), &self.signature).is_ok()
    }
}

fn hmac_key(key: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(subject: &str) -> PortalClaims {
        PortalClaims {
            subject: subject.parse().expect("legal"),
            id: "one".to_owned(),
            issued_at: UnixMs(1),
            expires_at: UnixMs(2),
            right: PortalRight::View,
            metrics: None,
            locale: None,
            return_url: None,
        }
    }

    proptest! {
        /// One changed or missing character must open nothing, and a retried message must bear the same link.
        #[test]
        fn a_token_is_valid_whole_and_with_its_key_alone(name in "[^\\p{Cc}]{1,60}", at in 0..100_usize, other in "[A-Za-z0-9_.-]") {
            let claims = claims(&name);
            let token = claims.signed("k");
            prop_assert_eq!(&token, &claims.signed("k"));
            let read = UnverifiedToken::read(&token).expect("a token");
            prop_assert!(read.is_signed_with("k") && !read.is_signed_with("l"));
            prop_assert_eq!(&read.claims, &claims);
            let at = at % token.len();
            let is_valid = |token: &str| UnverifiedToken::read(token).is_some_and(|token| token.is_signed_with("k"));
            prop_assert!(!is_valid(&token[..at]));
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            prop_assert!(changed == token || !is_valid(&changed));
        }

        /// Anybody may send anything.
        #[test]
        fn any_text_is_judged(token in "\\PC{0,60}|[A-Za-z0-9_-]{0,30}\\.[A-Za-z0-9_-]{0,43}") {
            prop_assert!(UnverifiedToken::read(&token).is_none_or(|token| !token.is_signed_with("k")));
        }
    }
}
