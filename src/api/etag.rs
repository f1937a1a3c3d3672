//! Entity tags (RFC 9110): `ETag` of what is shown, and `If-Match` of what replaces it.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::operation::{Describe, JsonReply, OperationDoc};
use super::status_doc::OUTDATED;
use crate::types::text::hex;

/// Number of bytes of the digest in a tag.
const DIGEST_BYTES: usize = 16;

/// The tag of a view: a digest of its JSON.
pub(super) fn etag_of(view: &impl Serialize) -> String {
    let json = serde_json::to_vec(view).expect("a view is strings, numbers and lists");
    format!("\"{}\"", hex(&Sha256::digest(json)[..DIGEST_BYTES]))
}

/// A JSON response with its tag.
#[derive(Debug)]
pub(super) struct TaggedReply<T>(pub(super) T);

impl<T: JsonSchema> Describe for TaggedReply<T> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<T>(200);
    }
}

impl<T: Serialize> IntoResponse for TaggedReply<T> {
    fn into_response(self) -> Response {
        ([(ETAG, etag_of(&self.0))], JsonReply::<T>(self.0)).into_response()
    }
}

/// The tags of `If-Match`; `None` without the field.
#[derive(Debug)]
pub(super) struct IfMatch(Option<Vec<String>>);

impl IfMatch {
    /// Whether a caller with this condition expects what has this tag, or nothing.
    pub(super) fn accepts(&self, etag: Option<&str>) -> bool {
        let Some(tags) = &self.0 else { return true };
        etag.is_some_and(|etag| tags.iter().any(|tag| tag == "*" || tag == etag))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let lines = parts.headers.get_all(IF_MATCH).iter();
        // Our tags have no comma, and what is no text is none of them.
        let tags = lines.flat_map(|line| line.to_str().unwrap_or_default().split(','));
        let tags: Vec<String> = tags.map(|tag| tag.trim().to_owned()).collect();
        Ok(Self(parts.headers.contains_key(IF_MATCH).then_some(tags)))
    }
}

impl Describe for IfMatch {
    fn describe(operation: &mut OperationDoc<'_>) {
        let description = "The `ETag` of the version to replace, or `*` for any existing version.";
        let schema = json!({"type": "string"});
        let parameter = json!({"name": "If-Match", "in": "header", "required": false, "description": description, "schema": schema});
        operation.parameters.push(parameter);
        operation.problems.push(OUTDATED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weak tag must not pass for a strong one, and what is not there matches nothing.
    #[test]
    fn a_condition_accepts_its_own_tags_alone() {
        let accepts =
            |tags: &[&str], etag| IfMatch(Some(tags.iter().map(|tag| (*tag).to_owned()).collect())).accepts(etag);
        let etag = etag_of(&json!({"plan": "free"}));
        assert!(accepts(&["*"], Some(&etag)) && accepts(&["\"x\"", &etag], Some(&etag)));
        assert!(
            !accepts(&["*"], None) && !accepts(&[&format!("W/{etag}")], Some(&etag)) && !accepts(&[""], Some(&etag))
        );
        assert!(IfMatch(None).accepts(None) && etag != etag_of(&json!({"plan": "pro"})));
    }
}
