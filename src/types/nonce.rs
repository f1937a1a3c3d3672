//! What tells one thing from every other of its kind.

/// 128 random bits as 32 hex digits: no two are the same, and nobody guesses one.
pub fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}
