//! Names and help texts of the metrics in `/metrics`. They are in one place, because dashboards and alerts rely on
//! them.
//!
//! The gauge of one partition has its number as the label `partition` if there are several. Counters count in this
//! process since its start; `quota_totals:{tag}` holds the sums of all daemons. docs/operations.md lists the other
//! labels.

use metrics::{Gauge, Label, gauge};

use super::PartitionNumber;

/// A gauge of one partition.
pub fn of_partition(name: &'static str, partition: PartitionNumber) -> Gauge {
    gauge!(name, labels_of(partition))
}

/// The label of a partition. A single partition has no label, so that its series keep their names.
pub fn labels_of(partition: PartitionNumber) -> Vec<Label> {
    let is_one_of_several = partition.count() > 1;
    is_one_of_several.then(|| Label::new("partition", partition.to_string())).into_iter().collect()
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterKind {
    /// Only grows. Begins with 0, because a rate over a counter that appears with its first event misses that event.
    Counter,
    /// Only grows, with a series for each label value. Each series begins with 0, except for the thresholds of
    /// subjects, which are not known in advance.
    LabelledCounter,
    /// Goes up and down.
    Gauge,
    /// A distribution, seconds.
    Histogram,
}

/// A metric as Prometheus sees it.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// The name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MeterKind,
    /// The HELP line.
    pub help: &'static str,
}

macro_rules! meters {
    ($($constant:ident = $kind:ident $name:literal $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: &str = $name;)*
        /// Every metric, for the HELP lines.
        pub const ALL: &[Meter] = &[$(Meter { name: $name, kind: MeterKind::$kind, help: $help }),*];
    };
}

