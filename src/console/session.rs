//! The cookie of a session: scope, name of the token, expiry, and a signature. The key of the signature is one in Redis
//! mixed with the digest of the token, so every daemon can verify the cookie, and a session ends with its token.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::RedisResult;
use ring::hmac;

use crate::api::scope::{Scope, Scopes};
use crate::api::token::{Caller, CurrentTokens, KnownToken};
use crate::redis_client::Partition;
use crate::signing::stored_key;
use crate::types::UnixMs;

/// How long a session lasts.
pub const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);

/// What a visitor may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    /// The name of the token.
    pub name: String,
    /// [`Scope::Admin`], or [`Scope::Read`].
    pub scope: Scope,
}

/// Who looks at a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visitor {
    /// No token is configured: everybody on this machine may look.
    Local { now: UnixMs },
    /// Somebody with a session, and what the form did that led to the page.
    LoggedIn { session: ConsoleSession, outcome: Option<String>, now: UnixMs },
    /// Nobody is known yet: the login page, and assets.
    Unknown,
}

impl Visitor {
    /// Whether the visitor may see what receivers answered, and act.
    pub fn is_admin(&self) -> bool {
        matches!(self, Self::LoggedIn { session, .. } if session.is_admin())
    }

    /// The name under which actions are recorded.
    pub fn name(&self) -> &str {
        match self {
            Self::LoggedIn { session, .. } => &session.name,
            Self::Local { .. } | Self::Unknown => "this machine",
        }
    }

    /// The server's time at the request.
    pub fn now(&self) -> Option<UnixMs> {
        match self {
            Self::Local { now } | Self::LoggedIn { now, .. } => Some(*now),
            Self::Unknown => None,
        }
    }
}

/// The name of sessions that began with a login of one use. A token's name has no space.
const ONE_USE: &str = "one-use login";

/// The token of these sessions, which end only with the key.
pub fn one_use_token() -> KnownToken {
    let caller = Arc::new(Caller { name: ONE_USE.to_owned(), scopes: Scopes::all() });
    KnownToken { caller, digest: [0; 32] }
}

impl ConsoleSession {
    /// The session of a token; `None` if its scopes permit neither viewing nor acting.
    pub fn of(token: &KnownToken) -> Option<Self> {
        let scope = [Scope::Admin, Scope::Read].into_iter().find(|scope| token.caller.scopes.contains(*scope))?;
        Some(Self { name: token.caller.name.clone(), scope })
    }

    /// Whether it may act.
    pub fn is_admin(&self) -> bool {
        self.scope == Scope::Admin
    }

    /// The value of its cookie.
    pub fn cookie(&self, key: &str, token: &KnownToken, expires: UnixMs) -> String {
        let name = URL_SAFE_NO_PAD.encode(&self.name);
        let text = format!("{}.{name}.{}", self.scope, expires.0);
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&signing_key(key, token), text.as_bytes()));
        format!("{text}.{signature}")
    }

    /// The session of a cookie; `None` if it is forged or over, or if its token is no longer valid.
    pub fn read(cookie: &str, key: &str, tokens: &CurrentTokens, now: UnixMs) -> Option<Self> {
        let (text, signature) = cookie.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut parts = text.split('.');
        let scope = Scope::from_stored(parts.next()?)?;
        let name = String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
        let expires = UnixMs(parts.next()?.parse().ok()?);
        let is_signed =
            |token: &KnownToken| hmac::verify(&signing_key(key, token), text.as_bytes(), &signature).is_ok();
        let valid = if name == ONE_USE { vec![one_use_token()] } else { tokens.of_caller(&name) };
        let token = valid.into_iter().find(is_signed)?;
        // A reload may have taken the scope.
        let still_has_it = token.caller.scopes.contains(scope);
        (now < expires && parts.next().is_none() && still_has_it).then_some(Self { name, scope })
    }
}

fn signing_key(key: &str, token: &KnownToken) -> hmac::Key {
    let mixed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), &token.digest);
    hmac::Key::new(hmac::HMAC_SHA256, mixed.as_ref())
}

/// The key in Redis. Somebody may delete it to end all sessions.
pub async fn console_key(Partition { client, keys }: &Partition) -> RedisResult<String> {
    stored_key(client, &keys.console_key()).await
}
