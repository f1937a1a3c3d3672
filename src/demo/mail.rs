//! Reads a caught mail as mail software does, as far as the daemon's own mails need it. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What the demonstration wants to know of a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedMail {
    /// `X-Quotabell-Alert`.
    pub(super) alert: String,
    /// `Message-ID`, without brackets.
    pub(super) message_id: String,
    /// The text part, decoded.
    pub(super) text: String,
}

/// Why a mail can't be shown to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MailError {
    /// A header that must be there once.
    #[error("the mail has no header {0}")]
    Header(&'static str),
    /// No multipart body.
    #[error("the mail has no parts")]
    Parts,
    /// One of the two parts.
    #[error("the mail has no part {0}")]
    Part(&'static str),
}

/// Takes a mail apart: its ids and its text. Both a text and an HTML part must be there.
pub(super) fn read(raw: &str) -> Result<ParsedMail, MailError> {
    let (head, body) = raw.split_once("\r\n\r\n").ok_or(MailError::Parts)?;
    let header = |name| value_of(head, name).ok_or(MailError::Header(name));
    let parts = parts_of(&header("Content-Type")?, body).ok_or(MailError::Parts)?;
    part_of(&parts, "text/html").ok_or(MailError::Part("text/html"))?;
    Ok(ParsedMail {
        alert: header("X-Quotabell-Alert")?,
        message_id: header("Message-ID")?.trim_matches(['<', '>']).to_owned(),
        text: part_of(&parts, "text/plain").ok_or(MailError::Part("text/plain"))?,
    })
}

/// The value of a mail's header, decoded.
#[must_use]
pub fn header(raw: &str, name: &str) -> Option<String> {
    let (head, _) = raw.split_once("\r\n\r\n")?;
    value_of(head, name).map(|value| decode_words(&value))
}

/// The text of a mail: its text part, or its whole body where it has no parts.
#[must_use]
pub fn text(raw: &str) -> String {
    let (head, body) = raw.split_once("\r\n\r\n").unwrap_or(("", raw));
    let kind = value_of(head, "Content-Type").unwrap_or_default();
    let part = parts_of(&kind, body).and_then(|parts| part_of(&parts, "text/plain"));
    part.unwrap_or_else(|| body.replace("\r\n", "\n"))
}

/// The parts of a multipart body. `None` where the content type names no boundary.
fn parts_of(content_type: &str, body: &str) -> Option<Vec<String>> {
    let boundary = content_type.split("boundary=").nth(1)?.trim_matches('"');
    let body = format!("\r\n{body}");
    Some(body.split(&format!("\r\n--{boundary}")).skip(1).map(str::to_owned).collect())
}

/// Decodes the encoded words of a header (RFC 2047) that are UTF-8 in base64, the form in which the daemon writes them.
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

/// A header's value, unfolded.
fn value_of(head: &str, name: &str) -> Option<String> {
    let unfolded = head.replace("\r\n ", " ").replace("\r\n\t", " ");
    let mut values = unfolded.split("\r\n").filter_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    });
    values.next()
}

/// The first part of this media type, decoded.
fn part_of(parts: &[String], kind: &str) -> Option<String> {
    parts.iter().find_map(|part| {
        let (head, body) = part.split_once("\r\n\r\n")?;
        if !value_of(head, "Content-Type")?.starts_with(kind) {
            return None;
        }
        let encoding = value_of(head, "Content-Transfer-Encoding").unwrap_or_default();
        let text = if encoding == "quoted-printable" { quoted_printable(body) } else { body.to_owned() };
        Some(text.replace("\r\n", "\n"))
    })
}

fn quoted_printable(text: &str) -> String {
    let joined = text.replace("=\r\n", "");
    let mut bytes = Vec::with_capacity(joined.len());
    let mut rest = joined.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = || u8::from_str_radix(std::str::from_utf8(behind.get(..2)?).ok()?, 16).ok();
        match (byte, escaped()) {
            (b'=', Some(meant)) => {
                bytes.push(meant);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "From: a@example.com\r\nX-Quotabell-Alert: alert_1\r\nMessage-ID: <delivery_1@example.com>\r\n\
        Content-Type: multipart/alternative;\r\n boundary=\"xyz\"\r\n\r\n--xyz\r\nContent-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: quoted-printable\r\n\r\n100 =3D all =C3=A9=\r\n!\r\n--xyz\r\nContent-Type: text/html\r\n\
        \r\n<p>\r\n--xyz--\r\n";

    /// Numbers are read from the mail's text: an encoding that is not undone would hide them.
    #[test]
    fn ids_and_text_are_read() {
        let mail = read(MAIL).expect("whole");
        assert_eq!((mail.alert.as_str(), mail.message_id.as_str()), ("alert_1", "delivery_1@example.com"));
        assert_eq!(mail.text, "100 = all \u{e9}!");
    }

    /// The name of a subject may hold any letter: `listen` must show it.
    #[test]
    fn encoded_words_of_a_header_are_decoded() {
        let mail =
            MAIL.replace("Message-ID:", "Subject: =?utf-8?b?w4k=?=\r\n =?utf-8?b?w6k=?= is at 80%\r\nMessage-ID:");
        assert_eq!(header(&mail, "Subject").as_deref(), Some("\u{c9}\u{e9} is at 80%"));
        assert_eq!(
            (text(&mail), text("A: b\r\n\r\nhello\r\n")),
            ("100 = all \u{e9}!".to_owned(), "hello\n".to_owned())
        );
    }

    /// A mail without its HTML part, or without the alert's id, must not pass for a good one.
    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(read(&MAIL.replace("text/html", "text/css")), Err(MailError::Part("text/html")));
        assert_eq!(read(&MAIL.replace("X-Quotabell", "X-Other")), Err(MailError::Header("X-Quotabell-Alert")));
        assert_eq!(read("hello"), Err(MailError::Parts));
    }
}
