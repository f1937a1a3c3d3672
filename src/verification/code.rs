//! Codes: six digits, one valid code per contact. Redis holds only a digest of the code, a nonce and the contact. Pure.
//!
//! A reader of Redis could try all million codes in a moment, however they are stored; for everybody else the limit on
//! guesses is the protection.

use crate::types::alert::digest_of;
use crate::types::secret::same_secret;
use crate::types::{ConsentId, Subject};

/// The length of a code.
pub const CODE_DIGITS: usize = 6;
/// Number of codes.
const CODES: u32 = 10_u32.pow(CODE_DIGITS as u32);

/// Generates a code; all codes are equally likely.
pub(super) fn generate() -> String {
    format!("{:0CODE_DIGITS$}", rand::random_range(0..CODES))
}

/// The holder of a code: one contact in one entry. A contact that was removed and added again is another holder.
pub(super) fn holder(subject: &Subject, consent: &ConsentId) -> String {
    digest_of(&[subject.as_str(), consent.as_str()])
}

/// The stored form of a code. It includes the holder, so a record copied to another key is worthless.
pub(super) fn stored_form(nonce: &str, holder: &str, code: &str) -> String {
    format!("{nonce}.{}", digest_of(&[nonce, holder, code]))
}

/// The unique part of a stored code, under which guesses are counted.
pub(super) fn nonce_of(stored: &str) -> Option<&str> {
    stored.split_once('.').map(|(nonce, _)| nonce)
}

/// Whether the guess is the stored code, compared in constant time.
pub(super) fn matches(stored: &str, holder: &str, guess: &str) -> bool {
    nonce_of(stored).is_some_and(|nonce| same_secret(stored.as_bytes(), stored_form(nonce, holder, guess).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes with leading zeros have six digits too, and all codes are equally likely.
    #[test]
    fn codes_are_six_digits_of_any_kind() {
        let generated: Vec<String> = (0..5000).map(|_| generate()).collect();
        assert!(generated.iter().all(|one| one.len() == 6 && one.bytes().all(|byte| byte.is_ascii_digit())));
        for position in 0..6 {
            for digit in b'0'..=b'9' {
                let count = generated.iter().filter(|one| one.as_bytes()[position] == digit).count();
                // Expected 500, standard deviation 21.
                assert!((350..650).contains(&count), "digit {digit} at {position}: {count}");
            }
        }
    }

    /// A digest must be worthless for another contact and for another code.
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
