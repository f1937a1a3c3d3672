//! Parses emails as mail software does, as far as our emails require. The server itself is
//! `receivers::SmtpCatcher`.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A parsed email.
#[derive(Debug)]
pub struct ParsedMail {
    headers: Vec<Header>,
    /// The parts of its multipart body.
    pub parts: Vec<ParsedPart>,
}

/// One part of an email.
#[derive(Debug)]
pub struct ParsedPart {
    /// Its media type with parameters.
    pub content_type: String,
    /// Its content, decoded.
    pub content: String,
}

#[derive(Debug)]
struct Header {
    name: String,
    value: String,
}

impl ParsedMail {
    /// Parses a multipart email.
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let headers = parse_headers(head);
        let kind = value_of(&headers, "Content-Type");
        let boundary = kind.split("boundary=").nth(1).expect("a boundary").trim_matches('"').to_owned();
        let delimiter = format!("--{boundary}");
        let sections = format!("\r\n{body}");
        let sections: Vec<&str> = sections.split(&format!("\r\n{delimiter}")).collect();
        assert!(sections.last().is_some_and(|last| last.starts_with("--")), "the last delimiter is closed");
        let parts = sections[1..sections.len() - 1].iter().map(|section| parse_part(section)).collect();
        Self { headers, parts }
    }

    /// The decoded value of a header. Exactly one must exist.
    pub fn header(&self, name: &str) -> String {
        let count = self.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count();
        assert_eq!(count, 1, "headers named {name}");
        decode_words(&value_of(&self.headers, name))
    }

    /// Number of headers with this name.
    pub fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count()
    }
}

fn value_of(headers: &[Header], name: &str) -> String {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.map(|header| header.value.clone()).unwrap_or_else(|| panic!("no header {name}"))
}

fn parse_headers(head: &str) -> Vec<Header> {
    let unfolded = head.replace("\r\n ", " ").replace("\r\n\t", " ");
    let split = |line: &str| {
        let (name, value) = line.split_once(':').expect("a colon in every header");
        Header { name: name.to_owned(), value: value.trim().to_owned() }
    };
    unfolded.split("\r\n").map(split).collect()
}

fn parse_part(section: &str) -> ParsedPart {
    let section = section.strip_prefix("\r\n").expect("a line end after the delimiter");
    let (head, body) = section.split_once("\r\n\r\n").expect("a head and a body");
    let headers = parse_headers(head);
    let content = match value_of(&headers, "Content-Transfer-Encoding").as_str() {
        "quoted-printable" => quoted_printable(body),
        "base64" => utf8(STANDARD.decode(body.replace("\r\n", "")).expect("base64")),
        _ => body.to_owned(),
    };
    ParsedPart { content_type: value_of(&headers, "Content-Type"), content: content.replace("\r\n", "\n") }
}

fn quoted_printable(text: &str) -> String {
    let joined = text.replace("=\r\n", "");
    let mut bytes = Vec::new();
    let mut rest = joined.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
            let digits = std::str::from_utf8(&digits).expect("ASCII");
            bytes.push(u8::from_str_radix(digits, 16).expect("hex"));
        } else {
            bytes.push(byte);
        }
    }
    utf8(bytes)
}

/// Encoded words of RFC 2047, `=?utf-8?b?...?=`; white space between two of them is dropped.
fn decode_words(value: &str) -> String {
    let mut decoded = String::new();
    let mut rest = value;
    let mut after_word = false;
    while let Some((before, word)) = rest.split_once("=?utf-8?b?") {
        if !(after_word && before.trim().is_empty()) {
            decoded.push_str(before);
        }
        let (content, behind) = word.split_once("?=").expect("an end of the word");
        decoded.push_str(&utf8(STANDARD.decode(content).expect("base64")));
        rest = behind;
        after_word = true;
    }
    decoded + rest
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}
