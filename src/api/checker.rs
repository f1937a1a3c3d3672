//! Answers questions of API nodes within a deadline, whatever Redis does.
//!
//! Has a connection of its own, so that a check never queues behind a commit, and looks after it: one that hangs is noticed by a
//! look at the server's clock several times a second and made anew, not by the checks that wait on it. Read next:
//! [`crate::ledger::check`], what is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use crate::ledger::decision::Recorded;
use crate::ledger::{CheckDecision, CheckError, CheckRequest, CheckScript};
use crate::subjects::SettingsLookup;
use crate::types::meters;
use crate::wire::{ErrorKind, RedisClient, error_kind};

use super::config::{CheckConfig, OnError};

/// How often the connection is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long the server may take to say what its clock shows before its connection is given up. Longer than any script holds it.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// Trouble is logged this often at most: under load there are thousands of failures a second, all for one reason.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Checks, from before Redis has been reached until the end.
#[derive(Debug)]
pub struct Checks {
    config: CheckConfig,
    checker: OnceLock<Arc<Checker>>,
    trouble: Mutex<Trouble>,
}

/// What checks need once Redis has been reached.
#[derive(Debug)]
pub struct Checker {
    client: RedisClient,
    lookup: SettingsLookup,
    check: CheckScript,
    /// Whether Redis did not answer when it was looked at last.
    away: AtomicBool,
}

/// How a question was decided.
#[derive(Debug)]
pub enum Decided {
    /// By the subject's limits.
    Judged(CheckDecision),
    /// By `check.on_error`: it may proceed. The event is recorded all the same where Redis answers.
    LetPass(Recorded),
    /// By `check.on_error`: it may not.
    TurnedAway,
}

/// Why nobody could judge.
#[derive(Debug, thiserror::Error)]
enum Unjudged {
    #[error("Redis has not been reached yet")]
    Starting,
    #[error("Redis does not answer")]
    Away,
    #[error("no answer within check.timeout")]
    Late,
    /// Redis answers; whether the event was recorded.
    #[error("the subject's settings can't be read and never could")]
    Unreadable(Recorded),
    #[error(transparent)]
    Failed(#[from] CheckError),
}

/// What was said of failures, and what was not.
#[derive(Debug, Default)]
struct Trouble {
    said: Option<Instant>,
    unsaid: u64,
}

impl Unjudged {
    const fn recorded(&self) -> Recorded {
        match self {
            Self::Unreadable(recorded) => *recorded,
            Self::Starting | Self::Away | Self::Late | Self::Failed(_) => Recorded::No,
        }
    }
}

impl Checks {
    /// Checks that are all decided by `on_error` until [`Self::open`].
    #[must_use]
    pub fn new(config: CheckConfig) -> Self {
        Self { config, checker: OnceLock::new(), trouble: Mutex::default() }
    }

    /// Redis has been reached: from now on questions are judged.
    pub fn open(&self, checker: Arc<Checker>) {
        let _ = self.checker.set(checker);
    }

    /// Decides a question within the deadline, and counts how. Not repeatable: see [`CheckScript::judge`].
    pub async fn decide(&self, question: &CheckRequest) -> Decided {
        let began = Instant::now();
        let judged = match self.checker.get() {
            None => Err(Unjudged::Starting),
            Some(checker) => {
                match tokio::time::timeout(self.config.timeout, checker.judge(question, self.config.on_error)).await {
                    Ok(judged) => judged,
                    Err(_) => Err(Unjudged::Late),
                }
            }
        };
        let decided = match judged {
            Ok(judgement) => Decided::Judged(judgement),
            Err(unjudged) => {
                self.say(question, &unjudged);
                match self.config.on_error {
                    OnError::Allow => Decided::LetPass(unjudged.recorded()),
                    OnError::Deny => Decided::TurnedAway,
                }
            }
        };
        histogram!(meters::CHECK_SECONDS).record(began.elapsed());
        counter!(meters::CHECKS, "decision" => decided.as_str()).increment(1);
        decided
    }

    fn say(&self, question: &CheckRequest, unjudged: &Unjudged) {
        // The look-up has named the subject and the field, and one such subject must not hide that Redis is away.
        if matches!(unjudged, Unjudged::Unreadable(_)) {
            return;
        }
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            trouble.unsaid += 1;
            return;
        }
        let others = std::mem::take(&mut trouble.unsaid);
        trouble.said = Some(Instant::now());
        drop(trouble);
        let fault = match unjudged {
            Unjudged::Failed(CheckError::Redis(error)) => error_kind(error).as_str(),
            Unjudged::Failed(_) | Unjudged::Unreadable(_) => "other",
            Unjudged::Starting | Unjudged::Away | Unjudged::Late => "away",
        };
        let (on_error, timeout) = (self.config.on_error, self.config.timeout);
        tracing::warn!(
            error = %unjudged, fault, subject = %question.subject, metric = %question.metric, others, ?on_error, ?timeout,
            "a check could not be judged; others: as many more since the last of these lines"
        );
    }
}

impl Decided {
    /// Every word of [`Self::as_str`].
    pub const WORDS: [&str; 5] = ["allowed", "denied_window", "denied_day", "error_allowed", "error_denied"];

    /// The decision as a label: of two limits that refuse the day's counts, since it lasts longer.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        let [allowed, denied_window, denied_day, error_allowed, error_denied] = Self::WORDS;
        match self {
            Self::Judged(judgement) if judgement.is_allowed() => allowed,
            Self::Judged(judgement) if judgement.day.is_some_and(|day| !day.is_admitted()) => denied_day,
            Self::Judged(_) => denied_window,
            Self::LetPass(_) => error_allowed,
            Self::TurnedAway => error_denied,
        }
    }
}

impl Checker {
    /// A checker with a connection for checks alone.
    #[must_use]
    pub const fn new(client: RedisClient, lookup: SettingsLookup, check: CheckScript) -> Self {
        Self { client, lookup, check, away: AtomicBool::new(false) }
    }

    async fn judge(&self, question: &CheckRequest, on_error: OnError) -> Result<CheckDecision, Unjudged> {
        // Else each of thousands would wait for its own deadline, or connect by itself.
        if self.away.load(Ordering::Relaxed) {
            return Err(Unjudged::Away);
        }
        let profile = self.lookup.profile(&self.client, &question.subject).await.map_err(CheckError::Redis)?;
        if profile.is_judged() {
            return Ok(self.check.judge(&self.client, question, &profile).await?);
        }
        let recorded = match on_error {
            // Such a subject is counted and not judged.
            OnError::Allow => self.check.judge(&self.client, question, &profile).await?.recorded,
            OnError::Deny => Recorded::No,
        };
        Err(Unjudged::Unreadable(recorded))
    }

    /// Looks after the connection until stopped: makes it before the first check needs it, learns what the server's clock shows, and
    /// makes it anew when it hangs.
    pub async fn look_after(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let looked: RedisResult<(i64, i64)> = self.client.query_within(LOOK_TIMEOUT, &redis::cmd("TIME")).await;
            if let Ok((seconds, micros)) = &looked {
                self.check.clock().set(seconds * 1000 + micros / 1000);
            }
            let is_away = |error| matches!(error_kind(error), ErrorKind::Unreachable | ErrorKind::NotReady);
            self.away.store(looked.as_ref().is_err_and(is_away), Ordering::Relaxed);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
