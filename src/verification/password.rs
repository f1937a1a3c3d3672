//! One-time passwords: the wrapper of `password.lua`.
//!
//! Six digits, one alive per contact, of which Redis holds only a digest over them, a nonce and the contact. Whoever reads Redis can
//! try all million of them in a moment, whatever is stored: what bounds everybody else is how often they may guess.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::types::secret::same_digest;
use crate::types::{Keys, nonce};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("password.lua")));

/// What a password consists of.
pub const PASSWORD_DIGITS: usize = 6;
/// A million.
const PASSWORDS: u32 = 10_u32.pow(PASSWORD_DIGITS as u32);

/// A password as it is sent. Never printed.
pub(super) struct Password(String);

impl Password {
    /// Draws one, each as likely as any other.
    pub(super) fn draw() -> Self {
        Self(format!("{:0PASSWORD_DIGITS$}", rand::random_range(0..PASSWORDS)))
    }

    /// The six digits.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A password as Redis knows it.
#[derive(Debug)]
pub(super) struct Stored {
    /// Tells it from every other; guesses are counted under it.
    pub(super) nonce: String,
    /// What it verifies: the endpoint that it was sent to, as it was added then.
    pub(super) endpoint: String,
    digest: [u8; 32],
}

impl Stored {
    /// Whether this is the password. Takes as long for any.
    pub(super) fn is(&self, holder: &str, guess: &str) -> bool {
        same_digest(&digest(&self.nonce, holder, guess), &self.digest)
    }

    /// What a guess at a password that does not exist is held against, so that it takes as long: no text has this digest.
    pub(super) fn of_nobody(holder: &str) -> Self {
        Self { nonce: holder.to_owned(), endpoint: String::new(), digest: [0; 32] }
    }
}

/// Makes this the one password of the contact. The one before is no longer good.
pub(super) async fn issue(
    client: &RedisClient,
    keys: &Keys,
    holder: &str,
    endpoint: &str,
    password: &Password,
    lives: Duration,
) -> RedisResult<()> {
    let nonce = nonce();
    let digest = hex(&digest(&nonce, holder, password.reveal()));
    let lives_ms = u64::try_from(lives.as_millis()).unwrap_or(u64::MAX).max(1);
    let call = SCRIPT.call().key(keys.verify_password(holder));
    let _: String = call.arg("issue").arg(nonce).arg(lives_ms).arg(digest).arg(endpoint).run(client).await?;
    Ok(())
}

/// The contact's password, if one is alive.
pub(super) async fn read(client: &RedisClient, keys: &Keys, holder: &str) -> RedisResult<Option<Stored>> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.verify_password(holder)).arg("nonce").arg("digest").arg("endpoint");
    let fields: [Option<String>; 3] = client.query(&command).await?;
    let [Some(nonce), Some(digest), Some(endpoint)] = fields else { return Ok(None) };
    Ok(unhex(&digest).map(|digest| Stored { nonce, endpoint, digest }))
}

/// Uses the password up. However many race, one has it.
pub(super) async fn consume(client: &RedisClient, keys: &Keys, holder: &str, stored: &Stored) -> RedisResult<bool> {
    let claim = nonce();
    let call = SCRIPT.call().key(keys.verify_password(holder));
    let answer: String = call.arg("consume").arg(&stored.nonce).arg(claim).run(client).await?;
    Ok(answer == "consumed")
}

/// SHA-256 over the parts, each preceded by its length. Bound to the holder: what is copied to another key is worth nothing there.
fn digest(nonce: &str, holder: &str, password: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [nonce, holder, password] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes: Option<Vec<u8>> =
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A password that begins with zeros has six digits as well, and none is likelier.
    #[test]
    fn passwords_are_six_digits_of_any_kind() {
        let drawn: Vec<Password> = (0..5000).map(|_| Password::draw()).collect();
        assert!(drawn.iter().all(|one| one.0.len() == 6 && one.0.bytes().all(|byte| byte.is_ascii_digit())));
        for place in 0..6 {
            for digit in b'0'..=b'9' {
                let count = drawn.iter().filter(|one| one.0.as_bytes()[place] == digit).count();
                // 500 expected, 21 the standard deviation.
                assert!((350..650).contains(&count), "digit {digit} at {place}: {count}");
            }
        }
        assert_eq!(format!("{:?}", drawn[0]), "***");
    }

    /// A digest of one contact must be worth nothing to another, nor one of another password.
    #[test]
    fn a_digest_belongs_to_one_password_of_one_contact() {
        let stored = Stored { nonce: "n".into(), endpoint: String::new(), digest: digest("n", "alice", "012345") };
        assert!(stored.is("alice", "012345"));
        assert!(!stored.is("alice", "12345") && !stored.is("alice", "012346") && !stored.is("alice", ""));
        assert!(!stored.is("alice0", "12345"));
        assert!(!Stored { nonce: "m".into(), ..stored }.is("alice", "012345"));
        assert_eq!(unhex(&hex(&digest("n", "alice", "012345"))), Some(digest("n", "alice", "012345")));
        assert_eq!(unhex("zz"), None);
    }
}
