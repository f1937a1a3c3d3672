//! Reads an email as mail software does, as far as the daemon's own emails require. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The decoded value of an email's header.
pub fn header(raw: &str, name: &str) -> Option<String> {
    let (head, _) = raw.split_once("\r\n\r\n")?;
    value_of(head, name).map(|value| decode_words(&value))
}

/// The text part of an email, or its whole body if it has no parts.
pub fn text(raw: &str) -> String {
    let body = || raw.split_once("\r\n\r\n").map_or(raw, |(_, body)| body).replace("\r\n", "\n");
    part(raw, "text/plain").unwrap_or_else(body)
}

/// The first part of this media type, decoded.
pub fn part(raw: &str, media_type: &str) -> Option<String> {
    let (head, body) = raw.split_once("\r\n\r\n")?;
    let content_type = value_of(head, "Content-Type")?;
    let boundary = content_type.split("boundary=").nth(1)?.trim_matches('"');
    let body = format!("\r\n{body}");
    body.split(&format!("\r\n--{boundary}")).skip(1).find_map(|part| {
        let (head, body) = part.split_once("\r\n\r\n")?;
        if !value_of(head, "Content-Type")?.starts_with(media_type) {
            return None;
        }
        let encoding = value_of(head, "Content-Transfer-Encoding").unwrap_or_default();
        let text = if encoding == "quoted-printable" { quoted_printable(body) } else { body.to_owned() };
        Some(text.replace("\r\n", "\n"))
    })
}

/// A header's value, unfolded.
fn value_of(head: &str, name: &str) -> Option<String> {
    let unfolded = head.replace("\r\n ", " ").replace("\r\n\t", " ");
    unfolded.split("\r\n").find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// Decodes the encoded words of a header (RFC 2047) in UTF-8 and base64, the form that the daemon uses.
fn decode_words(value: &str) -> String {
    let mut decoded = String::new();
    let mut was_encoded = false;
    for word in value.split(' ') {
        let base64 = word.strip_prefix("=?utf-8?b?").and_then(|word| word.strip_suffix("?="));
        let text = base64.and_then(|base64| String::from_utf8(STANDARD.decode(base64).ok()?).ok());
        // The space between two encoded words is not part of the text.
        if !decoded.is_empty() && (!was_encoded || text.is_none()) {
            decoded.push(' ');
        }
        was_encoded = text.is_some();
        decoded.push_str(text.as_deref().unwrap_or(word));
    }
    decoded
}

fn quoted_printable(text: &str) -> String {
    let joined = text.replace("=\r\n", "");
    let mut pieces = joined.split('=');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.split_at_checked(2).and_then(|(hex, rest)| Some((u8::from_str_radix(hex, 16).ok()?, rest))) {
            Some((byte, rest)) => {
                bytes.push(byte);
                bytes.extend_from_slice(rest.as_bytes());
            }
            None => bytes.extend_from_slice(format!("={piece}").as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "From: a@example.com\r\nSubject: =?utf-8?b?w4k=?=\r\n =?utf-8?b?w6k=?= is at 80%\r\n\
        Content-Type: multipart/alternative;\r\n boundary=\"xyz\"\r\n\r\n--xyz\r\nContent-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: quoted-printable\r\n\r\n100 =3D all =C3=A9=\r\n!\r\n--xyz\r\nContent-Type: text/html\r\n\
        \r\n<p>\r\n--xyz--\r\n";

    /// The name of a subject may contain any letter, and numbers are read from the text: both must be decoded.
    #[test]
    fn headers_and_parts_are_decoded() {
        assert_eq!(header(MAIL, "Subject").as_deref(), Some("\u{c9}\u{e9} is at 80%"));
        assert_eq!((text(MAIL), part(MAIL, "text/html")), ("100 = all \u{e9}!".to_owned(), Some("<p>".to_owned())));
        assert_eq!((header(MAIL, "To"), part(MAIL, "text/css")), (None, None));
        assert_eq!(text("A: b\r\n\r\nhello\r\n"), "hello\n");
    }
}
