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
use super::{check, consent_links, contacts, deliveries, mutes, openapi, probes, reload, subjects, top};
use crate::outbox::DeliveryAction;
use Access::{Open, RequiredToken, TokenIfSet};

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

const fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<Arc<ApiState>>,
) -> Route {
    Route { method, path, access, handler }
}

/// Every route.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", Open, || get(probes::healthz)),
    route("GET", "/readyz", Open, || get(probes::readyz)),
    route("GET", "/metrics", Open, || get(probes::metrics)),
    route("GET", "/openapi.json", Open, || get(openapi::document)),
    route("POST", "/v1/check", TokenIfSet, || post(check::check)),
    route("POST", "/v1/reload", RequiredToken, || post(reload::reload)),
    route("GET", "/v1/top", RequiredToken, || get(top::top)),
    route("GET", "/v1/subjects", RequiredToken, || get(subjects::list)),
    route("GET", "/v1/subjects/{id}", RequiredToken, || get(subjects::show)),
    route("PUT", "/v1/subjects/{id}", RequiredToken, || put(subjects::replace)),
    route("DELETE", "/v1/subjects/{id}", RequiredToken, || delete(subjects::erase)),
    route("GET", "/v1/subjects/{id}/history", RequiredToken, || get(subjects::history)),
    route("GET", "/v1/subjects/{id}/alerts", RequiredToken, || get(subjects::alerts)),
    route("GET", "/v1/subjects/{id}/deliveries", RequiredToken, || get(deliveries::of_subject)),
    route("GET", "/v1/subjects/{id}/usage", RequiredToken, || get(subjects::usage)),
    route("GET", "/v1/subjects/{id}/contacts", RequiredToken, || get(contacts::list)),
    route("POST", "/v1/subjects/{id}/contacts", RequiredToken, || post(contacts::add)),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}", RequiredToken, || put(contacts::replace)),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}", RequiredToken, || delete(contacts::remove)),
    route("PUT", "/v1/subjects/{id}/contacts/{contact}/mute", RequiredToken, || put(mutes::mute_contact)),
    route("DELETE", "/v1/subjects/{id}/contacts/{contact}/mute", RequiredToken, || delete(mutes::unmute_contact)),
    route("PUT", "/v1/subjects/{id}/mute", RequiredToken, || put(mutes::mute_subject)),
    route("DELETE", "/v1/subjects/{id}/mute", RequiredToken, || delete(mutes::unmute_subject)),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/enable", RequiredToken, || post(contacts::enable)),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verification", RequiredToken, || {
        post(contacts::request_verification)
    }),
    route("POST", "/v1/subjects/{id}/contacts/{contact}/verify", RequiredToken, || post(contacts::verify)),
    route("GET", "/v1/deliveries", RequiredToken, || get(deliveries::list)),
    route("GET", "/v1/deliveries/{id}", RequiredToken, || get(deliveries::show)),
    route("POST", "/v1/deliveries/{id}/replay", RequiredToken, || {
        post(|api, id| deliveries::act(api, id, DeliveryAction::Replay))
    }),
    route("POST", "/v1/deliveries/{id}/retry", RequiredToken, || {
        post(|api, id| deliveries::act(api, id, DeliveryAction::Retry))
    }),
    route("POST", "/v1/deliveries/{id}/cancel", RequiredToken, || {
        post(|api, id| deliveries::act(api, id, DeliveryAction::Cancel))
    }),
    route("POST", "/v1/deliveries/{id}/discard", RequiredToken, || {
        post(|api, id| deliveries::act(api, id, DeliveryAction::Discard))
    }),
    // The token in the path is the secret that these need.
    route("GET", "/confirm/{token}", Open, || get(consent_links::show_confirm)),
    route("POST", "/confirm/{token}", Open, || post(consent_links::confirm)),
    route("GET", "/unsubscribe/{token}", Open, || get(consent_links::show_unsubscribe)),
    route("POST", "/unsubscribe/{token}", Open, || post(consent_links::unsubscribe)),
];

/// The paths that are answered even when there are as many connections as there may be: who watches the daemon must not
/// lose sight of it then.
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
#[derive(Clone)]
struct Authorization {
    api: Arc<ApiState>,
    access: Access,
}

/// The challenges of RFC 6750 to a caller without a token and to one with a wrong one.
const CHALLENGE: &str = r#"Bearer realm="quotabell""#;
const CHALLENGE_INVALID: &str = r#"Bearer realm="quotabell", error="invalid_token""#;

async fn authorize(State(guard): State<Authorization>, request: Request, next: Next) -> Response {
    let refused = match (guard.access, guard.api.token.check(request.headers())) {
        (Access::Open, _) | (Access::TokenIfSet, None) => None,
        (Access::RequiredToken, None) => Some(Problem::needs_token("this route")),
        (Access::TokenIfSet | Access::RequiredToken, Some(check)) => match check {
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
