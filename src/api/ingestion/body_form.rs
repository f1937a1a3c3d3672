//! The form of a body of events, by the header fields of its request. Pure.

use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use super::cloud_event::SPECVERSION_HEADER;
use crate::api::problem::Problem;

/// The media types of bodies.
pub(super) const MEDIA_TYPES: [&str; 5] = [
    "application/json",
    "application/x-ndjson",
    "application/jsonl",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
];
const ACCEPTED: &str = "application/json, application/x-ndjson, application/jsonl, application/cloudevents+json, \
                        application/cloudevents-batch+json";

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// An event or a list of events, which may be CloudEvents.
    Json,
    /// An event per line, which may be a CloudEvent.
    Lines,
    /// One CloudEvent.
    CloudEvent,
    /// A list of CloudEvents.
    CloudEvents,
    /// The data of one CloudEvent, whose attributes are in the header.
    Binary,
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

impl BodyForm {
    /// The form of the body of a request.
    ///
    /// # Errors
    ///
    /// 415 for another media type.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        let media_type = media_type(headers);
        let [json, ndjson, jsonl, cloud_event, cloud_events] = MEDIA_TYPES;
        let is = |one: &str| media_type.eq_ignore_ascii_case(one);
        if is(cloud_event) {
            Ok(Self::CloudEvent)
        } else if is(cloud_events) {
            Ok(Self::CloudEvents)
        } else if headers.contains_key(SPECVERSION_HEADER) {
            Ok(Self::Binary)
        } else if is(json) {
            Ok(Self::Json)
        } else if is(ndjson) || is(jsonl) {
            Ok(Self::Lines)
        } else {
            let detail = format!("the content type is {media_type:?}, it must be one of {ACCEPTED}");
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
                .header(ACCEPT, HeaderValue::from_static(ACCEPTED)))
        }
    }
}

impl Encoding {
    /// The encoding of the body of a request.
    ///
    /// # Errors
    ///
    /// 415 for any other than gzip, or for several.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut encodings = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.as_bytes().trim_ascii());
        let (first, another) = (encodings.next(), encodings.next());
        let is = |name: &[u8]| first.is_some_and(|first| first.eq_ignore_ascii_case(name));
        match another {
            None if first.is_none() || is(b"identity") => Ok(Self::Identity),
            None if is(b"gzip") || is(b"x-gzip") => Ok(Self::Gzip),
            _ => Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content encoding must be gzip, or none")
                .header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))),
        }
    }
}

/// The media type without parameters; empty if there is none.
fn media_type(headers: &HeaderMap) -> String {
    let content_type = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    content_type.as_deref().and_then(|text| text.split(';').next()).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    /// A CloudEvent in structured mode may travel with the headers of the binary mode; its body is the event.
    #[test]
    fn the_form_follows_from_the_header() {
        let form = |pairs: &[(&'static str, &'static str)]| BodyForm::from_headers(&headers(pairs)).ok();
        assert_eq!(form(&[("content-type", "Application/JSON; charset=utf-8")]), Some(BodyForm::Json));
        assert_eq!(form(&[("content-type", "application/x-ndjson")]), Some(BodyForm::Lines));
        assert_eq!(form(&[("content-type", "application/jsonl")]), Some(BodyForm::Lines));
        let structured = [("content-type", "application/cloudevents+json"), ("ce-specversion", "1.0")];
        assert_eq!(form(&structured), Some(BodyForm::CloudEvent));
        assert_eq!(form(&[("content-type", "application/cloudevents-batch+json")]), Some(BodyForm::CloudEvents));
        for kind in ["application/json", "text/plain"] {
            assert_eq!(form(&[("content-type", kind), ("ce-specversion", "1.0")]), Some(BodyForm::Binary));
        }
        assert_eq!(form(&[("ce-specversion", "1.0")]), Some(BodyForm::Binary));
        assert_eq!(form(&[]), None);
        assert_eq!(form(&[("content-type", "text/plain")]), None);
    }

    /// Another encoding would be read as broken JSON.
    #[test]
    fn only_gzip_is_decoded() {
        let encoding = |pairs: &[(&'static str, &'static str)]| Encoding::from_headers(&headers(pairs)).ok();
        assert_eq!(encoding(&[]), Some(Encoding::Identity));
        assert_eq!(encoding(&[("content-encoding", "GZIP")]), Some(Encoding::Gzip));
        for other in ["deflate", "br", "gzip, gzip"] {
            assert_eq!(encoding(&[("content-encoding", other)]), None, "{other}");
        }
        assert_eq!(encoding(&[("content-encoding", "gzip"), ("content-encoding", "gzip")]), None);
    }
}
