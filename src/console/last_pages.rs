//! Pages for visitors who come back while Redis is away: as they were read last, gray and without controls.
//!
//! A page is kept under the cookie with which it was read, so nobody sees a page of another session or scope. While
//! Redis is away, the cookie is verified with the key that Redis had last: a session still ends in time, with its token
//! and with its scope. If somebody deletes the key in Redis or erases a subject, the pages end with the next visit of
//! anybody. Read next: [`super::access`], which keeps and shows them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::render::RenderedHtml;
use super::session::{ConsoleSession, Visitor};
use crate::api::token::CurrentTokens;
use crate::html::last_pages::{LASTS, LastPages};

/// Maximum number of pages, of some hundred kB each with what they show.
const PAGES_MAX: usize = 64;
/// Pages that are all form.
const NOT_KEPT: [&str; 5] = ["settings.html", "erase.html", "act.html", "login.html", "error.html"];

/// The pages by cookie and address. Without a session, the cookie is empty.
#[derive(Debug)]
pub struct LastConsolePages {
    pages: LastPages<(String, String), (RenderedHtml, Instant)>,
    /// The key of cookies, as Redis had it last.
    key: Mutex<Option<String>>,
    /// The number of erasures, as Redis had it last, and since when.
    erasures: Mutex<(Option<u64>, Instant)>,
}

impl Default for LastConsolePages {
    fn default() -> Self {
        Self { pages: LastPages::new(PAGES_MAX), key: Mutex::default(), erasures: Mutex::new((None, Instant::now())) }
    }
}

impl LastConsolePages {
    /// Remembers the key that Redis has.
    pub(super) fn know(&self, key: &str) {
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.to_owned());
    }

    /// Remembers the number of erasures that Redis has: a page that was asked for before the last one may show a
    /// subject that was erased.
    pub(super) fn know_erasures(&self, count: u64) {
        let (known, since) = &mut *self.erasures.lock().unwrap_or_else(PoisonError::into_inner);
        if known.replace(count).is_some_and(|known| known != count) {
            *since = Instant::now();
        }
    }

    /// Keeps a page that this cookie has asked for at this time.
    pub(super) fn keep(&self, cookie: &str, address: &str, page: RenderedHtml, asked: Instant) {
        // It is shown once: it may be a link to the portal.
        let has_outcome = matches!(&page.visitor, Visitor::LoggedIn { outcome: Some(_), .. });
        if !NOT_KEPT.contains(&page.template) && !has_outcome {
            self.pages.keep((cookie.to_owned(), address.to_owned()), (page, asked), LASTS, asked);
        }
    }

    /// The page that this cookie has read last at an address, with the status of a server that can't read it now and
    /// `why`; `None` if there is none, or if its visitor may not see it any more. `is_local`: everybody on this machine
    /// may look.
    pub(super) fn get(
        &self,
        (cookie, address): (&str, &str),
        why: &str,
        tokens: &CurrentTokens,
        is_local: bool,
    ) -> Option<Response> {
        let kept = self.pages.get(&(cookie.to_owned(), address.to_owned()), Instant::now())?;
        let (page, asked) = &*kept;
        let may_see = match &page.visitor {
            Visitor::Local { .. } => is_local,
            Visitor::LoggedIn { session, now, .. } => {
                let key = self.key.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let now = now.after(asked.elapsed());
                let known = key.and_then(|key| ConsoleSession::read(cookie, &key, tokens, now));
                known.as_ref() == Some(session)
            }
            Visitor::Unknown => false,
        };
        let (_, erased) = *self.erasures.lock().unwrap_or_else(PoisonError::into_inner);
        (may_see && erased <= *asked).then(|| (StatusCode::SERVICE_UNAVAILABLE, page.to_last(why)).into_response())
    }

    /// Forgets the pages of a cookie.
    pub(super) fn forget(&self, cookie: &str) {
        self.pages.forget(|(known, _)| known == cookie);
    }
}
