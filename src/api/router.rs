//! The router, built from the table of [`routes`](super::routes), and the check of tokens.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::body::BODY_BYTES_MAX;
use super::problem::Problem;
use super::routes::{Access, ROUTES, Route};
use super::server::Routes;
use super::state::ApiState;
use super::token::TokenCheck;

/// The paths that are answered even at the maximum number of connections: monitoring must still reach the daemon then.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// All routes, and which of them are served to probes only.
pub fn routes(api: Arc<ApiState>) -> Routes {
    let probes = ROUTES.iter().filter(|route| PROBES.contains(&route.path));
    Routes { probes: router(probes, Arc::clone(&api)).fallback(connection_limit_reached), all: router(ROUTES, api) }
}

/// The router of these routes. It answers other paths and methods with a problem.
fn router<'a>(routes: impl IntoIterator<Item = &'a Route>, api: Arc<ApiState>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let guard = Authorization { api: Arc::clone(&api), access: route.access };
        router = router.route(route.path, (route.endpoint)().router.route_layer(from_fn_with_state(guard, authorize)));
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
    // Methods of the same path are adjacent.
    paths.dedup();
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {}, only {}", uri.path(), paths.join(", ")))
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}: see Allow", uri.path()))
}
