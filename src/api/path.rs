//! What stands in the URL of a request: the subject in its path, its contact or delivery, and the query.
//!
//! Each is an extractor, so that a handler begins with what was asked for, and every wrong URL is a 400 that says what
//! is allowed.

use std::convert::Infallible;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::operation::{Describe, OperationDoc};
use super::problem::Problem;
use super::token::Caller;
use crate::types::text_form::inline_schema;
use crate::types::{ContactId, DeliveryId, GrantId, Subject};
use crate::views::IdPrefix;

/// The longest id of a contact that is looked for.
const CONTACT_BYTES_MAX: usize = 256;

/// Who called, if a token is set.
#[derive(Debug)]
pub(super) struct OfCaller(pub(super) Option<Arc<Caller>>);

impl<S: Send + Sync> FromRequestParts<S> for OfCaller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().cloned()))
    }
}

impl Describe for OfCaller {
    fn describe(_: &mut OperationDoc<'_>) {}
}

/// The subject of `/v1/subjects/{id}/...`.
#[derive(Debug)]
pub(super) struct SubjectPath(pub(super) Subject);

/// The subject and the contact of `/v1/subjects/{id}/contacts/{contact}/...`.
#[derive(Debug)]
pub(super) struct ContactPath(pub(super) Subject, pub(super) ContactId);

/// The subject and the grant of `/v1/subjects/{id}/grants/{grant}`.
#[derive(Debug)]
pub(super) struct GrantPath(pub(super) Subject, pub(super) GrantId);

/// The delivery of `/v1/deliveries/{id}/...`: a whole id, since each digit less could mean another delivery tomorrow.
#[derive(Debug)]
pub(super) struct DeliveryPath(pub(super) DeliveryId);

#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

#[derive(Debug, Deserialize)]
struct ContactParts {
    id: String,
    contact: String,
}

#[derive(Debug, Deserialize)]
struct GrantParts {
    id: String,
    grant: String,
}

/// The variable parts of a path, as text.
async fn parts_of<T: DeserializeOwned + Send>(parts: &mut Parts, state: &(impl Send + Sync)) -> Result<T, Problem> {
    let path = Path::from_request_parts(parts, state).await;
    path.map(|Path(path)| path)
        .map_err(|rejection| Problem::bad_request(format!("the path: {}", rejection.body_text())))
}

fn subject_of(id: &str) -> Result<Subject, Problem> {
    Subject::parse(id.as_bytes()).map_err(|error| Problem::bad_request(format!("id: {error}")))
}

impl<S: Send + Sync> FromRequestParts<S> for SubjectPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id: String = parts_of(parts, state).await?;
        subject_of(&id).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ContactPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let ContactParts { id, contact } = parts_of(parts, state).await?;
        if contact.len() > CONTACT_BYTES_MAX {
            return Err(Problem::bad_request(format!("contact: has more than {CONTACT_BYTES_MAX} bytes")));
        }
        Ok(Self(subject_of(&id)?, ContactId::from_stored(&contact)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for GrantPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let GrantParts { id, grant } = parts_of(parts, state).await?;
        let grant = grant.parse().map_err(|error| Problem::bad_request(format!("grant: {error}")))?;
        Ok(Self(subject_of(&id)?, grant))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for DeliveryPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id: String = parts_of(parts, state).await?;
        let whole = id.parse::<IdPrefix<DeliveryId>>().ok().and_then(|prefix| prefix.whole());
        whole.map(Self).ok_or_else(|| Problem::bad_request("id: must be delivery_ and 32 hex digits"))
    }
}

impl Describe for SubjectPath {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.path_parameter::<Subject>("id", "The subject: 1 to 256 bytes of UTF-8, no control characters.");
    }
}

impl Describe for ContactPath {
    fn describe(operation: &mut OperationDoc<'_>) {
        SubjectPath::describe(operation);
        let description = "The contact's id, from the list or from the answer that added it.";
        operation.path_parameter::<ContactInPath>("contact", description);
    }
}

impl Describe for GrantPath {
    fn describe(operation: &mut OperationDoc<'_>) {
        SubjectPath::describe(operation);
        operation.path_parameter::<GrantId>("grant", "The grant's id.");
    }
}

impl Describe for DeliveryPath {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.path_parameter::<DeliveryInPath>("id", "The whole id of a delivery.");
    }
}

struct ContactInPath;
inline_schema!(ContactInPath, { "type": "string", "minLength": 1, "maxLength": CONTACT_BYTES_MAX });

struct DeliveryInPath;
inline_schema!(DeliveryInPath, { "type": "string", "pattern": "^delivery_[0-9a-f]{32}$" });

impl<T: JsonSchema> Describe for Query<T> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.query::<T>();
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        query.map(|axum::extract::Query(query)| Self(query)).map_err(|rejection| {
            // Its source names the parameter and those that there are.
            let why = std::error::Error::source(&rejection).map_or_else(|| rejection.body_text(), ToString::to_string);
            // A wrong value follows the name of its parameter, and is quoted.
            let message = why.split_once(": ").map_or(why.as_str(), |(_, message)| message);
            let of_query = ["unknown field `", "duplicate field `", "missing field `", "unknown variant `"];
            let is_of_query = of_query.iter().any(|begin| why.starts_with(begin) || message.starts_with(begin));
            Problem::bad_request(if is_of_query { format!("the query: {why}") } else { why })
        })
    }
}

/// A parameter of the query, if it is given.
pub(crate) fn parameter<T: FromStr<Err: Display>>(name: &str, given: Option<&str>) -> Result<Option<T>, Problem> {
    let parsed = given.map(str::parse).transpose();
    parsed.map_err(|error| Problem::bad_request(format!("{name}: {error}")))
}
