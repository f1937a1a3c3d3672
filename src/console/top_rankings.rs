//! Rankings for all who ask. Each reads every counter of a period, so one is made at a time, and pages do not wait for
//! long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::api::recent_reads::{RANKING_TIMEOUT, TopCache};
use crate::outbox::{CountingLag, counting_lag};
use crate::views::Observer;
use crate::views::top::{self, TOP_MAX, TopRequest, TopView};

/// How long a page waits; after that it says that the ranking is being made.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A ranking that is asked for, with the number of erasures before.
type Asked = (TopRequest, u64);

/// The last rankings, and the one that is being made.
#[derive(Debug, Default)]
pub struct TopRankings {
    recent: TopCache,
    making: Mutex<Making>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Making {
    task: Option<JoinHandle<()>>,
    /// The last failure, for the next visit.
    failed: Option<(Asked, Problem)>,
}

impl TopRankings {
    /// A recent ranking; `None` while it, or another one, is being made.
    ///
    /// # Errors
    ///
    /// Why it could not be made, once.
    pub(super) async fn get(
        self: &Arc<Self>,
        observer: &Observer,
        asked: &Asked,
    ) -> Result<Option<Arc<TopView>>, Problem> {
        let lag = within(CALL_TIMEOUT, counting_lag::of_any(&observer.partitions)).await?;
        let ended = self.ended.notified();
        if let Some(view) = self.made(asked, lag)? {
            return Ok(Some(view));
        }
        self.begin(observer, asked, lag);
        let _ = timeout(WAIT_MAX, ended).await;
        self.made(asked, lag)
    }

    fn made(&self, asked: &Asked, lag: CountingLag) -> Result<Option<Arc<TopView>>, Problem> {
        match self.making().failed.take_if(|(of, _)| of == asked) {
            Some((_, problem)) => Err(problem),
            None => Ok(self.recent.get(asked, lag)),
        }
    }

    fn begin(self: &Arc<Self>, observer: &Observer, asked: &Asked, lag: CountingLag) {
        let mut making = self.making();
        if making.task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (rankings, observer, asked) = (Arc::clone(self), observer.clone(), asked.clone());
            making.task = Some(tokio::spawn(async move {
                let read = top::read(&observer.partitions, &observer.plans, &asked.0, TOP_MAX);
                if let Err(problem) = within(RANKING_TIMEOUT, rankings.recent.get_or_read(&asked, lag, read)).await {
                    rankings.making().failed = Some((asked, problem));
                }
                rankings.ended.notify_waiters();
            }));
        }
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
