//! What went wrong, in a few words: from the error chains of reqwest and lettre to the text of the attempt log.
//!
//! The chains themselves hold addresses, URLs and what the other side wrote, so none of their text is passed on: only what is
//! recognised here is said.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// What a chain of errors comes down to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConnectionError {
    /// Nobody that is trusted has signed the certificate.
    #[error("TLS: certificate not trusted")]
    Untrusted,
    /// Anything else, in a few words.
    #[error("{0}")]
    Other(String),
}

/// The innermost cause of an error that has a name here; `fallback` where there is none.
pub(super) fn find(error: &(dyn Error + 'static), fallback: &str) -> ConnectionError {
    chain(error).filter_map(recognise).last().unwrap_or_else(|| ConnectionError::Other(fallback.to_owned()))
}

/// An error and its sources, down to the cause.
pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An `io::Error` made from another error skips it in `source`, so it is asked for what it wraps.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

fn recognise(error: &(dyn Error + 'static)) -> Option<ConnectionError> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => ConnectionError::Untrusted,
            _ => ConnectionError::Other(tls_text(error)),
        });
    }
    error.downcast_ref::<io::Error>().and_then(io_text).map(ConnectionError::Other)
}

fn tls_text(error: &rustls::Error) -> String {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
    match error {
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => "TLS: certificate expired".to_owned(),
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "TLS: certificate is for another name".to_owned()
        }
        rustls::Error::InvalidCertificate(_) => "TLS: certificate refused".to_owned(),
        rustls::Error::AlertReceived(_) => "TLS: the other side refused".to_owned(),
        rustls::Error::InvalidMessage(_) => "TLS: the other side does not speak TLS".to_owned(),
        _ => "TLS: handshake failed".to_owned(),
    }
}

fn io_text(error: &io::Error) -> Option<String> {
    let text = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "connect: network unreachable",
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => "connection closed",
        io::ErrorKind::UnexpectedEof => "connection closed early",
        io::ErrorKind::TimedOut => "connect: timed out",
        // std gives a failed look-up no kind and no number of its own, only this text and the resolver's words after it.
        _ if error.to_string().starts_with("failed to lookup address") => dns_text(&error.to_string()),
        _ => return None,
    };
    Some(text.to_owned())
}

fn dns_text(text: &str) -> &'static str {
    if text.contains("emporary failure") || text.contains("ry again") { "DNS: no answer" } else { "DNS: no such host" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(error: &(dyn Error + 'static)) -> String {
        find(error, "failed").to_string()
    }

    /// Errors arrive wrapped several times; the cause at the bottom is what an operator needs.
    #[test]
    fn the_innermost_known_cause_is_named() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        assert_eq!(words(&wrapped), "TLS: certificate not trusted");
        assert_eq!(words(&io::Error::from(io::ErrorKind::ConnectionRefused)), "connect: connection refused");
    }

    /// What the other side wrote must not reach a log.
    #[test]
    fn unknown_errors_keep_their_text_to_themselves() {
        assert_eq!(words(&io::Error::other("550 <bob@example.com> said https://secret")), "failed");
    }
}
