//! Models of expiring set, one-time token, cooldown and lease. A call that is sent twice must get the same reply twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clocked_server::Sent;
use crate::model::{Model, Schedule, Step, agrees};
use proptest::prelude::*;
use quotabell_throttle::one_time_token::{self, TokenCreation};
use quotabell_throttle::{Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, Lease, LeaseDecision};
use redis::aio::MultiplexedConnection;

/// Number of schedules per limiter.
const CASES: u32 = 1000;

/// Times of 1 to 50 ms, like the clock's steps, so that exact ends are frequent.
fn some_ms() -> impl Strategy<Value = u64> {
    prop_oneof![Just(10_u64), 1..=50_u64]
}

fn schedule<C: std::fmt::Debug + Clone>(call: impl Strategy<Value = C>) -> impl Strategy<Value = Schedule<C>> {
    let step_ms = prop_oneof![4 => Just(0_i64), 3 => Just(10_i64), 4 => 0..=60_i64, 1 => -60..0_i64];
    let sent = prop_oneof![3 => Just(Sent::Once), 1 => Just(Sent::Twice)];
    let step = (step_ms, sent, call).prop_map(|(step_ms, sent, call)| Step { advance_us: step_ms * 1000, sent, call });
    prop::collection::vec(step, 1..30).prop_map(|steps| Schedule { steps, padding: 0 })
}

/// Members and their ends.
#[derive(Debug, Default)]
struct SetModel(BTreeMap<u8, u64>);

#[derive(Debug, Clone)]
struct Add {
    most: u32,
    member: u8,
    stays_ms: u64,
}

impl Model for SetModel {
    type Call = Add;
    type Reply = ExpiringSetDecision;
    const INSTANT_US: u64 = 1000;
    const IS_REPEATABLE: bool = true;

    fn schedules() -> impl Strategy<Value = Schedule<Add>> {
        let most = prop_oneof![3 => Just(3_u32), 1 => 1..6_u32];
        schedule((most, 0..9_u8, some_ms()).prop_map(|(most, member, stays_ms)| Add { most, member, stays_ms }))
    }

    fn reply(&mut self, now_us: u64, call: &Add) -> ExpiringSetDecision {
        let now_ms = now_us / 1000;
        self.0.retain(|_, leaves_ms| *leaves_ms > now_ms);
        let most = call.most as usize;
        if !self.0.contains_key(&call.member) {
            if self.0.len() >= most {
                let mut leaving: Vec<u64> = self.0.values().copied().collect();
                leaving.sort_unstable();
                let retry_after = Duration::from_millis(leaving[self.0.len() - most] - now_ms);
                return ExpiringSetDecision::Full { retry_after };
            }
            self.0.insert(call.member, now_ms + call.stays_ms);
        }
        ExpiringSetDecision::Added { remaining: most.saturating_sub(self.0.len()) as u64 }
    }

    fn wait(_: &Add, reply: &ExpiringSetDecision) -> Option<Duration> {
        match reply {
            ExpiringSetDecision::Full { retry_after } => Some(*retry_after),
            ExpiringSetDecision::Added { .. } => None,
        }
    }

    async fn call(client: &MultiplexedConnection, key: &str, call: &Add) -> ExpiringSetDecision {
        let set = ExpiringSet::new(call.most).expect("few");
        let stays = Duration::from_millis(call.stays_ms);
        set.add(&mut client.clone(), key, &call.member.to_string(), stays).await.expect("the set answers")
    }
}

/// A value until its end, as in Redis: it exists through the millisecond of its end.
#[derive(Debug)]
struct Kept<T> {
    what: T,
    ends_ms: u64,
}

fn lapse<T>(kept: &mut Option<Kept<T>>, now_ms: u64) {
    if kept.as_ref().is_some_and(|kept| kept.ends_ms < now_ms) {
        *kept = None;
    }
}

#[derive(Debug, Default)]
struct TokenModel(Option<Kept<Token>>);

#[derive(Debug)]
struct Token {
    metadata: u8,
    claim: Option<u8>,
}

#[derive(Debug, Clone)]
enum TokenCall {
    Create { metadata: u8, lives_ms: u64 },
    Consume { claim: u8 },
}

