//! Text that is shown to people: bytes that are no text, and URLs without their passwords. Pure.

use url::Url;

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// Bytes as text: what is not UTF-8 as `\xNN`.
#[must_use]
pub fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Text that a terminal shows and does not obey: control characters, which strangers may have put into a subject or a refused
/// field, are escaped.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// A URL whose password, also the one that `redis+unix` takes as a parameter, is `***`. Text that is no URL but could hold a
/// password is hidden whole.
#[must_use]
pub fn masked_url(text: &str) -> String {
    // `user:password@host` parses as the scheme `user`: only what has a host or a path can be taken apart.
    let Some(mut url) = Url::parse(text).ok().filter(|url| !url.cannot_be_a_base()) else {
        return if text.contains(['@', ':']) { MASK.to_owned() } else { text.to_owned() };
    };
    let hides_parameter = url.query_pairs().any(|(name, _)| is_password(&name));
    if url.password().is_none() && !hides_parameter {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    if hides_parameter {
        let shown: Vec<String> = url
            .query_pairs()
            .map(|(name, value)| if is_password(&name) { format!("{name}={MASK}") } else { format!("{name}={value}") })
            .collect();
        url.set_query(Some(&shown.join("&")));
    }
    url.into()
}

fn is_password(parameter: &str) -> bool {
    matches!(parameter, "pass" | "password")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refused events hold whatever a producer sent.
    #[test]
    fn bytes_that_are_not_text_are_written_in_hex() {
        assert_eq!(lossless(b"a\xff\xfeb\xc3\xa9"), "a\\xff\\xfeb\u{e9}");
        assert_eq!(lossless(b"\xc3"), "\\xc3");
    }

    /// A password on a terminal ends up in a ticket.
    #[test]
    fn passwords_in_urls_are_hidden_and_the_rest_is_shown() {
        for (url, shown) in [
            ("embedded", "embedded"),
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:p%40ss@h:1/2", "redis://:***@h:1/2"),
            ("rediss://user:pass@h", "rediss://user:***@h"),
            ("redis+unix:///run/r.sock?db=1&pass=x&user=u", "redis+unix:///run/r.sock?db=1&pass=***&user=u"),
            ("smtps://a%40b.test:pw@mail.test:465", "smtps://a%40b.test:***@mail.test:465"),
            ("user:pw@host", "***"),
            ("//user:pw@host", "***"),
        ] {
            assert_eq!(masked_url(url), shown, "{url}");
        }
    }

    /// A subject named by a stranger must not clear the operator's screen.
    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\x1b[2Jb\n\u{85}"), "a\\u{1b}[2Jb\\n\\u{85}");
    }
}
