//! The proxy of webhooks, with CONNECT (RFC 9110, 9.3.6): the proxy forwards bytes, and TLS runs between the daemon and
//! the receiver.
//!
//! Reads the setting `webhook.proxy` and talks to the proxy. It does not judge receivers: [`super::connector`] has done
//! that before. Environment variables are not used.

use std::error::Error;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

use crate::channels::connection_error;
use crate::channels::server_stream::ServerStream;
use crate::types::Secret;
use crate::types::text::percent_decoded;

/// Maximum size of the proxy's response.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
const ALLOWED: &str = "allowed is \"http://host:port\" or \"http://user:password@host:port\"";
/// Variables that name a proxy for other programs.
const VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// A proxy and its credentials.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of Proxy-Authorization.
    authorization: Option<Secret>,
}

/// Why the proxy opened no connection to the receiver, in the words of the attempt log. All reasons are transient: the
/// proxy may recover, or somebody may fix its rules.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    /// Nothing answers at the proxy's address, or the proxy closes the connection.
    #[error("proxy: {}", connection_error::find(.0.as_ref(), "connection failed"))]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// It answered with this status.
    #[error("proxy: HTTP {0}")]
    Refused(u16),
    /// The answer is not that of a proxy.
    #[error("proxy: the answer is not HTTP")]
    Malformed,
}

impl Proxy {
    /// Parses the setting.
    ///
    /// # Errors
    ///
    /// The fault, without the password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|_| format!("is not a URL, {ALLOWED}"))?;
        if url.scheme() != "http" {
            return Err(format!("has scheme {:?}, {ALLOWED}", url.scheme()));
        }
        let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
        let (Some(host), Some(port), false) = (url.host_str(), url.port_or_known_default(), has_more) else {
            return Err(format!("holds more than a host and a port, {ALLOWED}"));
        };
        // The URL standard allows hosts that no request can name, such as `${HOST}`.
        if format!("http://{host}:{port}").parse::<hyper::Uri>().is_err() {
            return Err(format!("has a malformed host, {ALLOWED}"));
        }
        let decoded = |part| percent_decoded(part).ok_or_else(|| "holds a malformed percent-encoding".to_owned());
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                let credentials = [&decoded(user)?[..], b":", &decoded(password.unwrap_or_default())?].concat();
                Some(Secret::new(format!("Basic {}", STANDARD.encode(credentials))))
            }
        };
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port, authorization })
    }

    /// Requests a connection to `target`, a host and a port. Afterwards the stream carries that connection.
    pub(super) async fn connect(&self, stream: &mut ServerStream, target: &str) -> Result<(), ProxyError> {
        let authorization = self.authorization.as_ref().map(Secret::reveal);
        let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n")).unwrap_or_default();
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
        let broken = |error: std::io::Error| ProxyError::Unreachable(error.into());
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            // Byte by byte: the bytes after the head belong to the receiver. There is one such response per connection.
            let byte = stream.read_u8().await.map_err(broken)?;
            answer.push(byte);
            if answer.len() >= ANSWER_BYTES_MAX {
                return Err(ProxyError::Malformed);
            }
        }
        match status(&answer).ok_or(ProxyError::Malformed)? {
            200..=299 => Ok(()),
            status => Err(ProxyError::Refused(status)),
        }
    }
}

/// The status of a response.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(line.get(2..5)?).ok()?.parse().ok()
}

impl ProxyError {
    /// What to do about the failure.
    pub(super) const fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "no proxy answers there: is webhook.proxy the address at which the proxy listens?",
            Self::Refused(407) => "the proxy requires a user and a password: set them in webhook.proxy",
            Self::Refused(_) => "the proxy opens no connection to this receiver: its rules or its log say why",
            Self::Malformed => "something other than a proxy answers there: is the port of webhook.proxy right?",
        }
    }
}

/// The warning that the environment names a proxy: webhooks do not use it.
pub(super) fn warning(is_set: impl Fn(&str) -> bool) -> Option<String> {
    let variable = VARIABLES.into_iter().find(|variable| is_set(variable))?;
    Some(format!("{variable} is ignored and webhooks use no proxy: set webhook.proxy to use one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A password may contain a colon or a slash, and no error shows one.
    #[test]
    fn a_proxy_is_a_host_a_port_and_credentials() {
        let proxy = Proxy::parse("http://al%40ice:p%3Aw%2F@proxy.test:3128").expect("a proxy");
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.test", 3128));
        let sent = proxy.authorization.and_then(|value| STANDARD.decode(value.reveal().strip_prefix("Basic ")?).ok());
        assert_eq!(sent.as_deref(), Some(&b"al@ice:p:w/"[..]));
        let plain = Proxy::parse("http://[::1]").expect("a proxy");
        assert_eq!((plain.host.as_str(), plain.port, plain.authorization), ("::1", 80, None));
        for bad in [
            "",
            "proxy.test:3128",
            "https://u:hunter2@p.test",
            "socks5://p.test",
            "http://u:hunter2@p.test/path",
            "http://${HOST}:1",
        ] {
            let problem = Proxy::parse(bad).expect_err(bad);
            assert!(problem.contains("allowed is") && !problem.contains("hunter2"), "{problem}");
        }
    }

    /// The warning names a variable that other programs use, so that nobody has to search for the reason.
    #[test]
    fn a_proxy_of_the_environment_is_warned_of() {
        assert_eq!(warning(|_| false), None);
        let said = warning(|variable| variable == "https_proxy").expect("a warning");
        assert!(said.starts_with("https_proxy is ignored"), "{said}");
    }
}
