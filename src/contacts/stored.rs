//! The field `contacts` of `quota_subject:<subject>`: a JSON array. Reads and writes the field, never Redis itself.

use super::Contact;

/// The field that holds the contacts, a JSON array.
pub const CONTACTS: &str = "contacts";

/// The JSON array, secrets included.
#[must_use]
pub fn write_contacts(contacts: &[Contact]) -> String {
    serde_json::to_string(contacts).expect("contacts hold nothing but text, which JSON can write")
}

/// Reads the field.
///
/// # Errors
///
/// A sentence that shows no secret.
pub fn parse_contacts(json: &[u8]) -> Result<Vec<Contact>, String> {
    serde_json::from_slice(json).map_err(|error| {
        // The text of a syntax error names only line and column; that of a wrong value could show a part of a secret.
        match error.classify() {
            serde_json::error::Category::Data => {
                format!("not a JSON array of contacts, at column {}: {}", error.column(), what_of(&error))
            }
            _ => format!("not JSON, at line {} column {}", error.line(), error.column()),
        }
    })
}

/// The message without its place, unless it quotes the text: then a secret could be among it.
fn what_of(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    if what.starts_with("invalid") { "a value of the wrong type".to_owned() } else { what.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An error about contacts goes to the log: a secret must not go with it.
    #[test]
    fn an_unreadable_contact_shows_no_secret() {
        for json in [
            r#"[{"channel":"webhook","url":"https://x.test","secret":["whsec_topsecret"]}]"#,
            r#"["whsec_topsecret"]"#,
            r#"[{"channel":"webhook","url":"https://x.test","secret":"whsec_topsecret]"#,
            r#""whsec_topsecret""#,
        ] {
            let error = parse_contacts(json.as_bytes()).expect_err(json);
            assert!(!error.contains("topsecret"), "{error}");
        }
    }

    /// An unknown channel names those that are allowed.
    #[test]
    fn an_unknown_channel_is_an_error() {
        assert!(parse_contacts(br#"[{"channel":"sms"}]"#).is_err());
    }

    proptest! {
        /// What is written is read back the same.
        #[test]
        fn contacts_round_trip(local in "[a-z]{1,9}") {
            let contacts = vec![Contact::email(&format!("{local}@b.test"))];
            prop_assert_eq!(parse_contacts(write_contacts(&contacts).as_bytes()), Ok(contacts));
        }

        /// The platform may write anything.
        #[test]
        fn bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_contacts(&value);
        }
    }
}
