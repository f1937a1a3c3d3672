//! What the loop reports to the operator: one log line per outcome, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, Label, counter, gauge, histogram};
use tokio::sync::Notify;

use crate::ledger::audit::AuditFinding;
use crate::ledger::ends_feed::EndsFeed;
use crate::ledger::trim::TrimWarning;
use crate::ledger::{Batch, CommitReply};
use crate::redis_client::{ErrorKind, ReadError};
use crate::subjects::FieldError;
use crate::subjects::watch::SubjectChanges;
use crate::types::{DeploymentId, ONCE_A_MINUTE, PartitionNumber, StreamId, Subject, keys, meters};

use super::counting_status::CountingStatus;
use super::known_deployment::replaced;
use super::session_error::SessionError;

/// Log and metrics of one worker.
#[derive(Debug)]
pub struct WorkerReport {
    partition: PartitionNumber,
    new_alerts: Arc<Notify>,
    judged: EndsFeed,
    status: CountingStatus,
    /// The number of commits.
    pub(super) commits: u64,
    /// The deployment that was stored when this daemon looked last. `None` if nothing had been counted, or if the
    /// deployment has no name, so that it may get another one.
    pub(super) deployment: Option<DeploymentId>,
    /// The present failure, so that it is logged once and not at every try.
    failing: Option<ErrorKind>,
    /// Whether it was logged that another daemon reads.
    standing_by: bool,
    /// The consumer group that keeps counted entries from being trimmed.
    held_by: Option<String>,
    /// The refused commands that were logged.
    refused_notes: Vec<String>,
    /// Whether it was logged that the server does not bound the memory of a reading.
    reported_unbounded: bool,
}

impl WorkerReport {
    /// Starts without reports. Notifies `new_alerts` after a commit that raised alerts, and notes in `judged`
    /// whose alerts may have ended and when the others end.
    pub fn new(
        partition: PartitionNumber,
        (new_alerts, judged): (Arc<Notify>, EndsFeed),
        status: CountingStatus,
    ) -> Self {
        Self {
            partition,
            new_alerts,
            judged,
            status,
            commits: 0,
            deployment: None,
            failing: None,
            standing_by: false,
            held_by: None,
            refused_notes: Vec::new(),
            reported_unbounded: false,
        }
    }

    fn gauge(&self, name: &'static str) -> Gauge {
        meters::of_partition(name, self.partition)
    }

    /// Ends a reported failure, after a commit or if there is nothing to commit.
    pub fn recovered(&mut self) {
        if self.failing.take().is_some() {
            self.set_stopped(None);
            tracing::info!(partition = %self.partition, "counting continues");
        }
    }

    /// This daemon reads from now on.
    pub fn lease_acquired(&mut self) {
        self.gauge(meters::READING).set(1.0);
        if std::mem::take(&mut self.standing_by) {
            tracing::info!(partition = %self.partition, "taking over: this daemon reads from now on");
        }
    }

    /// Another daemon with this name reads, and is responsible for the counting.
    pub fn stands_by(&mut self, holder: &str) {
        self.stopped_reading();
        self.standing_by = true;
        tracing::info!(partition = %self.partition, holder, "standing by: another daemon reads");
    }

    /// Another daemon should read the partition.
    pub fn not_assigned(&mut self) {
        self.stopped_reading();
        self.standing_by = false;
    }

    fn stopped_reading(&mut self) {
        self.gauge(meters::READING).set(0.0);
        if self.failing.take().is_some() {
            self.set_stopped(None);
        }
        self.trim_held_by(None);
        // The daemon that reads archives.
        for name in [meters::HISTORY_DAYS_LEFT, meters::HISTORY_METRICS_LEFT] {
            self.gauge(name).set(0.0);
        }
    }

    /// Sets the kind of failure that stopped counting and that waiting does not fix; `None` if counting has not
    /// stopped.
    fn set_stopped(&self, by: Option<ErrorKind>) {
        self.gauge(meters::COUNTING_STOPPED).set(if by.is_some() { 1.0 } else { 0.0 });
        self.status.set(self.partition, by);
    }

    /// Whether the last report was [`Self::stands_by`].
    pub const fn is_standing_by(&self) -> bool {
        self.standing_by && self.failing.is_none()
    }

    /// Reports a failure of Redis.
    pub fn redis_failed(&mut self, kind: ErrorKind, error: &SessionError) {
        kind.count("events");
        if self.failing.replace(kind) == Some(kind) {
            return;
        }
        let source = std::error::Error::source(error).map(ToString::to_string);
        self.set_stopped((!kind.is_transient()).then_some(kind));
        if kind.is_transient() {
            tracing::warn!(partition = %self.partition, %error, source, "counting waits for Redis");
        } else {
            tracing::error!(partition = %self.partition, %error, source, "counting has stopped until this is mended");
        }
    }

