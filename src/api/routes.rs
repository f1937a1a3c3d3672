//! The table of routes: method, path, who may call them, handler.
//!
//! The router is built from this table, and `tests/it/api_openapi.rs` compares it with the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};

use super::body::BODY_BYTES_MAX;
use super::problem::Problem;
use super::server::Routes;
use super::state::ApiState;
use super::token::TokenCheck;
use super::{check, confirm, contacts, deliveries, mutes, openapi, probes, reload, subjects, top, unsubscribe};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the port.
    Open,
    /// Everybody, unless a token is set: then only callers with the token.
    TokenIfSet,
    /// Only callers with the token; nobody where none is set.
    RequiredToken,
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
    handler: fn() -> MethodRouter<Arc<ApiState>>,
}

/// Every route.
pub const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/healthz", access: Access::Open, handler: || get(probes::healthz) },
    Route { method: "GET", path: "/readyz", access: Access::Open, handler: || get(probes::readyz) },
    Route { method: "GET", path: "/metrics", access: Access::Open, handler: || get(probes::metrics) },
    Route { method: "GET", path: "/openapi.json", access: Access::Open, handler: || get(openapi::document) },
    Route { method: "POST", path: "/v1/check", access: Access::TokenIfSet, handler: || post(check::check) },
    Route { method: "POST", path: "/v1/reload", access: Access::RequiredToken, handler: || post(reload::reload) },
    Route { method: "GET", path: "/v1/top", access: Access::RequiredToken, handler: || get(top::top) },
    Route { method: "GET", path: "/v1/subjects", access: Access::RequiredToken, handler: || get(subjects::list) },
    Route { method: "GET", path: "/v1/subjects/{id}", access: Access::RequiredToken, handler: || get(subjects::show) },
    Route {
        method: "PUT",
        path: "/v1/subjects/{id}",
        access: Access::RequiredToken,
        handler: || put(subjects::replace),
    },
    Route {
        method: "DELETE",
        path: "/v1/subjects/{id}",
        access: Access::RequiredToken,
        handler: || delete(subjects::erase),
    },
    Route {
        method: "GET",
        path: "/v1/subjects/{id}/history",
        access: Access::RequiredToken,
        handler: || get(subjects::history),
    },
    Route {
        method: "GET",
        path: "/v1/subjects/{id}/alerts",
        access: Access::RequiredToken,
        handler: || get(subjects::alerts),
    },
    Route {
        method: "GET",
        path: "/v1/subjects/{id}/deliveries",
        access: Access::RequiredToken,
        handler: || get(deliveries::of_subject),
    },
    Route {
        method: "GET",
        path: "/v1/subjects/{id}/usage",
        access: Access::RequiredToken,
        handler: || get(subjects::usage),
    },
    Route {
        method: "GET",
        path: "/v1/subjects/{id}/contacts",
        access: Access::RequiredToken,
        handler: || get(contacts::list),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts",
        access: Access::RequiredToken,
        handler: || post(contacts::add),
    },
    Route {
        method: "PUT",
        path: "/v1/subjects/{id}/contacts/{contact}",
        access: Access::RequiredToken,
        handler: || put(contacts::replace),
    },
    Route {
        method: "DELETE",
        path: "/v1/subjects/{id}/contacts/{contact}",
        access: Access::RequiredToken,
        handler: || delete(contacts::remove),
    },
    Route {
        method: "PUT",
        path: "/v1/subjects/{id}/contacts/{contact}/mute",
        access: Access::RequiredToken,
        handler: || put(mutes::mute_contact),
    },
    Route {
        method: "DELETE",
        path: "/v1/subjects/{id}/contacts/{contact}/mute",
        access: Access::RequiredToken,
        handler: || delete(mutes::unmute_contact),
    },
    Route {
        method: "PUT",
        path: "/v1/subjects/{id}/mute",
        access: Access::RequiredToken,
        handler: || put(mutes::mute_subject),
    },
    Route {
        method: "DELETE",
        path: "/v1/subjects/{id}/mute",
        access: Access::RequiredToken,
        handler: || delete(mutes::unmute_subject),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts/{contact}/enable",
        access: Access::RequiredToken,
        handler: || post(contacts::enable),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts/{contact}/verification",
        access: Access::RequiredToken,
        handler: || post(contacts::request_verification),
    },
    Route {
        method: "POST",
        path: "/v1/subjects/{id}/contacts/{contact}/verify",
        access: Access::RequiredToken,
        handler: || post(contacts::verify),
    },
    Route { method: "GET", path: "/v1/deliveries", access: Access::RequiredToken, handler: || get(deliveries::list) },
    Route {
        method: "GET",
        path: "/v1/deliveries/{id}",
        access: Access::RequiredToken,
        handler: || get(deliveries::show),
    },
    Route {
        method: "POST",
        path: "/v1/deliveries/{id}/replay",
        access: Access::RequiredToken,
        handler: || post(deliveries::replay),
    },
    Route {
        method: "POST",
        path: "/v1/deliveries/{id}/retry",
        access: Access::RequiredToken,
        handler: || post(deliveries::retry),
    },
    Route {
        method: "POST",
        path: "/v1/deliveries/{id}/cancel",
        access: Access::RequiredToken,
        handler: || post(deliveries::cancel),
    },
    Route {
        method: "POST",
        path: "/v1/deliveries/{id}/discard",
        access: Access::RequiredToken,
        handler: || post(deliveries::discard),
    },
    // The token in the path is the secret that these need.
    Route { method: "GET", path: "/confirm/{token}", access: Access::Open, handler: || get(confirm::show) },
    Route { method: "POST", path: "/confirm/{token}", access: Access::Open, handler: || post(confirm::confirm) },
    Route { method: "GET", path: "/unsubscribe/{token}", access: Access::Open, handler: || get(unsubscribe::show) },
    Route {
        method: "POST",
        path: "/unsubscribe/{token}",
        access: Access::Open,
        handler: || post(unsubscribe::unsubscribe),
    },
];

