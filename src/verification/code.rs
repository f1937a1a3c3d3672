//! Codes: six digits, one alive per contact, of which Redis holds only a digest over the code, a nonce and the contact.
//! Pure.
//!
//! Whoever reads Redis can try all million codes in a moment, whatever is stored: the limit on guesses is what bounds
//! everybody else.

use crate::types::alert::digest_of;
use crate::types::secret::same_secret;
use crate::types::{ConsentId, Subject};

/// The length of a code.
pub const CODE_DIGITS: usize = 6;
/// A million.
const CODES: u32 = 10_u32.pow(CODE_DIGITS as u32);

/// Generates a code, each as likely as any other.
pub(super) fn generate() -> String {
    format!("{:0CODE_DIGITS$}", rand::random_range(0..CODES))
}

/// What a code verifies: one contact, as it was added one time. A contact that was removed and added again has another
/// holder.
pub(super) fn holder(subject: &Subject, consent: &ConsentId) -> String {
    digest_of(&[subject.as_str(), consent.as_str()])
}

/// A code as Redis knows it. Bound to the holder: a record that is copied to another key is worth nothing.
pub(super) fn stored_form(nonce: &str, holder: &str, code: &str) -> String {
    format!("{nonce}.{}", digest_of(&[nonce, holder, code]))
}

/// What is unique to a stored code: guesses are counted under it.
pub(super) fn nonce_of(stored: &str) -> Option<&str> {
    stored.split_once('.').map(|(nonce, _)| nonce)
}

/// Whether this is the stored code, compared in constant time.
pub(super) fn matches(stored: &str, holder: &str, guess: &str) -> bool {
    nonce_of(stored).is_some_and(|nonce| same_secret(stored.as_bytes(), stored_form(nonce, holder, guess).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code that begins with zeros has six digits as well, and none is likelier.
    #[test]
    fn codes_are_six_digits_of_any_kind() {
        let generated: Vec<String> = (0..5000).map(|_| generate()).collect();
        assert!(generated.iter().all(|one| one.len() == 6 && one.bytes().all(|byte| byte.is_ascii_digit())));
        for position in 0..6 {
            for digit in b'0'..=b'9' {
                let count = generated.iter().filter(|one| one.as_bytes()[position] == digit).count();
                // 500 expected, 21 the standard deviation.
                assert!((350..650).contains(&count), "digit {digit} at {position}: {count}");
            }
        }
    }

    /// A digest of one contact must be worth nothing to another, nor one of another code.
    #[test]
    fn a_digest_belongs_to_one_code_of_one_contact() {
        let stored = stored_form("n", "alice", "012345");
        assert!(matches(&stored, "alice", "012345"));
        for wrong in ["12345", "012346", ""] {
            assert!(!matches(&stored, "alice", wrong), "{wrong:?}");
        }
        assert!(!matches(&stored, "alice0", "12345"));
        assert!(!matches(&stored.replace("n.", "m."), "alice", "012345"));
        assert!(["", "n", "n.", "n.AAAA"].iter().all(|broken| !matches(broken, "alice", "012345")));
    }
}
