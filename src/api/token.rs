//! The bearer tokens of the API (RFC 6750), configured in `[http]`.
//!
//! Only digests are stored. Digests are compared in constant time, so that response times reveal nothing about a token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use metrics::counter;
use sha2::{Digest, Sha256};

use super::config::{HttpConfig, TokenConfig};
use super::scope::{Scope, Scopes};
use crate::types::secret::same_secret;
use crate::types::{Secret, meters};

/// Maximum length of a token. Proxies would refuse a longer header line.
const BYTES_MAX: usize = 1024;
/// A shorter token can be guessed over the network.
const BYTES_ADVISED: usize = 16;
/// Maximum number of valid tokens of one name: the old one and the new one.
const LINES_MAX: usize = 2;

/// The values of the label `answer`: whether the caller's scopes allowed a request.
pub(super) const ALLOWED: &str = "allowed";
pub(super) const FORBIDDEN: &str = "forbidden";

/// Who called.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token; that of `http.token` is the setting's.
    pub name: String,
    /// What the caller may do.
    pub scopes: Scopes,
}

/// A token's digest, which is enough to recognize it.
#[derive(Clone, PartialEq, Eq)]
struct Token {
    digest: [u8; 32],
    caller: Arc<Caller>,
    /// The setting that names it, with the line if it is in a file.
    origin: String,
    /// Whether it is short enough to be guessed over the network.
    is_guessable: bool,
}

impl Token {
    fn known(&self) -> KnownToken {
        KnownToken { caller: Arc::clone(&self.caller), digest: self.digest }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, ***)", self.caller.name)
    }
}

/// The tokens of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

/// The fault of a token. Never contains a part of it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("read {} {}", shown(.setting), .path.display())]
    File { setting: String, path: PathBuf, source: std::io::Error },
    #[error("{origin} is not a token: 1 to {BYTES_MAX} visible ASCII characters without spaces are allowed")]
    Form { origin: String, setting: String },
    #[error("{origin} has {lines} lines, at most {LINES_MAX} are allowed: the token, and another valid one")]
    Lines { origin: String, setting: String, lines: usize },
    #[error("{origin} has the same token as {other}: each needs its own")]
    Same { origin: String, other: String, setting: String },
}

const SETTING: &str = "http.token";
const SETTING_FILE: &str = "http.token_file";

impl TokenError {
    /// The faulty setting: keys, separated by dots.
    pub fn setting(&self) -> &str {
        match self {
            Self::File { setting, .. }
            | Self::Form { setting, .. }
            | Self::Lines { setting, .. }
            | Self::Same { setting, .. } => setting,
        }
    }
}

/// What a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenCheck {
    /// There is no `Authorization` header.
    Missing,
    /// It is another token or scheme, or there are several.
    Invalid,
    /// The token of this caller.
    Valid(Arc<Caller>),
}

impl Tokens {
    /// The tokens of the section. Reads the files that it names.
    pub fn from_config(config: &HttpConfig) -> Result<Self, TokenError> {
        let mut tokens = Self::default();
        let (configured, setting) = full_access(config)?;
        tokens.add(configured, Caller { name: setting.to_owned(), scopes: Scopes::all() }, setting)?;
        for (at, named) in config.tokens.iter().enumerate() {
            let setting = format!("http.tokens.[{at}].file");
            let caller = Caller { name: named.name.clone(), scopes: named.scopes.iter().copied().collect() };
            tokens.add(lines_of(&named.file, &setting)?, caller, &setting)?;
        }
        Ok(tokens)
    }

    /// A token with this scope, for a client of the API that uses the same configuration.
    pub fn text_with(scope: Scope, config: &HttpConfig) -> Result<Option<Secret>, TokenError> {
        if let Some(first) = full_access(config)?.0.into_iter().next() {
            return Ok(Some(first.text));
        }
        let has_scope = |named: &TokenConfig| named.scopes.iter().any(|one| [scope, Scope::Admin].contains(one));
        let (at, Some(named)) = config.tokens.iter().enumerate().find(|(_, named)| has_scope(named)).unzip() else {
            return Ok(None);
        };
        let setting = format!("http.tokens.[{}].file", at.unwrap_or_default());
        Ok(lines_of(&named.file, &setting)?.into_iter().next().map(|first| first.text))
    }

