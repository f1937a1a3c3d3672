//! Models of fixed window, sliding window and GCRA, exact to the microsecond.
//!
//! The models are as simple as the promise: no Lua, no keys, and only the rounding that the promise names.

use std::time::Duration;

use crate::clocked_server::Sent;
use crate::model::{Model, Schedule, Step, agrees};
use proptest::prelude::*;
use quotabell_throttle::{Admission, FixedWindow, Gcra, MEMBERS_MAX, Rate, RateDecision, SlidingWindow, UNITS_MAX};
use redis::aio::MultiplexedConnection;

/// Number of schedules per limiter.
const CASES: u32 = 1500;

/// The units of a call.
#[derive(Debug, Clone)]
enum Amount {
    /// None: it only asks.
    Ask,
    One,
    /// This share of the limit, at least one.
    Share(u64),
    Whole,
    /// One more than the limit.
    OneTooMany,
    Most,
}

/// The wait in the reply that is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Nothing,
    /// The call is admitted at `retry_after`, and not an instant earlier.
    Retry,
    /// The whole limit is free at `reset`, and not an instant earlier.
    Reset,
}

#[derive(Debug, Clone)]
struct RateCall {
    rate: Rate,
    /// 0 only asks.
    units: u64,
    probe: Probe,
}

fn rate(limit_max: u64) -> impl Strategy<Value = Rate> {
    let limit = prop_oneof![4 => 1..=12_u64, 2 => 1..=1000_u64, 1 => 1..=limit_max, 1 => (limit_max - 20)..=limit_max];
    let window_ms = prop_oneof![2 => 1..=5_u64, 4 => 1..=5_000_u64, 1 => 1..=31 * 86_400_000_u64];
    (limit, window_ms).prop_map(|(limit, window_ms)| Rate::new(limit, Duration::from_millis(window_ms)).expect("legal"))
}

/// The advance of the clock in thousandths of a window and microseconds; negative if the server's clock was set back.
fn advance() -> impl Strategy<Value = (i64, i64)> {
    prop_oneof![
        4 => Just((0, 0)),
        3 => (0..400_i64, 0..3_i64),
        2 => (0..2200_i64, 0..2000_i64),
        1 => Just((1000, 0)),
        1 => (-2499..=0_i64, Just(0)),
    ]
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        2 => Just(Amount::Ask),
        5 => Just(Amount::One),
        5 => (1..=7_u64).prop_map(Amount::Share),
        1 => Just(Amount::Whole),
        1 => Just(Amount::OneTooMany),
        1 => Just(Amount::Most),
    ]
}

/// Schedules of calls with one rate, or with several, because settings change.
fn schedule(limit_max: u64) -> impl Strategy<Value = Schedule<RateCall>> {
    let rates = prop_oneof![
        4 => prop::collection::vec(rate(limit_max), 1),
        1 => prop::collection::vec(rate(limit_max), 3),
        // Other limits with the same window.
        1 => prop::collection::vec(rate(limit_max), 3).prop_map(|rates| {
            rates.iter().map(|rate| Rate::new(rate.limit(), rates[0].window()).expect("legal")).collect()
        }),
    ];
    let sent = prop_oneof![9 => Just(Sent::Once), 1 => Just(Sent::Twice)];
    let probe = prop_oneof![3 => Just(Probe::Nothing), 2 => Just(Probe::Retry), 1 => Just(Probe::Reset)];
    let step = (advance(), amount(), any::<prop::sample::Index>(), sent, probe);
    let padding = prop_oneof![9 => Just(0_usize), 1 => 200..400_usize];
    (rates, prop::collection::vec(step, 1..30), padding).prop_map(|(rates, steps, padding)| {
        // A sliding window that becomes longer has only the calls of the shorter one, and so may admit earlier than it
        // said.
        let is_steady = rates.iter().all(|rate| rate.window() == rates[0].window());
        let step = |((permille, us), amount, rate, sent, probe): ((_, _), Amount, prop::sample::Index, _, _)| {
            let rate = rates[rate.index(rates.len())];
            let advance_us = window_us(rate).cast_signed() * permille / 1000 + us;
            let probe = if is_steady { probe } else { Probe::Nothing };
            Step { advance_us, sent, call: RateCall { rate, units: amount.of(rate.limit()), probe } }
        };
        Schedule { steps: steps.into_iter().map(step).collect(), padding }
    })
}

