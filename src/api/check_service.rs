//! Answers `/v1/check` within a timeout, whatever Redis does.
//!
//! Has its own connections, so that a check never queues behind a commit. To notice a connection that hangs, it asks
//! for the server's clock several times a second instead of letting checks wait. Read next: the script,
//! [`mod@crate::ledger::check`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use redis::RedisResult;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger::decision::Recorded;
use crate::ledger::{CheckDecision, CheckError, CheckRequest, check};
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::{ErrorKind, Partition, Partitions, ServerClock, error_kind};
use crate::subjects::SettingsLookup;
use crate::types::{ONCE_A_MINUTE, UnixMs, Window, meters};

use super::config::{CheckConfig, OnError};

/// How often the connection is checked.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// How long the server may take to return its time before its connection is dropped. Longer than any script blocks the
/// server.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// Decides checks. Until [`Self::check_connection`] has reached Redis, `check.on_error` decides all of them.
#[derive(Debug)]
pub struct CheckService {
    config: CheckConfig,
    lookup: SettingsLookup,
    partitions: Partitions,
    /// One server for all partitions, or one for each partition in a cluster.
    servers: Vec<CheckedServer>,
}

/// The state of a server.
#[derive(Debug, Default)]
struct CheckedServer {
    clock: ServerClock,
    /// Whether it answered the last time.
    is_reachable: AtomicBool,
}

#[derive(Debug)]
pub enum CheckOutcome {
    /// The subject's limits decided.
    Decided(CheckDecision),
    /// `check.on_error` decided: the request may proceed. The event is still recorded if Redis answers.
    FailOpen(Recorded),
    /// `check.on_error` decided: the request may not proceed.
    FailClosed,
}

/// Why the limits could not decide.
#[derive(Debug, thiserror::Error)]
enum CheckFailure {
    #[error("Redis does not answer")]
    Unreachable,
    #[error("no answer within check.timeout")]
    Timeout,
    /// Redis answers, but the settings are unreadable. Holds whether the event was recorded.
    #[error("the subject's settings can't be read and have no last good value")]
    Unreadable(Recorded),
    #[error(transparent)]
    Script(#[from] CheckError),
}

impl CheckFailure {
    const fn recorded(&self) -> Recorded {
        match self {
            Self::Unreadable(recorded) => *recorded,
            Self::Unreachable | Self::Timeout | Self::Script(_) => Recorded::No,
        }
    }
}

impl CheckService {
    /// Creates a service whose `partitions` have connections that only checks use. Does not connect yet.
    pub fn new(config: CheckConfig, partitions: Partitions, deployment: Deployment, lookup: SettingsLookup) -> Self {
        let servers = match deployment {
            Deployment::Standalone | Deployment::Sentinel => 1,
            Deployment::Cluster => partitions.iter().len(),
        };
        let servers = std::iter::repeat_with(CheckedServer::default).take(servers).collect();
        Self { config, lookup, partitions, servers }
    }

    /// The header that names the subject in requests of gateways.
    pub fn subject_header(&self) -> &str {
        &self.config.subject_header
    }

    /// The estimated time of the first server; `None` until it has told its time.
    pub fn server_now(&self) -> Option<UnixMs> {
        self.servers.first()?.clock.told_now().map(UnixMs)
    }

    /// Decides a check within `check.timeout`, and counts the decision. Not repeatable: see [`check()`].
    pub async fn decide(&self, request: &CheckRequest) -> CheckOutcome {
        let began = Instant::now();
        let decided = tokio::time::timeout(self.config.timeout, self.decide_by_limits(request)).await;
        let outcome = match decided.unwrap_or(Err(CheckFailure::Timeout)) {
            Ok(decision) => CheckOutcome::Decided(decision),
            Err(failure) => {
                self.log(request, &failure);
                match self.config.on_error {
                    OnError::Allow => CheckOutcome::FailOpen(failure.recorded()),
                    OnError::Deny => CheckOutcome::FailClosed,
                }
            }
        };
        histogram!(meters::CHECK_SECONDS).record(began.elapsed());
        counter!(meters::CHECKS, "decision" => outcome.as_str()).increment(1);
        outcome
    }