    fn add(&mut self, configured: Vec<ConfiguredToken>, caller: Caller, setting: &str) -> Result<(), TokenError> {
        let caller = Arc::new(caller);
        for ConfiguredToken { text, origin } in configured {
            let (digest, is_guessable) = (digest(text.reveal().as_bytes()), text.reveal().len() < BYTES_ADVISED);
            if let Some(same) = self.0.iter().find(|other| other.digest == digest) {
                return Err(TokenError::Same { origin, other: same.origin.clone(), setting: setting.to_owned() });
            }
            self.0.push(Token { digest, caller: Arc::clone(&caller), origin, is_guessable });
        }
        Ok(())
    }

    /// Whether there is no token.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The warnings for tokens that are allowed but weak.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter(|token| token.is_guessable).map(|token| {
            format!(
                "the token of {} has fewer than {BYTES_ADVISED} characters and can be guessed (`openssl rand -hex 32` \
                 makes one that can't)",
                token.caller.name
            )
        })
    }

    /// Starts the counters of all callers at 0: a rate over a series that appears with its first request misses it.
    fn begin_counters(&self) {
        for Token { caller, .. } in &self.0 {
            for answer in [ALLOWED, FORBIDDEN] {
                counter!(meters::API_REQUESTS, "caller" => caller.name.clone(), "answer" => answer).increment(0);
            }
        }
    }

    pub fn check(&self, headers: &HeaderMap) -> TokenCheck {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => TokenCheck::Missing,
            (Some(value), None) => {
                let known = bearer(value.as_bytes()).and_then(|text| self.find(text));
                known.map_or(TokenCheck::Invalid, |known| TokenCheck::Valid(known.caller))
            }
            // With several, a proxy in front may have checked another one than this code would.
            _ => TokenCheck::Invalid,
        }
    }

    fn find(&self, text: &[u8]) -> Option<KnownToken> {
        let given = digest(text);
        // All of them are compared, so that the time does not tell which one it is.
        let compare =
            |found, token: &Token| if same_secret(&given, &token.digest) { Some(token.known()) } else { found };
        self.0.iter().fold(None, compare)
    }
}

/// A valid token by its digest.
#[derive(Debug, Clone)]
pub struct KnownToken {
    pub caller: Arc<Caller>,
    pub digest: [u8; 32],
}

/// The tokens in effect. Clones share them: a reload replaces them for all.
#[derive(Debug, Clone, Default)]
pub struct CurrentTokens(Arc<RwLock<Tokens>>);

impl CurrentTokens {
    pub fn new(tokens: Tokens) -> Self {
        tokens.begin_counters();
        Self(Arc::new(RwLock::new(tokens)))
    }

    /// Whether the operator has set a token.
    pub fn is_set(&self) -> bool {
        !self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whose token a request has; `None` if none is set.
    pub fn check(&self, headers: &HeaderMap) -> Option<TokenCheck> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (!tokens.is_empty()).then(|| tokens.check(headers))
    }

    /// The token with this text.
    pub fn find(&self, text: &str) -> Option<KnownToken> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).find(text.as_bytes())
    }

    /// The tokens of the caller with this name.
    pub fn of_caller(&self, name: &str) -> Vec<KnownToken> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.0.iter().filter(|token| token.caller.name == name).map(Token::known).collect()
    }

    /// Puts other tokens into effect. Returns whether they differ from those before.
    pub fn replace(&self, tokens: Tokens) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differs = *current != tokens;
        tokens.begin_counters();
        *current = tokens;
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

/// The setting as people write it: `http.tokens[0].file`.
fn shown(setting: &str) -> String {
    setting.replace(".[", "[")
}

