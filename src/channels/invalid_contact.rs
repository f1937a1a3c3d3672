//! Why a new contact is refused.

/// The faulty field of a contact. Shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InvalidContact {
    /// The field's name in the contact's JSON.
    pub field: &'static str,
    /// The fault.
    pub problem: String,
}
