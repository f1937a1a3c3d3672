//! `/login` and `/logout`.

use std::sync::Arc;

use axum::extract::{Form, Query, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use minijinja::context;
use serde::Deserialize;

use super::access::is_own_href;
use super::error::ConsoleError;
use super::one_use_login;
use super::render::rendered_html;
use super::session::{ConsoleSession, SESSION_TTL, Visitor, console_key, one_use_token};
use super::state::ConsoleState;
use crate::api::problem::{CALL_TIMEOUT, within};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoginForm {
    token: String,
    /// The secret of a login of one use.
    login: String,
    /// The page that was asked for before, with its query.
    next: String,
}

/// `GET /login`
pub(super) async fn form(State(console): State<Arc<ConsoleState>>, Query(asked): Query<LoginForm>) -> Response {
    form_saying(&console, "", &asked)
}

fn form_saying(console: &ConsoleState, fault: &str, LoginForm { login, next, .. }: &LoginForm) -> Response {
    let has_tokens = console.tokens.is_set();
    rendered_html("login.html", &Visitor::Unknown, context! { title => "Log in", fault, login, next, has_tokens })
}

/// `POST /login`
pub(super) async fn log_in(
    State(console): State<Arc<ConsoleState>>,
    Form(asked): Form<LoginForm>,
) -> Result<Response, ConsoleError> {
    let first = console.observer.partitions.first();
    let LoginForm { token, login, next } = asked;
    let again = LoginForm { next: next.clone(), ..LoginForm::default() };
    let refused = |status, fault| Ok((status, form_saying(&console, fault, &again)).into_response());
    let token = match login.as_str() {
        "" => console.tokens.find(token.trim()),
        login => within(CALL_TIMEOUT, one_use_login::consume(first, login)).await?.then(one_use_token),
    };
    let Some(token) = token else {
        tracing::info!("a login to the console was refused");
        let fault = match login.as_str() {
            "" => "This is none of the tokens.",
            _ => "This login was used, or is older than 30 seconds: `quotabell console` prints another one.",
        };
        return refused(StatusCode::UNAUTHORIZED, fault);
    };
    let Some(session) = ConsoleSession::of(&token) else {
        return refused(StatusCode::FORBIDDEN, "This token has neither the scope read nor admin.");
    };
    let key = within(CALL_TIMEOUT, console_key(first)).await?;
    let now = within(CALL_TIMEOUT, first.client.server_time()).await?;
    tracing::info!(caller = session.name, "somebody logged in to the console");
    let value = session.cookie(&key, &token, now.after(SESSION_TTL));
    Ok(with_cookie(&console, &value, SESSION_TTL.as_secs(), if is_own_href(&next) { &next } else { "" }))
}

/// `POST /logout`
pub(super) async fn log_out(State(console): State<Arc<ConsoleState>>, headers: HeaderMap) -> Response {
    console.cookie(&headers).inspect(|cookie| console.last_pages.forget(cookie));
    with_cookie(&console, "", 0, "")
}

/// Sends the browser to a page with this cookie. Without a path, the browser limits it to the folder of the login
/// page, below whatever path a proxy has.
fn with_cookie(console: &ConsoleState, value: &str, lasts_s: u64, page: &str) -> Response {
    let (name, secure) = (console.cookie_name(), if console.is_secure() { "; Secure" } else { "" });
    let cookie = format!("{name}={value}; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}");
    (StatusCode::SEE_OTHER, [(LOCATION, format!("./{page}")), (SET_COOKIE, cookie)]).into_response()
}
