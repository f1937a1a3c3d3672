//! Who may see a page: the checks before each request, and the header fields of each answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, ETAG, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION,
    ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::assets;
use super::error::ConsoleError;
use super::form;
use super::render::{RenderedHtml, for_visitor};
use super::session::{ConsoleSession, Visitor, console_key};
use super::state::ConsoleState;
use crate::api::body::in_time;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::fields::Fields;
use crate::html::href::{href_to, up_from};
use crate::ledger::erasures;

/// The form that logs in.
pub(super) const LOGIN: &str = "/login";
/// The form that logs out.
pub(super) const LOGOUT: &str = "/logout";

/// The time of Redis, by which pages say how long ago something was.
const TIME: HeaderName = HeaderName::from_static("quotabell-time");

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The middleware before every route.
pub(super) async fn guard(State(console): State<Arc<ConsoleState>>, request: Request, next: Next) -> Response {
    // What the page shows is read after that.
    let asked = Instant::now();
    let (mut parts, body) = request.into_parts();
    let known = parts.headers.get(IF_NONE_MATCH).cloned();
    let cookie = console.cookie(&parts.headers).unwrap_or_default().to_owned();
    let address = (parts.method == Method::GET).then(|| parts.uri.to_string());
    let mut answer = match judge(&console, &parts).await {
        Ok(Some(visitor)) => {
            parts.extensions.insert(visitor.clone());
            let mut answer = for_visitor(next.run(Request::from_parts(parts, body)).await, &visitor);
            let now = visitor.now().and_then(|now| HeaderValue::from_str(&now.to_string()).ok());
            now.and_then(|now| answer.headers_mut().insert(TIME, now));
            answer
        }
        Ok(None) => {
            let next =
                address.as_ref().map(|address| &address[1..]).filter(|next| !next.is_empty() && is_own_href(next));
            let login = next.map_or_else(|| LOGIN[1..].to_owned(), |_| href_to(&LOGIN[1..], &[("next", next)]));
            let way = up_from(parts.uri.path()) + &login;
            (StatusCode::SEE_OTHER, [(LOCATION, way)]).into_response()
        }
        Err(error) => {
            with_sent_form(error.at(parts.uri.path()), Request::from_parts(parts, body)).await.into_response()
        }
    };
    if let Some(address) = address {
        match (answer.status(), answer.extensions_mut().remove::<RenderedHtml>()) {
            (StatusCode::OK, Some(page)) => console.last_pages.keep(&cookie, &address, page, asked),
            (StatusCode::SERVICE_UNAVAILABLE, Some(error)) => {
                let (read, why, is_local) = ((&*cookie, &*address), error.detail(), is_local(&console));
                answer = console.last_pages.get(read, &why, &console.tokens, is_local).unwrap_or(answer);
            }
            _ => {}
        }
    }
    if answer.status() == StatusCode::OK && known.is_some_and(|known| answer.headers().get(ETAG) == Some(&known)) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        *answer.body_mut() = Body::empty();
    }
    let headers = answer.headers_mut();
    for (name, value) in
        [(CONTENT_SECURITY_POLICY, POLICY), (REFERRER_POLICY, "no-referrer"), (X_CONTENT_TYPE_OPTIONS, "nosniff")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Whether this is the relative link of a page, with or without a query: it can't lead elsewhere.
pub(super) fn is_own_href(link: &str) -> bool {
    let path = link.split_once('?').map_or(link, |(path, _)| path);
    link.bytes().all(|byte| byte.is_ascii_graphic()) && path.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The same with the form that was sent, if only Redis was away: nobody should have to fill it in again.
async fn with_sent_form(error: ConsoleError, request: Request) -> ConsoleError {
    let page = request.uri().path()[1..].to_owned();
    let is_away = matches!(&error, ConsoleError::Told { status: StatusCode::SERVICE_UNAVAILABLE, .. });
    if !(is_away && is_own_href(&page) && page != LOGIN[1..] && request.method() == Method::POST) {
        return error;
    }
    match in_time(Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => error.with_form(&page, Fields::parse(&body).partition(&[])),
        _ => error,
    }
}

/// The visitor; `None` if a login is needed first.
async fn judge(console: &ConsoleState, request: &Parts) -> Result<Option<Visitor>, ConsoleError> {
    let headers = &request.headers;
    if !is_own_host(console, headers) {
        let detail = "this is not the address of the console: use its listen address, or set console.public_url";
        return Err(ConsoleError::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    if ![Method::GET, Method::HEAD].contains(&request.method) && !is_same_origin(headers) {
        return Err(ConsoleError::new(StatusCode::FORBIDDEN, "the request comes from another site"));
    }
    let path = request.uri.path();
    if path == LOGOUT || path.starts_with(assets::FOLDER) {
        // Also while Redis is away.
        return Ok(Some(Visitor::Unknown));
    }
    let is_open = path == LOGIN;
    let first = console.observer.partitions.first();
    // Each visit also learns whether something was erased.
    let now = async || {
        console.last_pages.know_erasures(within(CALL_TIMEOUT, erasures::count(first)).await?);
        within(CALL_TIMEOUT, first.client.server_time()).await
    };
    let session = match console.cookie(headers) {
        Some(cookie) => {
            let key = within(CALL_TIMEOUT, console_key(first)).await?;
            console.last_pages.know(&key);
            let now = now().await?;
            ConsoleSession::read(cookie, &key, &console.tokens, now).map(|session| (session, now))
        }
        None => None,
    };
    if session.is_none() && !is_open && !console.tokens.is_set() {
        return match is_local(console) {
            true => Ok(Some(Visitor::Local { now: now().await? })),
            false => Err(ConsoleError::new(
                StatusCode::FORBIDDEN,
                "without a token the console is only for this machine, and not for console.public_url: set \
                 http.token_file or http.tokens, or open what `quotabell console` prints",
            )),
        };
    }
    let Some((session, now)) = session else { return Ok(is_open.then_some(Visitor::Unknown)) };
    let outcome = form::outcome(console, &request.uri, &session).await;
    Ok(Some(Visitor::LoggedIn { session, outcome, now }))
}

impl ConsoleState {
    /// The name of the session's cookie. Over TLS, a browser accepts `__Secure-` only with `Secure`.
    pub(super) fn cookie_name(&self) -> &'static str {
        if self.is_secure() { "__Secure-quotabell_console" } else { "quotabell_console" }
    }

    /// The session's cookie of a request.
    pub(super) fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|line| line.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(self.cookie_name())?.strip_prefix('='))
    }

    pub(super) fn is_secure(&self) -> bool {
        self.public_url.as_ref().is_some_and(|url| url.scheme() == "https")
    }
}

/// Whether everybody on this machine may look. What a proxy passes on comes from this machine, too.
fn is_local(console: &ConsoleState) -> bool {
    !console.tokens.is_set() && console.listen.ip().is_loopback() && console.public_url.is_none()
}

/// Whether the browser was sent to this console, and not to a name of somebody else that leads here.
fn is_own_host(console: &ConsoleState, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let name = without_port(host);
    let of_url = console.public_url.as_ref().and_then(|url| url.host_str());
    let address: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let is_own_address = address.is_some_and(|ip| ip.is_loopback() || ip == console.listen.ip());
    is_own_address || name.eq_ignore_ascii_case("localhost") || of_url.is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// `[::1]:9465` to `[::1]`, `localhost:9465` to `localhost`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Whether a request that changes something was sent by a page of the console.
fn is_same_origin(headers: &HeaderMap) -> bool {
    const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.zip(text(HOST)).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 address has colons of its own.
    #[test]
    fn the_port_of_a_host_is_left_out() {
        for (host, name) in [("localhost:9465", "localhost"), ("[::1]:9465", "[::1]"), ("[::1]", "[::1]"), ("a", "a")] {
            assert_eq!(without_port(host), name);
        }
    }
}
