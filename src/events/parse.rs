//! The rules for an event: the table of fields in docs/sending.md. Pure: no clock, no zone, no Redis.
//!
//! The rules are judged in the order of the table, and the first broken one is the reason for refusal. If a field is
//! repeated, its first value counts; other fields are ignored.

use std::time::Duration;

use crate::types::event_id::EVENT_ID_BYTES_MAX;
use crate::types::units::UNITS_MAX;
use crate::types::{Keys, RefusalReason, Separator, StreamId, Units, UnixMs, metric, subject};

/// An event that is further ahead of its arrival than this is refused: the clock of its producer is wrong.
pub const AHEAD_MAX_MS: i64 = 5 * 60_000;

/// The smallest `ts` in Unix milliseconds, in March 1973. `stream.late_max` would refuse any such event, but with a
/// reason that hides the mistake: seconds.
const TS_MS_MIN: i64 = 100_000_000_000;

/// The field that a migration adds: when the event arrived in the source. It does not count towards [`FIELDS_MAX`].
pub const SOURCE_ARRIVAL: &str = "source_arrival";

/// A copied event is judged by its arrival at the source if it was copied within this time. Counters of a period live
/// for 48 hours after the last event that is not too late, so they still exist.
const COPIED_WITHIN_MS: i64 = 24 * 3_600_000;
/// No day of a zone is longer, also if its clocks change.
const DAY_MAX_MS: i64 = 48 * 3_600_000;

/// An event with more fields is refused. No script could append it: Lua passes at most 7,999 values to a function.
pub const FIELDS_MAX: usize = 1_000;

/// An entry's fields as they arrived; nothing has been judged yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawEvent<'a> {
    /// `subject`.
    pub subject: Option<&'a [u8]>,
    /// `units`.
    pub units: Option<&'a [u8]>,
    /// `credit`.
    pub credit: Option<&'a [u8]>,
    /// `metric`.
    pub metric: Option<&'a [u8]>,
    /// `ts`.
    pub ts: Option<&'a [u8]>,
    /// `id`.
    pub id: Option<&'a [u8]>,
    /// `judge`.
    pub judge: Option<&'a [u8]>,
    /// `traceparent`.
    pub traceparent: Option<&'a [u8]>,
    /// [`SOURCE_ARRIVAL`].
    pub source_arrival: Option<&'a [u8]>,
    /// Number of fields, including ignored ones.
    pub fields: usize,
}

/// The content of an event, except its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageEvent<'a> {
    /// The units that it uses or credits.
    pub amount: UsageDelta,
    /// The metric; `None` for the default metric.
    pub metric: Option<&'a str>,
    /// When it happened: `ts`, or its arrival without `ts`.
    pub at: UnixMs,
    /// The arrival by which lateness is judged.
    pub arrival: UnixMs,
    /// Its id, if the producer set one.
    pub id: Option<&'a [u8]>,
    /// Its trace context, as it came.
    pub traceparent: Option<&'a [u8]>,
}

/// How an event changes a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageDelta {
    /// It uses these units.
    Used(Units),
    /// It takes these units back. A count does not fall below 0.
    Credit(Units),
    /// It changes no count: the subject's thresholds are judged by its present settings.
    Judge,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidEvent {
    /// The reason for refusal.
    pub reason: RefusalReason,
    /// The reason in words, with what is allowed.
    pub detail: String,
}

impl InvalidEvent {
    /// Creates a broken rule with its explanation.
    pub fn new(reason: RefusalReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// Explains an error as this reason, for `map_err`.
    fn because<E: ToString>(reason: RefusalReason) -> impl FnOnce(E) -> Self {
        move |error| Self::new(reason, error.to_string())
    }
}

impl<'a> RawEvent<'a> {
    /// Takes the known fields, the first value of each.
    pub fn from_fields(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut raw = Self::default();
        for (name, value) in fields {
            if name == SOURCE_ARRIVAL.as_bytes() && raw.source_arrival.is_none() {
                raw.source_arrival = Some(value);
                continue;
            }
            raw.fields += 1;
            let slot = match name {
                b"subject" => &mut raw.subject,
                b"units" => &mut raw.units,
                b"credit" => &mut raw.credit,
                b"metric" => &mut raw.metric,
                b"ts" => &mut raw.ts,
                b"id" => &mut raw.id,
                b"judge" => &mut raw.judge,
                b"traceparent" => &mut raw.traceparent,
                _ => continue,
            };
            slot.get_or_insert(value);
        }
        raw
    }

