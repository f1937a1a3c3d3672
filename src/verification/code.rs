//! Codes: six digits, one alive per contact, of which Redis holds only a digest over the code, a nonce and the contact.
//!
//! Whoever reads Redis can try all million codes in a moment, whatever is stored: the limit on guesses is what bounds everybody else.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::types::alert::digest_of;
use crate::types::secret::same_digest;
use crate::types::{ConsentId, Keys, Subject, nonce};
use crate::wire::RedisClient;

/// The length of a code.
pub const CODE_DIGITS: usize = 6;
/// A million.
const CODES: u32 = 10_u32.pow(CODE_DIGITS as u32);

/// A code as it is sent. Never printed.
pub(super) struct Code(String);

impl Code {
    /// Draws one, each as likely as any other.
    pub(super) fn draw() -> Self {
        Self(format!("{:0CODE_DIGITS$}", rand::random_range(0..CODES)))
    }

    /// The digits.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a code verifies: one contact, as it was added one time. A contact that was removed and added again has another holder.
#[derive(Debug, Clone)]
pub(super) struct CodeHolder(String);

impl CodeHolder {
    pub(super) fn new(subject: &Subject, consent: &ConsentId) -> Self {
        Self(digest_of(&[subject.as_str(), consent.as_str()]))
    }
}

/// A code as Redis knows it.
#[derive(Debug)]
pub(super) struct StoredCode {
    /// Unique to the code; guesses are counted under it.
    pub(super) nonce: String,
    digest: [u8; 32],
}

impl StoredCode {
    fn new(nonce: String, holder: &CodeHolder, code: &str) -> Self {
        let digest = digest(&nonce, holder, code);
        Self { nonce, digest }
    }

    /// Whether this is the code, compared in constant time.
    pub(super) fn matches(&self, holder: &CodeHolder, guess: &str) -> bool {
        same_digest(&digest(&self.nonce, holder, guess), &self.digest)
    }

    fn to_stored(&self) -> String {
        format!("{}.{}", self.nonce, STANDARD.encode(self.digest))
    }

    fn from_stored(text: &str) -> Option<Self> {
        let (nonce, digest) = text.split_once('.')?;
        let digest = STANDARD.decode(digest).ok()?.try_into().ok()?;
        Some(Self { nonce: nonce.to_owned(), digest })
    }
}

/// Makes this the only code of the holder; an earlier one is no longer valid.
pub(super) async fn issue(
    client: &RedisClient,
    keys: &Keys,
    holder: &CodeHolder,
    code: &Code,
    lifetime: Duration,
) -> RedisResult<()> {
    let stored = StoredCode::new(nonce(), holder, code.reveal());
    let mut command = redis::cmd("SET");
    command.arg(keys.verify_code(&holder.0)).arg(stored.to_stored()).arg("PX").arg(lifetime_ms(lifetime));
    client.query(&command).await
}

/// The holder's code, if one is alive.
pub(super) async fn read(client: &RedisClient, keys: &Keys, holder: &CodeHolder) -> RedisResult<Option<StoredCode>> {
    let stored: Option<String> = client.query(redis::cmd("GET").arg(keys.verify_code(&holder.0))).await?;
    Ok(stored.as_deref().and_then(StoredCode::from_stored))
}

/// Deletes the code of a contact that is verified.
pub(super) async fn delete(client: &RedisClient, keys: &Keys, holder: &CodeHolder) -> RedisResult<()> {
    client.query(redis::cmd("UNLINK").arg(keys.verify_code(&holder.0))).await
}

/// For `PX`, which takes at least 1.
pub(super) fn lifetime_ms(lifetime: Duration) -> u64 {
    u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// SHA-256 over the parts, each preceded by its length. Bound to the holder: a record that is copied to another key is worth nothing.
fn digest(nonce: &str, holder: &CodeHolder, code: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [nonce, &holder.0, code] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code that begins with zeros has six digits as well, and none is likelier.
    #[test]
    fn codes_are_six_digits_of_any_kind() {
        let drawn: Vec<Code> = (0..5000).map(|_| Code::draw()).collect();
        assert!(drawn.iter().all(|one| one.0.len() == 6 && one.0.bytes().all(|byte| byte.is_ascii_digit())));
        for position in 0..6 {
            for digit in b'0'..=b'9' {
                let count = drawn.iter().filter(|one| one.0.as_bytes()[position] == digit).count();
                // 500 expected, 21 the standard deviation.
                assert!((350..650).contains(&count), "digit {digit} at {position}: {count}");
            }
        }
        assert_eq!(format!("{:?}", drawn[0]), "***");
    }

    /// A digest of one contact must be worth nothing to another, nor one of another code.
    #[test]
    fn a_digest_belongs_to_one_code_of_one_contact() {
        let (alice, alice0) = (CodeHolder("alice".into()), CodeHolder("alice0".into()));
        let stored = StoredCode::new("n".into(), &alice, "012345");
        assert!(stored.matches(&alice, "012345"));
        for wrong in ["12345", "012346", ""] {
            assert!(!stored.matches(&alice, wrong), "{wrong:?}");
        }
        assert!(!stored.matches(&alice0, "12345"));
        let read = StoredCode::from_stored(&stored.to_stored()).expect("as it was written");
        assert!(read.nonce == "n" && read.matches(&alice, "012345"));
        assert!(!StoredCode { nonce: "m".into(), ..stored }.matches(&alice, "012345"));
        assert!(["", "n", "n.", "n.AAAA", "n.!"].iter().all(|broken| StoredCode::from_stored(broken).is_none()));
    }
}
