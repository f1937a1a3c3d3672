//! `/login` and `/logout`.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use minijinja::context;

use super::access::is_own_href;
use super::error::ConsoleError;
use super::form::SentBody;
use super::one_use_login;
use super::render::rendered_html;
use super::session::{ConsoleSession, SESSION_TTL, Visitor, console_key, one_use_token};
use super::state::ConsoleState;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::fields::Fields;

/// `GET /login`. `login` is the secret of a login of one use, `next` the page that was asked for before, with its
/// query.
pub(super) async fn form(State(console): State<Arc<ConsoleState>>, RawQuery(query): RawQuery) -> Response {
    let asked = Fields::parse(query.unwrap_or_default().as_bytes());
    form_saying(&console, "", asked.raw("login"), asked.raw("next"))
}

fn form_saying(console: &ConsoleState, fault: &str, login: &str, next: &str) -> Response {
    let has_tokens = console.tokens.is_set();
    rendered_html("login.html", &Visitor::Unknown, context! { title => "Log in", fault, login, next, has_tokens })
}

/// `POST /login`
pub(super) async fn log_in(
    State(console): State<Arc<ConsoleState>>,
    SentBody(body): SentBody,
) -> Result<Response, ConsoleError> {
    let first = console.observer.partitions.first();
    let sent = Fields::parse(&body);
    let (login, next) = (sent.raw("login"), sent.raw("next"));
    let refused = |status, fault| Ok((status, form_saying(&console, fault, "", next)).into_response());
    let token = match login {
        "" => console.tokens.find(sent.raw("token").trim()),
        login => within(CALL_TIMEOUT, one_use_login::consume(first, login)).await?.then(one_use_token),
    };
    let Some(token) = token else {
        tracing::info!("a login to the console was refused");
        let fault = match login {
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
    Ok(with_cookie(&console, &value, SESSION_TTL.as_secs(), if is_own_href(next) { next } else { "" }))
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
