//! The pages that were read last, for visitors who come back while Redis is away.
//!
//! A page is kept under what opened it, such as a token: only who has that sees the page again, and not after it has
//! ended. What was revoked while Redis answers loses its page with the next visit. Without such a visit, the page is
//! kept for at most `LASTS`.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a page is kept.
pub const LASTS: Duration = Duration::from_secs(15 * 60);

/// The pages by what opened them, with when each ends.
#[derive(Debug)]
pub struct LastPages<K, P> {
    pages_max: usize,
    pages: Mutex<HashMap<K, (Instant, Arc<P>)>>,
}

impl<K: Eq + Hash + Clone, P> LastPages<K, P> {
    /// Keeps at most this number of pages.
    pub fn new(pages_max: usize) -> Self {
        Self { pages_max, pages: Mutex::default() }
    }

    /// Keeps a page that was read at `now` and that its visitor may see for `left`, in place of the one that ends first
    /// if there are too many.
    pub fn keep(&self, key: K, page: P, left: Duration, now: Instant) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, (ends, _)| now < *ends);
        if pages.len() >= self.pages_max && !pages.contains_key(&key) {
            let first = pages.iter().min_by_key(|(_, (ends, _))| *ends).map(|(key, _)| key.clone());
            first.and_then(|first| pages.remove(&first));
        }
        pages.insert(key, (now + left.min(LASTS), Arc::new(page)));
    }

    /// The page under a key, until it ends.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: Instant) -> Option<Arc<P>>
    where
        K: Borrow<Q>,
    {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, (ends, _)| now < *ends);
        pages.get(key).map(|(_, page)| Arc::clone(page))
    }

    /// Forgets the pages under keys that open nothing any more.
    pub fn forget(&self, is_over: impl Fn(&K) -> bool) {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| !is_over(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages without a bound would fill the memory of the daemon, and an old page would outlive its visitor's right.
    #[test]
    fn the_newest_pages_are_kept_until_they_end() {
        let (pages, began) = (LastPages::<String, u8>::new(2), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        pages.keep("a".to_owned(), 1, LASTS, at(0));
        pages.keep("b".to_owned(), 2, Duration::from_secs(60), at(1));
        pages.keep("c".to_owned(), 3, LASTS * 9, at(2));
        let kept = |at| ["a", "b", "c"].map(|key| pages.get(key, at).map(|page| *page));
        assert_eq!(kept(at(3)), [Some(1), None, Some(3)], "b would have ended first");
        assert_eq!(kept(at(2) + LASTS), [None; 3], "no page is kept longer");
        pages.keep("d".to_owned(), 4, LASTS, at(3));
        pages.forget(|key| key == "c");
        assert_eq!(kept(at(3)), [None; 3]);
    }
}
