//! Compares a limiter with a plain model in memory: random schedules of calls and time through the public API, on a
//! real server whose clock the test sets. Any call may be sent twice, as after a lost reply.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;

use crate::clocked_server::{CLOCK_START_US, ClockedServer, Sent};
use crate::connect;

/// The expected replies of a limiter, computed from the whole history.
pub trait Model: Default {
    type Call: Debug + Clone;
    type Reply: Debug + PartialEq;

    /// Resolution of the limiter's times, us.
    const INSTANT_US: u64;
    /// Whether a call that is sent twice counts once. Otherwise it counts twice, to its caller's disadvantage.
    const IS_REPEATABLE: bool;

    fn schedules() -> impl Strategy<Value = Schedule<Self::Call>>;
    fn reply(&mut self, now_us: u64, call: &Self::Call) -> Self::Reply;
    /// The wait in the reply that is to be verified: [`Self::after_wait`] ends it at this time and not an instant
    /// earlier. `None`: there is no wait, or it has ended.
    fn wait(call: &Self::Call, reply: &Self::Reply) -> Option<Duration>;
    /// The call that shows whether the wait has ended.
    fn after_wait(call: &Self::Call) -> Self::Call {
        call.clone()
    }
    /// Calls the limiter itself.
    async fn call(client: &MultiplexedConnection, key: &str, call: &Self::Call) -> Self::Reply;
}

#[derive(Debug, Clone)]
pub struct Schedule<C> {
    pub steps: Vec<Step<C>>,
    /// Additional bytes of the key.
    pub padding: usize,
}

/// A call, and the advance of the clock before it.
#[derive(Debug, Clone)]
pub struct Step<C> {
    /// Negative if the server's clock was set back.
    pub advance_us: i64,
    pub sent: Sent,
    pub call: C,
}

/// Runs `cases` schedules one after another on one server, each with its own key, and fails with the shortest failing
/// one.
pub fn agrees<M: Model>(cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clocked_server = ClockedServer::start();
    let client = runtime.block_on(connect(&clocked_server.client()));
    let number = Cell::new(0_u64);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&M::schedules(), |Schedule { steps, padding }| {
        number.set(number.get() + 1);
        let key = format!("{{{}}}{}", number.get(), "x".repeat(padding));
        let (clocked_server, client) = (&clocked_server, &client);
        let mut pair = Pair { clocked_server, client, key, now_us: CLOCK_START_US, model: M::default() };
        runtime.block_on(pair.run(steps))
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}

/// The limiter and its model.
struct Pair<'a, M> {
    clocked_server: &'a ClockedServer,
    client: &'a MultiplexedConnection,
    key: String,
    now_us: u64,
    model: M,
}

impl<M: Model> Pair<'_, M> {
    async fn run(&mut self, steps: Vec<Step<M::Call>>) -> Result<(), TestCaseError> {
        for Step { advance_us, sent, call } in steps {
            self.now_us = self.now_us.checked_add_signed(advance_us).expect("after 1970");
            let reply = self.call(&call, sent).await?;
            let Some(wait) = M::wait(&call, &reply) else { continue };
            let (call, sent) = (M::after_wait(&call), if M::IS_REPEATABLE { sent } else { Sent::Once });
            self.now_us += u64::try_from(wait.as_micros()).expect("a month at most") - M::INSTANT_US;
            let early = self.call(&call, sent).await?;
            prop_assert!(M::wait(&call, &early).is_some(), "an instant before the wait of {reply:?} ends: {early:?}");
            self.now_us += M::INSTANT_US;
            let punctual = self.call(&call, sent).await?;
            prop_assert!(M::wait(&call, &punctual).is_none(), "after the wait of {reply:?}: {punctual:?}");
        }
        self.clocked_server.expect_end(&self.key);
        Ok(())
    }

    /// Calls both and compares the replies.
    async fn call(&mut self, call: &M::Call, sent: Sent) -> Result<M::Reply, TestCaseError> {
        // Parts of an instant must not matter.
        let now_us = self.now_us - self.now_us % M::INSTANT_US + rand::random_range(0..M::INSTANT_US);
        self.clocked_server.set_clock(now_us);
        self.clocked_server.send(sent);
        let reply = M::call(self.client, &self.key, call).await;
        let mut expected = self.model.reply(now_us, call);
        if sent == Sent::Twice && !M::IS_REPEATABLE {
            expected = self.model.reply(now_us, call);
        }
        prop_assert_eq!(&reply, &expected, "{:?} at {} us", call, now_us);
        Ok(reply)
    }
}
