//! Starts a pass after each full hour, at the daemon that reads the partition, and paces it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::pass::HourlyPass;
use super::reader::ReaderState;
use crate::ledger::usage_profiles::{self, PassMark};
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::UnixMs;

const HOUR_MS: i64 = 3_600_000;
/// Maximum number of counters per second: a million take half a minute.
const COUNTERS_PER_S: u32 = 40_000;
/// Minimum pause between two slices.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// How often the loop looks at the clock, which may jump, and at the lease.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often a running pass looks whether this daemon still reads and the counting keeps up.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The passes over one partition.
#[derive(Debug)]
pub struct HourlyLoop {
    /// The partition, with a client of its own.
    pub partition: Partition,
    /// The plans.
    pub plans: Plans,
    /// This daemon, as it is named in leases.
    pub daemon: String,
    /// Notified after notices were raised.
    pub new_notices: Arc<Notify>,
}

impl HourlyLoop {
    /// Runs until stopped. Nothing that fails here stops the counting.
    pub async fn run(self, stop: CancellationToken) {
        let mut has_failed = false;
        loop {
            let wait = match self.pass_if_due(&stop).await {
                Ok(wait) => {
                    has_failed = false;
                    wait
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        let partition = self.partition.number();
                        tracing::warn!(%partition, %error, "usual usage can't be learned yet");
                    }
                    LOOK_EVERY
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Makes a pass if it is due, and returns when to look again.
    async fn pass_if_due(&self, stop: &CancellationToken) -> RedisResult<Duration> {
        let now = self.partition.client.server_time().await?;
        let mark = usage_profiles::mark(&self.partition).await?;
        let hour = |at: UnixMs| at.0.div_euclid(HOUR_MS);
        // A clock that was set back makes a pass due, too.
        if mark.passed.is_none_or(|passed| hour(passed) != hour(now)) {
            if ReaderState::read(&self.partition, &self.daemon, now).await? == ReaderState::UpToDate {
                self.pass(now, mark, stop).await?;
            }
            return Ok(CHECK_EVERY);
        }
        let next_hour = UnixMs((hour(now) + 1) * HOUR_MS);
        Ok(next_hour.since(now).clamp(CHECK_EVERY, LOOK_EVERY))
    }

    async fn pass(&self, began: UnixMs, mark: PassMark, stop: &CancellationToken) -> RedisResult<()> {
        let Self { partition, plans, .. } = self;
        let mut pass = HourlyPass::begin(partition, plans, began, mark).await?;
        let (started, mut checked, mut counters, mut unreadable) = (Instant::now(), Instant::now(), 0, 0);
        while let Some(slice) = pass.next().await? {
            counters += slice.counters;
            unreadable += slice.unreadable;
            if slice.notices > 0 {
                self.new_notices.notify_one();
            }
            let pause = Duration::from_secs(slice.counters as u64) / COUNTERS_PER_S;
            if stop.run_until_cancelled(tokio::time::sleep(pause.max(PAUSE_MIN))).await.is_none() {
                return Ok(());
            }
            if checked.elapsed() >= CHECK_EVERY {
                checked = Instant::now();
                let now = partition.client.server_time().await?;
                if ReaderState::read(partition, &self.daemon, now).await? != ReaderState::UpToDate {
                    return Ok(());
                }
            }
        }
        if unreadable > 0 {
            tracing::warn!(unreadable, "profiles of usual usage can't be read: these subjects begin anew");
        }
        let erasures = usage_profiles::mark(partition).await?.erasure_epoch;
        pass.end(erasures).await?;
        tracing::debug!(partition = %partition.number(), counters, took = ?started.elapsed(), "usual usage is learned");
        Ok(())
    }
}
