//! The table of routes: what there is, who may call it, and what answers.
//!
//! One list, which the router is built from and `tests/it/api_openapi.rs` holds against the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use super::Api;
use super::body::BODY_BYTES_MAX;
use super::problem::Problem;
use super::token::Shown;
use super::{check, confirm, contacts, openapi, pages};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the port.
    Open,
    /// Everybody, unless a token is set: then only who shows it.
    Token,
    /// Only who shows the token; nobody where none is set.
    Write,
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path, with `{name}` for a part that varies.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    serve: fn() -> MethodRouter<Arc<Api>>,
}

/// Every route.
pub const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/healthz", access: Access::Open, serve: || get(pages::healthz) },
    Route { method: "GET", path: "/readyz", access: Access::Open, serve: || get(pages::readyz) },
    Route { method: "GET", path: "/metrics", access: Access::Open, serve: || get(pages::metrics) },
    Route { method: "GET", path: "/openapi.json", access: Access::Open, serve: || get(openapi::document) },
    Route { method: "POST", path: "/v1/check", access: Access::Token, serve: || post(check::check) },
    Route { method: "POST", path: "/v1/subjects/{id}/contacts", access: Access::Write, serve: || post(contacts::add) },
    Route {
        method: "DELETE",
        path: "/v1/subjects/{id}/contacts/{contact}",
        access: Access::Write,
        serve: || delete(contacts::remove),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts/{contact}/verification",
        access: Access::Write,
        serve: || post(contacts::resend),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts/{contact}/verify",
        access: Access::Write,
        serve: || post(contacts::verify),
    },
    // The token in the path is what they ask for.
    Route { method: "GET", path: "/confirm/{token}", access: Access::Open, serve: || get(confirm::ask) },
    Route { method: "POST", path: "/confirm/{token}", access: Access::Open, serve: || post(confirm::confirm) },
];

/// The router of every route. What is in no route answers a problem too.
pub fn router(api: Arc<Api>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let guard = Guard { api: Arc::clone(&api), access: route.access };
        router = router.route(route.path, (route.serve)().route_layer(from_fn_with_state(guard, judge)));
    }
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}

/// What stands before a route.
#[derive(Debug, Clone)]
struct Guard {
    api: Arc<Api>,
    access: Access,
}

/// RFC 6750: what a caller without token is told to show, and one with a wrong one.
const CHALLENGE: &str = r#"Bearer realm="quotabell""#;
const CHALLENGE_AGAIN: &str = r#"Bearer realm="quotabell", error="invalid_token""#;

async fn judge(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let refused = match (guard.access, &guard.api.token) {
        (Access::Open, _) | (Access::Token, None) => None,
        (Access::Write, None) => Some(needs_token("this route")),
        (Access::Token | Access::Write, Some(token)) => match token.shown_in(request.headers()) {
            Shown::Right => None,
            Shown::Nothing => Some(Problem::unauthorized("send the token as `Authorization: Bearer TOKEN`", CHALLENGE)),
            Shown::Wrong => Some(Problem::unauthorized("the token is not the one of http.token", CHALLENGE_AGAIN)),
        },
    };
    match refused {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Nobody may do this before the operator has set a token (403).
pub(super) fn needs_token(what: &str) -> Problem {
    let detail = format!("{what} is off until the operator sets a token: set http.token or http.token_file");
    Problem::new(StatusCode::FORBIDDEN, detail)
}

async fn not_found(uri: Uri) -> Problem {
    let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
    // The methods of one path stand together.
    paths.dedup();
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {}, only {}", uri.path(), paths.join(", ")))
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}: see Allow", uri.path()))
}
