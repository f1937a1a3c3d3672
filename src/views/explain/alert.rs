//! Explanations of alerts without deliveries. Pure.

use super::daemons::LiveDaemons;

/// Why an alert was fanned out to nobody, judged by what is stored now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDeliveryReason {
    /// The same commit reached a higher threshold, and only the highest is sent.
    HigherIsTold,
    /// No contact's filter includes this metric and threshold.
    NoContactHears,
    /// The contacts do not explain it.
    Unknown,
}

/// Explains why an alert has no deliveries.
pub(super) fn without_deliveries(waits_in_outbox: bool, reason: NoDeliveryReason, daemons: LiveDaemons) -> String {
    match (waits_in_outbox, reason) {
        (true, _) if daemons == LiveDaemons::None => "It lies in the outbox: no daemon runs that fans it out.".to_owned(),
        (true, _) => "It lies in the outbox and is fanned out within moments.".to_owned(),
        (false, NoDeliveryReason::HigherIsTold) => {
            "It is recorded and not sent: the same commit reached a higher threshold, and alerts.on_multiple is \
             \"highest\"."
                .to_owned()
        }
        (false, NoDeliveryReason::NoContactHears) => {
            "It is recorded and not sent: none of the contacts gets alerts of this metric and threshold; \
             `quotabell contact list` shows what each gets."
                .to_owned()
        }
        (false, NoDeliveryReason::Unknown) => {
            "No delivery of it is kept: they are removed 14 days after their end, or with `subject remove --everything`."
                .to_owned()
        }
    }
}