/// The paths that are answered even when there are as many connections as there may be: who watches the daemon must not lose sight
/// of it then.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Everything that is served, and what of it is served to probes alone.
pub fn routes(api: Arc<ApiState>) -> Routes {
    let probes = ROUTES.iter().filter(|route| PROBES.contains(&route.path));
    Routes { probes: router(probes, Arc::clone(&api)).fallback(connection_limit_reached), all: router(ROUTES, api) }
}

/// The router of these routes. Other paths and methods answer a problem, too.
fn router<'a>(routes: impl IntoIterator<Item = &'a Route>, api: Arc<ApiState>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let guard = Authorization { api: Arc::clone(&api), access: route.access };
        router = router.route(route.path, (route.handler)().route_layer(from_fn_with_state(guard, authorize)));
    }
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}

/// The state of the middleware that checks the token.
#[derive(Debug, Clone)]
struct Authorization {
    api: Arc<ApiState>,
    access: Access,
}

/// The challenges of RFC 6750 to a caller without a token and to one with a wrong one.
const CHALLENGE: &str = r#"Bearer realm="quotabell""#;
const CHALLENGE_INVALID: &str = r#"Bearer realm="quotabell", error="invalid_token""#;

async fn authorize(State(guard): State<Authorization>, request: Request, next: Next) -> Response {
    let refused = match (guard.access, &guard.api.token) {
        (Access::Open, _) | (Access::TokenIfSet, None) => None,
        (Access::RequiredToken, None) => Some(Problem::needs_token("this route")),
        (Access::TokenIfSet | Access::RequiredToken, Some(token)) => match token.check(request.headers()) {
            TokenCheck::Valid => None,
            TokenCheck::Missing => {
                Some(Problem::unauthorized("send the token as `Authorization: Bearer TOKEN`", CHALLENGE))
            }
            TokenCheck::Invalid => {
                Some(Problem::unauthorized("the token is not the one of http.token", CHALLENGE_INVALID))
            }
        },
    };
    match refused {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

async fn connection_limit_reached() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "every connection that there may be is being answered: try again")
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
