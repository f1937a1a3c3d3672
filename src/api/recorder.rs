//! The recorder behind the `metrics` facade: names, help texts, buckets.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::events::report::COMMIT_LABELS;
use crate::outbox::Operation;
use crate::redis_client::ERROR_CLASSES;
use crate::types::meters::MeterKind;
use crate::types::{
    Channel, DeliveryState, DisableReason, EndReason, GrantNotice, OutcomeClass, RefusalReason, ResolvedNotice,
    UsageNoticeKind, meters,
};
use crate::verification::VerificationEvent;

use super::check_service::CheckOutcome;
use super::ingestion::handler::REFUSED_STATUSES;

/// Upper bounds of a commit's round trip, seconds: from an idle server to one at its limit (10 ms) and beyond.
const COMMIT_BUCKETS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 5.0];
/// Upper bounds of the time from crossing to delivered, seconds: from the first attempt to the end of the default
/// retries.
const DELIVERED_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3_600.0, 21_600.0, 259_200.0];

/// Upper bounds of a check, seconds: from a round trip on one machine to the longest deadline.
const CHECK_BUCKETS: [f64; 11] = [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 5.0];

/// Operations with Redis that can fail, beside the [`Operation`]s of the outbox; values of the label `operation`.
const OPERATIONS: [&str; 9] = [
    "events",
    "append_events",
    "membership",
    "verification",
    "throttle",
    "read_contacts",
    "fan-out",
    "dispatcher",
    "digest",
];

/// Installs the recorder of this process and describes every metric.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(meters::COMMIT_SECONDS.to_owned()), &COMMIT_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(meters::DELIVERED_SECONDS.to_owned()), &DELIVERED_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(meters::CHECK_SECONDS.to_owned()), &CHECK_BUCKETS)?
        .install_recorder()?;
    describe();
    Ok(handle)
}

fn describe() {
    for meter in meters::ALL {
        match meter.kind {
            MeterKind::Counter => {
                describe_counter!(meter.name, meter.help);
                counter!(meter.name).absolute(0);
            }
            MeterKind::LabelledCounter => describe_counter!(meter.name, meter.help),
            MeterKind::Gauge => describe_gauge!(meter.name, meter.help),
            MeterKind::Histogram => describe_histogram!(meter.name, Unit::Seconds, meter.help),
        }
    }
    begin_labelled();
}

/// Creates the series with known labels, so that they start at 0.
fn begin_labelled() {
    let channels = Channel::SENDING.map(Channel::as_str);
    let all_channels = Channel::ALL.map(Channel::as_str);
    let reasons = DisableReason::ALL.map(DisableReason::as_str);
    let [forecast, spike, silence] = UsageNoticeKind::ALL.map(UsageNoticeKind::webhook_type);
    let notices = [forecast, spike, silence, GrantNotice::WEBHOOK_TYPE, ResolvedNotice::WEBHOOK_TYPE];
    let labelled: [(&str, &str, &[&'static str]); 13] = [
        (meters::ALERTS_ENDED, "reason", &EndReason::ALL.map(EndReason::as_str)),
        (meters::NOTICES_RAISED, "type", &notices),
        (meters::COMMITS, "answer", &COMMIT_LABELS),
        (meters::DELIVERIES_MADE, "channel", &all_channels),
        (meters::DELIVERIES_THROTTLED, "channel", &channels),
        (meters::TEMPLATE_FAILURES, "channel", &channels),
        (meters::CHECKS, "decision", &CheckOutcome::LABELS),
        (meters::VERIFICATIONS, "outcome", &VerificationEvent::ALL.map(VerificationEvent::as_str)),
        (meters::CONTACTS_DISABLED, "reason", &reasons),
        (meters::CONFIGURED_REFUSED, "reason", &reasons),
        (meters::RELOADS, "outcome", &["applied", "refused"]),
        (meters::HTTP_EVENTS_REQUESTS_REFUSED, "status", &REFUSED_STATUSES),
        (meters::EVENTS_REFUSED, "reason", &RefusalReason::ALL.map(RefusalReason::as_str)),
    ];
    for (name, label, values) in labelled {
        values.iter().for_each(|value| counter!(name, label => *value).absolute(0));
    }
    let states = DeliveryState::ALL.into_iter().filter(|state| *state != DeliveryState::Pending);
    for (channel, state) in
        all_channels.into_iter().flat_map(|channel| states.clone().map(move |state| (channel, state)))
    {
        counter!(meters::DELIVERIES_ENDED, "channel" => channel, "state" => state.as_str()).absolute(0);
    }
    for channel in channels {
        for outcome in OutcomeClass::ALL {
            counter!(meters::ATTEMPTS, "channel" => channel, "outcome" => outcome.as_str()).absolute(0);
        }
        drop(histogram!(meters::DELIVERED_SECONDS, "channel" => channel));
    }
    for operation in OPERATIONS.into_iter().chain(Operation::ALL.map(Operation::as_str)) {
        for class in ERROR_CLASSES {
            counter!(meters::REDIS_ERRORS, "operation" => operation, "class" => class).absolute(0);
        }
    }
    for name in [meters::COMMIT_SECONDS, meters::CHECK_SECONDS] {
        drop(histogram!(name));
    }
}
