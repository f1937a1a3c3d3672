//! Expiring set, one-time token, cooldown and lease against plain models in memory: random schedules of calls and time
//! through the public API, on a real server whose clock the test controls. Any call may be sent twice, as after a lost
//! reply: the second reply must equal the first.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clocked_server::{CLOCK_START_US, ClockedServer, Sent};
use crate::schedules::{self, Stage};
use proptest::prelude::*;
use quotabell_throttle::one_time_token::{self, TokenCreation};
use quotabell_throttle::{Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, Lease, LeaseDecision};
use redis::aio::MultiplexedConnection;

/// Number of schedules per limiter.
const CASES: u32 = 1000;

/// A call, and the advance of the clock before it.
#[derive(Debug, Clone)]
struct Step<C> {
    /// Milliseconds; negative if the server's clock was set back.
    step_ms: i64,
    sent: Sent,
    call: C,
}

/// The expected replies of a limiter, computed from the whole history.
trait Model: Default {
    type Call: std::fmt::Debug + Clone;
    type Answer: std::fmt::Debug + PartialEq;

    /// Any call; times of 1 to 50 ms, like the clock's steps, so that exact ends are frequent.
    fn calls() -> BoxedStrategy<Self::Call>;
    fn call(&mut self, now_ms: u64, call: &Self::Call) -> Self::Answer;
    /// The wait in the reply, ms, if it has one.
    fn wait_of(answer: &Self::Answer) -> Option<u64>;
    /// Whether the reply admits the caller.
    fn lets(answer: &Self::Answer) -> bool;
    /// Calls the limiter itself.
    async fn call_real(client: &MultiplexedConnection, key: &str, call: &Self::Call) -> Self::Answer;
}

