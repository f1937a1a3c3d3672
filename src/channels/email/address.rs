//! Who a mail goes to: which addresses a mail can be written and sent to. Pure.
//!
//! An attempt only reads its recipient; whoever writes a contact down has it judged whole before, so that nobody waits for a mail
//! that can't exist. What the server knows of the mailbox is learnt by sending alone.

use lettre::message::Mailbox;
use lettre::{Address, Message};

use crate::channels::invalid_contact::InvalidContact;
use crate::contacts::contact::ascii_domain;

/// Why no mail can be sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// It is none.
    Malformed,
    /// It is one of those that lettre writes into a header and then can't read there: a quoted local part with a space, or an
    /// address literal as `a@[192.0.2.1]`.
    Unwritable,
}

/// What stands before the `@` of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalPart {
    /// ASCII without quotes: every mail server takes it.
    Plain,
    /// ASCII in quotes: one mailbox has many such names, and few servers know them.
    Quoted,
    /// Beyond ASCII: only a server with SMTPUTF8 (RFC 6531) takes it.
    BeyondAscii,
}

/// Judges whether a mail can be written to this address, and what stands before its `@`.
///
/// # Errors
///
/// [`AddressError`]
pub fn judge(text: &str) -> Result<LocalPart, AddressError> {
    let recipient = read(text).filter(|_| text.trim() == text).ok_or(AddressError::Malformed)?;
    let mailbox = Mailbox::new(None, recipient.clone());
    // lettre takes the envelope from the headers, so an address that it can't read there is no recipient.
    let written = Message::builder().from(mailbox.clone()).to(mailbox).body(String::new());
    written.map_err(|_| AddressError::Unwritable)?;
    Ok(match recipient.user() {
        local if !local.is_ascii() => LocalPart::BeyondAscii,
        local if local.contains('"') => LocalPart::Quoted,
        _ => LocalPart::Plain,
    })
}

/// RFC 5321 4.5.3.1.3: a path has 256 bytes with its brackets.
const BYTES_MAX: usize = 254;

/// Judges an address: whether a mail can be sent to it.
///
/// # Errors
///
/// [`InvalidContact`]
pub fn check(address: &str) -> Result<(), InvalidContact> {
    local_part(address).map(drop)
}

/// Judges an address that any mail server takes, whichever the operator has.
///
/// # Errors
///
/// As [`check`], and for more bytes than a path may have or a local part that few servers take.
pub fn check_public(address: &str) -> Result<(), InvalidContact> {
    if address.len() > BYTES_MAX {
        return Err(invalid(format!("has {} bytes, at most {BYTES_MAX} are allowed", address.len())));
    }
    match local_part(address)? {
        LocalPart::Plain => Ok(()),
        LocalPart::Quoted | LocalPart::BeyondAscii => Err(invalid(format!(
            "{address:?} has quotes or letters beyond ASCII before the @, which few mail servers take: only the operator can add it"
        ))),
    }
}

/// What an operator should know about an address that is legal.
#[must_use]
pub fn warning(address: &str) -> Option<String> {
    (judge(address) == Ok(LocalPart::BeyondAscii))
        .then(|| format!("{address} has letters beyond ASCII before the @: only a mail server with SMTPUTF8 takes it"))
}

fn local_part(address: &str) -> Result<LocalPart, InvalidContact> {
    judge(address).map_err(|error| {
        invalid(match error {
            AddressError::Malformed => format!("{address:?} is not an e-mail address"),
            AddressError::Unwritable => format!(
                "{address:?} can't be written to: spaces in a quoted local part, and address literals as [192.0.2.1], are not supported"
            ),
        })
    })
}

fn invalid(problem: String) -> InvalidContact {
    InvalidContact { field: "address", problem }
}

/// Reads a recipient. The domain is put into its ASCII form, so that only a non-ASCII local part asks the server for SMTPUTF8.
/// `None` when it is no address.
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

    /// An umlaut domain is an ordinary one in ASCII; most servers know no SMTPUTF8.
    #[test]
    fn recipients_are_read_or_refused() {
        let read = |text: &str| read(text).map(|address| address.to_string());
        assert_eq!(read(" bob@example.com "), Some("bob@example.com".into()));
        assert_eq!(read("bob@bücher.example"), Some("bob@xn--bcher-kva.example".into()));
        assert_eq!(read("jörg@example.com"), Some("jörg@example.com".into()));
        for bad in
            ["", "bob", "bob@", "@example.com", "a b@example.com", "bob@example.com\r\nDATA", "Bob <bob@example.com>"]
        {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    /// An address that is accepted and can't be written to is a contact that waits for ever.
    #[test]
    fn addresses_that_no_mail_can_be_written_to_are_told_from_malformed_ones() {
        use {AddressError::*, LocalPart::*};
        for (address, judged) in [
            ("bob@example.com", Ok(Plain)),
            ("bob@bücher.example", Ok(Plain)),
            ("o'hara+x_y.z@example.com", Ok(Plain)),
            ("bob@localhost", Ok(Plain)),
            ("jörg@example.com", Ok(BeyondAscii)),
            ("\"bob\"@example.com", Ok(Quoted)),
            ("\"b\\ob\"@example.com", Ok(Quoted)),
            ("\"b ob\"@example.com", Err(Unwritable)),
            ("bob@[192.0.2.1]", Err(Unwritable)),
            ("bob@[::1]", Err(Unwritable)),
            ("\"b\tob\"@example.com", Err(Malformed)),
            // Beyond ASCII, and without an ASCII form.
            ("bob@⒈com", Err(Malformed)),
            (" bob@example.com", Err(Malformed)),
            ("bob", Err(Malformed)),
        ] {
            assert_eq!(judge(address), judged, "{address}");
        }
    }

    /// An operator knows the own mail server; whoever types an address into a form does not, and waits for a mail in vain.
    #[test]
    fn addresses_are_judged_more_strictly_where_the_operator_did_not_write_them() {
        let fields = |address| {
            let field = |judged: Result<(), InvalidContact>| judged.map_err(|invalid| invalid.field);
            (field(check(address)), field(check_public(address)))
        };
        assert_eq!(fields("bob@bücher.example"), (Ok(()), Ok(())));
        for odd in ["jörg@example.com", "\"bob\"@example.com"] {
            assert_eq!(fields(odd), (Ok(()), Err("address")), "{odd}");
        }
        for bad in ["bob", "bob@[192.0.2.1]", "\"b ob\"@example.com", "bob@example.com "] {
            assert_eq!(fields(bad), (Err("address"), Err("address")), "{bad}");
        }
    }

    proptest! {
        /// Whatever is accepted can be written and keeps its meaning; nothing panics.
        #[test]
        fn any_text_is_judged(text in "\\PC{0,12}", local in "[a-zA-Zü\"\\\\ .@]{1,8}", domain in "[a-zA-Züｅ.\\-\\[\\]:0-9]{1,12}") {
            let _ = judge(&text);
            let address = format!("{local}@{domain}");
            if judge(&address).is_ok() {
                let recipient = read(&address).expect("it was judged");
                prop_assert_eq!(recipient.user(), local);
                prop_assert!(recipient.domain().is_ascii());
            }
        }
    }
}
