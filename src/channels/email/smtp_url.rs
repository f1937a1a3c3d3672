//! The mail server's URL: `smtp://host:25`, `smtp://user:pass@host:587?tls=required`, `smtps://user:pass@host:465`.
//!
//! Pure. The forms are those of lettre. They are parsed here because lettre does not expose the result and accepts two
//! mistakes: credentials that would travel unprotected, and a misspelled `tls=`, which would silently mean no TLS.

use std::net::IpAddr;

use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::{SMTP_PORT, SUBMISSION_PORT, SUBMISSIONS_PORT};
use url::Url;

use crate::types::text::percent_decoded;

/// The protection of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// `smtp://` without `tls=`: plain text.
    Plain,
    /// `?tls=opportunistic`: STARTTLS if the server offers it, plain text if the server (or an attacker) does not.
    Opportunistic,
    /// `?tls=required`: STARTTLS or nothing.
    StartTls,
    /// `smtps://`: TLS from the first byte.
    Tls,
}

/// A mail server and the protection of its connection.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SmtpServer {
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) protection: Protection,
    pub(super) credentials: Option<Credentials>,
}

/// Why a text is not the URL of a mail server. Shows no part that could be a password.
type UrlProblem = String;

const MALFORMED: &str = "not a URL, allowed are \"smtp://host:25\", \"smtp://user:pass@host:587?tls=required\" and \"smtps://user:pass@host:465\"";
const ENCODING: &str =
    "user or password is not percent-encoded UTF-8: write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %";
const PATH: &str = "has a path, which is not allowed: email.helo_name sets the name in EHLO";
const PLAIN_TEXT: &str = "credentials without TLS to a host other than localhost: use smtps:// or ?tls=required";

impl SmtpServer {
    /// Parses a URL.
    pub(super) fn parse(text: &str) -> Result<Self, UrlProblem> {
        let url = Url::parse(text.trim()).map_err(|_| MALFORMED)?;
        // The host ends at the first of these characters. An @ after it means that they are part of a password, which
        // must not be shown.
        let behind = [Some(url.path()), url.query(), url.fragment()];
        if url.has_host() && behind.into_iter().flatten().any(|part| part.contains('@')) {
            return Err(ENCODING.into());
        }
        if let Some((name, _)) = url.query_pairs().find(|(name, _)| name != "tls") {
            return Err(format!("parameter {name:?} is unknown, the only one is \"tls\""));
        }
        let tls = url.query_pairs().last().map(|(_, value)| value);
        let (protection, default_port) = match (url.scheme(), tls.as_deref()) {
            ("smtp", None) => (Protection::Plain, SMTP_PORT),
            ("smtp", Some("required")) => (Protection::StartTls, SUBMISSION_PORT),
            ("smtp", Some("opportunistic")) => (Protection::Opportunistic, SUBMISSION_PORT),
            ("smtps", None | Some("required")) => (Protection::Tls, SUBMISSIONS_PORT),
            ("smtp" | "smtps", Some(other)) => {
                let allowed = "allowed are \"required\" and \"opportunistic\"; without it smtp:// is plain text";
                return Err(format!("tls={other} is not allowed, {allowed}"));
            }
            (other, _) => {
                return Err(format!("scheme {other:?} is not allowed, allowed are \"smtp\" and \"smtps\""));
            }
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(MALFORMED)?;
        if !url.path().trim_matches('/').is_empty() {
            return Err(PATH.into());
        }
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            (user, Some(password)) if !user.is_empty() => Some(Credentials::new(decode(user)?, decode(password)?)),
            _ => return Err("user and password belong together, as in \"smtps://user:pass@host:465\"".into()),
        };
        let server = Self {
            host: decode(host.trim_start_matches('[').trim_end_matches(']'))?,
            port: url.port().unwrap_or(default_port),
            protection,
            credentials,
        };
        let protected = matches!(server.protection, Protection::StartTls | Protection::Tls);
        if server.credentials.is_some() && !protected && !server.is_local() {
            return Err(PLAIN_TEXT.into());
        }
        Ok(server)
    }

    /// The warning about a URL that is allowed but unwise.
    pub(super) fn warning(&self) -> Option<String> {
        let open = match self.protection {
            Protection::Plain => "email travels in plain text to another host",
            Protection::Opportunistic => "email travels in plain text if the mail server offers no STARTTLS",
            Protection::StartTls | Protection::Tls => return None,
        };
        let advice = "use smtps:// or ?tls=required in email.smtp_url";
        (!self.is_local()).then(|| format!("{open}: {advice}"))
    }

