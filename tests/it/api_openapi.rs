//! The OpenAPI document against the existing routes and their responses.

use std::collections::BTreeSet;

use crate::support;
use crate::support::api::Documented;
use crate::support::daemon::DaemonSetup;
use crate::support::redis_server::RedisServer;
use proptest::strategy::{Strategy, ValueTree};
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use quotabell::api::openapi::DOCUMENT;
use quotabell::api::routes::{Access, ROUTES};
use quotabell::channels::webhook::secret::check as check_secret;
use quotabell::types::Subject;
use serde_json::{Value, json};

/// Client generators miss an undocumented route, and a documented route that does not exist is wrong.
#[test]
fn the_document_has_every_route_and_no_other() {
    let document: Value = serde_json::from_str(&DOCUMENT).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let documented: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.keys().filter(|key| *key != "parameters").map(move |method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let routes: BTreeSet<(String, String)> =
        ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    let lacks: Vec<_> = routes.difference(&documented).collect();
    let invents: Vec<_> = documented.difference(&routes).collect();
    assert!(lacks.is_empty() && invents.is_empty(), "the document lacks {lacks:?}, and has {invents:?} too many");
    assert_eq!(routes.len(), ROUTES.len(), "a route stands there twice");
}

/// A client generated from the document must send the token where it is needed, and handle all responses.
#[test]
fn every_route_documents_its_token_and_its_refusals() {
    let documented = Documented::read();
    for route in ROUTES {
        let operation = documented.operation(route.method, route.path);
        let security = match route.access {
            Access::Open => json!([]),
            Access::IfSet(scope) => json!([{"token": [scope]}, {}]),
            Access::Needs(scope) => json!([{"token": [scope]}]),
        };
        assert_eq!(operation["security"], security, "{} {}: security", route.method, route.path);
        let needed: &[&str] = match route.access {
            Access::Open => &[],
            Access::IfSet(_) => &["401"],
            Access::Needs(_) => &["401", "403"],
        };
        for status in needed {
            assert!(
                operation["responses"].get(status).is_some(),
                "{} {}: no response {status}",
                route.method,
                route.path
            );
        }
        assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{}", route.path);
        if operation["requestBody"].is_object() {
            for status in ["400", "408", "413", "415"] {
                assert!(
                    operation["responses"].get(status).is_some(),
                    "{} {}: no response {status}",
                    route.method,
                    route.path
                );
            }
        }
    }
}

/// A client that is made from the document must be able to ask as a gateway does.
#[test]
fn the_headers_of_gateways_are_documented() {
    let documented = Documented::read();
    for path in ["/v1/authorize", "/v1/authorize/{path}"] {
        let parameters = documented.operation("GET", path)["parameters"].as_array().expect("parameters");
        let headers: Vec<&Value> =
            parameters.iter().filter(|one| one["in"] == "header").map(|one| &one["name"]).collect();
        let names =
            ["X-Quota-Subject", "X-Quota-Metric", "X-Quota-Units", "X-Quota-Id", "X-Quota-Record", "traceparent"];
        assert_eq!(headers, names, "{path}");
    }
}

/// A request that the document allows must not be refused.
#[test]
fn patterns_promise_no_more_than_what_is_taken() {
    let document: Value = serde_json::from_str(&DOCUMENT).expect("JSON");
    let at = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).expect(pointer).to_owned();
    let subject = at("/components/schemas/CheckRequest/properties/subject/pattern");
    assert_eq!(at("/paths/~1v1~1subjects~1{id}/get/parameters/0/schema/pattern"), subject);
    let secret = at("/components/schemas/NewWebhookContact/properties/secret/pattern");
    let made = |pattern: &str| {
        let pattern = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')).expect("anchors");
        let strategy = string_regex(pattern).expect("a pattern");
        let mut runner = TestRunner::default();
        (0..500).map(|_| strategy.new_tree(&mut runner).expect("a text").current()).collect::<Vec<String>>()
    };
    for text in made(&secret) {
        assert_eq!(check_secret(&text), Ok(()), "{text}");
    }
    for text in made(&subject).iter().filter(|text| text.len() <= 256) {
        assert!(Subject::parse(text.as_bytes()).is_ok(), "{text:?}");
    }
}

/// If a generator drops a schema or writes invalid code, its users have no client: the Python generator does so for
/// `const: false` and for an object without a name among alternatives.
#[test]
fn generators_of_clients_can_read_every_schema() {
    fn judge(value: &Value, at: &str) {
        if let Some(only) = value.get("const") {
            assert!(only.is_string(), "{at}: `const` {only}");
        }
        if value.get("in").is_some_and(|place| place == "path" || place == "query") {
            assert!(!value["schema"].to_string().contains("null"), "{at}: no text of a URL is null");
        }
        for choice in value.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
            assert!(choice["type"] != "object", "{at}: an object among alternatives has no name: {choice}");
        }
        for (name, part) in value.as_object().into_iter().flatten() {
            judge(part, &format!("{at}/{name}"));
        }
        for (position, part) in value.as_array().into_iter().flatten().enumerate() {
            judge(part, &format!("{at}/{position}"));
        }
    }
    judge(&serde_json::from_str(&DOCUMENT).expect("JSON"), "");
}

/// The document is that of this version.
#[test]
fn the_document_has_the_version_of_the_program() {
    let document: Value = serde_json::from_str(&DOCUMENT).expect("JSON");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// Unknown routes and wrong methods must be answered like all other errors.
#[tokio::test]
async fn open_pages_answer_as_documented_and_everything_else_with_a_problem() {
    let server = RedisServer::start();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    let api = support::api::Caller::of(&mut daemon).await;
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
    let document = api.get("/openapi.json").await;
    assert_eq!(document.text, *DOCUMENT);
    assert_eq!(document.header("content-type"), Some("application/json"));

    let missing = api.get("/v1/nothing?here=1").await;
    missing.expect_problem(404, "there is no /v1/nothing");
    for route in ROUTES {
        let named = missing.text.split([' ', ',', '"']).filter(|word| *word == route.path).count();
        assert_eq!(named, 1, "{} in {}", route.path, missing.text);
    }
    let wrong = api.send("DELETE", "/healthz", &[], "").await;
    wrong.expect_problem(405, "/healthz does not take DELETE");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    for method in ["GET", "POST"] {
        let wrong = api.send(method, "/v1/subjects/a/contacts/c", &[], "").await;
        wrong.expect_problem(405, &format!("/v1/subjects/a/contacts/c does not take {method}"));
        assert_eq!(wrong.header("allow"), Some("PUT,DELETE"));
    }
    daemon.drain().await;
}
