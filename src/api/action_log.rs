//! Records what callers with a token changed.

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use tracing::warn;

use super::problem::{CALL_TIMEOUT, within};
use super::routes::{Access, Route};
use super::scope::Scope;
use super::state::ApiState;
use super::token::Caller;
use crate::actions::action_log::{Action, record};
use crate::actions::deliveries::subject_of;
use crate::types::{DeliveryId, Subject};

/// The operation that erases a subject.
const ERASURE: &str = "eraseSubject";

/// A request that changes something, with the variable parts of its path.
#[derive(Debug)]
pub(super) struct ChangingRequest {
    operation: &'static str,
    subject: Option<Subject>,
    target: String,
}

impl ChangingRequest {
    /// `None` for requests that only read, and for events and checks, which are no actions.
    pub(super) async fn from_parts(route: &'static Route, parts: &mut Parts) -> Option<Self> {
        let is_action = match route.access {
            Access::Needs(scope) => matches!(scope, Scope::SubjectsWrite | Scope::DeliveriesWrite | Scope::Admin),
            Access::Open | Access::IfSet(_) => false,
        };
        if !is_action || parts.method == Method::GET {
            return None;
        }
        let names_subject = route.path.starts_with("/v1/subjects/");
        let path = RawPathParams::from_request_parts(parts, &()).await.ok();
        let (mut subject, mut target) = (None, String::new());
        for (name, value) in path.iter().flatten() {
            match name {
                "id" if names_subject => subject = Subject::parse(value.as_bytes()).ok(),
                _ => value.clone_into(&mut target),
            }
        }
        // The log must not name a subject that is erased.
        let subject = subject.filter(|_| route.operation_id != ERASURE);
        Some(Self { operation: route.operation_id, subject, target })
    }

    /// Whether something changed. An erasure that was answered with an error may have removed a part.
    pub(super) fn is_done(&self, answer: StatusCode) -> bool {
        answer.is_success() || self.operation == ERASURE && answer.is_server_error()
    }

    /// Records what a caller did. It is done: that it can't be recorded is no failure of the request.
    pub(super) async fn record(&self, api: &ApiState, caller: &Caller) {
        let Self { operation, subject, target } = self;
        // The path of an action on a delivery does not name the subject.
        let subject = match subject {
            None if !target.is_empty() => {
                let id = DeliveryId::from_stored(target);
                within(CALL_TIMEOUT, subject_of(&api.partitions, &id)).await.unwrap_or_default()
            }
            subject => subject.clone(),
        };
        let action = Action { by: &caller.name, action: operation, subject: subject.as_ref(), target, count: 1 };
        if let Err(error) = record(&api.partitions, &action).await {
            warn!(action = operation, %error, "an action is missing from the log of actions");
        }
    }
}
