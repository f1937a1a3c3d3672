//! What the bearer of a token may do.

use std::collections::BTreeSet;

use crate::types::text_form::text_enum;

text_enum! {
    /// A group of routes. [`Scope::Admin`] contains all others; no other scope contains another.
    pub enum Scope {
        /// Ask whether requests may proceed.
        Check = "check",
        /// Append usage events.
        EventsWrite = "events:write",
        /// Look at subjects, usage, alerts and deliveries.
        Read = "read",
        /// Change settings, contacts, mutes and grants of subjects.
        SubjectsWrite = "subjects:write",
        /// Retry, replay, cancel and discard deliveries.
        DeliveriesWrite = "deliveries:write",
        /// Everything, also reload and erasure.
        Admin = "admin",
    }
}

/// The scopes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// All scopes.
    pub fn all() -> Self {
        Self([Scope::Admin].into())
    }

    /// Whether the bearer may use the routes of this scope.
    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || self.0.contains(&Scope::Admin)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}
