//! The bearer token of the API (RFC 6750), configured in `[http]`.
//!
//! Only a digest is stored. Digests are compared in constant time, so that response times reveal nothing about the
//! token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::config::HttpConfig;
use crate::types::Secret;
use crate::types::secret::same_secret;

/// Maximum length of a token. Proxies would refuse a longer header line.
const BYTES_MAX: usize = 1024;
/// A shorter token can be guessed over the network.
const BYTES_ADVISED: usize = 16;

/// The token's digest, which is enough to recognize it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    digest: [u8; 32],
    /// Whether it is short enough to be guessed over the network.
    is_guessable: bool,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// The fault of the token. Never contains a part of it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("read http.token_file {}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{origin} is not a token: 1 to {BYTES_MAX} visible ASCII characters without spaces are allowed")]
    Form { origin: String, setting: &'static str },
}

const SETTING: &str = "http.token";
const SETTING_FILE: &str = "http.token_file";

impl TokenError {
    /// The faulty setting.
    pub const fn setting(&self) -> &'static str {
        match self {
            Self::File { .. } => SETTING_FILE,
            Self::Form { setting, .. } => setting,
        }
    }
}

/// Whether a request carries the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck {
    /// There is no `Authorization` header.
    Missing,
    /// It is another token or scheme, or there are several.
    Invalid,
    Valid,
}

impl Token {
    /// The token of the section, if it has one. Reads the file that the section names.
    pub fn from_config(config: &HttpConfig) -> Result<Option<Self>, TokenError> {
        Ok(Self::text(config)?.map(|text| Self::new(text.reveal())))
    }

    /// The token itself, for a client of the API that uses the same configuration.
    pub fn text(config: &HttpConfig) -> Result<Option<Secret>, TokenError> {
        let (text, origin, setting) = match (&config.token_file, &config.token) {
            (Some(path), _) => {
                (Secret::new(first_line(path)?), format!("{SETTING_FILE} {}", path.display()), SETTING_FILE)
            }
            (None, Some(token)) => (token.clone(), SETTING.to_owned(), SETTING),
            (None, None) => return Ok(None),
        };
        let bytes = text.reveal().as_bytes();
        let is_legal = (1..=BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        if is_legal { Ok(Some(text)) } else { Err(TokenError::Form { origin, setting }) }
    }

    fn new(text: &str) -> Self {
        Self { digest: digest(text.as_bytes()), is_guessable: text.len() < BYTES_ADVISED }
    }

    /// The warning for a token that is allowed but weak.
    pub fn warning(&self) -> Option<String> {
        self.is_guessable.then(|| format!("http.token has fewer than {BYTES_ADVISED} characters and can be guessed (`openssl rand -hex 32` makes one that can't)"))
    }

    pub fn check(&self, headers: &HeaderMap) -> TokenCheck {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => TokenCheck::Missing,
            (Some(value), None) if self.is_in(value.as_bytes()) => TokenCheck::Valid,
            // With several, a proxy in front may have checked another one than this code would.
            _ => TokenCheck::Invalid,
        }
    }

    fn is_in(&self, header: &[u8]) -> bool {
        bearer(header).is_some_and(|token| same_secret(&digest(token), &self.digest))
    }
}

/// The token in effect, if any. Clones share it: a reload replaces it for all of them.
#[derive(Debug, Clone, Default)]
pub struct CurrentToken(Arc<RwLock<Option<Token>>>);

impl CurrentToken {
    pub fn new(token: Option<Token>) -> Self {
        Self(Arc::new(RwLock::new(token)))
    }

    /// Whether the operator has set a token.
    pub fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether a request has the token; `None` if none is set.
    pub fn check(&self, headers: &HeaderMap) -> Option<TokenCheck> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|token| token.check(headers))
    }

    /// Puts another token into effect. Returns whether it differs from the one before.
    pub fn replace(&self, token: Option<Token>) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differs = *current != token;
        *current = token;
        differs
    }
}

/// The text after `Bearer`, in any case (RFC 9110).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = header.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn first_line(path: &Path) -> Result<String, TokenError> {
    let text = std::fs::read_to_string(path).map_err(|source| TokenError::File { path: path.to_owned(), source })?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Result<Option<Token>, TokenError> {
        let token = Some(Secret::new(text.to_owned()));
        Token::from_config(&HttpConfig { listen: "127.0.0.1:0".into(), token, token_file: None, public_url: None })
    }

    fn check(header: Option<&str>) -> TokenCheck {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, header.parse().expect("a header"));
        }
        token("0123456789abcdef").expect("legal").expect("set").check(&headers)
    }

    /// A text that is almost the token is not the token.
    #[test]
    fn only_the_token_itself_is_right() {
        assert_eq!(check(None), TokenCheck::Missing);
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "BEARER  0123456789abcdef "] {
            assert_eq!(check(Some(right)), TokenCheck::Valid, "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer 0123456789ABCDEF",
        ] {
            assert_eq!(check(Some(wrong)), TokenCheck::Invalid, "{wrong}");
        }
    }

    /// A proxy in front and this code must judge the same header.
    #[test]
    fn of_several_headers_none_is_right() {
        let token = token("0123456789abcdef").expect("legal").expect("set");
        for other in ["Bearer 0123456789abcdef", "Bearer x", "Basic x"] {
            let mut headers = HeaderMap::new();
            headers.append(AUTHORIZATION, "Bearer 0123456789abcdef".parse().expect("a header"));
            assert_eq!(token.check(&headers), TokenCheck::Valid);
            headers.append(AUTHORIZATION, other.parse().expect("a header"));
            assert_eq!(token.check(&headers), TokenCheck::Invalid, "{other}");
        }
    }

    /// An empty secret file would let everybody in, and nobody could send a token with a space.
    #[test]
    fn what_no_header_can_carry_is_refused_and_not_shown() {
        for bad in ["", "two words", "schlüssel", "line\nbreak", &"x".repeat(BYTES_MAX + 1)] {
            let error = token(bad).expect_err("refused");
            assert_eq!(error.setting(), "http.token");
            assert!(bad.is_empty() || !error.to_string().contains(bad), "{error}");
        }
    }

    /// A short token is found by trying.
    #[test]
    fn a_short_token_is_warned_about() {
        let warning = |text: &str| token(text).expect("legal").expect("set").warning();
        assert!(warning("0123456789abcde").is_some());
        assert_eq!(warning("0123456789abcdef"), None);
    }

    /// The line break at the end of a file is not part of the token.
    #[test]
    fn the_first_line_of_the_file_is_the_token() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef\r\n").expect("writable");
        let config = HttpConfig { listen: String::new(), token: None, token_file: Some(path), public_url: None };
        assert_eq!(Token::from_config(&config).expect("readable"), token("0123456789abcdef").expect("legal"));
        let absent = HttpConfig { token_file: Some(folder.path().join("absent")), ..config };
        assert_eq!(Token::from_config(&absent).expect_err("absent").setting(), "http.token_file");
    }
}
