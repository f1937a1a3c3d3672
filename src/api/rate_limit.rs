//! The fields `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11) and `Retry-After`. Pure.

use axum::http::HeaderValue;

use crate::ledger::CheckDecision;
use crate::ledger::decision::{LimitStatus, whole_seconds};

/// The largest integer of a structured field (RFC 9651: 15 digits). A limit may be larger; nobody will wait for the difference.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The name of the window's policy.
pub const WINDOW: &str = "window";
/// The name of the day's policy.
pub const DAILY: &str = "daily";

/// The two fields.
#[derive(Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// `RateLimit`: what is left of each limit.
    pub limit: HeaderValue,
    /// `RateLimit-Policy`: the limits.
    pub policy: HeaderValue,
}

/// The fields of a decision; `None` where no limit applies.
#[must_use]
pub fn fields(judgement: &CheckDecision) -> Option<RateLimit> {
    let named: Vec<(&str, &LimitStatus)> = named(judgement).collect();
    if named.is_empty() {
        return None;
    }
    let limit = |(name, standing): &(&str, &LimitStatus)| {
        format!("\"{name}\";r={};t={}", integer(standing.remaining), integer(whole_seconds(standing.reset)))
    };
    // A window below a second is written as one: the field has no smaller number.
    let policy = |(name, standing): &(&str, &LimitStatus)| {
        format!("\"{name}\";q={};w={}", integer(standing.limit.get()), integer(whole_seconds(standing.length)))
    };
    Some(RateLimit { limit: joined(named.iter().map(limit)), policy: joined(named.iter().map(policy)) })
}

/// The names of the policies that refuse.
pub fn violated(judgement: &CheckDecision) -> impl Iterator<Item = &'static str> {
    named(judgement).filter(|(_, standing)| !standing.is_admitted()).map(|(name, _)| name)
}

/// `Retry-After` of a refusal, whole seconds: never 0, which would ask for another try at once.
#[must_use]
pub fn retry_after(judgement: &CheckDecision) -> HeaderValue {
    HeaderValue::from(judgement.retry_after().map_or(1, |wait| whole_seconds(wait).max(1)))
}

fn named(judgement: &CheckDecision) -> impl Iterator<Item = (&'static str, &LimitStatus)> {
    let window = judgement.window.iter().map(|standing| (WINDOW, standing));
    window.chain(judgement.day.iter().map(|standing| (DAILY, standing)))
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
    use crate::ledger::decision::{DecisionBasis, Recorded};
    use crate::throttle::Admission;
    use crate::types::Units;
    use crate::types::units::UNITS_MAX;
    use std::time::Duration;

    fn standing(limit: u64, remaining: u64, reset_ms: u64, admission: Admission) -> LimitStatus {
        let limit = Units::new(limit).expect("in range");
        LimitStatus {
            admission,
            limit,
            remaining,
            reset: Duration::from_millis(reset_ms),
            length: Duration::from_secs(60),
        }
    }

    fn judgement(window: Option<LimitStatus>, day: Option<LimitStatus>) -> CheckDecision {
        CheckDecision { basis: DecisionBasis::Settings, window, day, recorded: Recorded::No }
    }

    fn rejected(ms: u64) -> Admission {
        Admission::Rejected { retry_after: Some(Duration::from_millis(ms)) }
    }

    /// Clients parse these fields by the grammar of structured fields.
    #[test]
    fn both_limits_are_told_by_name() {
        let day =
            LimitStatus { length: Duration::from_secs(86_400), ..standing(5000, 4990, 3_599_001, Admission::Admitted) };
        let both = judgement(Some(standing(60, 59, 60_000, Admission::Admitted)), Some(day));
        let told = fields(&both).expect("limits");
        assert_eq!(told.policy, r#""window";q=60;w=60, "daily";q=5000;w=86400"#);
        assert_eq!(told.limit, r#""window";r=59;t=60, "daily";r=4990;t=3600"#);
        assert_eq!(fields(&judgement(None, None)), None);
    }

    /// 2^53-1 has 16 digits, one more than an integer of a field may have: the whole field would be thrown away.
    #[test]
    fn numbers_fit_into_a_structured_field() {
        let told =
            fields(&judgement(Some(standing(UNITS_MAX, UNITS_MAX, 0, Admission::Admitted)), None)).expect("a limit");
        assert_eq!(told.policy, r#""window";q=999999999999999;w=60"#);
        assert_eq!(told.limit, r#""window";r=999999999999999;t=0"#);
    }

    /// Who waits for the shorter of two is refused again.
    #[test]
    fn the_longer_wait_counts_and_none_is_zero() {
        let of = |window, day| {
            let judgement = judgement(Some(standing(1, 0, 9000, window)), Some(standing(1, 0, 7000, day)));
            (retry_after(&judgement), violated(&judgement).collect::<Vec<_>>())
        };
        assert_eq!(of(rejected(1001), Admission::Admitted), (HeaderValue::from(2), vec![WINDOW]));
        assert_eq!(of(rejected(1001), rejected(5000)), (HeaderValue::from(5), vec![WINDOW, DAILY]));
        assert_eq!(of(rejected(0), Admission::Admitted), (HeaderValue::from(1), vec![WINDOW]));
        // What never fits: a whole window, however much of it is free, or until the day ends.
        let never = Admission::Rejected { retry_after: None };
        assert_eq!(of(never, Admission::Admitted), (HeaderValue::from(60), vec![WINDOW]));
        assert_eq!(of(Admission::Admitted, never), (HeaderValue::from(7), vec![DAILY]));
    }
}
