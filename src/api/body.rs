//! Bodies of requests: JSON objects of bounded size.
//!
//! [`Json`] reads a body into a struct whose fields are judged while they are read, so that an error names its field
//! and what is allowed. [`text`] is for `#[serde(deserialize_with)]`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

use super::problem::Problem;
use crate::types::Units;
use crate::types::units::UNITS_MAX;

/// The longest body. The longest meaningful request has about 1 KiB.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a body may take to arrive. A slow caller holds a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The media type that is accepted.
const JSON: &str = "application/json";

/// A request's body: a JSON object with the fields of `T`.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the body must be {JSON}"))
                .header(ACCEPT, HeaderValue::from_static(JSON)));
        }
        let Ok(bytes) = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await else {
            let detail = format!("the body did not arrive within {} seconds", BODY_TIMEOUT.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
        };
        parse(&bytes.map_err(|rejection| not_received(&rejection))?).map(Self)
    }
}

fn not_received(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = format!("the body is too large, at most {BODY_BYTES_MAX} bytes are allowed");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        _ => Problem::bad_request("the body did not arrive completely"),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(JSON)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would read an array as the fields in their order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::bad_request("the body must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        if error.inner().classify() != serde_json::error::Category::Data {
            return not_json(error.inner());
        }
        let field = error.path().to_string();
        let field = if field == "." { "the body" } else { &field };
        // The field says where it is: the line of a body that a program wrote helps nobody.
        let message = error.inner().to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        Problem::bad_request(format!("{field}: {message}"))
    })?;
    deserializer.end().map_err(|error| not_json(&error))?;
    Ok(parsed)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("the body is not JSON: {error}"))
}

/// Reads a string that is parsed as `T`.
///
/// # Errors
///
/// Another type, or what `T` refuses.
pub fn text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// [`text`] for a field that may be missing; `null` is refused.
///
/// # Errors
///
/// As [`text`].
pub fn optional_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    text(deserializer).map(Some)
}

/// Reads units. To JSON Schema `1.0` is as good an integer as `1`, and some languages know no other, so a whole number
/// may be written with a point or an exponent. From 2^53 on it could be another than the one that was meant.
///
/// # Errors
///
/// Another type, or a number out of range.
pub fn units<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Units, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let is_whole = |float: &f64| float.fract() == 0.0 && (0.0..=UNITS_MAX as f64).contains(float);
    let whole = number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|float| float as u64));
    let in_range = whole.and_then(Units::new);
    in_range.ok_or_else(|| D::Error::custom(format!("is {number}, it must be a whole number, 1 to {UNITS_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Subject;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "a JSON object")]
    struct Sample {
        #[serde(deserialize_with = "text")]
        subject: Subject,
        #[serde(default, deserialize_with = "optional_text")]
        alias: Option<Subject>,
        #[serde(default = "one", deserialize_with = "units")]
        units: Units,
    }

    const fn one() -> Units {
        Units::ONE
    }

    fn sample(body: &str) -> Result<Sample, String> {
        parse(body.as_bytes()).map_err(|problem: Problem| format!("{problem:?}"))
    }

    /// An error that does not name the field sends its reader to the source.
    #[test]
    fn an_error_names_its_field() {
        for (body, said) in [
            ("", "the body is not JSON: EOF"),
            ("{", "the body is not JSON: EOF"),
            ("[]", "must be a JSON object"),
            (r#"["alice"]"#, "must be a JSON object"),
            ("1", "expected a JSON object"),
            ("null", "expected a JSON object"),
            ("{}", "missing field `subject`"),
            (r#"{"subject":1}"#, "subject: invalid type: integer `1`, expected a string"),
            (r#"{"subject":null}"#, "subject: invalid type: null, expected a string"),
            (r#"{"subject":"a","alias":null}"#, "alias: invalid type: null, expected a string"),
            (r#"{"subject":""}"#, "subject: subject is empty"),
            (r#"{"subject":"a","unit":1}"#, "unknown field `unit`, expected one of `subject`, `alias`, `units`"),
            (r#"{"subject":"a","subject":"b"}"#, "duplicate field `subject`"),
            (r#"{"subject":"a","units":0}"#, "units: is 0, it must be a whole number, 1 to 9007199254740991"),
            (r#"{"subject":"a","units":1.5}"#, "units: is 1.5, it must be a whole number"),
            (r#"{"subject":"a","units":0.0}"#, "units: is 0.0, it must be a whole number"),
            (r#"{"subject":"a","units":-0.0}"#, "units: is -0.0, it must be a whole number"),
            (r#"{"subject":"a","units":-1.0}"#, "units: is -1.0, it must be a whole number"),
            (r#"{"subject":"a","units":9007199254740992.0}"#, "units: is 9007199254740992.0, it must be"),
            (r#"{"subject":"a","units":1e300}"#, "units: is 1e+300, it must be a whole number"),
            (r#"{"subject":"a","units":-1}"#, "units: is -1, it must be a whole number"),
            (r#"{"subject":"a","units":"1"}"#, "units: invalid type: string \"1\", expected"),
            (r#"{"subject":"a","units":null}"#, "units: invalid type: null, expected"),
            (r#"{"subject":"a","units":9007199254740992}"#, "units: is 9007199254740992, it must be"),
            (r#"{"subject":"\ud800"}"#, "the body is not JSON"),
            (r#"{"subject":"a"} x"#, "the body is not JSON: trailing characters"),
        ] {
            let error = sample(body).expect_err(body).replace("\\\"", "\"");
            assert!(error.contains(said), "{body}: {error}");
        }
        assert!(sample(&format!("{}1{}", "[".repeat(5000), "]".repeat(5000))).is_err());
        assert!(sample(&format!("{}1{}", r#"{"a":"#.repeat(5000), "}".repeat(5000))).is_err());
    }

    /// The document says "integer", and to JSON Schema these are some.
    #[test]
    fn a_whole_number_may_be_written_with_a_point_or_an_exponent() {
        for (written, meant) in [("1.0", 1), ("1e3", 1000), ("2.5e1", 25), ("9007199254740991.0", UNITS_MAX)] {
            let Sample { units, .. } = sample(&format!(r#"{{"subject":"a","units":{written}}}"#)).expect(written);
            assert_eq!(units.get(), meant, "{written}");
        }
    }

    /// A field that is left out is no error.
    #[test]
    fn optional_fields_may_be_left_out() {
        let Sample { subject, alias, units } = sample(r#" {"subject":"🦀"}"#).expect("legal");
        assert_eq!((subject.as_str(), alias, units), ("🦀", None, Units::ONE));
    }

    /// A media type is more than its bare name.
    #[test]
    fn json_may_say_its_character_set() {
        let is = |given: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(given));
            is_json(&headers)
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        assert!(!is("text/plain") && !is("application/jsonx") && !is_json(&HeaderMap::new()));
    }
}
