//! The fields `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11) and `Retry-After`. Pure.

use axum::http::HeaderValue;

use crate::ledger::CheckDecision;
use crate::ledger::decision::{LimitStatus, whole_seconds};

/// The largest integer of a structured field (RFC 9651: 15 digits). A limit may be larger; nobody will wait for the
/// difference.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The name of the rate's policy. That of a limit is the name of its window. If they belong to a level above the
/// subject, the number of the level comes first: `1/day` for the top.
pub const RATE: &str = "rate";

#[derive(Debug, PartialEq, Eq)]
pub struct RateLimitFields {
    /// `RateLimit`: what is left of each limit.
    pub limit: HeaderValue,
    /// `RateLimit-Policy`: the limits.
    pub policy: HeaderValue,
}

/// The fields of a decision; `None` if no limit applies.
pub fn fields(decision: &CheckDecision) -> Option<RateLimitFields> {
    let named = named(decision);
    if named.is_empty() {
        return None;
    }
    // The parameter of a time, which is optional: a total has none.
    let time = |letter, has_end: bool, time| match has_end {
        true => format!(";{letter}={}", integer(whole_seconds(time))),
        false => String::new(),
    };
    let limit = |NamedStatus { name, status, has_end }: &NamedStatus<'_>| {
        format!("\"{name}\";r={}{}", integer(status.remaining), time('t', *has_end, status.reset))
    };
    // An interval below a second is written as one: the field has no smaller number.
    let policy = |NamedStatus { name, status, has_end }: &NamedStatus<'_>| {
        format!("\"{name}\";q={}{}", integer(status.limit.get()), time('w', *has_end, status.length))
    };
    Some(RateLimitFields { limit: joined(named.iter().map(limit)), policy: joined(named.iter().map(policy)) })
}

/// The names of the policies that refuse.
pub fn violated(decision: &CheckDecision) -> impl Iterator<Item = String> {
    named(decision).into_iter().filter(|named| !named.status.is_admitted()).map(|named| named.name)
}

/// The status of a policy.
struct NamedStatus<'a> {
    name: String,
    status: &'a LimitStatus,
    /// Whether it starts over.
    has_end: bool,
}

fn named(decision: &CheckDecision) -> Vec<NamedStatus<'_>> {
    let rates = decision.rates.iter().map(|rate| (rate.level_above, RATE, &rate.status, true));
    let limits = decision
        .limits
        .iter()
        .map(|limit| (limit.level_above, limit.period.window().as_str(), &limit.status, limit.period.has_end()));
    let named = |(level, name, status, has_end): (Option<usize>, &str, _, _)| {
        let name = level.map_or_else(|| name.to_owned(), |level| format!("{level}/{name}"));
        NamedStatus { name, status, has_end }
    };
    rates.chain(limits).map(named).collect()
}

fn integer(number: u64) -> u64 {
    number.min(INTEGER_MAX)
}

