//! Who a mail goes to: which addresses a mail can be written and sent to. Pure.
//!
//! An attempt only reads its recipient; whoever writes a contact down has it judged whole before, so that nobody waits
//! for a mail that can't exist. What the server knows of the mailbox is learnt by sending alone.

use lettre::message::Mailbox;
use lettre::{Address, Message};

use crate::channels::invalid_contact::InvalidContact;
use crate::contacts::mail_domain::ascii_domain;

/// RFC 5321 4.5.3.1.3: a path has 256 bytes with its brackets.
const BYTES_MAX: usize = 254;

/// Judges an address: whether a mail can be written and sent to it.
pub fn check(address: &str) -> Result<(), InvalidContact> {
    parse(address).map(drop)
}

/// Judges an address that any mail server takes, whichever the operator has.
///
/// # Errors
///
/// As [`check`], and for more bytes than a path may have or a local part that few servers take: in quotes (one mailbox
/// has many such names), or beyond ASCII.
pub fn check_public(address: &str) -> Result<(), InvalidContact> {
    if address.len() > BYTES_MAX {
        return Err(invalid(format!("has {} bytes, at most {BYTES_MAX} are allowed", address.len())));
    }
    let recipient = parse(address)?;
    match recipient.user().is_ascii() && !recipient.user().contains('"') {
        true => Ok(()),
        false => Err(invalid(format!(
            "{address:?} has quotes or letters beyond ASCII before the @, which few mail servers take: only the operator can add it"
        ))),
    }
}

/// What an operator should know about an address that is legal. Beyond ASCII, a local part asks the server for SMTPUTF8
/// (RFC 6531).
pub fn warning(address: &str) -> Option<String> {
    parse(address)
        .is_ok_and(|recipient| !recipient.user().is_ascii())
        .then(|| format!("{address} has letters beyond ASCII before the @: only a mail server with SMTPUTF8 takes it"))
}

fn parse(address: &str) -> Result<Address, InvalidContact> {
    let recipient = read(address).filter(|_| address.trim() == address);
    let recipient = recipient.ok_or_else(|| invalid(not_an_address(address)))?;
    let mailbox = Mailbox::new(None, recipient.clone());
    // lettre takes the envelope from the headers, and can't read there some that it writes.
    match Message::builder().from(mailbox.clone()).to(mailbox).body(String::new()) {
        Ok(_) => Ok(recipient),
        Err(_) => Err(invalid(format!(
            "{address:?} can't be written to: spaces in a quoted local part, and address literals as [192.0.2.1], are not supported"
        ))),
    }
}

/// The URL of a chat, which is as good as a secret, may stand where somebody has taken the wrong channel.
fn not_an_address(text: &str) -> String {
    match text.contains("://") || !text.contains('@') && text.contains(['/', '\\']) {
        true => "a URL is not an e-mail address".to_owned(),
        false => format!("{text:?} is not an e-mail address"),
    }
}

fn invalid(problem: String) -> InvalidContact {
    InvalidContact { field: "address", problem }
}

/// Reads a recipient. The domain is put into its ASCII form, so that only a non-ASCII local part asks the server for
/// SMTPUTF8. `None` when it is no address.
pub(super) fn read(text: &str) -> Option<Address> {
    // A control character would be a second SMTP command; an address that has one is no address.
    if text.chars().any(char::is_control) {
        return None;
    }
    with_ascii_domain(&text.trim().parse().ok()?)
}

/// The address with a domain that every server knows.
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

    /// An address that is accepted and can't be written to is a contact that waits for ever. An operator knows the own
    /// mail server; whoever types an address into a form does not, and waits for a mail in vain.
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
            assert!(problem(unwritable).contains("can't be written to"), "{unwritable}");
        }
        // The last but one is beyond ASCII, and without an ASCII form.
        for malformed in ["\"b\tob\"@example.com", " bob@example.com", "bob@example.com ", "bob", "bob@⒈com", ""] {
            assert!(problem(malformed).contains("is not an e-mail address"), "{malformed}");
        }
        for url in ["https://hooks.slack.com/SECRET", "hooks.slack.com/SECRET"] {
            assert_eq!(problem(url), "a URL is not an e-mail address");
        }
        assert!(read(" bob@example.com ").is_some(), "an attempt leaves white space alone");
    }

    proptest! {
        /// Whatever is accepted can be written and keeps its meaning; nothing panics.
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