impl Amount {
    /// Units; 0 only asks.
    fn of(&self, limit: u64) -> u64 {
        match *self {
            Self::Ask => 0,
            Self::One => 1,
            Self::Share(parts) => (limit / parts).max(1),
            Self::Whole => limit,
            Self::OneTooMany => (limit + 1).min(UNITS_MAX),
            Self::Most => UNITS_MAX,
        }
    }
}

/// The parts of [`Model`] that all limiters of a rate share; the closure makes the limiter.
macro_rules! rate_limiter {
    ($limiter:expr, $limit_max:expr) => {
        type Call = RateCall;
        type Reply = RateDecision;
        const IS_REPEATABLE: bool = false;

        fn schedules() -> impl Strategy<Value = Schedule<RateCall>> {
            schedule($limit_max)
        }

        fn wait(call: &RateCall, reply: &RateDecision) -> Option<Duration> {
            call.wait(reply)
        }

        fn after_wait(call: &RateCall) -> RateCall {
            RateCall { units: if call.probe == Probe::Reset { 0 } else { call.units }, ..call.clone() }
        }

        async fn call(client: &MultiplexedConnection, key: &str, call: &RateCall) -> RateDecision {
            let (limiter, mut client) = ($limiter(call.rate), client.clone());
            let reply = match call.units {
                0 => limiter.ask(&mut client, key).await,
                units => limiter.take(&mut client, key, units).await,
            };
            reply.expect("the limiter answers")
        }
    };
}

impl RateCall {
    fn wait(&self, reply: &RateDecision) -> Option<Duration> {
        match (self.probe, reply.admission) {
            (Probe::Retry, Admission::Rejected { retry_after }) => retry_after,
            (Probe::Reset, _) if reply.remaining < reply.limit => Some(reply.reset),
            _ => None,
        }
    }
}

fn window_us(rate: Rate) -> u64 {
    u64::try_from(rate.window().as_micros()).expect("a month at most")
}

fn decision(rate: Rate, admission: Admission, remaining: u64, reset: Duration) -> RateDecision {
    RateDecision { admission, limit: rate.limit(), remaining, reset }
}

/// Units used in the window, and the end of the window.
#[derive(Debug, Default)]
struct FixedModel {
    used: u64,
    ends_ms: u64,
}

impl Model for FixedModel {
    const INSTANT_US: u64 = 1000;

    fn reply(&mut self, now_us: u64, &RateCall { rate, units, .. }: &RateCall) -> RateDecision {
        let (now_ms, window_ms, limit) = (now_us / 1000, window_us(rate) / 1000, rate.limit());
        if self.ends_ms < now_ms {
            *self = Self::default();
        }
        // Neither a clock that was set back nor a formerly longer window blocks a caller for more than a window.
        self.ends_ms = self.ends_ms.min(now_ms + window_ms);
        let is_open = now_ms < self.ends_ms;
        let mut used = if is_open { self.used } else { 0 };
        let admitted = used + units.max(1) <= limit;
        if admitted && units > 0 {
            used += units;
            *self = Self { used, ends_ms: if is_open { self.ends_ms } else { now_ms + window_ms } };
        }
        let reset = Duration::from_millis(self.ends_ms.saturating_sub(now_ms));
        let admission = match admitted {
            true => Admission::Admitted,
            false => Admission::Rejected { retry_after: (units <= limit).then_some(reset) },
        };
        decision(rate, admission, limit.saturating_sub(used), reset)
    }

    rate_limiter!(FixedWindow::new, UNITS_MAX);
}

/// An admitted call.
#[derive(Debug)]
struct Admitted {
    at_us: u64,
    units: u64,
}

/// Every call of the last window.
#[derive(Debug, Default)]
struct SlidingModel {
    calls: Vec<Admitted>,
    /// Everything is forgotten after this millisecond. That is visible only if a window becomes longer.
    kept_until_ms: u64,
}

impl SlidingModel {
    fn used(&self) -> u64 {
        self.calls.iter().map(|call| call.units).sum()
    }
}

impl Model for SlidingModel {
    const INSTANT_US: u64 = 1;