fn some_ms() -> impl Strategy<Value = u64> {
    prop_oneof![Just(10_u64), 1..=50_u64]
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("short")
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
    type Answer = ExpiringSetDecision;

    fn calls() -> BoxedStrategy<Add> {
        let most = prop_oneof![3 => Just(3_u32), 1 => 1..6_u32];
        (most, 0..9_u8, some_ms()).prop_map(|(most, member, stays_ms)| Add { most, member, stays_ms }).boxed()
    }

    fn call(&mut self, now_ms: u64, call: &Add) -> ExpiringSetDecision {
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

    fn wait_of(answer: &ExpiringSetDecision) -> Option<u64> {
        match answer {
            ExpiringSetDecision::Full { retry_after } => Some(millis(*retry_after)),
            ExpiringSetDecision::Added { .. } => None,
        }
    }

    fn lets(answer: &ExpiringSetDecision) -> bool {
        matches!(answer, ExpiringSetDecision::Added { .. })
    }

    async fn call_real(client: &MultiplexedConnection, key: &str, call: &Add) -> ExpiringSetDecision {
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
    type Answer = TokenReply;

    fn calls() -> BoxedStrategy<TokenCall> {
        prop_oneof![
            (0..2_u8, some_ms()).prop_map(|(metadata, lives_ms)| TokenCall::Create { metadata, lives_ms }),
            (0..3_u8).prop_map(|claim| TokenCall::Consume { claim }),
        ]
        .boxed()
    }

    fn call(&mut self, now_ms: u64, call: &TokenCall) -> TokenReply {
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

    fn wait_of(_: &TokenReply) -> Option<u64> {
        None
    }

    fn lets(_: &TokenReply) -> bool {
        true
    }

    async fn call_real(client: &MultiplexedConnection, key: &str, call: &TokenCall) -> TokenReply {
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
    type Answer = CooldownDecision;

    fn calls() -> BoxedStrategy<Pass> {
        some_ms().prop_map(|interval_ms| Pass { interval_ms }).boxed()
    }

    fn call(&mut self, now_ms: u64, call: &Pass) -> CooldownDecision {
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

    fn wait_of(answer: &CooldownDecision) -> Option<u64> {
        match answer {
            CooldownDecision::Active { retry_after } => Some(millis(*retry_after)),
            CooldownDecision::Started => None,
        }
    }

    fn lets(answer: &CooldownDecision) -> bool {
        *answer == CooldownDecision::Started
    }

    async fn call_real(client: &MultiplexedConnection, key: &str, call: &Pass) -> CooldownDecision {
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
    type Answer = Option<LeaseDecision>;

    fn calls() -> BoxedStrategy<LeaseCall> {
        let holder = || prop::sample::select(HOLDERS.to_vec());
        let dead = prop_oneof![4 => Just(""), 1 => Just("host-1/"), 1 => Just("host-2/a")];
        prop_oneof![
            3 => (holder(), some_ms(), dead)
                .prop_map(|(holder, lasts_ms, dead)| LeaseCall::Hold { holder, lasts_ms, dead }),
            1 => holder().prop_map(|holder| LeaseCall::Release { holder }),
        ]
        .boxed()
    }

    fn call(&mut self, now_ms: u64, call: &LeaseCall) -> Option<LeaseDecision> {
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

    fn wait_of(answer: &Option<LeaseDecision>) -> Option<u64> {
        match answer {
            Some(LeaseDecision::HeldByOther { expires_in }) => Some(millis(*expires_in)),
            _ => None,
        }
    }

    fn lets(answer: &Option<LeaseDecision>) -> bool {
        *answer == Some(LeaseDecision::Acquired)
    }

    async fn call_real(client: &MultiplexedConnection, key: &str, call: &LeaseCall) -> Option<LeaseDecision> {
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

fn schedule<M: Model>() -> impl Strategy<Value = Vec<Step<M::Call>>> {
    let step_ms = prop_oneof![4 => Just(0_i64), 3 => Just(10_i64), 4 => 0..=60_i64, 1 => -60..0_i64];
    let sent = prop_oneof![3 => Just(Sent::Once), 1 => Just(Sent::Twice)];
    let step = (step_ms, sent, M::calls()).prop_map(|(step_ms, sent, call)| Step { step_ms, sent, call });
    prop::collection::vec(step, 1..30)
}

/// Runs one schedule on the limiter and the model.
struct Pair<'a, M> {
    clocked_server: &'a ClockedServer,
    client: &'a MultiplexedConnection,
    key: String,
    now_ms: u64,
    model: M,
}

impl<M: Model> Pair<'_, M> {
    async fn run(&mut self, schedule: &[Step<M::Call>]) -> Result<(), TestCaseError> {
        for Step { step_ms, sent, call } in schedule {
            self.now_ms = self.now_ms.checked_add_signed(*step_ms).expect("after 1970");
            let answer = self.call(call, *sent).await?;
            // A wait is neither too long nor too short.
            if let Some(wait_ms) = M::wait_of(&answer) {
                self.now_ms += wait_ms - 1;
                let early = self.call(call, *sent).await?;
                prop_assert!(!M::lets(&early), "a millisecond early, after {answer:?}: {early:?}");
                self.now_ms += 1;
                let punctual = self.call(call, *sent).await?;
                prop_assert!(M::lets(&punctual), "after the wait of {answer:?}: {punctual:?}");
            }
        }
        self.clocked_server.expect_end(&self.key);
        Ok(())
    }

    async fn call(&mut self, call: &M::Call, sent: Sent) -> Result<M::Answer, TestCaseError> {
        self.clocked_server.set_clock(self.now_ms * 1000 + rand::random_range(0..1000));
        self.clocked_server.send(sent);
        let answer = M::call_real(self.client, &self.key, call).await;
        prop_assert_eq!(&answer, &self.model.call(self.now_ms, call), "{:?} at {} ms", call, self.now_ms);
        Ok(answer)
    }
}

/// Runs all schedules.
fn agrees<M: Model>() {
    schedules::run(CASES, schedule::<M>(), async |stage, schedule| {
        let now_ms = CLOCK_START_US / 1000;
        let Stage { clocked_server, client, prefix: key } = stage;
        Pair { clocked_server, client, key, now_ms, model: M::default() }.run(&schedule).await
    });
}

/// One code too many, or a contact that can't request one although an old one has expired.
#[test]
fn expiring_set_does_as_its_model() {
    agrees::<SetModel>();
}

/// A confirm link that works twice, or never.
#[test]
fn one_time_token_does_as_its_model() {
    agrees::<TokenModel>();
}

/// Two calls within an interval, or none after it.
#[test]
fn cooldown_does_as_its_model() {
    agrees::<CooldownModel>();
}

/// Two holders at once, or a holder that blocks others after its time.
#[test]
fn lease_does_as_its_model() {
    agrees::<LeaseModel>();
}
