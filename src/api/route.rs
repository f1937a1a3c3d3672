//! A route: method, path, access, handler, and the texts of the OpenAPI document. Read next: [`super::routes`], the
//! table.

use super::operation::DescribedRoute;
use super::scope::Scope;
use super::status_doc::StatusDoc;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who can reach the port.
    Open,
    /// If a token is set, only callers whose token has this scope; else everybody.
    IfSet(Scope),
    /// Only callers whose token has this scope. If none is set, nobody.
    Needs(Scope),
}

/// The groups of operations, with descriptions.
pub(super) const TAGS: [(&str, &str); 7] = [
    ("checks", "For API nodes: one question for each request that they serve."),
    ("events", "For producers that don't speak with Redis."),
    ("operations", "For probes and scrapers. Open to everybody who reaches the port."),
    ("overview", "For operators: the state of all subjects, deliveries and daemons. Lists are read in slices."),
    ("contacts", "Contacts that a subject's own side adds, and their verification."),
    ("subjects", "Settings, usage and alerts of subjects."),
    ("deliveries", "Notifications on their way: their state, and actions of an operator."),
];

/// A route.
#[derive(Debug)]
pub struct Route {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path, with `{name}` for a part that varies.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    pub(super) endpoint: fn() -> DescribedRoute,
    /// The id of its operation. Generated clients name a function after it.
    pub(super) operation_id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    /// A parameter of the query that the handler reads and this route refuses.
    pub(super) hidden: &'static str,
    /// The meanings of its statuses, without those that follow from the handler's signature and from `access`.
    pub(super) answers: &'static [StatusDoc],
}

/// A route without texts.
pub(super) const fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    endpoint: fn() -> DescribedRoute,
) -> Route {
    let (operation_id, tag, summary, description, hidden) = ("", "", "", "", "");
    Route { method, path, access, endpoint, operation_id, tag, summary, description, hidden, answers: &[] }
}

impl Route {
    pub(super) const fn operation(self, operation_id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self { operation_id, tag, summary, ..self }
    }

    pub(super) const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    pub(super) const fn hiding(self, hidden: &'static str) -> Self {
        Self { hidden, ..self }
    }

    pub(super) const fn answers(self, answers: &'static [StatusDoc]) -> Self {
        Self { answers, ..self }
    }
}
