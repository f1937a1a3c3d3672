//! The bytes of one email: headers that are the same on every attempt, and two parts with the same content.
//!
//! Pure. Control characters are removed from all outside text (a subject's name, an address) before it reaches lettre,
//! because lettre panics on them in names, and a line break in a header would start another header.

use std::time::{Duration, SystemTime};

use lettre::message::dkim::DkimConfig;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};

use super::address::with_ascii_domain;

/// One email to send.
#[derive(Debug, Clone, Copy)]
pub struct Mail<'a> {
    /// The recipient, `local@domain`, as the subject gave it. It is judged here.
    pub to: &'a str,
    /// The source of the Message-ID: the delivery's id, so that it is the same on every attempt, or a unique id for
    /// each message.
    pub message_id: &'a str,
    /// The ids of its threads, one for each period of a quota that it is about. None for an email of its own.
    pub thread_ids: &'a [String],
    /// The alert's id for the header `X-Quotabell-Alert`, for filters and support. `None` if the email is not about an
    /// alert.
    pub alert_id: Option<&'a str>,
    /// The URL that mutes the contact with one click (RFC 8058), if there is one.
    pub unsubscribe: Option<&'a str>,
    /// The Subject header. Control characters become spaces.
    pub subject_line: &'a str,
    /// The plain text part.
    pub text: &'a str,
    /// The HTML part.
    pub html: &'a str,
    /// The Date header: when this attempt starts, Unix seconds.
    pub now_s: i64,
}

/// Parses `email.from`: `local@domain` or `Name <local@domain>`. `None` if it is neither.
pub(super) fn parse_author(from: &str) -> Option<Mailbox> {
    let Mailbox { name, email } = parse_mailbox(&one_line(from))?;
    Some(Mailbox::new(name, with_ascii_domain(&email)?))
}

/// Writes an email from `author` to `recipient`, and signs it if there is a signer.
///
/// # Errors
///
/// The error of lettre, if the headers do not fit into an email.
pub(super) fn write(
    author: &Mailbox,
    recipient: &Address,
    mail: &Mail<'_>,
    signer: Option<&DkimConfig>,
) -> Result<Vec<u8>, lettre::error::Error> {
    let parts = MultiPart::alternative()
        .singlepart(part(ContentType::TEXT_PLAIN, mail.text))
        .singlepart(part(ContentType::TEXT_HTML, mail.html));
    let sent_at = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(mail.now_s).unwrap_or(0));
    // The same on every attempt of a delivery, so that mail software can show an email that was accepted twice only
    // once.
    let message_id = format!("<{}@{}>", token(mail.message_id), author.email.domain());
    let mut message = Message::builder()
        .from(author.clone())
        .to(Mailbox::new(None, recipient.clone()))
        .subject(one_line(mail.subject_line))
        .date(sent_at)
        .message_id(Some(message_id))
        .raw_header(raw("Auto-Submitted", "auto-generated".to_owned()));
    // Messages that do not exist: nobody knows which email a mailbox got first. Mail software shows the emails that
    // refer to one of them together.
    let root = |thread_id: &String| format!("<{}@{}>", token(thread_id), author.email.domain());
    let roots: Vec<String> = mail.thread_ids.iter().map(root).collect();
    if !roots.is_empty() {
        message = message.in_reply_to(roots.join(" "));
    }
    // Of an email with several parents RFC 5322 (3.6.4) discourages it: mail software would join their threads.
    if let [root] = roots.as_slice() {
        message = message.references(root.clone());
    }
    if let Some(alert_id) = mail.alert_id {
        message = message.raw_header(raw("X-Quotabell-Alert", token(alert_id)));
    }
    if let Some(url) = mail.unsubscribe {
        let one_click = raw("List-Unsubscribe-Post", "List-Unsubscribe=One-Click".to_owned());
        message = message.raw_header(list_unsubscribe(url)).raw_header(one_click);
    }
    let mut message = message.multipart(parts)?;
    if let Some(signer) = signer {
        message.sign(signer);
    }
    Ok(message.formatted())
}

