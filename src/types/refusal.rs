//! Why an event can't be counted.

use std::fmt;

/// The reason of a refusal, as it stands in the refused stream, in metrics and in `refused list`.
///
/// In the order in which the rules of the event table are judged: the first broken one is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    /// No `subject` field.
    MissingSubject,
    /// `subject` is empty, longer than 256 bytes, not UTF-8, or holds a control character.
    BadSubject,
    /// The subject belongs to another partition.
    WrongPartition,
    /// `units` is not decimal digits from 1 to 2^53 - 1.
    BadUnits,
    /// `credit` is not decimal digits from 1 to 2^53 - 1, or the entry has `units` too.
    BadCredit,
    /// `metric` does not match `[a-z0-9_.-]{1,64}`.
    BadMetric,
    /// `ts` is neither Unix milliseconds nor RFC 3339 with an offset.
    BadTs,
    /// `id` is empty or longer than 128 bytes.
    BadId,
    /// The event arrived later than `late_max` after the end of its day.
    TooLate,
    /// `ts` is more than five minutes after the arrival.
    TooFarAhead,
    /// The counter would pass 2^53 - 1.
    CounterOverflow,
    /// The entry has more than 16 MiB, so it was not read to its end.
    TooLarge,
}

impl RefusalReason {
    /// Every reason, so that metrics show a zero for those that have not happened.
    pub const ALL: [Self; 12] = [
        Self::MissingSubject,
        Self::BadSubject,
        Self::WrongPartition,
        Self::BadUnits,
        Self::BadCredit,
        Self::BadMetric,
        Self::BadTs,
        Self::BadId,
        Self::TooLate,
        Self::TooFarAhead,
        Self::CounterOverflow,
        Self::TooLarge,
    ];

    /// The reason as it is written everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingSubject => "missing_subject",
            Self::BadSubject => "bad_subject",
            Self::WrongPartition => "wrong_partition",
            Self::BadUnits => "bad_units",
            Self::BadCredit => "bad_credit",
            Self::BadMetric => "bad_metric",
            Self::BadTs => "bad_ts",
            Self::BadId => "bad_id",
            Self::TooLate => "too_late",
            Self::TooFarAhead => "too_far_ahead",
            Self::CounterOverflow => "counter_overflow",
            Self::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