    /// Judges the number of fields. This rule comes first: a migration passes on an event with too many fields without
    /// the fields above the maximum, and the target must refuse it for the same reason.
    ///
    /// # Errors
    ///
    /// The broken rule.
    pub fn check_fields(&self) -> Result<(), InvalidEvent> {
        if self.fields <= FIELDS_MAX {
            return Ok(());
        }
        Err(InvalidEvent::new(RefusalReason::TooManyFields, format!("an event has at most {FIELDS_MAX} fields")))
    }

    /// Judges an event that is not in the stream yet, by the rules that the reader will apply. Left out are those that
    /// need the stored counts, `too_many_metrics` and `counter_overflow`; `too_late` is judged for all zones at once,
    /// because the subject's zone is not known.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn check_new(&self, separator: Separator, now: UnixMs, late_max: Duration) -> Result<(), InvalidEvent> {
        self.check_fields()?;
        check_name(separator, self.subject.ok_or_else(Self::missing_subject)?)?;
        let UsageEvent { at, .. } = self.parse(now)?;
        if at.plus(DAY_MAX_MS).after(late_max) < now {
            let detail = format!("ts {at} lies in a day that ended more than stream.late_max before now, {now}");
            return Err(InvalidEvent::new(RefusalReason::TooLate, detail));
        }
        Ok(())
    }

    /// The broken rule for an entry without a subject; [`check_subject`] judges one that is present.
    pub fn missing_subject() -> InvalidEvent {
        InvalidEvent::new(RefusalReason::MissingSubject, "the entry has no field \"subject\"")
    }

    /// Judges everything except the subject, which is judged before, and the day, for which the subject's zone is
    /// needed.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn parse(&self, arrival: UnixMs) -> Result<UsageEvent<'a>, InvalidEvent> {
        let amount = self.amount()?;
        let metric = self.metric.map(metric::check).transpose();
        let metric = metric.map_err(InvalidEvent::because(RefusalReason::BadMetric))?;
        let source_arrival = self.source_arrival.and_then(time_of);
        let copied = arrival;
        let arrival = source_arrival.map_or(copied, |at| at.min(copied));
        let at = match self.ts {
            None => arrival,
            Some(text) => event_time(text)?,
        };
        if self.id.is_some_and(|id| id.is_empty() || id.len() > EVENT_ID_BYTES_MAX) {
            let detail = format!("id must have 1 to {EVENT_ID_BYTES_MAX} bytes");
            return Err(InvalidEvent::new(RefusalReason::BadId, detail));
        }
        if at > arrival.plus(AHEAD_MAX_MS) {
            let detail = format!("ts {at} is more than 5 minutes ahead of its arrival {arrival}");
            return Err(InvalidEvent::new(RefusalReason::TooFarAhead, detail));
        }
        let arrival = arrival.max(copied.plus(-COPIED_WITHIN_MS));
        Ok(UsageEvent { amount, metric, at, arrival, id: self.id, traceparent: self.traceparent })
    }

    fn amount(&self) -> Result<UsageDelta, InvalidEvent> {
        if self.judge.is_some() {
            return Ok(UsageDelta::Judge);
        }
        match (self.units, self.credit) {
            (None, None) => Ok(UsageDelta::Used(Units::ONE)),
            (Some(digits), None) => {
                Units::parse(digits).map(UsageDelta::Used).map_err(InvalidEvent::because(RefusalReason::BadUnits))
            }
            (None, Some(digits)) => Units::parse(digits).map(UsageDelta::Credit).map_err(|_| {
                let rule = format!("credit must be decimal digits, 1 to {UNITS_MAX}");
                InvalidEvent::new(RefusalReason::BadCredit, rule)
            }),
            (Some(_), Some(_)) => {
                Err(InvalidEvent::new(RefusalReason::BadCredit, "an entry has either units or credit, not both"))
            }
        }
    }
}

/// Judges when an entry arrived. An entry that is older than the lifetime of counters would count in a period that
/// nobody needs any more, and raise alerts about it.
///
/// # Errors
///
/// The broken rule.
pub fn check_arrival(arrival: UnixMs, server: UnixMs, age_max: Duration) -> Result<(), InvalidEvent> {
    if server.since(arrival) <= age_max {
        return Ok(());
    }
    let detail = format!("by its entry id it arrived at {arrival}, longer ago than stream.age_max");
    Err(InvalidEvent::new(RefusalReason::TooOld, detail))
}

