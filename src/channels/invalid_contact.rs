//! Why a contact is refused when it is written down.

/// A field of a contact that is wrong. Shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InvalidContact {
    /// The field, as it stands in the contact's JSON.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}
