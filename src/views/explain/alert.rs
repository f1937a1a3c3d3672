//! What is said of an alert without deliveries. Pure.

/// Why it has no deliveries.
pub(super) fn without_deliveries(waits_in_outbox: bool, is_recorded_alone: bool, daemons: usize) -> String {
    match (waits_in_outbox, is_recorded_alone) {
        (true, _) if daemons == 0 => "It lies in the outbox: no daemon runs that fans it out.".to_owned(),
        (true, _) => "It lies in the outbox and is fanned out within moments.".to_owned(),
        (false, true) => {
            "It is recorded and not told: the same commit reached a higher threshold, and alerts.jump is \"highest\"."
                .to_owned()
        }
        (false, false) => {
            "No delivery of it is kept: they are removed 14 days after their end, or with `subject remove --everything`."
                .to_owned()
        }
    }
}
