//! The pages and the forms of the console.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};

use super::access::{LOGIN, LOGOUT, guard};
use super::assets::{ASSETS, Asset, FOLDER};
use super::error::ConsoleError;
use super::state::ConsoleState;
use super::{bulk, contacts, erase, lists, login, mutes, operations, portal, settings, subject, system, top};
use crate::api::server::Routes;

/// Maximum size of a form.
const FORM_BYTES_MAX: usize = 64 * 1024;

/// The routes.
pub fn routes(console: Arc<ConsoleState>) -> Routes {
    let all = Router::new()
        .route("/", get(lists::overview))
        .route("/near", get(lists::near))
        .route("/near.csv", get(lists::near_csv))
        .route("/top", get(top::top))
        .route("/subjects", get(subject::search))
        .route("/subject", get(subject::show))
        .route("/alerts", get(lists::alerts))
        .route("/deliveries", get(lists::deliveries))
        .route("/delivery", get(subject::delivery))
        .route("/destinations", get(lists::destinations))
        .route("/mutes", get(lists::mutes))
        .route("/refused", get(lists::refused))
        .route("/system", get(system::system))
        .route("/log", get(lists::log))
        .route("/settings", get(settings::show).post(settings::save))
        .route("/contacts", post(contacts::add))
        .route("/contact", post(contacts::change))
        .route("/mute", post(mutes::change))
        .route("/portal", post(portal::change))
        .route("/erase", get(erase::show).post(erase::erase))
        .route("/act", get(bulk::preview).post(bulk::act))
        .route("/sending", post(operations::sending))
        .route("/reload", post(operations::reload))
        .route(LOGIN, get(login::form).post(login::log_in))
        .route(LOGOUT, post(login::log_out))
        .route(&format!("{}{{name}}", FOLDER), get(asset))
        .fallback(async |uri: Uri| ConsoleError::not_found("there is no such page").at(uri.path()))
        .method_not_allowed_fallback(async || {
            ConsoleError::new(StatusCode::METHOD_NOT_ALLOWED, "this address only takes forms: open a page")
        })
        .layer(from_fn_with_state(Arc::clone(&console), guard))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(console);
    Routes { all, probes: Router::new() }
}

/// `GET /assets/{name}`
async fn asset(uri: Uri) -> Result<Response, ConsoleError> {
    let asset = ASSETS.iter().find(|asset| uri.path().strip_prefix(FOLDER) == Some(&asset.name));
    let missing = || ConsoleError::not_found("there is no such file").at(uri.path());
    asset.map(Asset::to_response).ok_or_else(missing)
}