/// Parses a mailbox of the RFC, or any name before `<local@domain>`. By the RFC, a name such as `Acme: alerts` needs
/// quotes, which few users know and lettre adds itself.
fn parse_mailbox(text: &str) -> Option<Mailbox> {
    text.parse().ok().or_else(|| {
        let (name, address) = text.strip_suffix('>')?.rsplit_once('<')?;
        let name = name.trim().trim_matches('"').to_owned();
        Some(Mailbox::new(Some(name).filter(|name| !name.is_empty()), address.trim().parse().ok()?))
    })
}

/// One part of the email. It is always quoted-printable, so that lines are shorter than the 998 bytes of SMTP and the
/// text stays readable.
fn part(kind: ContentType, text: &str) -> SinglePart {
    SinglePart::builder().header(kind).header(ContentTransferEncoding::QuotedPrintable).body(text.to_owned())
}

fn raw(name: &'static str, value: String) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value)
}

/// The unencoded URL: mail providers do not decode encoded words there. It has no spaces and no letters beyond ASCII.
fn list_unsubscribe(url: &str) -> HeaderValue {
    let value = format!("<{url}>");
    HeaderValue::dangerous_new_pre_encoded(HeaderName::new_from_ascii_str("List-Unsubscribe"), value.clone(), value)
}

/// The text on one line: each run of control characters and white space becomes one space.
fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An id without characters that could end a header or a Message-ID. Ids of quotabell are not changed.
fn token(id: &str) -> String {
    id.chars().filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::email::address;
    use proptest::prelude::*;

    fn mail<'a>(subject_line: &'a str, text: &'a str) -> Mail<'a> {
        Mail {
            to: "bob@example.com",
            message_id: "delivery_1",
            thread_ids: &[],
            alert_id: Some("alert_1"),
            unsubscribe: Some("https://quota.example.com/unsubscribe/YWxpY2U.Y18x.c2lnbmF0dXJl"),
            subject_line,
            text,
            html: "<p>hello</p>",
            now_s: 1_795_250_000,
        }
    }

    fn written(from: &str, mail: &Mail<'_>) -> String {
        let recipient = address::read(mail.to).expect("an address");
        let bytes = write(&parse_author(from).expect("a mailbox"), &recipient, mail, None).expect("a mail");
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// Servers refuse long lines, and some refuse a bare LF.
    #[test]
    fn lines_are_short_and_end_in_crlf() {
        let body = format!("{}\n.\n{}", "x".repeat(5000), "ü".repeat(900));
        let threads: Vec<String> = (0..30).map(|number| format!("period_{number:032}")).collect();
        let line = "é".repeat(300);
        let mail = Mail { thread_ids: &threads, ..mail(&line, &body) };
        let text = written("alerts@example.com", &mail);
        for line in text.split("\r\n") {
            assert!(line.len() <= 998 && !line.contains(['\r', '\n']), "{line:?}");
        }
        assert!(text.is_ascii());
        assert_eq!(text.matches("<period_").count(), 30);
    }

    proptest! {
        /// Subjects choose their names and addresses: no text may cause a panic or add a header.
        #[test]
        fn any_text_makes_a_mail_with_one_subject_header(line in any::<String>(), name in any::<String>(), to in any::<String>()) {
            let _ = address::read(&to);
            let _ = parse_author(&format!("{name} <alerts@example.com>"));
            let text = written("alerts@example.com", &mail(&line, &line));
            let (head, _) = text.split_once("\r\n\r\n").expect("a body");
            let names: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])).map(|line| line.split(':').next().unwrap_or_default()).collect();
            prop_assert_eq!(names.iter().filter(|name| **name == "Subject").count(), 1);
            prop_assert!(names.len() <= 14, "{:?}", names);
        }
    }
}
