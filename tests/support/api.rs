//! A plain client of the HTTP API that checks every response against the OpenAPI document.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;

use quotabell::api::openapi::DOCUMENT;
use serde_json::{Map, Value};

use super::daemon::Daemon;
use super::eventually::WAIT_MAX;

/// The OpenAPI document.
#[derive(Debug)]
pub struct Documented(Value);

impl Documented {
    pub fn read() -> Self {
        Self(serde_json::from_str(&DOCUMENT).expect("JSON"))
    }

    /// The operation of a route; null for an unknown route.
    pub fn operation(&self, method: &str, path: &str) -> &Value {
        &self.0["paths"][path][method.to_lowercase()]
    }

    /// Whether an object fits one of the schemas that have a name.
    pub fn has_a_schema_for(&self, object: &Value) -> bool {
        let schemas = self.0["components"]["schemas"].as_object().expect("schemas");
        // A schema that names no members fits every object.
        let names_members = |schema: &&Value| schema.get("properties").or_else(|| schema.get("allOf")).is_some();
        schemas.values().filter(names_members).any(|schema| self.mismatches(object, schema, "body").is_empty())
    }

    /// Resolves a reference within the document.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => {
                self.0.pointer(reference.trim_start_matches('#')).expect("a reference that leads somewhere")
            }
            None => value,
        }
    }

    /// The path of the document that matches this one.
    fn template(&self, path: &str) -> Option<String> {
        let matches = |template: &str| {
            let (mut parts, mut given) = (template.split('/'), path.split('/'));
            let same = parts.by_ref().zip(given.by_ref()).all(|(part, given)| part.starts_with('{') || part == given);
            same && template.split('/').count() == path.split('/').count()
        };
        self.0["paths"].as_object().expect("paths").keys().find(|template| matches(template)).cloned()
    }

    /// Fails if a response has an undocumented status, media type, header or body.
    fn judge(&self, method: &str, path: &str, answer: &Answer) {
        let Some(template) = self.template(path.split('?').next().expect("a path")) else { return };
        let operation = self.operation(method, &template);
        if operation.is_null() {
            return;
        }
        let what = format!("{method} {path}: {} {}", answer.status, answer.text);
        let response = &operation["responses"][answer.status.to_string()];
        assert!(!response.is_null(), "not documented: {what}");
        let response = self.resolved(response);
        if let Some(content) = response["content"].as_object() {
            let given = answer.header("content-type").unwrap_or_default();
            let given = given.split(';').next().unwrap_or_default();
            assert!(content.contains_key(given), "media type {given:?} is not documented: {what}");
            if given == "application/json" || given == "application/problem+json" {
                let mismatches = self.mismatches(&answer.json(), &content[given]["schema"], "body");
                assert!(mismatches.is_empty(), "{}: {what}", mismatches.join("; "));
            }
        }
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let needed = self.resolved(header)["required"] == true;
            assert!(!needed || answer.header(name).is_some(), "without {name}: {what}");
        }
    }
}

/// Checks a body against its schema, for the used parts of JSON Schema. Stricter in one way: a member that the schema
/// does not name is a mismatch, because readers of the document would not know it.
impl Documented {
    fn mismatches(&self, value: &Value, schema: &Value, at: &str) -> Vec<String> {
        let schema = self.resolved(schema);
        let mut found = Vec::new();
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            found.push(format!("{at} is {value}, documented are {allowed:?}"));
        }
        if schema.get("const").is_some_and(|only| only != value) {
            found.push(format!("{at} is {value}, documented is {}", schema["const"]));
        }
        if schema.get("type").is_some_and(|types| !is_of_type(value, types)) {
            found.push(format!("{at} is {value}, documented is {}", schema["type"]));
        }
        for choices in ["oneOf", "anyOf"] {
            let choices = schema.get(choices).and_then(Value::as_array);
            let fits = |choice: &Value| self.mismatches(value, choice, at).is_empty();
            if choices.is_some_and(|choices| !choices.iter().any(fits)) {
                found.push(format!("{at} is {value}, which fits none of {choices:?}"));
            }
        }
        for item in value.as_array().into_iter().flatten() {
            found.extend(self.mismatches(item, &schema["items"], &format!("{at}[]")));
        }
        if let Some(members) = value.as_object() {
            found.extend(self.wrong_members(members, schema, at));
        }
        found
    }

    fn wrong_members(&self, members: &Map<String, Value>, schema: &Value, at: &str) -> Vec<String> {
        let parts: Vec<&Value> = match schema.get("allOf").and_then(Value::as_array) {
            Some(parts) => parts.iter().map(|part| self.resolved(part)).collect(),
            None => vec![schema],
        };
        let required = parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten());
        let missing = required.filter(|name| !members.contains_key(name.as_str().expect("a name")));
        let mut found: Vec<String> = missing.map(|name| format!("{at} lacks {name}")).collect();
        for (name, value) in members {
            let named = parts.iter().find_map(|part| part["properties"].get(name));
            let others =
                || parts.iter().find_map(|part| part.get("additionalProperties").filter(|one| one.is_object()));
            match named.or_else(others) {
                Some(schema) => found.extend(self.mismatches(value, schema, &format!("{at}.{name}"))),
                None if parts.iter().all(|part| part.get("properties").is_none()) => {}
                None => found.push(format!("{at}.{name} is not documented")),
            }
        }
        found
    }
}

/// Whether a value is of a type of JSON Schema, or of one of several.
fn is_of_type(value: &Value, types: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other:?} is no type of JSON Schema"),
    };
    types.as_array().map_or_else(|| is(types), |types| types.iter().any(is))
}

/// A client of one daemon's HTTP port.
#[derive(Debug)]
pub struct Caller {
    address: SocketAddr,
    client: reqwest::Client,
    token: Option<String>,
    documented: Documented,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    headers: reqwest::header::HeaderMap,
}

/// A header of a request.
pub type Header<'a> = (&'a str, &'a str);

impl Caller {
    /// A client of this daemon, without a token.
    pub async fn of(daemon: &mut Daemon) -> Self {
        Self::at(daemon.http().await)
    }

    /// A client of the daemon at this address, without a token.
    pub fn at(address: SocketAddr) -> Self {
        // The daemon's own provider; a second test in this process finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(WAIT_MAX).build().expect("a client");
        Self { address, client, token: None, documented: Documented::read() }
    }

    /// The same client with this token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.without_token() }
    }

    /// The same client without a token.
    #[must_use]
    pub fn without_token(&self) -> Self {
        let (client, documented) = (self.client.clone(), Documented::read());
        Self { address: self.address, client, token: None, documented }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "").await
    }

    /// Puts JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Sends a request, and checks the response against the document.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[Header<'_>],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let named = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.client.request(named, format!("http://{}{path}", self.address)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.send().await.expect("the daemon answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Answer { status, headers, text: response.text().await.expect("text") };
        self.documented.judge(method, path, &answer);
        answer
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Expects a problem (RFC 9457) with this status and this text in its detail.
    pub fn expect_problem(&self, status: u16, said: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        let body = self.json();
        assert_eq!(body["status"], status, "{body}");
        assert!(body["type"].is_string() && body["title"].is_string(), "{body}");
        assert!(body["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{said:?} is not in {body}");
    }
}
