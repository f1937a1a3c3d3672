//! What stands in the URL of a request: the subject in its path, and the query.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::Path;
use axum::extract::rejection::{PathRejection, QueryRejection};

use super::problem::Problem;
use crate::types::Subject;

/// The subject of `/v1/subjects/{id}/...`.
///
/// # Errors
///
/// 400.
pub fn subject(path: Result<Path<String>, PathRejection>) -> Result<Subject, Problem> {
    let Path(id) = path.map_err(|rejection| broken(&rejection))?;
    parsed_subject(&id)
}

/// A subject that was written in a path.
///
/// # Errors
///
/// 400, which says what a subject is.
pub fn parsed_subject(id: &str) -> Result<Subject, Problem> {
    Subject::parse(id.as_bytes()).map_err(|error| Problem::bad_request(format!("id: {error}")))
}

/// A path that is no text.
#[must_use]
pub fn broken(rejection: &PathRejection) -> Problem {
    Problem::bad_request(format!("the path: {}", rejection.body_text()))
}

/// A query that is none, or has a parameter that is not known.
#[must_use]
pub fn broken_query(rejection: &QueryRejection) -> Problem {
    Problem::bad_request(format!("the query: {}", rejection.body_text()))
}

/// A parameter of the query, where it is given.
///
/// # Errors
///
/// 400, which names the parameter and says what it takes.
pub fn parameter<T: FromStr<Err: Display>>(name: &str, given: Option<&str>) -> Result<Option<T>, Problem> {
    let parsed = given.map(str::parse).transpose();
    parsed.map_err(|error| Problem::bad_request(format!("{name}: {error}")))
}
