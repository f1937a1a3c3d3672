//! The fields of queries and of forms.

use std::fmt::Display;
use std::str::FromStr;

use url::form_urlencoded;

use crate::api::path::parameter;
use crate::api::problem::Problem;
use crate::types::Subject;

/// Names and values.
pub type SentFields = Vec<(String, String)>;

/// Fields in their order. A name may occur several times.
#[derive(Debug, Clone, Default)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the fields of a query, or of the body of a form.
    pub fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The fields of these names, and the others.
    pub fn partition(self, names: &[&str]) -> (SentFields, SentFields) {
        self.0.into_iter().partition(|(name, _)| names.contains(&name.as_str()))
    }

    /// Every value of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(named, _)| named == name).map(|(_, value)| value.as_str())
    }

    /// The value as it was sent; empty if there is none.
    pub fn raw<'a>(&'a self, name: &'a str) -> &'a str {
        self.all(name).next().unwrap_or_default()
    }

    /// The value without white space around it; `None` if nothing is left.
    pub fn text<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        Some(self.raw(name).trim()).filter(|text| !text.is_empty())
    }

    /// The value, parsed; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// The name, and what is allowed.
    pub fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        parameter(name, self.text(name))
    }

    /// The subject, whose id may begin and end with spaces.
    ///
    /// # Errors
    ///
    /// What is allowed.
    pub fn subject(&self) -> Result<Subject, Problem> {
        self.raw("subject").parse().map_err(|error| Problem::bad_request(format!("subject: {error}")))
    }
}
