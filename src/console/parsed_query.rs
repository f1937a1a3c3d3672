//! Queries of pages. A wrong one is answered with a page, as every error.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ConsoleError;
use crate::api::path;

/// The query as a struct.
#[derive(Debug)]
pub(super) struct ParsedQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ParsedQuery<T> {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ConsoleError> {
        let path::Query(query) = path::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}