    fn reply(&mut self, clock_us: u64, &RateCall { rate, units, .. }: &RateCall) -> RateDecision {
        let (window_us, limit) = (window_us(rate), rate.limit());
        let last_us = self.calls.last().map_or(0, |call| call.at_us);
        if clock_us / 1000 > self.kept_until_ms || last_us > clock_us + window_us {
            self.calls.clear();
        }
        // Time never decreases.
        let now_us = self.calls.last().map_or(clock_us, |call| call.at_us.max(clock_us));
        self.calls.retain(|call| call.at_us + window_us > now_us);
        let admitted = self.used() + units.max(1) <= limit;
        if admitted && units > 0 {
            self.calls.push(Admitted { at_us: now_us, units });
            self.kept_until_ms = clock_us / 1000 + (now_us + window_us - clock_us).div_ceil(1000);
        }
        let until = |at_us: u64| Duration::from_micros(at_us + window_us - clock_us);
        let reset = self.calls.last().map_or(Duration::ZERO, |call| until(call.at_us));
        let mut left = self.used();
        let admission = match admitted {
            true => Admission::Admitted,
            false if units > limit => Admission::Rejected { retry_after: None },
            false => {
                // Calls leave one after another until the units fit.
                let enough = self.calls.iter().find(|call| {
                    left -= call.units;
                    left + units.max(1) <= limit
                });
                Admission::Rejected { retry_after: enough.map(|call| until(call.at_us)) }
            }
        };
        decision(rate, admission, limit.saturating_sub(self.used()), reset)
    }

    rate_limiter!(|rate| SlidingWindow::new(rate).expect("few enough members"), MEMBERS_MAX);
}

/// When the bucket is empty, in units of 1/limit us: exact.
#[derive(Debug, Default)]
struct GcraModel {
    empty: u128,
    limit: u128,
    /// Everything is forgotten after this millisecond. That is visible only if the clock is set back later.
    kept_until_ms: u64,
}

impl Model for GcraModel {
    const INSTANT_US: u64 = 1;

    fn reply(&mut self, now_us: u64, &RateCall { rate, units, .. }: &RateCall) -> RateDecision {
        let (window, limit) = (u128::from(window_us(rate)), u128::from(rate.limit()));
        if now_us / 1000 > self.kept_until_ms {
            *self = Self::default();
        }
        // A changed limit changes the unit, so the time is rounded up to a whole us.
        let same = self.limit == limit;
        let stored = if same { self.empty } else { self.empty.div_ceil(self.limit.max(1)) * limit };
        let now = u128::from(now_us) * limit;
        let full = window * limit;
        // A bucket holds at most one window, for any clock and any former window.
        let mut empty = stored.clamp(now, now + full);
        // A unit takes window/limit us, which is `window` in this measure.
        let cost = |units: u64| u128::from(units) * window;
        let free = now + full - empty;
        let admitted = cost(units.max(1)) <= free;
        if admitted {
            empty += cost(units);
        }
        if admitted && units > 0 || empty < stored {
            let empty_us = u64::try_from(empty / limit).expect("in range");
            let kept_until_ms = if empty_us - now_us < 2000 { now_us / 1000 + 2 } else { empty_us / 1000 };
            *self = Self { empty, limit, kept_until_ms };
        }
        let whole_us = |parts: u128| Duration::from_micros(u64::try_from(parts.div_ceil(limit)).expect("in range"));
        let admission = match admitted {
            true => Admission::Admitted,
            false => Admission::Rejected {
                retry_after: (units <= rate.limit()).then(|| whole_us(cost(units.max(1)) - free)),
            },
        };
        let remaining = u64::try_from((now + full - empty) / window).expect("in range");
        decision(rate, admission, remaining, whole_us(empty - now))
    }

    rate_limiter!(Gcra::new, UNITS_MAX);
}

/// A window that admits more than its limit, or ends at a wrong time, or never.
#[test]
fn fixed_window_does_as_its_model() {
    agrees::<FixedModel>(CASES);
}

/// A sum that differs from its members, or a wait that is too short, for any sequence of calls, clocks and settings.
#[test]
fn sliding_window_does_as_its_model() {
    agrees::<SlidingModel>(CASES);
}

/// A bucket that loses or gains a fraction of a unit per call is wrong after a million calls.
#[test]
fn gcra_does_as_its_model() {
    agrees::<GcraModel>(CASES);
}
