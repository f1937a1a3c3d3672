//! Bodies of requests: JSON objects, of bounded size, every field judged by name.
//!
//! Two steps. [`Json`] takes the object apart: what is no JSON, no object, too large, or has a field that nobody knows is refused
//! there. [`Given`] then reads each field, so that the error names it and what it takes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::problem::Problem;
use crate::types::units::UNITS_MAX;

/// The longest body. The longest request that means anything has about 1 KiB.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a body may take to arrive. A caller that dawdles holds a connection.
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// What is taken.
const JSON: &str = "application/json";

/// A request's body: a JSON object with the fields of `T`, which refuses unknown ones and reads each as [`Given`].
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the body must be {JSON}"))
                .header(ACCEPT, HeaderValue::from_static(JSON)));
        }
        let Ok(bytes) = tokio::time::timeout(BODY_DEADLINE, Bytes::from_request(request, state)).await else {
            let detail = format!("the body did not arrive within {} seconds", BODY_DEADLINE.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
        };
        object(&bytes.map_err(|rejection| unread(&rejection))?).map(Self)
    }
}

fn unread(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = format!("the body is too large, at most {BODY_BYTES_MAX} bytes are allowed");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        _ => Problem::bad_request("the body did not arrive whole"),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(JSON)
}

fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would be taken for the fields in their order.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    serde_json::from_slice(bytes)
        .map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Problem::bad_request(format!("the body: {error}")),
            _ => Problem::bad_request(format!("the body is not JSON: {error}")),
        })
        .and_then(|read| match first {
            Some(b'{') => Ok(read),
            _ => Err(Problem::bad_request("the body must be a JSON object")),
        })
}

/// A field of a body as it was given, not judged yet; absent by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given(Option<Value>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl Given {
    /// The field as text that is read as `T`; `None` where it was not given.
    ///
    /// # Errors
    ///
    /// A problem that names the field, for another type and for what `T` refuses.
    pub fn text<T>(self, field: &'static str) -> Result<Option<T>, Problem>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        match self.0 {
            None => Ok(None),
            Some(Value::String(text)) => {
                text.parse().map(Some).map_err(|error| Problem::bad_request(format!("{field}: {error}")))
            }
            Some(other) => Err(wrong_type(field, &other, "a string")),
        }
    }

    /// The same for a field that must be there.
    ///
    /// # Errors
    ///
    /// As [`Self::text`], and where the field is missing.
    pub fn required_text<T>(self, field: &'static str) -> Result<T, Problem>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.text(field)?.ok_or_else(|| Problem::bad_request(format!("{field}: is missing, it must be a string")))
    }

    /// The field as a whole number that is read as `T`; `allowed` says which are, as "1 to 10".
    ///
    /// # Errors
    ///
    /// A problem that names the field, for another type and for a number that `T` refuses.
    pub fn whole_number<T: TryFrom<u64>>(
        self,
        field: &'static str,
        allowed: impl fmt::Display,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.0 else { return Ok(None) };
        let expected = format!("a whole number, {allowed}");
        match value.as_u64().or_else(|| whole(&value)) {
            Some(number) => T::try_from(number)
                .map(Some)
                .map_err(|_| Problem::bad_request(format!("{field}: is {number}, it must be {expected}"))),
            None => Err(wrong_type(field, &value, &expected)),
        }
    }

    /// The field as `true` or `false`.
    ///
    /// # Errors
    ///
    /// A problem that names the field, for another type.
    pub fn truth(self, field: &'static str) -> Result<Option<bool>, Problem> {
        match self.0 {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(truth)),
            Some(other) => Err(wrong_type(field, &other, "true or false")),
        }
    }
}

/// A number that is written with a point or an exponent, and is whole: to JSON Schema `1.0` is as good an integer as `1`, and some
/// languages know no other. From 2^53 on, it may be another than the one that was meant.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0)?;
    let exact = (0.0..=UNITS_MAX as f64).contains(&number);
    exact.then_some(number as u64)
}

