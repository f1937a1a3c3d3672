//! Lists by cursor: `?after=&limit=`, and `next` in the answer.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Deserialize;

use super::path;
use super::problem::Problem;

/// How many things are listed where the caller does not say.
const LIMIT_DEFAULT: usize = 100;
/// How many are listed at most.
const LIMIT_MAX: usize = 1000;

/// The query of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<String>,
}

/// Which part of a list is asked for.
#[derive(Debug)]
pub(super) struct ListRequest<C> {
    /// The `next` of the part before; `None` for the beginning.
    pub(super) after: Option<C>,
    /// How many things it may hold.
    pub(super) limit: usize,
}

/// How many things are asked for.
#[derive(Debug)]
pub(super) struct ListLimit(pub(super) usize);

impl Default for ListLimit {
    fn default() -> Self {
        Self(LIMIT_DEFAULT)
    }
}

/// The text is no such number.
#[derive(Debug, thiserror::Error)]
#[error("must be a whole number, 1 to {LIMIT_MAX}")]
pub(super) struct NotALimit;

impl FromStr for ListLimit {
    type Err = NotALimit;

    fn from_str(text: &str) -> Result<Self, NotALimit> {
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.map(Self).ok_or(NotALimit)
    }
}

/// Reads the query of a list.
///
/// # Errors
///
/// 400, which names the parameter.
pub(super) fn requested<C: FromStr<Err: Display>>(
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<ListRequest<C>, Problem> {
    let Query(ListQuery { after, limit }) = query.map_err(|rejection| path::broken_query(&rejection))?;
    let after = path::parameter("after", after.as_deref())?;
    let ListLimit(limit) = path::parameter("limit", limit.as_deref())?.unwrap_or_default();
    Ok(ListRequest { after, limit })
}
