//! Short texts for connection errors in the attempt log.
//!
//! Error chains contain addresses, URLs and text from the other side, so none of their text is used: only known causes
//! get a text.

use std::error::Error;
use std::io;

use rustls::CertificateError::{
    Expired, ExpiredContext, NotValidForName, NotValidForNameContext, Other, UnknownIssuer,
};

use super::resolver::{ResolveError, lacks_descriptors};
use super::server_stream::Flooded;

/// No trusted authority has signed the certificate.
pub(super) const UNTRUSTED: &str = "TLS: certificate not trusted";
/// The certificate may only sign others, like that of a plain `openssl req -x509`. Trusting it does not help.
pub(super) const AUTHORITYS_OWN: &str = "TLS: certificate is that of an authority, not of a server";

/// Certificates that a client must not accept, even if it trusts their authority.
pub(super) const EXPIRED: &str = "TLS: certificate expired";
pub(super) const OTHER_NAME: &str = "TLS: certificate is for another name";
/// The other side does not speak TLS.
pub(super) const NO_TLS: &str = "TLS: the other side does not speak TLS";
/// A violation of the TLS protocol: a wrong handshake, or endless empty records.
const MISBEHAVED: &str = "TLS: the other side violates the protocol";
/// The other side does not speak HTTP.
pub(super) const NO_HTTP: &str = "the answer is not HTTP";
/// The name does not exist, or the name servers do not answer.
pub(super) const NO_SUCH_HOST: &str = "DNS: no such host";
pub(super) const NO_NAME_SERVER: &str = "DNS: no answer";
/// Nothing listens at the address.
pub(super) const REFUSED: &str = "connect: connection refused";
/// The address does not answer.
pub(super) const UNREACHABLE: &str = "connect: network unreachable";
pub(super) const TIMED_OUT: &str = "connect: timed out";

/// The system gave no socket.
pub(super) const NO_DESCRIPTORS: &str = "this machine: too many open files";
/// Endless informational responses, TLS records or lines.
const FLOODED: &str = "more than 256 KiB came before the answer";

/// The other side closed the connection, in three ways.
const CLOSED_EARLY: &str = "connection closed early";
const CLOSED: &str = "connection closed";
const RESET: &str = "connection reset";

/// The innermost cause of an error that has a text here; `fallback` if there is none.
pub(super) fn find(error: &(dyn Error + 'static), fallback: &'static str) -> &'static str {
    chain(error).filter_map(recognise).last().unwrap_or(fallback)
}

/// The hint for a failed connection, whatever its protocol; `None` if the hint depends on the protocol.
pub(super) fn hint(found: &str) -> Option<&'static str> {
    Some(match found {
        NO_SUCH_HOST => "the name servers know no such host: is its name right?",
        NO_NAME_SERVER => "no name server answered: check /etc/resolv.conf, or dns.servers of the configuration",
        UNREACHABLE | TIMED_OUT => "is the host up, and does every firewall on the way let this port through?",
        NO_DESCRIPTORS => {
            "the daemon, or the machine, has no file descriptors left: raise LimitNOFILE of the unit (`ulimit -n`)"
        }
        _ => return None,
    })
}

/// An error and its sources, down to the cause.
pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An `io::Error` made from another error omits it from `source`, so the inner error is read here.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// Whether the other side closed the connection, rather than refuse it or stay silent.
pub(super) fn is_closed(error: &(dyn Error + 'static)) -> bool {
    [CLOSED_EARLY, CLOSED, RESET].contains(&find(error, ""))
}

fn recognise(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(match error {
            rustls::Error::InvalidCertificate(UnknownIssuer) => UNTRUSTED,
            rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => EXPIRED,
            rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => OTHER_NAME,
            // The type of the inner error belongs to a crate that only rustls uses.
            rustls::Error::InvalidCertificate(Other(other)) if other.to_string() == "CaUsedAsEndEntity" => {
                AUTHORITYS_OWN
            }
            rustls::Error::InvalidCertificate(_) => "TLS: certificate refused",
            rustls::Error::AlertReceived(_) => "TLS: the other side refused",
            rustls::Error::InvalidMessage(_) => NO_TLS,
            rustls::Error::PeerMisbehaved(_) => MISBEHAVED,
            _ => "TLS: handshake failed",
        });
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return match error {
            _ if error.is_parse_too_large() => Some("the head of the answer is too large"),
            _ if error.is_parse() => Some(NO_HTTP),
            _ if error.is_incomplete_message() => Some(CLOSED_EARLY),
            _ => None,
        };
    }
    if error.is::<Flooded>() {
        return Some(FLOODED);
    }
    match error.downcast_ref::<ResolveError>() {
        Some(ResolveError::NoSuchHost) => return Some(NO_SUCH_HOST),
        Some(ResolveError::NoAnswer) => return Some(NO_NAME_SERVER),
        Some(ResolveError::NoDescriptors) => return Some(NO_DESCRIPTORS),
        None => {}
    }
    let error = error.downcast_ref::<io::Error>()?;
    if lacks_descriptors(error) {
        return Some(NO_DESCRIPTORS);
    }
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => REFUSED,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => UNREACHABLE,
        io::ErrorKind::ConnectionReset => RESET,
        io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => CLOSED,
        io::ErrorKind::UnexpectedEof => CLOSED_EARLY,
        io::ErrorKind::TimedOut => TIMED_OUT,
        _ => return None,
    })
}

/// The causes for which each channel has a hint.
#[cfg(test)]
pub(super) const WITH_HINT: [&str; 10] = [
    NO_DESCRIPTORS,
    REFUSED,
    UNREACHABLE,
    TIMED_OUT,
    NO_SUCH_HOST,
    NO_NAME_SERVER,
    UNTRUSTED,
    EXPIRED,
    OTHER_NAME,
    NO_TLS,
];

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    /// Errors arrive wrapped several times, and an operator needs the innermost cause. Text of the other side must not
    /// be logged.
    #[test]
    fn the_innermost_known_cause_is_named_and_no_other_text() {
        let words = |error: io::Error| find(&error, "failed");
        let tls = rustls::Error::InvalidCertificate(UnknownIssuer);
        assert_eq!(words(io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls))), UNTRUSTED);
        assert_eq!(words(io::Error::from(io::ErrorKind::ConnectionRefused)), "connect: connection refused");
        assert_eq!(words(io::Error::other(io::Error::from(Errno::EMFILE))), NO_DESCRIPTORS);
        assert_eq!(words(io::Error::other("550 <bob@example.com> said https://secret")), "failed");
    }
}
