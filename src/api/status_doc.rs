//! Descriptions of response statuses for the OpenAPI document.

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator};

/// The schema of a type and of the types that it uses.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The description of a response with a status.
#[derive(Debug, Clone, Copy)]
pub struct StatusDoc {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content: AnswerContent,
    pub(super) headers: &'static [HeaderDoc],
    /// The name under which several operations share the response.
    pub(super) name: Option<&'static str>,
}

/// The media type of JSON objects, each in a line.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// The body of a response.
#[derive(Debug, Clone, Copy)]
pub(super) enum AnswerContent {
    /// The type in the handler's signature.
    OfHandler,
    Text,
    /// JSON objects, each in a line.
    JsonLines,
    Html,
    /// No body.
    Nothing,
    /// A problem, with these members in addition to the standard ones.
    Problem(Option<SchemaOf>),
}

/// A header of a response.
#[derive(Debug, Clone, Copy)]
pub struct HeaderDoc {
    pub(super) name: &'static str,
    /// Whether it is always present.
    pub(super) required: bool,
    pub(super) description: &'static str,
    /// `string`, or `integer` for one that is 1 or more.
    pub(super) kind: &'static str,
}

/// The response of the handler's signature.
pub(super) const fn of_handler(status: u16, description: &'static str) -> StatusDoc {
    StatusDoc { status, description, content: AnswerContent::OfHandler, headers: &[], name: None }
}

pub(super) const fn ok(description: &'static str) -> StatusDoc {
    of_handler(200, description)
}

pub(super) const fn text(status: u16, description: &'static str) -> StatusDoc {
    StatusDoc { content: AnswerContent::Text, ..of_handler(status, description) }
}

/// A successful response of lines of JSON.
pub(super) const fn json_lines(description: &'static str) -> StatusDoc {
    StatusDoc { content: AnswerContent::JsonLines, ..of_handler(200, description) }
}

pub(super) const fn html(status: u16, description: &'static str) -> StatusDoc {
    StatusDoc { content: AnswerContent::Html, ..of_handler(status, description) }
}

pub(super) const fn no_body(status: u16, description: &'static str) -> StatusDoc {
    StatusDoc { content: AnswerContent::Nothing, ..of_handler(status, description) }
}

pub(super) const fn problem(status: u16, description: &'static str) -> StatusDoc {
    StatusDoc { content: AnswerContent::Problem(None), ..of_handler(status, description) }
}

impl StatusDoc {
    /// Adds these members to those of a problem.
    pub(super) const fn members(self, members: SchemaOf) -> Self {
        Self { content: AnswerContent::Problem(Some(members)), ..self }
    }

    pub(super) const fn headers(self, headers: &'static [HeaderDoc]) -> Self {
        Self { headers, ..self }
    }

    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// The descriptions by status. If a status occurs twice, the later one is used.
    pub(super) fn by_status(docs: impl IntoIterator<Item = Self>) -> BTreeMap<u16, Self> {
        docs.into_iter().map(|doc| (doc.status, doc)).collect()
    }
}

/// For a route that reads the path, the query or a body.
pub(super) const BAD_REQUEST: StatusDoc = problem(
    400,
    "The request is wrong: no JSON, an unknown field, or a value that is not allowed. `detail` names the field.",
)
.named("BadRequest");
pub(super) const UNAUTHORIZED: StatusDoc = problem(401, "The token is missing or wrong.")
    .named("Unauthorized")
    .headers(&[HeaderDoc { name: "WWW-Authenticate", required: true, description: "", kind: "string" }]);
pub(super) const FORBIDDEN: StatusDoc =
    problem(403, "The token lacks the scope of the route. Or the route is off until the operator sets a token.")
        .named("Forbidden");
pub(super) const AUTHORIZE_FORBIDDEN: StatusDoc =
    problem(403, "The token lacks the scope of the route. Or, with `deny=403`, the request may not proceed.");
pub(super) const BODY_TIMEOUT: StatusDoc =
    problem(408, "The body did not arrive within 10 seconds.").named("BodyTimeout");
pub(super) const BODY_TOO_LARGE: StatusDoc = problem(413, "The body has more than 16 KiB.").named("BodyTooLarge");
pub(super) const OUTDATED: StatusDoc =
    problem(412, "It has changed since `If-Match`: nothing was written. Get it again.").named("Outdated");
pub(super) const NOT_JSON: StatusDoc = problem(415, "The `Content-Type` is not `application/json`.").named("NotJson");
pub(super) const EVENTS_BODY_TOO_LARGE: StatusDoc =
    problem(413, "The body has more than 10 MiB, also decompressed, or more than 10,000 events.");
pub(super) const EVENTS_OTHER_MEDIA_TYPE: StatusDoc =
    problem(415, "The `Content-Type` is none of those of the body, or the `Content-Encoding` is not gzip.");
pub(super) const NO_SUCH_CONTACT: StatusDoc = problem(404, "The subject has no such contact.").named("NoSuchContact");
pub(super) const NO_SUCH_DELIVERY: StatusDoc =
    problem(404, "There is no such delivery, or its end was more than 14 days ago.").named("NoSuchDelivery");
pub(super) const TOO_MANY_REQUESTS: StatusDoc = problem(
    429,
    "A verification of this address was requested as often as `verification.requests` allows, \
         whichever subject asked; or 16 messages that ask contacts of the subject to confirm are on \
         their way.",
)
.named("TooManyRequests")
.headers(RETRY_AFTER);
pub(super) const REDIS_UNAVAILABLE: StatusDoc =
    problem(503, "Redis does not answer, or refuses the daemon: try again.").named("RedisUnavailable");
pub(super) const CONTACTS_UNAVAILABLE: StatusDoc = problem(
    503,
    "Redis does not answer, or its memory is full, or too many messages wait to be sent (with \
         `Retry-After`): try again.",
)
.named("ContactsUnavailable");
pub(super) const UNREADABLE: StatusDoc =
    problem(409, "The stored contacts of the subject can't be read.").named("Unreadable");
pub(super) const VERIFIED_ALREADY: StatusDoc =
    problem(409, "The contact is verified already, or the stored contacts can't be read.").named("VerifiedAlready");
pub(super) const OTHER_STATE: StatusDoc =
    problem(409, "It is in another state, or is being attempted right now: nothing is changed.").named("OtherState");

pub(super) const RETRY_AFTER: &[HeaderDoc] =
    &[HeaderDoc { name: "Retry-After", required: true, description: "", kind: "integer" }];

pub(super) const ETAG: &[HeaderDoc] = &[HeaderDoc {
    name: "ETag",
    required: true,
    description: "Tells this state from others. `If-Match` takes it.",
    kind: "string",
}];
