//! Random identifiers.

/// 128 random bits as 32 hex digits: unique, and impossible to guess.
pub fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}
