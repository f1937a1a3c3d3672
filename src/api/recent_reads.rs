//! Recent answers to requests that cost much to read. They are kept for a while and shared by callers, and only one is
//! read at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::views::TopView;
use crate::views::top::TopRequest;

/// How long a ranking is kept.
const RANKING_TTL: Duration = Duration::from_secs(10);

/// Recent rankings: each reads every counter of a period.
pub type TopCache = RecentReads<TopRequest, TopView>;

#[derive(Debug)]
pub struct RecentReads<R, V> {
    ttl: Duration,
    kept: Mutex<Vec<Read<R, V>>>,
}

#[derive(Debug)]
struct Read<R, V> {
    request: R,
    at: Instant,
    view: Arc<V>,
}

impl<R: Clone + PartialEq, V> RecentReads<R, V> {
    /// Keeps what is read for this long.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, kept: Mutex::default() }
    }

    /// Returns a recent answer, or computes it with `read`. Other callers wait in the meantime.
    pub async fn get_or_read<E>(&self, request: &R, read: impl Future<Output = Result<V, E>>) -> Result<Arc<V>, E> {
        let mut kept = self.kept.lock().await;
        kept.retain(|read| read.at.elapsed() < self.ttl);
        if let Some(read) = kept.iter().find(|read| read.request == *request) {
            return Ok(Arc::clone(&read.view));
        }
        let view = Arc::new(read.await?);
        kept.push(Read { request: request.clone(), at: Instant::now(), view: Arc::clone(&view) });
        Ok(view)
    }

    /// Forgets every answer, because something was changed.
    pub async fn clear(&self) {
        self.kept.lock().await.clear();
    }
}

impl Default for TopCache {
    fn default() -> Self {
        Self::new(RANKING_TTL)
    }
}
