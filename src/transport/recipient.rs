//! Who a mail goes to: which addresses a mail can be written and sent to. Pure.
//!
//! An attempt only reads its recipient; whoever writes a contact down has it judged whole before, so that nobody waits for a mail
//! that can't exist. What the server knows of the mailbox is learnt by sending alone.

use lettre::message::Mailbox;
use lettre::{Address, Message};

use crate::contacts::contact::ascii_domain;

/// Why no mail can be sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFault {
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
/// [`AddressFault`]
pub fn judge(text: &str) -> Result<LocalPart, AddressFault> {
    let recipient = read(text).filter(|_| text.trim() == text).ok_or(AddressFault::Malformed)?;
    let mailbox = Mailbox::new(None, recipient.clone());
    // lettre takes the envelope from the headers, so an address that it can't read there is no recipient.
    let written = Message::builder().from(mailbox.clone()).to(mailbox).body(String::new());
    written.map_err(|_| AddressFault::Unwritable)?;
    Ok(match recipient.user() {
        local if !local.is_ascii() => LocalPart::BeyondAscii,
        local if local.contains('"') => LocalPart::Quoted,
        _ => LocalPart::Plain,
    })
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
        use {AddressFault::*, LocalPart::*};
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
