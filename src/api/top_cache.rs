//! Recent rankings. A ranking reads every counter of a period, so it is kept for a while and shared by callers, and
//! only one is computed at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::views::TopView;
use crate::views::top::TopRequest;

const RANKING_TTL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct TopCache {
    read: Mutex<Vec<CachedTop>>,
}

#[derive(Debug)]
struct CachedTop {
    request: TopRequest,
    read: Instant,
    view: Arc<TopView>,
}

impl TopCache {
    /// Returns a recent ranking, or computes it with `read`. Other callers wait in the meantime.
    pub async fn get_or_read<E>(
        &self,
        request: &TopRequest,
        read: impl Future<Output = Result<TopView, E>>,
    ) -> Result<Arc<TopView>, E> {
        let mut kept = self.read.lock().await;
        kept.retain(|top| top.read.elapsed() < RANKING_TTL);
        if let Some(top) = kept.iter().find(|top| top.request == *request) {
            return Ok(Arc::clone(&top.view));
        }
        let view = Arc::new(read.await?);
        kept.push(CachedTop { request: request.clone(), read: Instant::now(), view: Arc::clone(&view) });
        Ok(view)
    }
}
