//! The OpenAPI document, built from the table of routes, the signatures of their handlers, and the types of bodies and
//! responses. Read next: [`super::operation`].

use std::sync::LazyLock;

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::operation::OperationDoc;
use super::problem::{PROBLEM_TYPE, ProblemBody};
use super::route::TAGS;
use super::routes::{Access, ROUTES, Route};
use super::schemas::Schemas;
use super::status_doc::{AnswerContent, FORBIDDEN, NDJSON, StatusDoc, UNAUTHORIZED};

/// The document. It is the same in every process.
pub static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut shared = Map::new();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut schemas, &mut shared);
        paths.entry(route.path).or_insert_with(|| json!({}))[route.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "quotabell",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Quotas for API nodes and platforms: may this request proceed, and what was used?",
            "description": "Served on `http.listen`, at `/openapi.json`. Every error of a route below `/v1` is a \
                problem of RFC 9457, except for requests that are no HTTP or whose head is too long (400, 431): those \
                have no body. See docs/http-api.md.",
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {
            "schemas": schemas.into_named(),
            "responses": shared,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `http.token`, `http.token_file` or `http.tokens`. Each operation names its scope.",
                },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas, shared: &mut Map<String, Value>) -> Value {
    let mut operation =
        OperationDoc { schemas, parameters: Vec::new(), body: Vec::new(), answer: None, problems: Vec::new() };
    ((route.endpoint)().describe)(&mut operation);
    let OperationDoc { schemas, mut parameters, body, answer, problems } = operation;
    parameters.retain(|parameter| parameter["name"] != route.hidden);
    let needed = route.access.problems();
    let docs = problems.into_iter().chain(needed.iter().copied()).chain(route.answers.iter().copied());
    let docs = StatusDoc::by_status(docs);
    let documented = answer.as_ref().is_none_or(|(status, _)| docs.contains_key(status));
    assert!(documented, "{} {} does not say what its answer means", route.method, route.path);
    let mut responses = Map::new();
    for (status, doc) in docs {
        let response = match doc.name {
            None => response(&doc, answer.as_ref(), schemas),
            Some(name) => {
                shared.entry(name).or_insert_with(|| response(&doc, None, schemas));
                json!({"$ref": format!("#/components/responses/{name}")})
            }
        };
        responses.insert(status.to_string(), response);
    }
    let mut json = json!({
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "security": route.access.security(),
        "responses": responses,
    });
    if !route.description.is_empty() {
        json["description"] = route.description.into();
    }
    if !parameters.is_empty() {
        json["parameters"] = parameters.into();
    }
    if !body.is_empty() {
        let content = body.into_iter().map(|(media_type, schema)| (media_type.to_owned(), json!({"schema": schema})));
        json["requestBody"] = json!({"required": true, "content": content.collect::<Map<_, _>>()});
    }
    json
}

fn response(doc: &StatusDoc, answer: Option<&(u16, Option<Schema>)>, schemas: &mut Schemas) -> Value {
    let mut json = json!({"description": doc.description});
    let text = || Some(json!({"type": "string"}));
    let (media_type, schema) = match doc.content {
        AnswerContent::Text => ("text/plain", text()),
        AnswerContent::Nothing => ("", None),
        AnswerContent::JsonLines => (NDJSON, text()),
        AnswerContent::Html => ("text/html", text()),
        AnswerContent::Problem(members) => {
            let problem = Value::from(schemas.sent.subschema_for::<ProblemBody>());
            let all =
                |members: fn(&mut SchemaGenerator) -> Schema| json!({"allOf": [problem, members(&mut schemas.sent)]});
            (PROBLEM_TYPE, Some(members.map_or_else(|| problem.clone(), all)))
        }
        AnswerContent::OfHandler => {
            let schema = answer.and_then(|(_, schema)| schema.clone());
            ("application/json", schema.map(Value::from))
        }
    };
    if let Some(schema) = schema {
        json["content"] = json!({media_type: {"schema": schema}});
    }
    for header in doc.headers {
        let schema = match header.kind {
            "integer" => json!({"type": "integer", "minimum": 1}),
            kind => json!({"type": kind}),
        };
        json["headers"][header.name] = json!({"required": header.required, "schema": schema});
        if !header.description.is_empty() {
            json["headers"][header.name]["description"] = header.description.into();
        }
    }
    json
}

impl Access {
    /// The responses of a refused caller.
    const fn problems(self) -> &'static [StatusDoc] {
        match self {
            Self::Open => &[],
            Self::IfSet(_) | Self::Needs(_) => &[UNAUTHORIZED, FORBIDDEN],
        }
    }

    /// The security requirements, one of them must be met.
    fn security(self) -> Value {
        match self {
            Self::Open => json!([]),
            Self::IfSet(scope) => json!([{"token": [scope]}, {}]),
            Self::Needs(scope) => json!([{"token": [scope]}]),
        }
    }
}
