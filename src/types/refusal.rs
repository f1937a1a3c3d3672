//! Reasons for refusing an event.

use super::text_form::text_enum;

text_enum! {
    /// The reason of a refusal, as in the refused stream, in metrics and in `refused list`.
    ///
    /// In the order in which the rules of the event table are checked: the first broken rule is the reason.
    pub enum RefusalReason {
        /// The entry has more fields than an event may have.
        TooManyFields = "too_many_fields",
        /// The entry's id is older than `age_max`.
        TooOld = "too_old",
        /// No `subject` field.
        MissingSubject = "missing_subject",
        /// `subject` is empty, longer than 256 bytes, not UTF-8, or holds a control character.
        BadSubject = "bad_subject",
        /// The subject belongs to another partition.
        WrongPartition = "wrong_partition",
        /// `units` is not decimal digits, 1 to 2^53 - 1.
        BadUnits = "bad_units",
        /// `credit` is not decimal digits, 1 to 2^53 - 1, or the entry also has `units`.
        BadCredit = "bad_credit",
        /// `metric` does not match `[a-z0-9_.-]{1,64}`.
        BadMetric = "bad_metric",
        /// `ts` is neither Unix milliseconds nor RFC 3339 with an offset. Seconds are no milliseconds.
        BadTs = "bad_ts",
        /// `id` is empty or longer than 128 bytes.
        BadId = "bad_id",
        /// The event arrived later than `late_max` after the end of its day.
        TooLate = "too_late",
        /// `ts` is more than five minutes after the arrival.
        TooFarAhead = "too_far_ahead",
        /// The metric is new on its day, and the day already has `metrics_max` metrics.
        TooManyMetrics = "too_many_metrics",
        /// The counter would exceed 2^53 - 1.
        CounterOverflow = "counter_overflow",
        /// The entry has more than 16 MiB, so the reader did not read it to its end. Over HTTP: more than 64 KiB.
        TooLarge = "too_large",
        /// Over HTTP: the event is no JSON object, or has a key twice.
        BadJson = "bad_json",
        /// Over HTTP: the event has a field that quotabell does not know.
        UnknownField = "unknown_field",
        /// Over HTTP: a CloudEvent lacks an attribute, or has one of another form.
        BadCloudevent = "bad_cloudevent",
        /// Over HTTP: the data of a CloudEvent holds no units, and no rule reads it.
        BadData = "bad_data",
    }
}