fn wrong_type(field: &str, found: &Value, expected: &str) -> Problem {
    let found = match found {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Problem::bad_request(format!("{field}: is {found}, it must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Subject, Units};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "a JSON object")]
    struct Sample {
        #[serde(default)]
        subject: Given,
        #[serde(default)]
        units: Given,
    }

    fn judged(body: &str) -> Result<(Subject, Option<Units>), String> {
        let read = || {
            let Sample { subject, units } = object(body.as_bytes())?;
            Ok((subject.required_text("subject")?, units.whole_number("units", format_args!("1 to {UNITS_MAX}"))?))
        };
        read().map_err(|problem: Problem| format!("{problem:?}"))
    }

    /// An error that does not name the field sends its reader to the source.
    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        for (body, said) in [
            ("", "the body is not JSON: EOF"),
            ("{", "the body is not JSON: EOF"),
            ("[]", "must be a JSON object"),
            (r#"["alice"]"#, "must be a JSON object"),
            ("1", "expected a JSON object"),
            ("null", "expected a JSON object"),
            ("{}", "subject: is missing, it must be a string"),
            (r#"{"subject":1}"#, "subject: is the number 1, it must be a string"),
            (r#"{"subject":null}"#, "subject: is null, it must be a string"),
            (r#"{"subject":""}"#, "subject: subject is empty"),
            (r#"{"subject":"a","unit":1}"#, "unknown field `unit`, expected `subject` or `units`"),
            (r#"{"subject":"a","subject":"b"}"#, "duplicate field `subject`"),
            (r#"{"subject":"a","units":0}"#, "units: is 0, it must be a whole number, 1 to 9007199254740991"),
            (r#"{"subject":"a","units":1.5}"#, "units: is the number 1.5, it must be a whole number"),
            (r#"{"subject":"a","units":0.0}"#, "units: is 0, it must be a whole number"),
            (r#"{"subject":"a","units":-0.0}"#, "units: is 0, it must be a whole number"),
            (r#"{"subject":"a","units":-1.0}"#, "units: is the number -1.0, it must be a whole number"),
            (r#"{"subject":"a","units":9007199254740992.0}"#, "units: is the number 9007199254740992.0, it must be"),
            (r#"{"subject":"a","units":1e300}"#, "units: is the number 1e+300, it must be a whole number"),
            (r#"{"subject":"a","units":-1}"#, "units: is the number -1, it must be a whole number"),
            (r#"{"subject":"a","units":"1"}"#, "units: is a string, it must be a whole number"),
            (r#"{"subject":"a","units":9007199254740992}"#, "units: is 9007199254740992, it must be"),
            (r#"{"subject":"\ud800"}"#, "the body is not JSON"),
            (r#"{"subject":"a"} x"#, "the body is not JSON: trailing characters"),
        ] {
            let told = judged(body).expect_err(body);
            assert!(told.contains(said), "{body}: {told}");
        }
        assert!(judged(&format!("{}1{}", "[".repeat(5000), "]".repeat(5000))).is_err());
    }

    /// The document says "integer", and to JSON Schema these are some.
    #[test]
    fn a_whole_number_may_be_written_with_a_point_or_an_exponent() {
        for (written, meant) in [("1.0", 1), ("1e3", 1000), ("2.5e1", 25), ("9007199254740991.0", UNITS_MAX)] {
            let (_, units) = judged(&format!(r#"{{"subject":"a","units":{written}}}"#)).expect(written);
            assert_eq!(units.map(Units::get), Some(meant), "{written}");
        }
    }

    /// A field that is left out is no error.
    #[test]
    fn optional_fields_may_be_left_out() {
        let (subject, units) = judged(r#" {"subject":"🦀"}"#).expect("legal");
        assert_eq!((subject.as_str(), units), ("🦀", None));
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