    /// Reports why the server does not bound the memory of a reading, or that it does.
    pub fn memory_unbounded(&mut self, why: Option<&ReadError>) {
        let was_reported = std::mem::replace(&mut self.reported_unbounded, why.is_some());
        match why {
            Some(error) if !was_reported => {
                let channels = keys::reader_channel("*");
                tracing::warn!(
                    channels,
                    %error,
                    "the Redis user may not subscribe, so nothing bounds the memory that Redis uses for one reading"
                );
            }
            None if was_reported => {
                tracing::info!("the Redis user may subscribe now: the memory of a reading is bounded again")
            }
            _ => {}
        }
    }

    /// The same batch was read again too often to be a lost race.
    pub fn makes_no_progress(&self, reason: &SessionError) {
        tracing::warn!(partition = %self.partition, %reason, "counting makes no progress");
    }

    /// Reports the reply to a commit.
    pub fn answered(&mut self, batch: &Batch, answer: &CommitReply, took: Duration) {
        counter!(meters::COMMITS, "answer" => word(answer)).increment(1);
        match answer {
            CommitReply::Committed { not_raised, .. } => self.committed(batch, not_raised, took),
            CommitReply::Lost => {
                tracing::warn!(entry = %batch.to, "the last entry of a batch is no longer in the stream: reading again")
            }
            CommitReply::Drift(drift) => {
                counter!(meters::DRIFT).increment(1);
                tracing::warn!(
                    key = drift.key,
                    subject = drift.subject,
                    held = drift.held,
                    "a counter was changed by somebody else: what is stored counts, and everything is read again"
                );
            }
            // The audit or the next session reports it.
            CommitReply::Stale(_)
            | CommitReply::Recreated
            | CommitReply::Old
            | CommitReply::Replaced
            | CommitReply::GrantsDue => {}
        }
    }

    /// Notices may be in the outbox.
    pub fn notices_raised(&self) {
        self.new_alerts.notify_one();
    }

    fn committed(&mut self, batch: &Batch, not_raised: &[usize], took: Duration) {
        self.recovered();
        self.commits += 1;
        self.deployment_found(Some(&batch.instance));
        histogram!(meters::COMMIT_SECONDS).record(took.as_secs_f64());
        counter!(meters::EVENTS_COUNTED).increment(batch.counted);
        counter!(meters::EVENTS_DUPLICATE).increment(batch.duplicates);
        for refused in &batch.refused {
            counter!(meters::EVENTS_REFUSED, "reason" => refused.reason.as_str()).increment(1);
            tracing::debug!(entry = %refused.entry, reason = %refused.reason, "event refused");
            tracing::warn!(
                name: ONCE_A_MINUTE, partition = %self.partition, entry = %refused.entry, reason = %refused.reason,
                "an event can't be counted; quotabell refused list shows what is wrong with it"
            );
        }
        let mut raised = 0;
        for (at, new) in batch.alerts.iter().enumerate() {
            let alert = &new.record.alert;
            if not_raised.contains(&at) {
                tracing::warn!(alert = %alert.id, subject = %alert.subject, "an alert has its flag already: not raised again");
                continue;
            }
            raised += 1;
            self.judged.raised(alert);
            let (threshold, window) = (alert.threshold.meter_label(), alert.window.as_str());
            counter!(meters::ALERTS_RAISED, "threshold" => threshold, "window" => window).increment(1);
            tracing::info!(
                alert = %alert.id, subject = %alert.subject, metric = %alert.metric, period = %alert.period,
                threshold = %alert.threshold, used = alert.used,
                traceparent = alert.traceparent.as_ref().map(display), "alert raised"
            );
        }
        if raised > 0 {
            self.new_alerts.notify_one();
        }
        // A credit may end alerts, also new ones, and an alert under a higher limit ends the earlier one of its
        // threshold.
        let lowered = batch.groups.iter().flat_map(|group| &group.rows).filter(|row| row.total < row.before);
        let ending = batch.alerts.iter().filter(|new| {
            let total = batch.groups[new.group].rows[new.row].total;
            !new.record.earlier.is_empty() || total < new.record.alert.threshold_units
        });
        let named = lowered.map(|row| &row.subject).chain(ending.map(|new| &new.record.alert.subject));
        let named: Vec<Vec<u8>> = named.map(|subject| subject.as_str().as_bytes().to_vec()).collect();
        if !named.is_empty() {
            self.judged.changes.note(SubjectChanges::Of(named));
        }
    }

