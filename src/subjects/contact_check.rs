//! Whether a contact can be reached at all, judged when it is written down. What an attempt decides (addresses inside the own
//! network, plain http) is left to the attempt.

use url::Url;

use crate::transport::secret::{BYTES_MAX, BYTES_MIN, SigningSecrets};
use crate::types::{Contact, Endpoint, Secret};

/// Why a contact is refused. Shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactFault {
    /// Not an absolute URL with a host.
    #[error("webhook URL {url:?} needs a scheme and a host, as https://example.com/hook")]
    Url {
        /// As given, unless it could hold a password.
        url: String,
    },
    /// Neither http nor https.
    #[error("webhook URL has scheme {scheme:?}, allowed are https and http")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// `user:password@` in the URL.
    #[error("webhook URL of {host:?} holds a user name or password, which is not allowed")]
    UserInfo {
        /// The host.
        host: String,
    },
    /// Not a webhook secret.
    #[error("webhook secret must be whsec_ and base64 of {BYTES_MIN} to {BYTES_MAX} bytes")]
    Secret,
    /// Not a mailbox.
    #[error("{address:?} is not an e-mail address")]
    Address {
        /// As given.
        address: String,
    },
}

/// Judges a contact by its form.
///
/// # Errors
///
/// The first [`ContactFault`].
pub fn check(contact: &Contact) -> Result<(), ContactFault> {
    match &contact.endpoint {
        Endpoint::Email { address } => check_address(address),
        Endpoint::Webhook { url, secret } => {
            check_url(url)?;
            check_secret(secret.reveal())
        }
    }
}

/// Judges an e-mail address.
///
/// # Errors
///
/// [`ContactFault::Address`].
pub fn check_address(address: &str) -> Result<(), ContactFault> {
    match address.parse::<lettre::Address>() {
        Ok(_) => Ok(()),
        Err(_) => Err(ContactFault::Address { address: address.to_owned() }),
    }
}

/// Judges a receiver's URL.
///
/// # Errors
///
/// [`ContactFault::Url`], [`ContactFault::Scheme`] or [`ContactFault::UserInfo`].
pub fn check_url(text: &str) -> Result<(), ContactFault> {
    let shown = if text.contains('@') { "***" } else { text };
    let broken = || ContactFault::Url { url: shown.to_owned() };
    let url = Url::parse(text).map_err(|_| broken())?;
    // `example.com:8080/hook` parses as the scheme `example.com`: without `//` nobody meant a scheme.
    if !text[url.scheme().len().min(text.len())..].starts_with("://") {
        return Err(broken());
    }
    if !matches!(url.scheme(), "https" | "http") {
        return Err(ContactFault::Scheme { scheme: url.scheme().to_owned() });
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(broken)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ContactFault::UserInfo { host: host.to_owned() });
    }
    Ok(())
}

/// Judges a secret, or several separated by spaces while one is being rotated.
///
/// # Errors
///
/// [`ContactFault::Secret`].
pub fn check_secret(secrets: &str) -> Result<(), ContactFault> {
    SigningSecrets::parse(&Secret::new(secrets.to_owned())).map(drop).map_err(|_| ContactFault::Secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    fn secret(bytes: usize) -> String {
        format!("whsec_{}", STANDARD.encode(vec![7; bytes]))
    }

    /// A URL that only looks like one fails at every attempt, long after somebody could have mended it.
    #[test]
    fn a_url_without_scheme_or_host_is_refused() {
        for bad in [
            "example.com/hook",
            "example.com:8080/hook",
            "//example.com",
            "/hook",
            "https:",
            "https://",
            "",
            "ftp://x.test/",
            "https://u:p@x.test/",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
        for good in ["https://example.com/hook?a=1", "http://127.0.0.1:9000/", "https://[::1]/x", "HTTPS://EXAMPLE.COM"]
        {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
    }

    /// The signing library takes a one-byte secret without complaint, so we must not.
    #[test]
    fn secrets_are_judged_by_prefix_alphabet_and_length() {
        for good in [secret(24), secret(64), format!("{} {}", secret(32), secret(24))] {
            assert_eq!(check_secret(&good), Ok(()), "{good}");
        }
        for bad in [
            secret(23),
            secret(65),
            String::new(),
            "whsec_".to_owned(),
            "whsec_not base64!".to_owned(),
            secret(32)[6..].to_owned(),
        ] {
            assert!(check_secret(&bad).is_err(), "{bad}");
        }
    }
}
