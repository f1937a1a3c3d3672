//! Email addresses: which ones an email can be written and sent to. Pure.
//!
//! A new contact is judged completely, so that nobody waits for an email that can't exist; an attempt only parses its
//! recipient. Whether the mailbox exists is only known after sending.

use lettre::message::Mailbox;
use lettre::{Address, Message};

use crate::channels::invalid_contact::InvalidContact;
use crate::contacts::mail_domain::ascii_domain;

/// RFC 5321 4.5.3.1.3: a path has 256 bytes with its brackets.
const BYTES_MAX: usize = 254;

/// Judges whether an email can be written and sent to an address.
pub fn check(address: &str) -> Result<(), InvalidContact> {
    parse(address).map(drop)
}

/// Judges an address that must work with any mail server, not only the operator's.
///
/// # Errors
///
/// Like [`check`], and also for an address with more bytes than a path may have or with a local part that few servers
/// accept: in quotes (one mailbox then has many spellings), or beyond ASCII.
pub fn check_public(address: &str) -> Result<(), InvalidContact> {
    if address.len() > BYTES_MAX {
        return Err(invalid(format!("has {} bytes, at most {BYTES_MAX} are allowed", address.len())));
    }
    let recipient = parse(address)?;
    match recipient.user().is_ascii() && !recipient.user().contains('"') {
        true => Ok(()),
        false => Err(invalid(format!(
            "{address:?} has quotes or letters beyond ASCII before the @, which few mail servers accept: only the operator can add it"
        ))),
    }
}

/// The warning about an address that is legal but unwise. A local part beyond ASCII requires SMTPUTF8 (RFC 6531).
pub fn warning(address: &str) -> Option<String> {
    parse(address).is_ok_and(|recipient| !recipient.user().is_ascii()).then(|| {
        format!("{address} has letters beyond ASCII before the @: only a mail server with SMTPUTF8 accepts it")
    })
}

fn parse(address: &str) -> Result<Address, InvalidContact> {
    let recipient = read(address).filter(|_| address.trim() == address);
    let recipient = recipient.ok_or_else(|| invalid(not_an_address(address)))?;
    let mailbox = Mailbox::new(None, recipient.clone());
    // lettre takes the envelope from the headers, and can't parse some addresses there that it can write.
    match Message::builder().from(mailbox.clone()).to(mailbox).body(String::new()) {
        Ok(_) => Ok(recipient),
        Err(_) => Err(invalid(format!(
            "{address:?} can't be used: spaces in a quoted local part, and address literals such as [192.0.2.1], are not supported"
        ))),
    }
}

/// Somebody may enter the URL of a chat for the wrong channel, and such a URL is as good as a secret.
fn not_an_address(text: &str) -> String {
    match text.contains("://") || !text.contains('@') && text.contains(['/', '\\']) {
        true => "a URL is not an email address".to_owned(),
        false => format!("{text:?} is not an email address"),
    }
}

fn invalid(problem: String) -> InvalidContact {
    InvalidContact { field: "address", problem }
}

/// Parses a recipient. The domain is converted to ASCII, so that only a non-ASCII local part requires SMTPUTF8. `None`
/// if it is not an address.
pub(super) fn read(text: &str) -> Option<Address> {
    // A control character could add an SMTP command; no valid address has one.
    if text.chars().any(char::is_control) {
        return None;
    }
    with_ascii_domain(&text.trim().parse().ok()?)
}

/// The address with a domain that every server accepts.
pub(super) fn with_ascii_domain(address: &Address) -> Option<Address> {
    if address.domain().is_ascii() {
        return Some(address.clone());
    }
    Address::new(address.user(), ascii_domain(address.domain())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A contact whose address is accepted but can't be written to would wait forever. An operator knows their own mail
    /// server, but a user who enters an address in a form does not, and would wait for an email in vain.
    #[test]
    fn addresses_are_judged_more_strictly_where_the_operator_did_not_write_them() {
        for plain in ["bob@example.com", "bob@bücher.example", "o'hara+x_y.z@example.com", "bob@localhost"] {
            assert!(check(plain).is_ok() && check_public(plain).is_ok() && warning(plain).is_none(), "{plain}");
        }
        for odd in ["jörg@example.com", "\"bob\"@example.com", "\"b\\ob\"@example.com"] {
            assert!(check(odd).is_ok() && check_public(odd).is_err(), "{odd}");
            assert_eq!(warning(odd).is_some(), !odd.is_ascii(), "{odd}");
        }
        let problem = |address: &str| check(address).and(check_public(address)).expect_err(address).problem;
        for unwritable in ["\"b ob\"@example.com", "bob@[192.0.2.1]", "bob@[::1]"] {
            assert!(problem(unwritable).contains("can't be used"), "{unwritable}");
        }
        // The last but one is beyond ASCII and has no ASCII form.
        for malformed in ["\"b\tob\"@example.com", " bob@example.com", "bob@example.com ", "bob", "bob@⒈com", ""] {
            assert!(problem(malformed).contains("is not an email address"), "{malformed}");
        }
        for url in ["https://hooks.slack.com/SECRET", "hooks.slack.com/SECRET"] {
            assert_eq!(problem(url), "a URL is not an email address");
        }
        assert!(read(" bob@example.com ").is_some(), "an attempt leaves white space alone");
    }

    proptest! {
        /// An accepted address can be written and keeps its meaning; nothing panics.
        #[test]
        fn any_text_is_judged(text in "\\PC{0,12}", local in "[a-zA-Zü\"\\\\ .@]{1,8}", domain in "[a-zA-Züｅ.\\-\\[\\]:0-9]{1,12}") {
            let _ = parse(&text);
            let address = format!("{local}@{domain}");
            if parse(&address).is_ok() {
                let recipient = read(&address).expect("it was judged");
                prop_assert_eq!(recipient.user(), local);
                prop_assert!(recipient.domain().is_ascii());
            }
        }
    }
}