meters! {
    EVENTS_COUNTED = Counter "quotabell_events_counted_total" "Usage events counted";
    EVENTS_REFUSED = LabelledCounter "quotabell_events_refused_total" "Usage events refused, by reason";
    HTTP_EVENTS_ACCEPTED = Counter "quotabell_http_events_accepted_total" "Usage events taken over HTTP";
    HTTP_EVENTS_REQUESTS_REFUSED = LabelledCounter "quotabell_http_events_requests_refused_total" "Requests with usage events refused as a whole, by HTTP status";
    EVENTS_DUPLICATE = Counter "quotabell_events_duplicate_total" "Usage events not counted because their id had been counted before";
    IDS_FORGOTTEN = Counter "quotabell_event_ids_forgotten_total" "Event ids forgotten before their time, because more came than stream.event_ids_max";
    ENTRIES_LOST = Counter "quotabell_entries_lost_total" "Stream entries that were trimmed or deleted by others, one by one or with the whole stream, before they were read";
    DEPLOYMENTS_LOST = Counter "quotabell_deployments_lost_total"
        "Times that all stored data was found gone or replaced: FLUSHALL, or a Redis that came back empty";
    ENTRIES_RETURNED = Counter "quotabell_entries_returned_total" "Stream entries that appeared at or before the checkpoint, where they are not counted: brought back by the server";
    COMMITS = LabelledCounter "quotabell_commits_total" "Commits by the script's answer (committed, stale, replaced, lost, recreated, old, drift, grants_due)";
    DRIFT = Counter "quotabell_drift_total" "Times that a counter was found changed by somebody else; what is stored counts";
    PLANS = Gauge "quotabell_plans_info" "1 for the fingerprint of the plans in effect";
    ZONE_DATA = Gauge "quotabell_zone_data_info" "1 for the source and version of the zone data in use, 0 for those before an update";
    RELOADS = LabelledCounter "quotabell_reloads_total" "Times that the plans were read again, by outcome (applied, refused)";
    COMMIT_SECONDS = Histogram "quotabell_commit_seconds" "Round trip of one commit";
    ALERTS_RAISED = LabelledCounter "quotabell_alerts_raised_total" "Alerts raised, by threshold (a percentage, used or remaining) and window";
    ALERTS_ENDED = LabelledCounter "quotabell_alerts_ended_total" "Ends of alerts that were noticed, by reason (reset, limit_raised, credited)";
    NOTICES_RAISED = LabelledCounter "quotabell_notices_raised_total" "Notices raised, by type (quota.forecast, quota.spike, quota.silence, quota.grant_expires, quota.resolved)";
    DELIVERIES_MADE = LabelledCounter "quotabell_deliveries_made_total" "Deliveries made by fan-out, by channel; channel none means that no contact was known";
    DELIVERIES_ENDED = LabelledCounter "quotabell_deliveries_ended_total" "Deliveries that ended, by channel and final state";
    ATTEMPTS = LabelledCounter "quotabell_attempts_total" "Attempts, by channel and outcome";
    TEMPLATE_FAILURES = LabelledCounter "quotabell_template_failures_total" "Messages that were sent in the built-in form because their template failed, by channel";
    DELIVERIES_THROTTLED = LabelledCounter "quotabell_deliveries_throttled_total" "Times that a delivery was put off because a cap was exhausted, by channel";
    WAITED_FOR_COUNTING = Counter "quotabell_deliveries_waited_for_counting_total" "Times that fan-out or sending waited because the counting was behind";
    DELIVERED_SECONDS = Histogram "quotabell_delivered_seconds" "Seconds from the commit that raised an alert to its delivery, by channel";
    CONTACTS_DISABLED = LabelledCounter "quotabell_contacts_disabled_total" "Contacts of subjects disabled, by reason (gone, asked, no_mailbox, failing)";
    CONFIGURED_REFUSED = LabelledCounter "quotabell_configured_contacts_refused_total" "Attempts after which a contact of the configuration would be disabled if it were a subject's, by reason";
    LAG = Gauge "quotabell_lag_entries" "Stream entries not committed yet";
    OLDEST_PENDING = Gauge "quotabell_oldest_pending_seconds" "Age of the oldest pending delivery";
    DELIVERIES_PENDING = Gauge "quotabell_deliveries_pending" "Deliveries that are pending";
    DELIVERIES_DEAD = Gauge "quotabell_deliveries_dead" "Dead deliveries that can be replayed and that nobody has discarded";
    DESTINATIONS = Gauge "quotabell_destinations" "Destinations with pending deliveries, by state: healthy, unhealthy (failed last time or never tried), open (circuit open)";
    RECEIVERS_FAILING = Gauge "quotabell_receivers_failing" "Receivers of webhooks whose circuit is open, each once over all partitions";
    SERVER_CIRCUIT = Gauge "quotabell_server_circuit_open" "1 while messages of a channel wait because the server that all of them go through fails, by channel";
    DELIVERIES_PAUSED = Gauge "quotabell_deliveries_paused" "1 while sending is paused by `quotabell deliveries pause`";
    OUTBOX_ENTRIES = Gauge "quotabell_outbox_entries" "Alerts that are not fanned out yet";
    DELIVERIES_WITHOUT_CONTACT = Gauge "quotabell_deliveries_without_contact" "Deliveries that wait because their subject has no contact";
    SUBJECTS_UNREADABLE = Counter "quotabell_subjects_unreadable_total" "Readings of a subject's hash with an unknown plan or an unreadable field";
    SUBJECTS_CACHED = Gauge "quotabell_subjects_cached" "Subjects whose settings are held in memory";
    API_REQUESTS = LabelledCounter "quotabell_api_requests_total" "Requests with a valid token by its name (caller) and whether its scopes allowed them (answer: allowed, forbidden)";
    CHECKS = LabelledCounter "quotabell_checks_total" "Checks by decision (allowed, denied_rate, denied_hour, denied_day, denied_week, denied_month, denied_quarter, denied_year, denied_total, error_allowed, error_denied)";
    CHECK_SECONDS = Histogram "quotabell_check_seconds" "Time from a check's whole request to its answer";
    HISTORY_DAYS_LEFT = Gauge "quotabell_history_days_left" "Days that are over whose counters are not archived yet";
    HISTORY_METRICS_LEFT = Gauge "quotabell_history_metrics_left" "Metrics that are left of the day that is being archived";
    HOURLY_PASS = Gauge "quotabell_hourly_pass_last_success_timestamp_seconds" "Unix time at which the newest complete hourly pass began, which updates forecasts";
    TRIM_HELD = Gauge "quotabell_trim_held_by_group" "1 while the named consumer group keeps consumed entries from being trimmed";
    COUNTING_STOPPED = Gauge "quotabell_counting_stopped" "1 while counting has stopped until an operator fixes what the log names";
    READING = Gauge "quotabell_reading" "1 while this daemon reads the partition, 0 while another does";
    VERIFICATIONS = LabelledCounter "quotabell_verifications_total" "Verifications of contacts by what happened (sent, throttled, failed, verified, rejected)";
    REDIS_ERRORS = LabelledCounter "quotabell_redis_errors_total" "Failed calls to Redis, by operation, and by class: transient, or permanent until an operator mends something";
    LOG_LINES_DROPPED = Counter "quotabell_log_lines_dropped_total" "Lines of the log dropped because stderr did not take them";
    READY = Gauge "quotabell_ready" "1 while the daemon is ready";
}
