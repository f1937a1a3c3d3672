//! The fields of queries and of forms. A wrong one is answered with a page, as every error.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::error::{ConsoleError, SentFields};
use crate::api::path::{self, parameter};
use crate::api::problem::Problem;
use crate::types::Subject;

/// Fields in their order. A name may occur several times.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the fields of a query, or of the body of a form.
    pub(super) fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The fields of these names, and the others.
    pub(super) fn partition(self, names: &[&str]) -> (SentFields, SentFields) {
        self.0.into_iter().partition(|(name, _)| names.contains(&name.as_str()))
    }

    /// Every value of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(named, _)| named == name).map(|(_, value)| value.as_str())
    }

    /// The value as it was sent; empty if there is none.
    pub(super) fn raw<'a>(&'a self, name: &'a str) -> &'a str {
        self.all(name).next().unwrap_or_default()
    }

    /// The value without white space around it; `None` if nothing is left.
    pub(super) fn text<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        Some(self.raw(name).trim()).filter(|text| !text.is_empty())
    }

    /// The value, parsed; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// The name, and what is allowed.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        parameter(name, self.text(name))
    }

    /// The subject, whose id may begin and end with spaces.
    ///
    /// # Errors
    ///
    /// What is allowed.
    pub(super) fn subject(&self) -> Result<Subject, Problem> {
        self.raw("subject").parse().map_err(|error| Problem::bad_request(format!("subject: {error}")))
    }
}

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
