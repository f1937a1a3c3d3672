//! The pages that were read last, for visitors who come back while Redis is away.
//!
//! A page is kept under its token: only who has it sees the page again, without forms, and not after the token has
//! ended. A token that was revoked while Redis answers loses its page with the next visit. Without such a visit, the
//! page is kept for at most `LASTS`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::signing::PortalAccess;
use crate::views::portal::PortalView;

/// How long a page is kept.
const LASTS: Duration = Duration::from_secs(15 * 60);
/// Maximum number of pages, of some 20 kB each.
const PAGES_MAX: usize = 256;

/// A page that was read: what the token permits, and what it shows.
#[derive(Debug)]
pub(super) struct ReadPortal {
    pub(super) access: PortalAccess,
    pub(super) language: String,
    pub(super) view: PortalView,
}

/// The pages by their tokens, with when each ends.
#[derive(Debug, Default)]
pub struct LastPages(Mutex<HashMap<String, (Instant, Arc<ReadPortal>)>>);

impl LastPages {
    /// Keeps a page that was read at `now`, in place of the one that ends first if there are too many.
    pub(super) fn keep(&self, token: String, page: ReadPortal, now: Instant) {
        let left = page.access.expires_at().since(page.view.read_at.0);
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= PAGES_MAX && !pages.contains_key(&token) {
            let first = pages.iter().min_by_key(|(_, (ends, _))| *ends).map(|(token, _)| token.clone());
            first.and_then(|first| pages.remove(&first));
        }
        pages.insert(token, (now + left.min(LASTS), Arc::new(page)));
    }

    /// The page of a token, until it ends.
    pub(super) fn get(&self, token: &str, now: Instant) -> Option<Arc<ReadPortal>> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(token).filter(|(ends, _)| now < *ends).map(|(_, page)| Arc::clone(page))
    }

    /// Forgets the page of a token that opens nothing any more.
    pub(super) fn forget(&self, token: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }
}
