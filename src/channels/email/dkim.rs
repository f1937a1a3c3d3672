//! DKIM (RFC 6376): signs emails, so that receivers can verify their domain.
//!
//! Reads the key once. The signature covers the headers that providers require, including those of one-click
//! unsubscribing (RFC 8058, 3.1).

use std::path::Path;

use lettre::message::dkim::{
    DkimCanonicalization, DkimCanonicalizationType, DkimConfig, DkimSigningAlgorithm, DkimSigningKey,
};
use lettre::message::header::HeaderName;
use rsa::RsaPrivateKey;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey, LineEnding};
use rsa::pkcs8::DecodePrivateKey;
use rsa::traits::PublicKeyParts;

use super::config::DkimSettings;
use crate::channels::error::ChannelError;

/// RFC 8301: a shorter key must not sign.
const KEY_BITS_MIN: usize = 1024;
/// The signed headers. A header that an email does not have is signed as absent, so that nobody can add it.
/// `Content-Type` is not signed: lettre keeps that of a multipart email separately.
const SIGNED: &str = "From To Subject Date Message-ID MIME-Version Auto-Submitted \
    List-Unsubscribe List-Unsubscribe-Post Reply-To";

/// Reads the key, and prepares the signing of emails.
///
/// # Errors
///
/// [`ChannelError`], which names the setting and what is allowed, never the key.
pub(super) fn signer(settings: &DkimSettings) -> Result<DkimConfig, ChannelError> {
    let DkimSettings { domain, selector, key_file } = settings;
    for (setting, name) in [("email.dkim.domain", domain), ("email.dkim.selector", selector)] {
        if !is_domain(name) {
            let problem = format_args!("{name:?} is not a DNS name such as \"example.com\"");
            return Err(ChannelError::of_setting(setting, problem));
        }
    }
    let key = read_key(key_file)?;
    let canonicalization =
        DkimCanonicalization { header: DkimCanonicalizationType::Relaxed, body: DkimCanonicalizationType::Relaxed };
    let headers = SIGNED.split(' ').map(HeaderName::new_from_ascii_str).collect();
    Ok(DkimConfig::new(selector.clone(), domain.clone(), key, headers, canonicalization))
}

/// Whether the name consists of labels with letters, digits, hyphens and underscores, separated by dots.
fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The warning about a signature of another domain than the sender's, which DMARC does not accept. Domains of one
/// organization share their last labels, mostly two; an exact check would need the list of public suffixes.
pub(super) fn unaligned_warning(settings: &DkimSettings, from: &str) -> Option<String> {
    let organization = |domain: &str| domain.rsplit('.').take(2).map(str::to_ascii_lowercase).collect::<Vec<_>>();
    let domain = &settings.domain;
    (organization(domain) != organization(from)).then(|| {
        format!(
            "email.dkim.domain is {domain:?} and email.from has {from:?}: receivers that check DMARC ignore the \
             signature, sign with the domain of email.from or one above it"
        )
    })
}

fn read_key(path: &Path) -> Result<DkimSigningKey, ChannelError> {
    let setting = "email.dkim.key_file";
    let wrong = |problem: &str| ChannelError::of_setting(setting, format_args!("{path:?} {problem}"));
    let text = std::fs::read_to_string(path).map_err(|source| ChannelError::unreadable(setting, path, source))?;
    let key = RsaPrivateKey::from_pkcs8_pem(&text).ok().or_else(|| RsaPrivateKey::from_pkcs1_pem(&text).ok());
    let no_key = || wrong("holds no RSA key in PEM: `openssl genrsa 2048` writes one");
    let key = key.ok_or_else(no_key)?;
    let bits = key.n().bits();
    if bits < KEY_BITS_MIN {
        return Err(wrong(&format!("holds a key of {bits} bits, allowed are {KEY_BITS_MIN} or more, better 2048")));
    }
    let text = key.to_pkcs1_pem(LineEnding::LF).map_err(|_| no_key())?;
    DkimSigningKey::new(&text, DkimSigningAlgorithm::Rsa).map_err(|_| no_key())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the domain of a provider or a misspelled one, every email would be signed, and no signature would be valid.
    #[test]
    fn a_signature_for_another_domain_than_the_senders_is_warned_of() {
        let warning = |domain: &str, from: &str| {
            let domain = domain.to_owned();
            unaligned_warning(&DkimSettings { domain, selector: "q1".to_owned(), key_file: "key.pem".into() }, from)
        };
        assert_eq!(warning("example.com", "example.com"), None);
        assert_eq!(warning("Example.com", "alerts.example.com"), None);
        assert_eq!(warning("mail.example.com", "example.com"), None);
        let told = warning("provider.com", "example.com").expect("another organization");
        assert!(
            told.starts_with("email.dkim.domain is \"provider.com\" and email.from has \"example.com\": "),
            "{told}"
        );
    }
}