/// A token as it is configured.
struct ConfiguredToken {
    text: Secret,
    /// The setting, with the line if it names a file.
    origin: String,
}

/// The tokens that may do everything, and their setting.
fn full_access(config: &HttpConfig) -> Result<(Vec<ConfiguredToken>, &'static str), TokenError> {
    match (&config.token_file, &config.token) {
        (Some(path), _) => Ok((lines_of(path, SETTING_FILE)?, SETTING_FILE)),
        (None, Some(token)) => Ok((vec![legal(token.clone(), SETTING.to_owned(), SETTING)?], SETTING)),
        (None, None) => Ok((Vec::new(), SETTING)),
    }
}

/// The tokens in the lines of a file.
fn lines_of(path: &Path, setting: &str) -> Result<Vec<ConfiguredToken>, TokenError> {
    let (text, origin) = (read(path, setting)?, format!("{} {}", shown(setting), path.display()));
    // An empty file has an empty line.
    let lines: Vec<&str> = if text.is_empty() { vec![""] } else { text.lines().map(str::trim).collect() };
    if lines.len() > LINES_MAX {
        return Err(TokenError::Lines { origin, setting: setting.to_owned(), lines: lines.len() });
    }
    let token = |(at, line): (usize, &str)| {
        legal(Secret::new(line.to_owned()), format!("line {} of {origin}", at + 1), setting)
    };
    lines.into_iter().enumerate().map(token).collect()
}

fn read(path: &Path, setting: &str) -> Result<String, TokenError> {
    let failed = |source| TokenError::File { setting: setting.to_owned(), path: path.to_owned(), source };
    std::fs::read_to_string(path).map_err(failed)
}