/// Judges a subject, and whether its events belong to the partition of `keys`.
///
/// # Errors
///
/// The first broken rule.
pub fn check_subject(keys: &Keys, bytes: &[u8]) -> Result<(), InvalidEvent> {
    check_name(keys.separator(), bytes)?;
    let right = keys.partition_of(bytes);
    if right == keys.partition() {
        return Ok(());
    }
    let (stream, count) = (right.stream(keys.name()), right.count());
    let detail = format!("the subject belongs to partition {right} of {count}, stream {stream}: CRC-32 modulo {count}");
    Err(InvalidEvent::new(RefusalReason::WrongPartition, detail))
}

/// Judges a subject, in whatever partition it is.
fn check_name(separator: Separator, bytes: &[u8]) -> Result<(), InvalidEvent> {
    let bad_subject = InvalidEvent::because(RefusalReason::BadSubject);
    subject::check(bytes).and_then(|text| separator.check(text)).map_err(bad_subject)
}

/// When an entry arrived: the smaller of the time in its id and the server's clock when it was read. Otherwise one
/// explicit id in the future would shift all later entries.
pub fn arrival_of(entry: StreamId, server: UnixMs) -> UnixMs {
    UnixMs(i64::try_from(entry.ms).unwrap_or(i64::MAX).min(server.0))
}

