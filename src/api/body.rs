//! Bodies of requests: JSON objects of bounded size.
//!
//! [`Json`] reads a body into a struct whose fields are judged while they are read, so that an error names its field
//! and what is allowed. The other functions are for `#[serde(deserialize_with)]`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::operation::{Describe, OperationDoc};
use super::problem::Problem;
use crate::types::Units;
use crate::types::units::{UNITS_MAX, whole_number};

/// The longest body. The longest meaningful request has about 1 KiB.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a body may take to arrive. A slow caller holds a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";

/// Waits for a body, or for what is left of it.
pub(crate) async fn in_time<T>(receiving: impl Future<Output = T>) -> Result<T, Problem> {
    tokio::time::timeout(BODY_TIMEOUT, receiving).await.map_err(|_| {
        let detail = format!("the body did not arrive within {} seconds", BODY_TIMEOUT.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })
}

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
        let bytes = in_time(Bytes::from_request(request, state)).await?;
        parse(&bytes.map_err(|rejection| not_received(&rejection))?).map(Self)
    }
}

impl<T: JsonSchema> Describe for Json<T> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.body::<T>();
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
        // In the words of JSON.
        let message =
            message.replace("expected a map", "expected an object").replace("expected a sequence", "expected a list");
        Problem::bad_request(format!("{field}: {message}"))
    })?;
    deserializer.end().map_err(|error| not_json(&error))?;
    Ok(parsed)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("the body is not JSON: {error}"))
}

/// Reads a string that is parsed as `T`.
pub fn text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// [`text`] for a field that may be missing; `null` is refused.
pub fn optional_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    text(deserializer).map(Some)
}