#[derive(Debug, PartialEq)]
enum TokenReply {
    TokenCreation(TokenCreation),
    Consumed(Option<Vec<u8>>),
}

impl Model for TokenModel {
    type Call = TokenCall;
    type Reply = TokenReply;
    const INSTANT_US: u64 = 1000;
    const IS_REPEATABLE: bool = true;

    fn schedules() -> impl Strategy<Value = Schedule<TokenCall>> {
        schedule(prop_oneof![
            (0..2_u8, some_ms()).prop_map(|(metadata, lives_ms)| TokenCall::Create { metadata, lives_ms }),
            (0..3_u8).prop_map(|claim| TokenCall::Consume { claim }),
        ])
    }

    fn reply(&mut self, now_us: u64, call: &TokenCall) -> TokenReply {
        let now_ms = now_us / 1000;
        lapse(&mut self.0, now_ms);
        let token = self.0.as_mut().map(|kept| &mut kept.what);
        match (call, token) {
            (TokenCall::Create { metadata, lives_ms }, None) => {
                let what = Token { metadata: *metadata, claim: None };
                self.0 = Some(Kept { what, ends_ms: now_ms + lives_ms });
                TokenReply::TokenCreation(TokenCreation::Created)
            }
            (TokenCall::Create { metadata, .. }, Some(token)) => {
                let same = token.metadata == *metadata && token.claim.is_none();
                TokenReply::TokenCreation(if same { TokenCreation::Created } else { TokenCreation::Exists })
            }
            (TokenCall::Consume { claim }, Some(token)) => {
                let first = *token.claim.get_or_insert(*claim);
                TokenReply::Consumed((first == *claim).then(|| vec![token.metadata]))
            }
            (TokenCall::Consume { .. }, None) => TokenReply::Consumed(None),
        }
    }

    fn wait(_: &TokenCall, _: &TokenReply) -> Option<Duration> {
        None
    }

    async fn call(client: &MultiplexedConnection, key: &str, call: &TokenCall) -> TokenReply {
        match call {
            TokenCall::Create { metadata, lives_ms } => {
                let lives = Duration::from_millis(*lives_ms);
                TokenReply::TokenCreation(
                    one_time_token::create(&mut client.clone(), key, &[*metadata], lives).await.expect("an answer"),
                )
            }
            TokenCall::Consume { claim } => TokenReply::Consumed(
                one_time_token::consume(&mut client.clone(), key, &claim.to_string()).await.expect("an answer"),
            ),
        }
    }
}

/// The last admitted call; all calls are distinct.
#[derive(Debug, Default)]
struct CooldownModel {
    calls: u64,
    through: Option<Kept<u64>>,
}

/// A call with this interval; if sent again it is the same call.
#[derive(Debug, Clone)]
struct Pass {
    interval_ms: u64,
}

impl Model for CooldownModel {
    type Call = Pass;
    type Reply = CooldownDecision;
    const INSTANT_US: u64 = 1000;
    const IS_REPEATABLE: bool = true;

    fn schedules() -> impl Strategy<Value = Schedule<Pass>> {
        schedule(some_ms().prop_map(|interval_ms| Pass { interval_ms }))
    }

    fn reply(&mut self, now_us: u64, call: &Pass) -> CooldownDecision {
        let now_ms = now_us / 1000;
        self.calls += 1;
        // Neither a clock that was set back nor a formerly longer interval blocks a caller for more than an interval.
        if let Some(through) = &mut self.through {
            through.ends_ms = through.ends_ms.min(now_ms + call.interval_ms);
        }
        match &self.through {
            Some(through) if through.ends_ms > now_ms => {
                CooldownDecision::Active { retry_after: Duration::from_millis(through.ends_ms - now_ms) }
            }
            _ => {
                self.through = Some(Kept { what: self.calls, ends_ms: now_ms + call.interval_ms });
                CooldownDecision::Started
            }
        }
    }

    fn wait(_: &Pass, reply: &CooldownDecision) -> Option<Duration> {
        match reply {
            CooldownDecision::Active { retry_after } => Some(*retry_after),
            CooldownDecision::Started => None,
        }
    }