    /// Host and port, without user and password.
    pub(super) fn location(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether the connection stays on this machine.
    pub(super) fn is_local(&self) -> bool {
        let host = self.host.trim_end_matches('.');
        let local_address = host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        local_address || host.eq_ignore_ascii_case("localhost")
    }
}

/// Decodes percent-encoding. Control characters are refused: they could end an SMTP command and start another.
fn decode(text: &str) -> Result<String, UrlProblem> {
    let decoded = percent_decoded(text).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(ENCODING)?;
    if decoded.chars().any(char::is_control) { Err("holds a control character".into()) } else { Ok(decoded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<SmtpServer, UrlProblem> {
        SmtpServer::parse(url)
    }

    /// Ports and protection are those of lettre, so that a URL from elsewhere works here.
    #[test]
    fn the_documented_urls_are_understood() {
        let read = |url: &str| parse(url).map(|server| (server.host, server.port, server.protection)).expect(url);
        assert_eq!(read("smtp://localhost"), ("localhost".into(), 25, Protection::Plain));
        assert_eq!(read("smtp://mail.test:2525"), ("mail.test".into(), 2525, Protection::Plain));
        assert_eq!(read("smtp://mail.test?tls=required"), ("mail.test".into(), 587, Protection::StartTls));
        assert_eq!(read("smtp://mail.test?tls=opportunistic"), ("mail.test".into(), 587, Protection::Opportunistic));
        assert_eq!(read("smtps://mail.test"), ("mail.test".into(), 465, Protection::Tls));
        assert_eq!(read("smtp://[::1]:25\n"), ("::1".into(), 25, Protection::Plain));
    }

    /// A password may contain any character.
    #[test]
    fn credentials_are_decoded() {
        let server = parse("smtps://al%40ice:p%3Aa%2Fs%25%C3%A9@mail.test/").expect("a server");
        assert_eq!(server.credentials, Some(Credentials::new("al@ice".into(), "p:a/s%é".into())));
    }

    /// A missing parameter must not send a password in plain text, except on this machine.
    #[test]
    fn credentials_need_tls_unless_the_server_is_local() {
        for open in ["smtp://u:p@mail.test", "smtp://u:p@mail.test:587?tls=opportunistic", "smtp://u:p@10.0.0.1"] {
            assert_eq!(parse(open), Err(PLAIN_TEXT.to_owned()), "{open}");
        }
        for fine in
            ["smtp://u:p@localhost", "smtp://u:p@127.0.0.1", "smtp://u:p@[::1]", "smtp://u:p@mail.test?tls=required"]
        {
            assert!(parse(fine).is_ok(), "{fine}");
        }
    }

    /// Plain text to another host works, with a warning.
    #[test]
    fn plain_text_to_another_host_is_a_warning() {
        let warned = |url: &str| parse(url).expect(url).warning().is_some();
        assert!(warned("smtp://mail.test") && warned("smtp://mail.test?tls=opportunistic"));
        assert!(
            !warned("smtp://localhost:25") && !warned("smtps://mail.test") && !warned("smtp://mail.test?tls=required")
        );
    }

    /// A misspelled parameter would silently mean plain text. Each error says what is allowed, and none shows the
    /// password.
    #[test]
    fn mistakes_are_told_apart_without_showing_the_password() {
        let error = |url: &str| parse(url).expect_err(url).to_string();
        assert!(error("smtp://u:hunter2@h?tls=none").contains("tls=none is not allowed"));
        assert!(error("smtp://u:hunter2@h?tsl=required").contains("\"tsl\" is unknown"));
        assert!(error("http://u:hunter2@h").contains("allowed are \"smtp\""));
        assert!(error("smtps://user@h").contains("belong together"));
        assert!(error("smtps://u:%zz@h").contains("percent-encoded"));
        assert!(error("smtps://u:p@h/me.example.com").contains("email.helo_name"));
        assert!(error("smtps://u:hunter2%0d%0aRCPT@h").contains("control character"));
        for malformed in ["", "mail.test:25", "smtp://", "smtp://:25", "smtp://h:port"] {
            assert!(parse(malformed).is_err(), "{malformed}");
        }
        for url in ["smtp://u:hunter2@h?tls=none", "http://u:hunter2@h", "smtp://u:hunter2@h"] {
            assert!(!error(url).contains("hunter2"), "{url}");
        }
        // The first half of such a password is parsed as a port, and the user's name as the host.
        for url in ["smtp://u:1?hunter2@h", "smtp://u:1?tls=hunter2@h", "smtp://u:1#hunter2@h", "smtp://u:1/hunter2@h"]
        {
            assert!(error(url).contains("percent-encoded") && !error(url).contains("hunter2"), "{url}");
        }
    }
}
