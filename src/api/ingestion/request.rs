//! A request with events: what its header says, and its body.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::json;

use super::body_budget::BodyReservation;
use super::body_form::{BodyForm, Encoding, MEDIA_TYPES};
use super::config::EventsConfig;
use super::decoder::{DecodeSettings, DecodedEvents, decode};
use super::received_body::{ReceivedBody, discard};
use crate::actions::append_events::NewEntries;
use crate::api::operation::{Describe, OperationDoc};
use crate::api::path::Query;
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::status_doc::{BODY_TIMEOUT, EVENTS_BODY_TOO_LARGE, EVENTS_OTHER_MEDIA_TYPE};
use crate::types::text_form::text_enum;
use crate::types::units::UNITS_MAX;
use crate::types::{EventId, Metric, ONCE_A_MINUTE, Subject, Units, UnixMs};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Maximum length of a key: a slash and the position of the last event follow it in the id of an event.
const KEY_BYTES_MAX: usize = 120;
/// The path of the API of OpenMeter.
const OPENMETER_PATH: &str = "/api/v1/events";
/// The SDK that takes only 204 as success has this in its `User-Agent`, after the name of an application.
const OPENMETER_SDK: &str = "python-openmeter/";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// What happens to an event with a field that is not known: it is refused, or the field is ignored.
    unknown: Option<UnknownFields>,
}

text_enum! {
    /// What happens to unknown fields.
    pub enum UnknownFields {
        /// The event is refused.
        Refuse = "refuse",
        /// The field is left out.
        Ignore = "ignore",
    }
}

/// The body of `application/json`: an event, or a list of events. CloudEvents are allowed too.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "a description for the OpenAPI document: events are read without a copy")]
enum EventsBody {
    One(UsageEventBody),
    Several(Vec<UsageEventBody>),
}

/// A usage event.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "as above")]
struct UsageEventBody {
    subject: Subject,
    metric: Option<Metric>,
    /// A whole number, or its digits. 1 if it is left out.
    #[schemars(schema_with = "units")]
    units: Option<Units>,
    /// Units that are given back, instead of `units`.
    #[schemars(schema_with = "units")]
    credit: Option<Units>,
    /// When it happened: Unix milliseconds or RFC 3339 with offset. The arrival if it is left out.
    #[schemars(schema_with = "time")]
    ts: Option<String>,
    /// The same subject, metric and id count once.
    id: Option<EventId>,
    /// The trace of the request that the event counts (W3C).
    traceparent: Option<String>,
}

fn units(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"oneOf": [
        {"type": "integer", "minimum": 1, "maximum": UNITS_MAX}, {"type": "string", "pattern": "^[0-9]+$"},
    ]})
}

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["integer", "string"]})
}

/// A request whose body has arrived.
#[derive(Debug)]
pub(in crate::api) struct EventsRequest {
    form: BodyForm,
    headers: HeaderMap,
    /// Whether the path is that of OpenMeter.
    is_of_openmeter: bool,
    ignores_unknown: bool,
    idempotency_key: Option<String>,
    body: ReceivedBody,
}

impl FromRequest<Arc<ApiState>> for EventsRequest {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<ApiState>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let head = RequestHead::read(&mut parts, state).await;
        let is_of_openmeter = parts.uri.path() == OPENMETER_PATH;
        let headers = parts.headers;
        let RequestHead { form, encoding, ignores_unknown, idempotency_key } = match head {
            Ok(head) => head,
            Err(problem) => {
                tracing::warn!(name: ONCE_A_MINUTE, problem = problem.detail(), "a request with events was refused by its header fields");
                discard(&headers, body).await;
                return Err(problem);
            }
        };
        let reservation = state.ingestion.budget.reservation();
        let body = ReceivedBody::receive(&headers, body, encoding, reservation).await.inspect_err(|problem| {
            tracing::warn!(name: ONCE_A_MINUTE, problem = problem.detail(), "the body of a request with events was refused");
        })?;
        Ok(Self { form, headers, is_of_openmeter, ignores_unknown, idempotency_key, body })
    }
}

/// What a request says before its body.
struct RequestHead {
    form: BodyForm,
    encoding: Encoding,
    ignores_unknown: bool,
    idempotency_key: Option<String>,
}

impl RequestHead {
    async fn read(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Problem> {
        let Query(EventsQuery { unknown }) = Query::from_request_parts(parts, state).await?;
        let headers = &parts.headers;
        Ok(Self {
            form: BodyForm::from_headers(headers)?,
            encoding: Encoding::from_headers(headers)?,
            ignores_unknown: unknown == Some(UnknownFields::Ignore),
            idempotency_key: idempotency_key(headers)?,
        })
    }
}

impl EventsRequest {
    /// Whether decoding takes long enough to disturb other requests.
    pub(super) fn is_large(&self) -> bool {
        self.body.is_large()
    }

    /// Whether the client takes only 204 as success.
    pub(super) fn takes_no_content(&self) -> bool {
        let agent = self.headers.get(USER_AGENT);
        self.is_of_openmeter
            && agent.and_then(|agent| agent.to_str().ok()).is_some_and(|agent| agent.contains(OPENMETER_SDK))
    }

    /// Decodes the body. Its memory stays reserved as long as the reservation lives.
    ///
    /// # Errors
    ///
    /// The body as a whole is wrong.
    pub(super) fn decode(
        self,
        rules: &EventsConfig,
        (now, late_max): (UnixMs, Duration),
        entries: NewEntries,
    ) -> Result<(DecodedEvents, BodyReservation), Problem> {
        let Self { form, headers, ignores_unknown, idempotency_key, body, .. } = self;
        let (body, mut reservation) = body.decompressed()?;
        let idempotency_key = idempotency_key.as_deref();
        let settings = DecodeSettings { rules, ignores_unknown, idempotency_key, now, late_max };
        let decoded = decode(form, &headers, &body, settings, entries, &mut reservation)?;
        Ok((decoded, reservation))
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    // If a proxy added one, a repeated request would have other ids.
    if keys.next().is_some() {
        return Err(Problem::bad_request("Idempotency-Key is there twice"));
    }
    let is_legal = |key: &&str| (1..=KEY_BYTES_MAX).contains(&key.len());
    let key = key.to_str().ok().filter(is_legal).map(str::to_owned);
    let illegal = || Problem::bad_request(format!("Idempotency-Key must be 1 to {KEY_BYTES_MAX} characters of ASCII"));
    key.map(Some).ok_or_else(illegal)
}

impl Describe for EventsRequest {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.query::<EventsQuery>();
        let key = json!({"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX});
        operation.header("Idempotency-Key", "Gives the id `<key>/<position>` to each event without one.", key);
        let events = operation.schemas.accepted.subschema_for::<EventsBody>();
        // Generators take lines for a file.
        let text = json_schema!({"type": "string", "format": "binary"});
        let cloud_event = json_schema!({"type": "object"});
        // Without a maximum: a schema that is violated means another status than 413.
        let cloud_events = json_schema!({"type": "array", "items": {"type": "object"}});
        let schemas = [events, text.clone(), text, cloud_event, cloud_events];
        operation.body.extend(MEDIA_TYPES.into_iter().zip(schemas));
        operation.problems.extend([BODY_TIMEOUT, EVENTS_BODY_TOO_LARGE, EVENTS_OTHER_MEDIA_TYPE]);
    }
}