    /// Reports that the stream was tidied.
    pub fn tidied(&mut self, notes: &[TrimWarning]) {
        let mut holder = None;
        for note in notes {
            match note {
                TrimWarning::TrimHeld(group) => holder = Some(group.clone()),
                TrimWarning::CommandRefused { what, .. } if self.refused_notes.contains(what) => {}
                TrimWarning::CommandRefused { what, error } => {
                    tracing::warn!(what, error, "the user may not run a command that tidies the stream");
                    self.refused_notes.push(what.clone());
                }
            }
        }
        self.trim_held_by(holder);
    }

    /// Reports which group keeps counted entries from being trimmed, if this daemon has to know.
    fn trim_held_by(&mut self, holder: Option<String>) {
        if holder == self.held_by {
            return;
        }
        if let Some(before) = &self.held_by {
            gauge!(meters::TRIM_HELD, self.labels_of(before)).set(0.0);
        }
        if let Some(group) = &holder {
            gauge!(meters::TRIM_HELD, self.labels_of(group)).set(1.0);
            tracing::warn!(group, "another consumer group keeps counted entries from being trimmed");
        }
        self.held_by = holder;
    }

    fn labels_of(&self, group: &str) -> Vec<Label> {
        let mut labels = meters::labels_of(self.partition);
        labels.push(Label::new("group", group.to_owned()));
        labels
    }

    /// Reports settings of subjects that could not be read.
    pub fn unreadable(&self, unreadable: &[(Subject, FieldError)]) {
        for (subject, bad) in unreadable {
            counter!(meters::SUBJECTS_UNREADABLE).increment(1);
            tracing::warn!(
                %subject, field = bad.field, why = bad.why,
                "a subject's setting can't be read: the last good value is used; without one the subject is counted, and no alert is raised"
            );
        }
    }

    /// Reports event ids that were forgotten too early.
    pub fn forgot_ids(&self, ids: u64) {
        if ids == 0 {
            return;
        }
        counter!(meters::IDS_FORGOTTEN).increment(ids);
        tracing::warn!(
            name: ONCE_A_MINUTE, partition = %self.partition, ids,
            "more event ids come than stream.event_ids_max lets the daemon remember: the oldest are forgotten early, \
             and an event that is sent again with a forgotten id is counted again"
        );
    }

    /// Sets the number of subjects in memory.
    pub fn cached(&self, subjects: usize) {
        self.gauge(meters::SUBJECTS_CACHED).set(subjects as f64);
    }

    /// Reports a lost deployment, given the stored one; `None` if nothing has been counted.
    pub fn deployment_found(&mut self, stored: Option<&DeploymentId>) {
        let Some(lost) = replaced(&mut self.deployment, stored) else { return };
        counter!(meters::DEPLOYMENTS_LOST).increment(1);
        tracing::error!(
            partition = %self.partition,
            %lost,
            "everything that quotabell had stored is gone: somebody ran FLUSHALL, or Redis came back empty or with other \
             data. Counting begins again with what the stream holds now, and alerts may be raised a second time"
        );
    }

    /// Logs and counts what an audit found, as of this checkpoint.
    pub fn audited(stream: &str, at: StreamId, finding: AuditFinding) {
        match finding {
            AuditFinding::Gap(entries) => {
                counter!(meters::ENTRIES_LOST).increment(entries);
                tracing::error!(stream, entries, "entries were trimmed or deleted by others before they were counted");
            }
            AuditFinding::Returned(entries) => {
                counter!(meters::ENTRIES_RETURNED).increment(entries);
                tracing::error!(
                    stream,
                    entries,
                    checkpoint = %at,
                    "entries appeared at or before the checkpoint, so they are not counted: \
                     the server has loaded a damaged append-only file, or somebody has restored the stream"
                );
            }
            AuditFinding::Rewound(entries) => {
                tracing::error!(
                    stream,
                    entries,
                    "the stream has had fewer entries than were read: it was recreated, or a failover lost some"
                );
            }
            AuditFinding::Recreated => {
                tracing::error!(stream, "the stream was made again with lower ids: counting starts at its beginning");
            }
            // The next session reports it.
            AuditFinding::Stale(_) | AuditFinding::Even | AuditFinding::Unread => {}
        }
    }
}

/// Every reply, as the label of `quotabell_commits_total`.
pub const COMMIT_LABELS: [&str; 8] =
    ["committed", "stale", "replaced", "lost", "recreated", "old", "drift", "grants_due"];

const fn word(answer: &CommitReply) -> &'static str {
    // Taken from the list, so that no label is forgotten there.
    let [committed, stale, replaced, lost, recreated, old, drift, grants_due] = COMMIT_LABELS;
    match answer {
        CommitReply::Committed { .. } => committed,
        CommitReply::Stale(_) => stale,
        CommitReply::Replaced => replaced,
        CommitReply::Lost => lost,
        CommitReply::Recreated => recreated,
        CommitReply::Old => old,
        CommitReply::Drift(_) => drift,
        CommitReply::GrantsDue => grants_due,
    }
}
