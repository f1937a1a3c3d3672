//! The pages of the portal, and the header fields of each answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};

use super::assets::PortalAsset;
use super::notice::PortalFailure;
use super::state::{PortalState, WithPortal};
use super::{contacts, show};
use crate::api::server::Routes;

/// Maximum size of a form.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// The routes with those of the portal.
pub fn with_portal(routes: Routes, portal: Arc<PortalState>) -> Routes {
    // A link without its token: what is nested has no such path.
    let cut = any(async |State(portal): WithPortal, headers: HeaderMap| {
        PortalFailure::Cut.into_response(&portal, &headers, "/")
    });
    let headers = from_fn_with_state(Arc::clone(&portal), with_headers);
    let cut = Router::new().route("/portal/", cut).layer(headers.clone()).with_state(Arc::clone(&portal));
    let all = Router::new()
        .route("/", any(async || (StatusCode::SEE_OTHER, [(LOCATION, "./portal/")])))
        .route("/assets/{name}", get(asset))
        .route("/{token}", get(to_folder))
        .route("/{token}/", get(show::show))
        .route("/{token}/contacts", post(contacts::add))
        .route("/{token}/contact", post(contacts::change))
        .fallback(async |State(portal): WithPortal, headers: HeaderMap, uri: Uri| {
            PortalFailure::NoSuchAddress.into_response(&portal, &headers, uri.path())
        })
        // Somebody opened the address of a form.
        .method_not_allowed_fallback(async || (StatusCode::SEE_OTHER, [(LOCATION, "./")]))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(headers)
        .with_state(portal);
    Routes { all: routes.all.merge(cut).nest("/portal", all), probes: routes.probes }
}

/// `GET /portal/{token}`: somebody cut the slash off, as curl does with `./?told=added`. Relative, for proxies with a
/// prefix.
async fn to_folder(uri: Uri) -> Response {
    let token = uri.path().rsplit('/').next().unwrap_or_default();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    (StatusCode::SEE_OTHER, [(LOCATION, format!("./{token}/{query}"))]).into_response()
}

/// `GET /portal/assets/{name}`
async fn asset(State(portal): WithPortal, headers: HeaderMap, uri: Uri) -> Response {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let asset = portal.html.assets().find(|asset| asset.name == name);
    let missing = || PortalFailure::NoSuchAddress.into_response(&portal, &headers, uri.path());
    asset.map_or_else(missing, PortalAsset::to_response)
}

async fn with_headers(State(portal): State<Arc<PortalState>>, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, portal.html.policy.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}