fn joined(items: impl Iterator<Item = String>) -> HeaderValue {
    let text = items.collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&text).expect("names and digits are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::decision::{PeriodStatus, RateStatus, Recorded};
    use crate::types::units::UNITS_MAX;
    use crate::types::{Period, Units};
    use quotabell_throttle::Admission;
    use std::time::Duration;

    fn status(limit: u64, remaining: u64, reset_ms: u64, admission: Admission) -> LimitStatus {
        let limit = Units::new(limit).expect("in range");
        LimitStatus {
            admission,
            limit: limit.into(),
            remaining,
            reset: Duration::from_millis(reset_ms),
            length: Duration::from_secs(60),
        }
    }

    fn decision(rate_of: Option<LimitStatus>, limits: &[(&str, LimitStatus)]) -> CheckDecision {
        let limit = |(period, status): &(&str, LimitStatus)| PeriodStatus {
            subject: "alice".parse().expect("legal"),
            level_above: None,
            period: Period::parse(period).expect("a period"),
            used: 0,
            status: *status,
        };
        let limits = limits.iter().map(limit).collect();
        let rate = |status| RateStatus { subject: "alice".parse().expect("legal"), level_above: None, status };
        CheckDecision {
            is_judged: true,
            rates: rate_of.map(rate).into_iter().collect(),
            limits,
            recorded: Recorded::No,
        }
    }

    fn rejected(ms: u64) -> Admission {
        Admission::Rejected { retry_after: Some(Duration::from_millis(ms)) }
    }

    /// Clients parse these fields by the grammar of structured fields, and tell limits apart by their names.
    #[test]
    fn the_rate_and_each_window_are_told_by_name() {
        let of = |length_s, limit| LimitStatus {
            length: Duration::from_secs(length_s),
            ..status(limit, limit - 10, 3_599_001, Admission::Admitted)
        };
        let limits = [
            ("2026-11-21T14Z", of(3600, 600)),
            ("2026-11-21", of(86_400, 5000)),
            ("2026-W47", of(604_800, 20_000)),
            ("2026-11-15M", of(2_592_000, 100_000)),
            ("2026-Q4", of(7_948_800, 150_000)),
            ("2026-03-15Y", of(31_536_000, 180_000)),
            ("all", of(u64::MAX, 200_000)),
        ];
        let all = decision(Some(status(60, 59, 60_000, Admission::Admitted)), &limits);
        let told = fields(&all).expect("limits");
        assert_eq!(
            told.policy,
            r#""rate";q=60;w=60, "hour";q=600;w=3600, "day";q=5000;w=86400, "week";q=20000;w=604800, "month";q=100000;w=2592000, "quarter";q=150000;w=7948800, "year";q=180000;w=31536000, "total";q=200000"#
        );
        assert_eq!(
            told.limit,
            r#""rate";r=59;t=60, "hour";r=590;t=3600, "day";r=4990;t=3600, "week";r=19990;t=3600, "month";r=99990;t=3600, "quarter";r=149990;t=3600, "year";r=179990;t=3600, "total";r=199990"#
        );
        assert_eq!(fields(&decision(None, &[])), None);
    }

    /// A client that knows only its own key must see which level has how much left.
    #[test]
    fn limits_of_levels_above_bear_the_number_of_the_level() {
        let mut decision = decision(None, &[("2026-11-21", status(5, 3, 1000, Admission::Admitted)); 2]);
        decision.limits[1].level_above = Some(1);
        let told = fields(&decision).expect("limits");
        assert_eq!(told.limit, r#""day";r=3;t=1, "1/day";r=3;t=1"#);
    }

    /// 2^53-1 has 16 digits, one more than an integer of a field may have: the whole field would be thrown away.
    #[test]
    fn numbers_fit_into_a_structured_field() {
        let told = fields(&decision(Some(status(UNITS_MAX, UNITS_MAX, 0, Admission::Admitted)), &[])).expect("a limit");
        assert_eq!(told.policy, r#""rate";q=999999999999999;w=60"#);
        assert_eq!(told.limit, r#""rate";r=999999999999999;t=0"#);
    }

    /// Who waits for the shorter of two is refused again.
    #[test]
    fn the_longest_wait_counts_and_none_is_zero() {
        let of = |rate, hour, day| {
            let limits = [("2026-11-21T14Z", status(1, 0, 5000, hour)), ("2026-11-21", status(1, 0, 7000, day))];
            let decision = decision(Some(status(1, 0, 9000, rate)), &limits);
            (decision.retry_after_s(), violated(&decision).collect::<Vec<_>>())
        };
        let admitted = Admission::Admitted;
        assert_eq!(of(rejected(1001), admitted, admitted), (2, vec!["rate".to_owned()]));
        assert_eq!(of(rejected(1001), admitted, rejected(5000)), (5, ["rate", "day"].map(String::from).to_vec()));
        assert_eq!(of(admitted, rejected(3000), rejected(8000)), (8, ["hour", "day"].map(String::from).to_vec()));
        assert_eq!(of(rejected(0), admitted, admitted), (1, vec!["rate".to_owned()]));
        // What never fits: a whole interval, however much of it is free, or until the period ends.
        let never = Admission::Rejected { retry_after: None };
        assert_eq!(of(never, admitted, admitted), (60, vec!["rate".to_owned()]));
        assert_eq!(of(admitted, never, admitted), (5, vec!["hour".to_owned()]));
        assert_eq!(of(admitted, rejected(5000), never), (7, ["hour", "day"].map(String::from).to_vec()));
    }
}
