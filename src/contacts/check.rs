//! Whether a contact can be reached at all, judged when it is written down. What an attempt decides (addresses inside the own
//! network, plain http) is left to the attempt.

use url::Url;

use crate::contacts::{Contact, Endpoint};
use crate::transport::recipient::{self, AddressFault, LocalPart};
use crate::transport::secret::{BYTES_MAX, BYTES_MIN, SigningSecrets};
use crate::types::Secret;

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
    /// A mailbox to which no mail can be written.
    #[error(
        "{address:?} can't be written to: spaces in a quoted local part, and address literals as [192.0.2.1], are not supported"
    )]
    Unwritable {
        /// As given.
        address: String,
    },
    /// A mailbox that not every mail server takes, named by somebody who can't know ours.
    #[error(
        "{address:?} has quotes or letters beyond ASCII before the @, which few mail servers take: only the operator can add it"
    )]
    LocalPart {
        /// As given.
        address: String,
    },
}

impl ContactFault {
    /// The field of the contact that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Url { .. } | Self::Scheme { .. } | Self::UserInfo { .. } => "url",
            Self::Secret => "secret",
            Self::Address { .. } | Self::Unwritable { .. } | Self::LocalPart { .. } => "address",
        }
    }
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

/// Judges an e-mail address: whether a mail can be sent to it.
///
/// # Errors
///
/// [`ContactFault::Address`] or [`ContactFault::Unwritable`].
pub fn check_address(address: &str) -> Result<(), ContactFault> {
    local_part(address).map(drop)
}

/// Judges an e-mail address that any mail server takes, whichever the operator has.
///
/// # Errors
///
/// As [`check_address`], and [`ContactFault::LocalPart`].
pub fn check_plain_address(address: &str) -> Result<(), ContactFault> {
    match local_part(address)? {
        LocalPart::Plain => Ok(()),
        LocalPart::Quoted | LocalPart::BeyondAscii => Err(ContactFault::LocalPart { address: address.to_owned() }),
    }
}

/// Whether only a mail server with SMTPUTF8 takes mail for this address.
#[must_use]
pub fn needs_smtputf8(address: &str) -> bool {
    recipient::judge(address) == Ok(LocalPart::BeyondAscii)
}

fn local_part(address: &str) -> Result<LocalPart, ContactFault> {
    recipient::judge(address).map_err(|fault| match fault {
        AddressFault::Malformed => ContactFault::Address { address: address.to_owned() },
        AddressFault::Unwritable => ContactFault::Unwritable { address: address.to_owned() },
    })
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

    /// An operator knows the own mail server; whoever types an address into a form does not, and waits for a mail in vain.
    #[test]
    fn addresses_are_judged_more_strictly_where_the_operator_did_not_write_them() {
        let fields = |address| {
            let field = |judged: Result<(), ContactFault>| judged.map_err(|fault| fault.field());
            (field(check_address(address)), field(check_plain_address(address)))
        };
        assert_eq!(fields("bob@bücher.example"), (Ok(()), Ok(())));
        for odd in ["jörg@example.com", "\"bob\"@example.com"] {
            assert_eq!(fields(odd), (Ok(()), Err("address")), "{odd}");
        }
        for bad in ["bob", "bob@[192.0.2.1]", "\"b ob\"@example.com", "bob@example.com "] {
            assert_eq!(fields(bad), (Err("address"), Err("address")), "{bad}");
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