/// Reads a field that may be missing; `null` is refused.
pub fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads units. A whole number may be written with a point or an exponent, see [`whole_number`].
pub fn units<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Units, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let whole = value.as_u64().or_else(|| value.as_f64().and_then(whole_number));
    let units = whole.and_then(Units::new);
    units.ok_or_else(|| D::Error::custom(format_args!("is {value}, it must be a whole number, 1 to {UNITS_MAX}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::contacts::ExtraHeaders;
    use crate::types::{BillingDay, Limits, Metric, Subject, Threshold};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "a JSON object")]
    struct Sample {
        #[serde(deserialize_with = "text")]
        subject: Subject,
        #[serde(default, deserialize_with = "optional_text")]
        alias: Option<Subject>,
        #[serde(default = "one", deserialize_with = "units")]
        units: Units,
        limits: Option<BTreeMap<Metric, Limits>>,
        thresholds: Option<Vec<Threshold>>,
        metrics: Option<Vec<Metric>>,
        #[serde(default, deserialize_with = "given")]
        headers: Option<ExtraHeaders>,
        billing_day: Option<BillingDay>,
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
            (r#"{"subject":"a","unit":1}"#, "unknown field `unit`, expected one of `subject`, `alias`, `units`, `"),
            (r#"{"subject":"a","subject":"b"}"#, "duplicate field `subject`"),
            (r#"{"subject":"a","units":0}"#, "units: is 0, it must be a whole number, 1 to 9007199254740991"),
            (r#"{"subject":"a","units":1.5}"#, "units: is 1.5, it must be a whole number"),
            (r#"{"subject":"a","units":0.0}"#, "units: is 0.0, it must be a whole number"),
            (r#"{"subject":"a","units":-0.0}"#, "units: is -0.0, it must be a whole number"),
            (r#"{"subject":"a","units":-1.0}"#, "units: is -1.0, it must be a whole number"),
            (r#"{"subject":"a","units":9007199254740992.0}"#, "units: is 9007199254740992.0, it must be"),
            (r#"{"subject":"a","units":1e300}"#, "units: is 1e+300, it must be a whole number"),
            (r#"{"subject":"a","units":-1}"#, "units: is -1, it must be a whole number"),
            (r#"{"subject":"a","units":"1"}"#, "units: is \"1\", it must be a whole number, 1 to"),
            (r#"{"subject":"a","units":null}"#, "units: is null, it must be a whole number, 1 to"),
            (r#"{"subject":"a","limits":"5000"}"#, r#"limits: invalid type: string "5000", expected an object"#),
            (r#"{"subject":"a","limits":[5000]}"#, "limits: invalid type: sequence, expected an object"),
            (
                r#"{"subject":"a","limits":{"requests":1.5}}"#,
                "limits.requests: invalid type: floating point `1.5`, expected a whole number",
            ),
            (r#"{"subject":"a","limits":{"requests":0}}"#, "limits.requests: units must be decimal digits, 1 to"),
            (r#"{"subject":"a","limits":{"Requests":5}}"#, "metric must match"),
            (r#"{"subject":"a","thresholds":80}"#, "thresholds: invalid type: integer `80`, expected a list"),
            (r#"{"subject":"a","thresholds":"80,100"}"#, "expected a list"),
            (
                r#"{"subject":"a","thresholds":[80,"100"]}"#,
                "thresholds[1]: invalid type: string \"100\", expected a whole number of percent, 1 to 1000",
            ),
            (r#"{"subject":"a","metrics":"requests"}"#, r#"metrics: invalid type: string "requests", expected a list"#),
            (r#"{"subject":"a","headers":"x: y"}"#, r#"headers: invalid type: string "x: y", expected an object"#),
            (r#"{"subject":"a","headers":null}"#, "headers: invalid type: null, expected an object"),
            (
                r#"{"subject":"a","billing_day":300}"#,
                "billing_day: invalid value: 300, expected a day of the month, 1 to 31",
            ),
            (
                r#"{"subject":"a","billing_day":-1}"#,
                "billing_day: invalid type: integer `-1`, expected a day of the month, 1 to 31",
            ),
            (
                r#"{"subject":"a","billing_day":32}"#,
                "billing_day: invalid value: 32, expected a day of the month, 1 to 31",
            ),
            (
                r#"{"subject":"a","billing_day":"15"}"#,
                "billing_day: invalid type: string \"15\", expected a day of the month, 1 to 31",
            ),
            (
                r#"{"subject":"a","billing_day":1.5}"#,
                "billing_day: invalid type: floating point `1.5`, expected a day of the month, 1 to 31",
            ),
            (
                r#"{"subject":"a","billing_day":32.0}"#,
                "billing_day: invalid value: 32, expected a day of the month, 1 to 31",
            ),
            (r#"{"subject":"a","thresholds":[-1.0]}"#, "thresholds[0]: invalid type: floating point `-1.0`"),
            (r#"{"subject":"a","limits":{"requests":1e16}}"#, "limits.requests: invalid type: floating point `1e+16`"),
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
        let body = r#"{"subject":"a","billing_day":15.0,"thresholds":[8e1],"limits":{"a":5.0,"b":[7.0,"9/hour"]}}"#;
        let Sample { billing_day, thresholds, limits, .. } = sample(body).expect("whole numbers");
        assert_eq!((billing_day, thresholds), (BillingDay::new(15), Some(vec!["80".parse().expect("legal")])));
        assert_eq!(limits.expect("some").values().map(Limits::to_string).collect::<Vec<_>>(), ["5", "9/hour 7/day"]);
    }

    /// A field that is left out is no error.
    #[test]
    fn optional_fields_may_be_left_out() {
        let Sample { subject, alias, units, .. } = sample(r#" {"subject":"🦀"}"#).expect("legal");
        assert_eq!((subject.as_str(), alias, units), ("🦀", None, Units::ONE));
    }

    /// The document says so of the settings of a subject: their plan holds then.
    #[test]
    fn null_is_as_good_as_left_out_where_the_plan_or_all_stands_behind_a_field() {
        let nulls = r#"{"subject":"a","limits":null,"thresholds":null,"metrics":null,"billing_day":null}"#;
        let Sample { limits, thresholds, metrics, headers, billing_day, .. } = sample(nulls).expect("legal");
        assert_eq!((limits, thresholds, metrics, headers, billing_day), (None, None, None, None, None));
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