/// Parses the time of an event.
///
/// # Errors
///
/// The text is neither Unix milliseconds nor RFC 3339 with an offset. A number below [`TS_MS_MIN`] is none of them.
pub fn event_time(text: &[u8]) -> Result<UnixMs, InvalidEvent> {
    const ALLOWED: &str = "ts must be Unix milliseconds or RFC 3339 with an offset";
    let bad = |detail: String| InvalidEvent::new(RefusalReason::BadTs, detail);
    let at = time_of(text).ok_or_else(|| bad(ALLOWED.to_owned()))?;
    match at.0 < TS_MS_MIN && is_digits(text) {
        true => Err(bad(format!("{ALLOWED}; {} is too small for milliseconds, it may be in seconds", at.0))),
        false => Ok(at),
    }
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Parses Unix milliseconds, or RFC 3339 with an offset.
fn time_of(text: &[u8]) -> Option<UnixMs> {
    if is_digits(text) {
        let ms = StreamId::parse(&[text, b"-0"].concat())?.ms;
        let at = UnixMs(i64::try_from(ms).ok()?);
        return at.to_utc().map(|_| at);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PartitionNumber;
    use proptest::prelude::*;

    const ARRIVAL: UnixMs = UnixMs(1_795_250_000_000);

    fn judge(fields: &[(&str, &str)]) -> Result<(u64, Option<String>, i64), RefusalReason> {
        let pairs = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let raw = RawEvent::from_fields(pairs);
        raw.parse(ARRIVAL)
            .map(|event| (units_of(event.amount), event.metric.map(str::to_owned), event.at.0))
            .map_err(|broken| broken.reason)
    }

    fn units_of(amount: UsageDelta) -> u64 {
        match amount {
            UsageDelta::Used(units) => units.get(),
            UsageDelta::Credit(_) | UsageDelta::Judge => 0,
        }
    }

    /// An event in the wrong partition is counted separately from the subject's other events, so limits would be
    /// missed.
    #[test]
    fn an_event_of_another_partition_is_refused_with_the_right_one() {
        let check = |number: usize, count| {
            let number = PartitionNumber::all(count).nth(number).expect("there are so many");
            check_subject(&Keys::of_partition("usage", number), b"alice")
                .map_err(|broken| (broken.reason, broken.detail))
        };
        assert_eq!(check(0, 1), Ok(()));
        assert_eq!(check(7, 8), Ok(()));
        let detail = "the subject belongs to partition 7 of 8, stream usage:7: CRC-32 modulo 8".to_owned();
        assert_eq!(check(3, 8), Err((RefusalReason::WrongPartition, detail)));
    }

    /// The rule for the number of a correction is the same, and it never has two meanings.
    #[test]
    fn an_event_gives_back_or_uses() {
        let amount = |fields: &[(&str, &str)]| {
            let pairs = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            RawEvent::from_fields(pairs).parse(ARRIVAL).map(|event| event.amount).map_err(|broken| broken.reason)
        };
        assert_eq!(amount(&[("credit", "5")]), Ok(UsageDelta::Credit(Units::new(5).expect("in range"))));
        for bad in ["", "0", "-1", "1e3", "9007199254740992"] {
            assert_eq!(amount(&[("credit", bad)]), Err(RefusalReason::BadCredit), "{bad}");
        }
        assert_eq!(amount(&[("credit", "5"), ("units", "5")]), Err(RefusalReason::BadCredit));
    }

    /// An event with only the required fields gets the defaults.
    #[test]
    fn absent_fields_have_their_defaults() {
        assert_eq!(judge(&[]), Ok((1, None, ARRIVAL.0)));
    }

    /// A field that is present but empty is a mistake, not a default.
    #[test]
    fn empty_fields_are_refused() {
        for (field, reason) in [
            ("units", RefusalReason::BadUnits),
            ("metric", RefusalReason::BadMetric),
            ("ts", RefusalReason::BadTs),
            ("id", RefusalReason::BadId),
        ] {
            assert_eq!(judge(&[(field, "")]), Err(reason));
        }
    }

    /// The reason must not depend on the order in which a client writes its fields.
    #[test]
    fn the_first_broken_rule_of_the_table_is_the_reason() {
        assert_eq!(judge(&[("id", ""), ("ts", "x"), ("metric", "X"), ("units", "-1")]), Err(RefusalReason::BadUnits));
        assert_eq!(judge(&[("id", ""), ("ts", "x"), ("metric", "X")]), Err(RefusalReason::BadMetric));
        assert_eq!(judge(&[("id", ""), ("ts", "x")]), Err(RefusalReason::BadTs));
    }

    /// The first value of a repeated field counts.
    #[test]
    fn the_first_of_a_repeated_field_counts() {
        assert_eq!(judge(&[("units", "3"), ("units", "x")]).map(|event| event.0), Ok(3));
    }

    /// A producer's wrong clock must not count for tomorrow.
    #[test]
    fn times_are_read_in_both_forms_and_never_far_ahead() {
        assert_eq!(judge(&[("ts", "1795250000123")]).map(|event| event.2), Ok(1_795_250_000_123));
        assert_eq!(judge(&[("ts", "2026-11-21T08:33:20+07:00")]).map(|event| event.2), Ok(1_795_224_800_000));
        assert_eq!(
            judge(&[("ts", &(ARRIVAL.0 + AHEAD_MAX_MS).to_string())]).map(|event| event.2),
            Ok(ARRIVAL.0 + AHEAD_MAX_MS)
        );
        assert_eq!(judge(&[("ts", &(ARRIVAL.0 + AHEAD_MAX_MS + 1).to_string())]), Err(RefusalReason::TooFarAhead));
        for bad in [
            "2026-11-21",
            "2026-11-21T08:33:20",
            "yesterday",
            "-1",
            "1e12",
            "99999999999999999999",
            "2026-13-01T00:00:00Z",
            "0",
            "1795250000",
            "99999999999",
        ] {
            assert_eq!(judge(&[("ts", bad)]), Err(RefusalReason::BadTs), "{bad}");
        }
    }

    /// Seconds would count nothing, and a late event is no mistake of its producer.
    #[test]
    fn a_time_in_seconds_is_named() {
        let detail = |text: &str| event_time(text.as_bytes()).map_err(|broken| broken.detail);
        let rule = "ts must be Unix milliseconds or RFC 3339 with an offset";
        let seconds = format!("{rule}; 1795250000 is too small for milliseconds, it may be in seconds");
        assert_eq!(detail("1795250000"), Err(seconds));
        assert_eq!(detail("soon"), Err(rule.to_owned()));
        assert_eq!(detail("100000000000"), Ok(UnixMs(100_000_000_000)));
        assert_eq!(detail("1970-01-21T00:00:00Z"), Ok(UnixMs(1_728_000_000)));
    }

    /// Otherwise a migration in the morning would refuse events of the last evening that the source would have counted.
    #[test]
    fn a_copied_event_is_judged_by_its_arrival_at_the_source() {
        for (hours_ago, at_hours_ago, late_by_hours_ago) in [(8, 8, 8), (30, 30, 24), (-1, 0, 0)] {
            let before = |hours: i64| ARRIVAL.plus(-hours * 3_600_000);
            let source = before(hours_ago).to_string();
            let event = RawEvent { source_arrival: Some(source.as_bytes()), ..RawEvent::default() };
            let event = event.parse(ARRIVAL).expect("a sound event");
            assert_eq!((event.at, event.arrival), (before(at_hours_ago), before(late_by_hours_ago)), "{source}");
        }
    }

    proptest! {
        /// I8: any bytes yield an event or a reason.
        #[test]
        fn any_bytes_are_judged(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 4)) {
            let names: [&[u8]; 4] = [b"units", b"metric", b"ts", b"id"];
            let raw = RawEvent::from_fields(names.into_iter().zip(values.iter().map(Vec::as_slice)));
            let _ = raw.parse(ARRIVAL);
        }
    }
}