fn legal(text: Secret, origin: String, setting: &str) -> Result<ConfiguredToken, TokenError> {
    let bytes = text.reveal().as_bytes();
    let is_legal = (1..=BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    if is_legal {
        Ok(ConfiguredToken { text, origin })
    } else {
        Err(TokenError::Form { origin, setting: setting.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::TokenConfig;
    use super::*;

    fn config(token: Option<&str>) -> HttpConfig {
        let token = token.map(|text| Secret::new(text.to_owned()));
        HttpConfig { listen: "127.0.0.1:0".into(), token, token_file: None, tokens: Vec::new(), public_url: None }
    }

    fn tokens(text: &str) -> Result<Tokens, TokenError> {
        Tokens::from_config(&config(Some(text)))
    }

    fn with(header: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().expect("a header"));
        headers
    }

    fn is_valid(tokens: &Tokens, header: &str) -> bool {
        matches!(tokens.check(&with(header)), TokenCheck::Valid(_))
    }

    /// A text that is almost the token is not the token.
    #[test]
    fn only_the_token_itself_is_right() {
        let tokens = tokens("0123456789abcdef").expect("legal");
        assert_eq!(tokens.check(&HeaderMap::new()), TokenCheck::Missing);
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "BEARER  0123456789abcdef "] {
            assert!(is_valid(&tokens, right), "{right}");
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
            assert_eq!(tokens.check(&with(wrong)), TokenCheck::Invalid, "{wrong}");
        }
    }

    /// A proxy in front and this code must judge the same header.
    #[test]
    fn of_several_headers_none_is_right() {
        let tokens = tokens("0123456789abcdef").expect("legal");
        for other in ["Bearer 0123456789abcdef", "Bearer x", "Basic x"] {
            let mut headers = with("Bearer 0123456789abcdef");
            headers.append(AUTHORIZATION, other.parse().expect("a header"));
            assert_eq!(tokens.check(&headers), TokenCheck::Invalid, "{other}");
        }
    }

    /// An empty secret file would let everybody in, and nobody could send a token with a space.
    #[test]
    fn what_no_header_can_carry_is_refused_and_not_shown() {
        for bad in ["", "two words", "schlüssel", "line\nbreak", &"x".repeat(BYTES_MAX + 1)] {
            let error = tokens(bad).expect_err("refused");
            assert_eq!(error.setting(), "http.token");
            assert!(bad.is_empty() || !error.to_string().contains(bad), "{error}");
        }
    }

    /// A short token is found by trying.
    #[test]
    fn a_short_token_is_warned_about() {
        let warnings = |text: &str| tokens(text).expect("legal").warnings().count();
        assert_eq!((warnings("0123456789abcde"), warnings("0123456789abcdef")), (1, 0));
    }

    /// The line break at the end of a file is not part of the token.
    #[test]
    fn each_line_of_the_file_is_a_token() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef\r\n").expect("writable");
        let of_file = HttpConfig { token_file: Some(path.clone()), ..config(None) };
        assert!(is_valid(&Tokens::from_config(&of_file).expect("readable"), "Bearer 0123456789abcdef"));
        std::fs::write(&path, "0123456789abcdef\nfedcba9876543210\n").expect("writable");
        let both = Tokens::from_config(&of_file).expect("readable");
        for token in ["0123456789abcdef", "fedcba9876543210"] {
            assert!(is_valid(&both, &format!("Bearer {token}")), "{token}");
        }
        let first = Tokens::text_with(Scope::Admin, &of_file).expect("readable").expect("set");
        assert_eq!(first.reveal(), "0123456789abcdef");
        let absent = HttpConfig { token_file: Some(folder.path().join("absent")), ..of_file };
        assert_eq!(Tokens::from_config(&absent).expect_err("absent").setting(), "http.token_file");
    }

    /// A caller gets a new token before the old one ends, and no caller passes for another.
    #[test]
    fn a_named_token_has_its_scopes_and_two_lines() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let named = |name: &str, text: &str, scopes: &[Scope]| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("writable");
            TokenConfig { name: name.to_owned(), file, scopes: scopes.to_vec() }
        };
        let gateway = named("gateway", "old-0123456789abcdef\nnew-0123456789abcdef\n", &[Scope::Check]);
        let both = HttpConfig { tokens: vec![gateway.clone()], ..config(Some("all-0123456789abcdef")) };
        let tokens = Tokens::from_config(&both).expect("legal");
        let caller = |header: &str| match tokens.check(&with(header)) {
            TokenCheck::Valid(caller) => caller,
            other => panic!("{other:?}"),
        };
        for header in ["Bearer old-0123456789abcdef", "Bearer new-0123456789abcdef"] {
            let scopes = &caller(header).scopes;
            assert!(scopes.contains(Scope::Check) && !scopes.contains(Scope::Read) && !scopes.contains(Scope::Admin));
            assert_eq!(caller(header).name, "gateway");
        }
        let all = caller("Bearer all-0123456789abcdef");
        assert!(Scope::ALL.into_iter().all(|scope| all.scopes.contains(scope)));
        for (text, why) in [
            ("a\nb\nc\n", "has 3 lines"),
            ("", "is not a token"),
            ("all-0123456789abcdef", "has the same token as http.token:"),
            ("a-0123456789abcdef\nnew-0123456789abcdef\n", "has the same token as line 2 of http.tokens[0].file"),
        ] {
            let other = named("other", text, &[Scope::Read]);
            let config = HttpConfig { tokens: vec![gateway.clone(), other], ..both.clone() };
            let error = Tokens::from_config(&config).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.setting(), "http.tokens.[1].file");
        }
        assert_eq!(
            Tokens::text_with(Scope::Admin, &HttpConfig { tokens: vec![gateway], ..config(None) }).expect("legal"),
            None
        );
        let admin = named("ops", "ops-0123456789abcdef", &[Scope::Admin]);
        let text = Tokens::text_with(Scope::Admin, &HttpConfig { tokens: vec![admin], ..config(None) }).expect("legal");
        assert_eq!(text.expect("set").reveal(), "ops-0123456789abcdef");
    }
}