    async fn call(client: &MultiplexedConnection, key: &str, call: &Pass) -> CooldownDecision {
        Cooldown::new(Duration::from_millis(call.interval_ms))
            .try_start(&mut client.clone(), key)
            .await
            .expect("an answer")
    }
}

#[derive(Debug, Default)]
struct LeaseModel(Option<Kept<&'static str>>);

/// The first two are of one host, so one can know that the other is dead.
const HOLDERS: [&str; 4] = ["host-1/a", "host-1/b", "host-2/a", "host-12/a"];

#[derive(Debug, Clone)]
enum LeaseCall {
    Hold { holder: &'static str, lasts_ms: u64, dead: &'static str },
    Release { holder: &'static str },
}

impl Model for LeaseModel {
    type Call = LeaseCall;
    type Reply = Option<LeaseDecision>;
    const INSTANT_US: u64 = 1000;
    const IS_REPEATABLE: bool = true;

    fn schedules() -> impl Strategy<Value = Schedule<LeaseCall>> {
        let holder = || prop::sample::select(HOLDERS.to_vec());
        let dead = prop_oneof![4 => Just(""), 1 => Just("host-1/"), 1 => Just("host-2/a")];
        schedule(prop_oneof![
            3 => (holder(), some_ms(), dead)
                .prop_map(|(holder, lasts_ms, dead)| LeaseCall::Hold { holder, lasts_ms, dead }),
            1 => holder().prop_map(|holder| LeaseCall::Release { holder }),
        ])
    }

    fn reply(&mut self, now_us: u64, call: &LeaseCall) -> Option<LeaseDecision> {
        let now_ms = now_us / 1000;
        lapse(&mut self.0, now_ms);
        match *call {
            LeaseCall::Hold { holder, lasts_ms, dead } => {
                let others = self.0.as_ref().filter(|kept| {
                    let relieved = !dead.is_empty() && kept.what.starts_with(dead);
                    kept.what != holder && !relieved
                });
                if let Some(others) = others {
                    return Some(LeaseDecision::HeldByOther {
                        expires_in: Duration::from_millis(others.ends_ms + 1 - now_ms),
                    });
                }
                self.0 = Some(Kept { what: holder, ends_ms: now_ms + lasts_ms });
                Some(LeaseDecision::Acquired)
            }
            LeaseCall::Release { holder } => {
                self.0 = self.0.take().filter(|kept| kept.what != holder);
                None
            }
        }
    }

    fn wait(_: &LeaseCall, reply: &Option<LeaseDecision>) -> Option<Duration> {
        match reply {
            Some(LeaseDecision::HeldByOther { expires_in }) => Some(*expires_in),
            _ => None,
        }
    }

    async fn call(client: &MultiplexedConnection, key: &str, call: &LeaseCall) -> Option<LeaseDecision> {
        match *call {
            LeaseCall::Hold { holder, lasts_ms, dead } => {
                let lease = Lease::new(holder, Duration::from_millis(lasts_ms));
                Some(match dead {
                    "" => lease.acquire(&mut client.clone(), key).await.expect("an answer"),
                    dead => lease.acquire_from_dead(&mut client.clone(), key, dead).await.expect("an answer"),
                })
            }
            LeaseCall::Release { holder } => {
                Lease::new(holder, Duration::from_millis(1))
                    .release(&mut client.clone(), key)
                    .await
                    .expect("an answer");
                None
            }
        }
    }
}

/// One code too many, or a contact that can't request one although an old one has expired.
#[test]
fn expiring_set_does_as_its_model() {
    agrees::<SetModel>(CASES);
}

/// A confirm link that works twice, or never.
#[test]
fn one_time_token_does_as_its_model() {
    agrees::<TokenModel>(CASES);
}

/// Two calls within an interval, or none after it.
#[test]
fn cooldown_does_as_its_model() {
    agrees::<CooldownModel>(CASES);
}

/// Two holders at once, or a holder that blocks others after its time.
#[test]
fn lease_does_as_its_model() {
    agrees::<LeaseModel>(CASES);
}