    async fn decide_by_limits(&self, request: &CheckRequest) -> Result<CheckDecision, CheckFailure> {
        let partition = self.partitions.partition_of(&request.subject);
        let CheckedServer { clock, is_reachable } =
            &self.servers[partition.number().get() as usize % self.servers.len()];
        // Otherwise each of thousands of checks would wait for its own timeout or open its own connection.
        if !is_reachable.load(Ordering::Relaxed) {
            return Err(CheckFailure::Unreachable);
        }
        let levels = self.lookup.levels(&partition.client, &request.subject).await.map_err(CheckError::Redis)?;
        if levels.iter().all(|level| level.profile.has_known_limits()) {
            return Ok(check(partition, clock, request, &levels).await?);
        }
        let recorded = match self.config.on_error {
            // Such a subject is counted but not limited.
            OnError::Allow => check(partition, clock, request, &levels).await?.recorded,
            OnError::Deny => Recorded::No,
        };
        Err(CheckFailure::Unreadable(recorded))
    }

    fn log(&self, request: &CheckRequest, failure: &CheckFailure) {
        let error_kind = match failure {
            // The lookup has logged the subject and the field. One such subject must not hide that Redis is away.
            CheckFailure::Unreadable(_) => return,
            CheckFailure::Script(CheckError::Redis(error)) => error_kind(error).as_str(),
            CheckFailure::Script(_) => ErrorKind::Other.as_str(),
            CheckFailure::Unreachable | CheckFailure::Timeout => ErrorKind::Unreachable.as_str(),
        };
        let (on_error, timeout) = (self.config.on_error, self.config.timeout);
        tracing::warn!(
            name: ONCE_A_MINUTE, error = %failure, error_kind, subject = %request.subject, metric = %request.metric, ?on_error, ?timeout,
            "a check could not be judged"
        );
    }

    /// Checks the connection repeatedly until stopped.
    pub async fn watch_connection(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.check_connection().await;
            stop.run_until_cancelled(tokio::time::sleep(HEALTH_CHECK_INTERVAL)).await;
        }
    }

    /// Asks each server for its time: connects before the first check needs it, sets the clock with which the service
    /// estimates the server's time, and drops a connection that hangs.
    pub async fn check_connection(&self) {
        let mut asked = JoinSet::new();
        for (at, Partition { client, .. }) in self.partitions.iter().take(self.servers.len()).enumerate() {
            let client = Arc::clone(client);
            asked.spawn(async move { (at, client.query_within(HEALTH_CHECK_TIMEOUT, &redis::cmd("TIME")).await) });
        }
        while let Some(Ok((at, time))) = asked.join_next().await {
            let time: RedisResult<(i64, i64)> = time;
            let CheckedServer { clock, is_reachable } = &self.servers[at];
            if let Ok((seconds, micros)) = &time {
                clock.set(seconds * 1000 + micros / 1000);
            }
            let is_unreachable = |error| matches!(error_kind(error), ErrorKind::Unreachable | ErrorKind::NotReady);
            is_reachable.store(!time.as_ref().is_err_and(is_unreachable), Ordering::Relaxed);
        }
    }
}

impl CheckOutcome {
    /// Every label of [`Self::as_str`]; those of windows in their order.
    pub const LABELS: [&str; 11] = [
        "allowed",
        "denied_rate",
        "denied_hour",
        "denied_day",
        "denied_week",
        "denied_month",
        "denied_quarter",
        "denied_year",
        "denied_total",
        "error_allowed",
        "error_denied",
    ];

    /// The outcome as a label. If several limits refuse, the label names the longest window.
    pub fn as_str(&self) -> &'static str {
        let [allowed, denied_rate, denied @ .., error_allowed, error_denied] = &Self::LABELS;
        const { assert!(Self::LABELS.len() == 4 + Window::ALL.len()) };
        match self {
            Self::Decided(decision) if decision.is_allowed() => allowed,
            Self::Decided(decision) => decision.longest_refusal().map_or(denied_rate, |window| denied[window as usize]),
            Self::FailOpen(_) => error_allowed,
            Self::FailClosed => error_denied,
        }
    }
}
