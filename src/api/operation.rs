//! The parameters and responses of a handler for the OpenAPI document.
//!
//! Each extractor and each response describes itself, so an operation follows from the signature of its handler: a
//! field that is added to a body, a query or a response is in the document. What a signature can't express is in the
//! table of [`routes`](super::routes).

use std::sync::Arc;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

use super::problem::Problem;
use super::schemas::{Schemas, without_null};
use super::state::ApiState;
use super::status_doc::{BAD_REQUEST, BODY_TIMEOUT, BODY_TOO_LARGE, NOT_JSON, StatusDoc};

const JSON: &str = "application/json";

/// A handler with its description.
pub struct DescribedRoute {
    pub(super) router: MethodRouter<Arc<ApiState>>,
    pub(super) describe: fn(&mut OperationDoc<'_>),
}

macro_rules! methods {
    ($($method:ident)+) => { $(
        pub(super) fn $method<H, M: 'static, I, O>(handler: H) -> DescribedRoute
        where
            H: Handler<M, Arc<ApiState>> + DescribedHandler<I, O>,
        {
            DescribedRoute { router: routing::$method(handler), describe: H::describe }
        }
    )+ };
}

methods!(get put post delete);

/// A handler of every method, also of those that others define.
pub(super) fn any<H, M: 'static, I, O>(handler: H) -> DescribedRoute
where
    H: Handler<M, Arc<ApiState>> + DescribedHandler<I, O>,
{
    DescribedRoute { router: routing::any(handler), describe: H::describe }
}

/// The parts of an operation that the signature of its handler determines.
pub struct OperationDoc<'a> {
    pub(super) schemas: &'a mut Schemas,
    pub(super) parameters: Vec<Value>,
    /// The media types of the body, each with its schema.
    pub(super) body: Vec<(&'static str, Schema)>,
    /// The successful response: JSON, or without a body.
    pub(super) answer: Option<(u16, Option<Schema>)>,
    pub(super) problems: Vec<StatusDoc>,
}

impl OperationDoc<'_> {
    /// Adds a part of the path.
    pub(super) fn path_parameter<T: JsonSchema>(&mut self, name: &str, description: &str) {
        let schema = self.schemas.accepted_inline::<T>();
        self.parameters
            .push(json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema}));
        self.problems.push(BAD_REQUEST);
    }

    /// Adds a header, which may be left out.
    pub(super) fn header(&mut self, name: &str, description: &str, schema: Value) {
        self.parameters.push(
            json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema}),
        );
    }

    /// Adds each field of `T`.
    pub(super) fn query<T: JsonSchema>(&mut self) {
        let Value::Object(mut schema) = self.schemas.accepted_inline::<T>().into() else { return };
        let Some(Value::Object(fields)) = schema.remove("properties") else { return };
        for (name, schema) in fields {
            let Value::Object(mut schema) = schema else { continue };
            without_null(&mut schema);
            let description = schema.remove("description");
            let mut parameter = json!({"name": name, "in": "query", "required": false, "schema": schema});
            if let Some(description) = description {
                parameter["description"] = description;
            }
            self.parameters.push(parameter);
        }
        self.problems.push(BAD_REQUEST);
    }

    pub(super) fn body<T: JsonSchema>(&mut self) {
        let schema = self.schemas.accepted.subschema_for::<T>();
        self.body.push((JSON, schema));
        self.problems.extend([BAD_REQUEST, BODY_TIMEOUT, BODY_TOO_LARGE, NOT_JSON]);
    }

    pub(super) fn answer<T: JsonSchema>(&mut self, status: u16) {
        self.answer = Some((status, Some(self.schemas.sent.subschema_for::<T>())));
    }
}

/// A part of a handler's signature.
pub trait Describe {
    /// Adds its part of the operation.
    fn describe(operation: &mut OperationDoc<'_>);
}

/// A handler whose parameters `I` and output `O` describe themselves.
pub trait DescribedHandler<I, O> {
    /// Describes the operation.
    fn describe(operation: &mut OperationDoc<'_>);
}

macro_rules! described_handlers {
    ($(($($input:ident)*))+) => { $(
        impl<F, Fut, O, $($input),*> DescribedHandler<($($input,)*), O> for F
        where
            F: FnOnce($($input),*) -> Fut,
            Fut: Future<Output = O>,
            O: Describe,
            $($input: Describe,)*
        {
            fn describe(operation: &mut OperationDoc<'_>) {
                $($input::describe(operation);)*
                O::describe(operation);
            }
        }
    )+ };
}

described_handlers!(() (A) (A B) (A B C) (A B C D));

macro_rules! describes_nothing {
    ($($part:ty),+) => { $(
        impl Describe for $part {
            fn describe(_: &mut OperationDoc<'_>) {}
        }
    )+ };
}

// Text, pages and responses that depend on the request: the table of routes describes them.
describes_nothing!(State<Arc<ApiState>>, HeaderMap, &'static str, Response);

impl<T: Describe> Describe for Result<T, Problem> {
    fn describe(operation: &mut OperationDoc<'_>) {
        T::describe(operation);
    }
}

/// A JSON response. Caches must not keep addresses, a generated secret, or counts that change with each event.
#[derive(Debug)]
pub(super) struct JsonReply<T, const STATUS: u16 = 200>(pub(super) T);

impl<T: JsonSchema, const STATUS: u16> Describe for JsonReply<T, STATUS> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<T>(STATUS);
    }
}

impl<T: Serialize, const STATUS: u16> IntoResponse for JsonReply<T, STATUS> {
    fn into_response(self) -> Response {
        let text = serde_json::to_vec(&self.0).expect("a view is strings, numbers and lists");
        let status = axum::http::StatusCode::from_u16(STATUS).expect("a status of HTTP");
        (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
    }
}

/// A response without a body.
#[derive(Debug)]
pub(super) struct NoBody<const STATUS: u16>;

impl<const STATUS: u16> Describe for NoBody<STATUS> {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer = Some((STATUS, None));
    }
}

impl<const STATUS: u16> IntoResponse for NoBody<STATUS> {
    fn into_response(self) -> Response {
        axum::http::StatusCode::from_u16(STATUS).expect("a status of HTTP").into_response()
    }
}
