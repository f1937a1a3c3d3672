//! Lists by cursor: `?after=&limit=`, and `next` in the answer.

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::operation::{Describe, OperationDoc};
use super::path::{self, Query};
use super::problem::Problem;
use crate::types::text_form::inline_schema;
use crate::views::Cursor;

const LIMIT_DEFAULT: usize = 100;
pub(super) const LIMIT_MAX: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The `next` of the page before; the first page without it.
    after: Option<String>,
    /// How many things the page may have.
    #[schemars(with = "Option<ListLimit>")]
    limit: Option<String>,
}

/// Which part of a list is asked for.
#[derive(Debug)]
pub(super) struct ListRequest<C> {
    /// The `next` of the part before; `None` for the beginning.
    pub(super) after: Option<C>,
    pub(super) limit: usize,
}

#[derive(Debug)]
pub(super) struct ListLimit(pub(super) usize);

impl Default for ListLimit {
    fn default() -> Self {
        Self(LIMIT_DEFAULT)
    }
}

inline_schema!(ListLimit, { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT });

#[derive(Debug, thiserror::Error)]
#[error("must be a whole number, 1 to {LIMIT_MAX}")]
pub(super) struct ListLimitError;

impl FromStr for ListLimit {
    type Err = ListLimitError;

    fn from_str(text: &str) -> Result<Self, ListLimitError> {
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.map(Self).ok_or(ListLimitError)
    }
}

impl<C: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ListRequest<C> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(ListQuery { after, limit }) = Query::from_request_parts(parts, state).await?;
        let after = path::parameter::<Cursor<C>>("after", after.as_deref())?.map(|Cursor(after)| after);
        let ListLimit(limit) = path::parameter("limit", limit.as_deref())?.unwrap_or_default();
        Ok(Self { after, limit })
    }
}

impl<C> Describe for ListRequest<C> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.query::<ListQuery>();
    }
}
