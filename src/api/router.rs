//! The router, built from the table of [`routes`](super::routes), and the check of tokens.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use metrics::counter;
use tracing::Instrument as _;

use super::action_log::ChangingRequest;
use super::body::BODY_BYTES_MAX;
use super::ingestion::handler::count_refused;
use super::ingestion::received_body::discard;
use super::problem::Problem;
use super::routes::{Access, ROUTES, Route};
use super::scope::Scope;
use super::server::Routes;
use super::state::ApiState;
use super::token::{ALLOWED, FORBIDDEN, TokenCheck};
use crate::types::meters;

/// The paths that are answered even at the maximum number of connections: monitoring must still reach the daemon then.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// All routes, and which of them are served to probes only.
pub fn routes(api: Arc<ApiState>) -> Routes {
    let probes = ROUTES.iter().filter(|route| PROBES.contains(&route.path));
    Routes { probes: router(probes, Arc::clone(&api)).fallback(connection_limit_reached), all: router(ROUTES, api) }
}

/// The router of these routes. It answers other paths and methods with a problem.
fn router(routes: impl IntoIterator<Item = &'static Route>, api: Arc<ApiState>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let guard = Authorization { api: Arc::clone(&api), route };
        let layer = from_fn_with_state(guard, authorize);
        let endpoint = || {
            // Not `route_layer`, which leaves out the handler of every method, and panics if there is no other.
            let endpoint = (route.endpoint)().router.layer(layer.clone());
            match route.access {
                Access::Needs(Scope::EventsWrite) => endpoint.layer(map_response(count_refused)),
                _ => endpoint,
            }
        };
        router = match route.path.strip_suffix("{path}") {
            None => router.route(route.path, endpoint()),
            // What a gateway appends of its client, which may be a slash.
            Some(above) => router.route(&format!("{above}{{*path}}"), endpoint()).route(above, endpoint()),
        };
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
    route: &'static Route,
}

/// The challenges of RFC 6750 to a caller without a token and to one with a wrong one.
const CHALLENGE: &str = r#"Bearer realm="quotabell""#;
const CHALLENGE_INVALID: &str = r#"Bearer realm="quotabell", error="invalid_token""#;

async fn authorize(State(guard): State<Authorization>, mut request: Request, next: Next) -> Response {
    let access = guard.route.access;
    let (Access::IfSet(scope) | Access::Needs(scope)) = access else { return next.run(request).await };
    let check = match (access, guard.api.tokens.check(request.headers())) {
        (Access::Needs(_), None) => return Problem::needs_token("this route").into_response(),
        (_, None) => return next.run(request).await,
        (_, Some(check)) => check,
    };
    let caller = match check {
        TokenCheck::Valid(caller) => caller,
        TokenCheck::Missing => {
            let problem = Problem::unauthorized("send the token as `Authorization: Bearer TOKEN`", CHALLENGE);
            return refused(problem, scope, request).await;
        }
        TokenCheck::Invalid => {
            let detail = "the token is none of those that are configured";
            return refused(Problem::unauthorized(detail, CHALLENGE_INVALID), scope, request).await;
        }
    };
    let is_allowed = caller.scopes.contains(scope);
    let answer = if is_allowed { ALLOWED } else { FORBIDDEN };
    counter!(meters::API_REQUESTS, "caller" => caller.name.clone(), "answer" => answer).increment(1);
    if !is_allowed {
        return refused(Problem::lacks_scope(&caller.name, scope), scope, request).await;
    }
    // Everything that the route logs bears the caller's name.
    let span = tracing::info_span!("api", caller = caller.name);
    request.extensions_mut().insert(Arc::clone(&caller));
    let (mut parts, body) = request.into_parts();
    let change = ChangingRequest::from_parts(guard.route, &mut parts).await;
    let request = Request::from_parts(parts, body);
    let Some(change) = change else { return next.run(request).instrument(span).await };
    // A change is finished and recorded although its caller went away.
    let changing = async move {
        let answer = next.run(request).await;
        if change.is_done(answer.status()) {
            change.record(&guard.api, &caller).await;
        }
        answer
    };
    match tokio::spawn(changing.instrument(span)).await {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The answer to a caller without the right. A producer that sends a large body reads it only after the body.
async fn refused(problem: Problem, scope: Scope, request: Request) -> Response {
    if scope == Scope::EventsWrite {
        let (parts, body) = request.into_parts();
        discard(&parts.headers, body).await;
    }
    problem.into_response()
}

async fn connection_limit_reached() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "all allowed connections are busy: try again")
        .header(RETRY_AFTER, HeaderValue::from_static("1"))
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
