//! What is said of an alert without deliveries. Pure.

use super::daemons::LiveDaemons;

/// Why an alert was fanned out to nobody, as far as that can be told from what is stored now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDeliveryReason {
    /// A higher threshold was reached by the same commit, and only the highest is told.
    HigherIsTold,
    /// No contact hears of this metric and threshold.
    NoContactHears,
    /// There is nobody who should not have been told.
    Unknown,
}

/// Why it has no deliveries.
pub(super) fn without_deliveries(waits_in_outbox: bool, reason: NoDeliveryReason, daemons: LiveDaemons) -> String {
    match (waits_in_outbox, reason) {
        (true, _) if daemons == LiveDaemons::None => "It lies in the outbox: no daemon runs that fans it out.".to_owned(),
        (true, _) => "It lies in the outbox and is fanned out within moments.".to_owned(),
        (false, NoDeliveryReason::HigherIsTold) => {
            "It is recorded and not told: the same commit reached a higher threshold, and alerts.on_multiple is \"highest\"."
                .to_owned()
        }
        (false, NoDeliveryReason::NoContactHears) => {
            "It is recorded and not told: none of the contacts hears of this metric and threshold; `quotabell contact list` shows \
             what each hears."
                .to_owned()
        }
        (false, NoDeliveryReason::Unknown) => {
            "No delivery of it is kept: they are removed 14 days after their end, or with `subject remove --everything`."
                .to_owned()
        }
    }
}
