//! Recent answers to requests that cost much to read. They are kept for a while and shared by callers, and only one is
//! read at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::outbox::CountingLag;
use crate::views::TopView;
use crate::views::top::TopRequest;

/// How long a ranking is kept.
const RANKING_TTL: Duration = Duration::from_secs(10);
/// A ranking of a million subjects by percent takes some seconds, and may wait for another one.
pub const RANKING_TIMEOUT: Duration = Duration::from_secs(30);
/// A ranking is kept for at least this multiple of the time it took: reading must not slow counting down.
pub const KEPT_TIMES: u32 = 30;
/// While counting lags, answers are kept longer by this factor.
const BEHIND_TIMES: u32 = 10;
/// Maximum number of answers.
const KEPT_MAX: usize = 8;

/// Recent rankings, each with the number of erasures before it. Each reads every counter of a period.
pub type TopCache = RecentReads<(TopRequest, u64), TopView>;

#[derive(Debug)]
pub struct RecentReads<R, V> {
    ttl: Duration,
    kept_times: u32,
    /// Who reads.
    reading: tokio::sync::Mutex<()>,
    kept: Mutex<Kept<R, V>>,
}

#[derive(Debug)]
struct Kept<R, V> {
    reads: Vec<Read<R, V>>,
    /// How often everything was forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Read<R, V> {
    request: R,
    at: Instant,
    /// How long it is recent.
    kept_for: Duration,
    view: Arc<V>,
}

impl<R, V> Read<R, V> {
    fn is_recent(&self, lag: CountingLag) -> bool {
        self.at.elapsed() < self.kept_for * if lag == CountingLag::Behind { BEHIND_TIMES } else { 1 }
    }
}

impl<R: Clone + PartialEq, V> RecentReads<R, V> {
    /// Keeps what is read for this long, or for this multiple of the time it took.
    pub fn new(ttl: Duration, kept_times: u32) -> Self {
        Self {
            ttl,
            kept_times,
            reading: tokio::sync::Mutex::default(),
            kept: Mutex::new(Kept { reads: Vec::new(), forgotten: 0 }),
        }
    }

    /// Returns a recent answer, or computes it with `read`. Other callers wait in the meantime.
    pub async fn get_or_read<E>(
        &self,
        request: &R,
        lag: CountingLag,
        read: impl Future<Output = Result<V, E>>,
    ) -> Result<Arc<V>, E> {
        let _reading = self.reading.lock().await;
        if let Some(view) = self.get(request, lag) {
            return Ok(view);
        }
        let forgotten = self.kept().forgotten;
        let began = Instant::now();
        let view = Arc::new(read.await?);
        let kept_for = self.ttl.max(began.elapsed() * self.kept_times);
        let mut kept = self.kept();
        if kept.forgotten == forgotten {
            kept.reads.retain(|read| read.request != *request);
            kept.reads.truncate(KEPT_MAX - 1);
            let (request, view) = (request.clone(), Arc::clone(&view));
            kept.reads.insert(0, Read { request, at: Instant::now(), kept_for, view });
        }
        Ok(view)
    }

    /// A recent answer.
    pub fn get(&self, request: &R, lag: CountingLag) -> Option<Arc<V>> {
        let mut kept = self.kept();
        kept.reads.retain(|read| read.is_recent(CountingLag::Behind));
        let known = kept.reads.iter().find(|read| read.request == *request && read.is_recent(lag));
        known.map(|read| Arc::clone(&read.view))
    }

    /// Forgets every answer, also one that is being read, because something was changed.
    pub fn clear(&self) {
        let mut kept = self.kept();
        kept.reads.clear();
        kept.forgotten += 1;
    }

    fn kept(&self) -> MutexGuard<'_, Kept<R, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TopCache {
    fn default() -> Self {
        Self::new(RANKING_TTL, KEPT_TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading anew would slow counting down.
    #[tokio::test]
    async fn an_answer_is_kept_longer_while_counting_lags() {
        let second = Duration::from_secs(1);
        let reads = RecentReads::new(second, 1);
        let _: Result<_, ()> = reads.get_or_read(&"near", CountingLag::None, async { Ok(1) }).await;
        let known = [0, 5, 10].map(|seconds| {
            let at = Instant::now().checked_sub(seconds * second).expect("the machine runs for longer");
            reads.kept().reads.iter_mut().for_each(|read| read.at = at);
            [CountingLag::Behind, CountingLag::None].map(|lag| reads.get(&"near", lag).is_some())
        });
        assert_eq!(known, [[true, true], [true, false], [false, false]]);
    }
}
