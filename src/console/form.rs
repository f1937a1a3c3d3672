//! Forms that change something: only an admin may send them, and each takes effect once.
//!
//! Every page gives its forms an id. The digest of what a form sends, with that id, is claimed in Redis before the
//! action, and what the action did is stored there. If the same form is sent again, its answer leads to the same page
//! and nothing is done. Read next: [`super::access`], who may send anything.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use redis::RedisResult;
use sha2::{Digest, Sha256};

use super::error::ConsoleError;
use super::session::{ConsoleSession, Visitor};
use super::state::ConsoleState;
use crate::actions::action_log::{Action, record};
use crate::api::body::in_time;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::fields::Fields;
use crate::redis_client::Partition;
use crate::types::Subject;
use crate::types::text::hex;

/// How long a form counts as sent.
const SENT_TTL: Duration = Duration::from_secs(3600);
/// Number of bytes of the digest that is its id.
const DIGEST_BYTES: usize = 16;
/// The parameter that names the form whose outcome a page tells.
const SENT: &str = "sent";
/// Stands in a message for the subject that the address of the next page names.
pub(super) const SUBJECT: &str = "{subject}";
/// What a page says of a form without an outcome.
const UNKNOWN_OUTCOME: &str =
    "This form was sent before. What it asked for is being done, or has failed: this page shows the present state.";

/// Somebody who may change things.
#[derive(Debug)]
pub(super) struct Admin(pub(super) Visitor);

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ConsoleError> {
        let visitor = parts.extensions.get::<Visitor>().cloned().unwrap_or(Visitor::Unknown);
        let advice = match &visitor {
            visitor if visitor.is_admin() => return Ok(Self(visitor.clone())),
            Visitor::Local { .. } => {
                "log in to change something: `quotabell console` prints an address that logs you in"
            }
            _ => "your token may only look: to change something, log in with one that has the scope admin",
        };
        Err(ConsoleError::new(StatusCode::FORBIDDEN, advice))
    }
}

/// The body of a request, received in time and not too large.
#[derive(Debug)]
pub(super) struct SentBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for SentBody {
    type Rejection = ConsoleError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ConsoleError> {
        let read = in_time(Bytes::from_request(request, state)).await?;
        read.map(Self).map_err(|refused| ConsoleError::new(refused.status(), refused.body_text()))
    }
}

/// What an admin has sent.
#[derive(Debug)]
pub(super) struct SentForm {
    pub(super) fields: Fields,
    pub(super) visitor: Visitor,
    id: String,
}

impl<S: Send + Sync> FromRequest<S> for SentForm {
    type Rejection = ConsoleError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ConsoleError> {
        let (mut parts, body) = request.into_parts();
        let Admin(visitor) = Admin::from_request_parts(&mut parts, state).await?;
        let mut digest = Sha256::new_with_prefix(parts.uri.path());
        let SentBody(body) = SentBody::from_request(Request::from_parts(parts, body), state).await?;
        digest.update(&body);
        Ok(Self { fields: Fields::parse(&body), visitor, id: hex(&digest.finalize()[..DIGEST_BYTES]) })
    }
}

/// What an action did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// For the next page. Has [`SUBJECT`] in place of its subject, because it outlives an erasure.
    pub(super) message: String,
    /// For the log of actions, as the field of [`Action`]s.
    pub(super) action: String,
    pub(super) subject: Option<Subject>,
    pub(super) target: String,
    /// Number of things that were changed. If there are none, nothing is recorded.
    pub(super) count: u64,
}

impl SentForm {
    /// Does what the form asks for, unless it was done before, and leads to the page `next`, which says what was done.
    /// If the browser leaves, the action continues.
    ///
    /// # Errors
    ///
    /// The error of the action, with the way back to `next`; the form may be sent again then.
    pub(super) async fn once<F>(
        self,
        console: Arc<ConsoleState>,
        next: String,
        action: impl FnOnce(Arc<ConsoleState>, Self) -> F,
    ) -> Result<Response, ConsoleError>
    where
        F: Future<Output = Result<Done, ConsoleError>> + Send + 'static,
    {
        let (mark, separator) = (SENT, if next.contains('?') { '&' } else { '?' });
        let location = format!("{next}{separator}{mark}={}", self.id);
        let key = console.observer.partitions.first().keys.console_form(&self.id);
        let by = self.visitor.name().to_owned();
        let claimed = within(CALL_TIMEOUT, claim(console.observer.partitions.first(), &key)).await;
        if claimed.map_err(|problem| ConsoleError::from(problem).with_way_to(&next))? {
            let subject = self.fields.raw("subject").parse::<Subject>();
            let action = action(Arc::clone(&console), self);
            let of_action = Arc::clone(&console);
            let working = tokio::spawn(async move {
                let done = finish(&of_action, &key, &by, action).await;
                of_action.overview.clear();
                if let Ok(subject) = subject {
                    of_action.subjects.note_changed(&subject);
                }
                done
            });
            working.await.expect("an action does not panic").map_err(|error| error.with_way_to(&next))?;
        }
        Ok((StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response())
    }
}

/// Whether the form was not sent before.
async fn claim(Partition { client, .. }: &Partition, key: &str) -> RedisResult<bool> {
    let set = redis::cmd("SET").arg(key).arg("").arg("NX").arg("EX").arg(SENT_TTL.as_secs()).to_owned();
    Ok(client.query::<Option<String>>(&set).await?.is_some())
}

/// Waits for the action, and stores and records what it did.
async fn finish(
    console: &ConsoleState,
    key: &str,
    by: &str,
    action: impl Future<Output = Result<Done, ConsoleError>>,
) -> Result<(), ConsoleError> {
    let partitions = &console.observer.partitions;
    let client = &partitions.first().client;
    let Done { message, action, subject, target, count } = match action.await {
        Ok(done) => done,
        Err(error) => {
            // If this fails too, the form can be sent again after a while, or from the page as it is then.
            let _ = within(CALL_TIMEOUT, client.query::<u64>(redis::cmd("DEL").arg(key))).await;
            return Err(error);
        }
    };
    tracing::info!(action, by, count, "somebody used the console");
    // It is done: that it can be neither recorded nor told is no failure.
    if count > 0 {
        let action = Action { by, action: &action, subject: subject.as_ref(), target: &target, count };
        if let Err(problem) = within(CALL_TIMEOUT, record(partitions, &action)).await {
            tracing::warn!(error = problem.detail(), "an action is missing from the log of actions");
        }
    }
    let set = redis::cmd("SET").arg(key).arg(message).arg("EX").arg(SENT_TTL.as_secs()).to_owned();
    let _ = within(CALL_TIMEOUT, client.query::<()>(&set)).await;
    Ok(())
}

/// What the form did that led to this page; `None` if none did.
pub(super) async fn outcome(console: &ConsoleState, uri: &Uri, session: &ConsoleSession) -> Option<String> {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let id = query.text(SENT).filter(|id| id.len() == 2 * DIGEST_BYTES && session.is_admin())?;
    let Partition { client, keys } = console.observer.partitions.first();
    let get = redis::cmd("GET").arg(keys.console_form(id)).to_owned();
    let message: String = within(CALL_TIMEOUT, client.query::<Option<String>>(&get)).await.ok()??;
    let subject = ["id", "subject"].into_iter().map(|name| query.raw(name)).find(|name| !name.is_empty());
    Some(match message.as_str() {
        "" => UNKNOWN_OUTCOME.to_owned(),
        message => message.replace(SUBJECT, subject.unwrap_or("the subject")),
    })
}
