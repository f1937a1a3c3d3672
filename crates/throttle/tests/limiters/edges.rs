//! Edge cases of the limiters: foreign keys, long keys, expiries, the largest numbers, many members.

use std::time::{Duration, Instant};

use quotabell_throttle::one_time_token::{self, METADATA_BYTES_MAX, OneTimeTokenError, TokenCreation};
use quotabell_throttle::{
    Admission, Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, FixedWindow, Gcra, Lease, LeaseDecision,
    MEMBERS_MAX, Rate, RateDecision, STORED_KEY_BYTES_MAX, SlidingWindow, UNITS_MAX,
};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};

use crate::clocked_server::{CLOCK_START_US, ClockedServer};
use crate::connect;
use crate::eventually::eventually;
use crate::redis_server::RedisServer;

const MINUTE: Duration = Duration::from_secs(60);
/// Long enough to be noticed, short enough for a test.
const SHORT: Duration = Duration::from_millis(30);

fn rate(limit: u64, window: Duration) -> Rate {
    Rate::new(limit, window).expect("legal")
}

/// All limiters, so that each property is tested for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limiter {
    Fixed,
    Sliding,
    Gcra,
    Set,
    Token,
    Cooldown,
    Lease,
}

impl Limiter {
    const ALL: [Self; 7] =
        [Self::Fixed, Self::Sliding, Self::Gcra, Self::Set, Self::Token, Self::Cooldown, Self::Lease];

    const RATES: [Self; 3] = [Self::Fixed, Self::Sliding, Self::Gcra];

    /// Takes units from a limiter of a rate; 0 only asks.
    async fn decide(
        self,
        client: &MultiplexedConnection,
        key: &str,
        rate: Rate,
        units: u64,
    ) -> RedisResult<RateDecision> {
        let client = &mut client.clone();
        match self {
            Self::Fixed => FixedWindow::new(rate).take(client, key, units).await,
            Self::Sliding => SlidingWindow::new(rate).expect("few enough members").take(client, key, units).await,
            Self::Gcra => Gcra::new(rate).take(client, key, units).await,
            other => panic!("{other:?} has no rate"),
        }
    }

    /// Takes everything once, for this time; returns whether it was available.
    async fn take(self, client: &MultiplexedConnection, key: &str, lasts: Duration) -> RedisResult<bool> {
        let someone = rand::random::<u64>().to_string();
        Ok(match self {
            Self::Fixed | Self::Sliding | Self::Gcra => {
                self.decide(client, key, rate(1, lasts), 1).await?.is_admitted()
            }
            Self::Set => {
                let set = ExpiringSet::new(1).expect("one");
                matches!(set.add(&mut client.clone(), key, &someone, lasts).await?, ExpiringSetDecision::Added { .. })
            }
            Self::Token => match one_time_token::create(&mut client.clone(), key, someone.as_bytes(), lasts).await {
                Ok(created) => created == TokenCreation::Created,
                Err(OneTimeTokenError::Redis(error)) => return Err(error),
                Err(error) => panic!("{error}"),
            },
            Self::Cooldown => {
                Cooldown::new(lasts).try_start(&mut client.clone(), key).await? == CooldownDecision::Started
            }
            Self::Lease => {
                Lease::new(someone, lasts).acquire(&mut client.clone(), key).await? == LeaseDecision::Acquired
            }
        })
    }

    /// Asks or releases, if that is a separate call.
    async fn ask(self, client: &MultiplexedConnection, key: &str) -> RedisResult<()> {
        match self {
            Self::Fixed | Self::Sliding | Self::Gcra => self.decide(client, key, rate(1, MINUTE), 0).await.map(drop),
            Self::Token => one_time_token::consume(&mut client.clone(), key, "a claim").await.map(drop),
            Self::Lease => Lease::new("a holder", MINUTE).release(&mut client.clone(), key).await,
            Self::Set | Self::Cooldown => self.take(client, key, MINUTE).await.map(drop),
        }
    }

    /// Commands that put a foreign value at the key.
    fn foreign(self) -> Vec<Vec<&'static str>> {
        let string = |text| vec!["SET", "k", text];
        let mut foreign = vec![
            vec!["RPUSH", "k", "a"],
            vec!["SADD", "k", "a"],
            vec!["XADD", "k", "1-1", "a", "b"],
            vec!["ZADD", "k", "1", "a"],
            vec!["HSET", "k", "a", "b"],
        ];
        match self {
            Self::Fixed => {
                foreign.extend(["", "abc", "1.5", "-3", "0x10", "1e3", " 5", "inf", "nan", "007"].map(string));
            }
            Self::Gcra => foreign.extend(["", "abc", "17", "1:2", "1:2:3:4", "-1:0:1", "1.5:0:1"].map(string)),
            Self::Sliding => foreign.extend([
                string("abc"),
                vec!["ZADD", "k", "1", "1:x"],
                vec!["ZADD", "k", "9e15", "a", "1", "0000000000000001:1"],
            ]),
            // Any string is a valid holder or call.
            Self::Cooldown | Self::Lease => {}
            Self::Set => {
                foreign = foreign.into_iter().filter(|command| command[0] != "ZADD").chain([string("a")]).collect()
            }
            Self::Token => {
                foreign = foreign.into_iter().filter(|command| command[0] != "HSET").chain([string("a")]).collect();
            }
        }
        foreign
    }
}

async fn run<T: redis::FromRedisValue>(client: &MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut client.clone()).await.expect("the command runs")
}

/// The value at the key and its TTL; -1 without one.
async fn state(client: &MultiplexedConnection, key: &str) -> (Option<Vec<u8>>, i64) {
    (run(client, &["DUMP", key]).await, run(client, &["PTTL", key]).await)
}

/// A limiter that takes over a foreign key would destroy data, and one that interprets it would admit anything.
#[tokio::test]
async fn foreign_keys_are_errors_and_stay_as_they_are() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in Limiter::ALL {
        for words in limiter.foreign() {
            let _: Value = run(&client, &words).await;
            let before = state(&client, "k").await;
            let taken = limiter.take(&client, "k", MINUTE).await;
            let asked = limiter.ask(&client, "k").await;
            assert!(taken.is_err() && asked.is_err(), "{limiter:?} after {words:?}: {taken:?}, {asked:?}");
            assert_eq!(state(&client, "k").await, before, "{limiter:?} after {words:?}");
            let _: u64 = run(&client, &["DEL", "k"]).await;
        }
    }
}

/// A key without an expiry would stay forever, once for each client that ever called.
#[tokio::test]
async fn every_key_ends_from_its_first_write() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in Limiter::ALL {
        let key = format!("{limiter:?}");
        assert!(limiter.take(&client, &key, MINUTE).await.expect("an answer"));
        for _ in 0..3 {
            let (_, ends_ms) = state(&client, &key).await;
            assert!((50_000..=60_001).contains(&ends_ms), "{limiter:?}: {ends_ms} ms");
            assert!(!limiter.take(&client, &key, MINUTE).await.expect("an answer"), "{limiter:?}");
        }
    }
}

/// The model uses the test's clock, this test the server's: used units return, and not early.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_up_comes_back_in_its_time() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in Limiter::ALL {
        let key = format!("{limiter:?}");
        let asked = Instant::now();
        assert!(limiter.take(&client, &key, SHORT).await.expect("an answer"));
        let again = || async { limiter.take(&client, &key, SHORT).await.expect("an answer").then_some(()) };
        eventually("it comes back", again).await;
        // At least the time between the server's two decisions has passed, even if a reply is late; its clock counts
        // whole ms.
        let since = asked.elapsed();
        assert!(since + Duration::from_millis(5) > SHORT, "{limiter:?} came back after {since:?}");
    }
    // At the end nothing is left.
    eventually("every key has ended", || async { (run::<u64>(&client, &["DBSIZE"]).await == 0).then_some(()) }).await;
}

/// The waits in replies follow the server's clock.
#[tokio::test]
async fn answers_tell_what_is_left_and_how_long_to_wait() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    let nearly = |wait: Duration, most: Duration| wait <= most && wait + Duration::from_secs(5) > most;
    // GCRA frees a unit each 12 s.
    let waits = [(MINUTE, MINUTE), (MINUTE, MINUTE), (MINUTE * 3 / 5, MINUTE / 5)];
    for (limiter, (reset, wait)) in Limiter::RATES.into_iter().zip(waits) {
        let key = format!("{limiter:?}");
        let take = async |units| limiter.decide(&client, &key, rate(5, MINUTE), units).await.expect("an answer");
        let first = take(3).await;
        assert_eq!((first.admission, first.remaining, first.limit), (Admission::Admitted, 2, 5));
        assert!(nearly(first.reset, reset), "{first:?}");
        let second = take(3).await;
        let Admission::Rejected { retry_after: Some(retry_after) } = second.admission else { panic!("{second:?}") };
        assert!(nearly(retry_after, wait) && second.remaining == 2, "{second:?}");
        assert_eq!(take(6).await.admission, Admission::Rejected { retry_after: None });
        let asked = take(0).await;
        assert!(asked.is_admitted() && asked.remaining == 2, "asking takes nothing: {asked:?}");
    }
}

/// A client that may choose a key could otherwise fill the memory, or share another's key if keys were truncated.
#[tokio::test]
async fn long_keys_stay_apart_and_are_stored_short() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in Limiter::ALL {
        let long = format!("{limiter:?}:{}", "é".repeat(4000));
        for key in [format!("{long}a"), format!("{long}b")] {
            assert!(limiter.take(&client, &key, MINUTE).await.expect("an answer"), "{limiter:?}");
            assert!(!limiter.take(&client, &key, MINUTE).await.expect("an answer"), "{limiter:?}");
        }
    }
    let keys: Vec<String> = run(&client, &["KEYS", "*"]).await;
    assert_eq!(keys.len(), 2 * Limiter::ALL.len());
    assert!(keys.iter().all(|key| key.len() <= STORED_KEY_BYTES_MAX), "{keys:?}");
}

/// A counter that somebody restored without its expiry would refuse its client forever.
#[tokio::test]
async fn keys_that_lost_their_end_get_one_even_where_the_call_is_refused() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in [Limiter::Fixed, Limiter::Cooldown, Limiter::Lease] {
        assert!(limiter.take(&client, "k", MINUTE).await.expect("an answer"));
        let _: u64 = run(&client, &["PERSIST", "k"]).await;
        assert!(!limiter.take(&client, "k", MINUTE).await.expect("an answer"), "{limiter:?}");
        let (_, ends_ms) = state(&client, "k").await;
        assert!(ends_ms > 0, "{limiter:?}: {ends_ms}");
        let _: u64 = run(&client, &["DEL", "k"]).await;
    }
}

/// Removing a hundred thousand calls in one step would block the server for more than ten milliseconds.
#[tokio::test]
async fn a_crowd_that_has_left_is_removed_bit_by_bit_and_counts_no_more() {
    let clocked_server = ClockedServer::start();
    let (client, direct) = (connect(&clocked_server.client()).await, connect(&clocked_server.direct()).await);
    let take =
        async |units: u64| Limiter::Sliding.decide(&client, "k", rate(5000, MINUTE), units).await.expect("an answer");
    let members = async || run::<u64>(&direct, &["ZCARD", "k"]).await;
    let seconds_later = |seconds: u64| clocked_server.set_clock(CLOCK_START_US + seconds * 1_000_000);
    for _ in 0..2_100 {
        assert!(take(1).await.is_admitted());
    }
    for seconds in [10, 20] {
        seconds_later(seconds);
        assert!(take(1).await.is_admitted());
    }
    seconds_later(60);
    // First two have to leave, then one; waits depend on members that have not left yet.
    for (units, wait, members_left) in [(5_000, 20, 1_102), (4_999, 10, 102)] {
        let refused = take(units).await;
        let retry_after = Some(Duration::from_secs(wait));
        assert_eq!((refused.admission, refused.remaining), (Admission::Rejected { retry_after }, 4_998));
        assert_eq!(members().await, members_left);
    }
    assert_eq!((take(1).await.remaining, members().await), (4_997, 3));
    // All at once if all have left.
    seconds_later(200);
    assert_eq!((take(5_000).await.remaining, members().await), (0, 1));
}

/// Lua rounds numbers above 2^53; the largest allowed ones must be exact.
#[tokio::test]
async fn the_largest_limits_are_exact() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    let month = Duration::from_secs(31 * 24 * 3600);
    let take = async |limiter: Limiter, units| {
        limiter.decide(&client, &format!("{limiter:?}"), rate(UNITS_MAX, month), units).await.expect("an answer")
    };
    assert_eq!(take(Limiter::Fixed, UNITS_MAX - 1).await.remaining, 1);
    assert!(!take(Limiter::Fixed, 2).await.is_admitted());
    assert_eq!(take(Limiter::Fixed, 1).await.remaining, 0);
    assert!(!take(Limiter::Fixed, 1).await.is_admitted());
    // A unit of this bucket drains in a third of a nanosecond: only whole buckets can be distinguished.
    assert!(take(Limiter::Gcra, UNITS_MAX).await.is_admitted());
    assert!(!take(Limiter::Gcra, UNITS_MAX).await.is_admitted());
    let most = Limiter::Sliding.decide(&client, "most", rate(MEMBERS_MAX, MINUTE), 1).await.expect("an answer");
    assert_eq!(most.remaining, MEMBERS_MAX - 1);
}

/// A limit that would fill the memory must be refused, with an alternative.
#[test]
fn more_members_than_a_set_may_have_are_refused() {
    let error = SlidingWindow::new(rate(MEMBERS_MAX + 1, MINUTE)).expect_err("too many").to_string();
    assert!(error.contains("100001") && error.contains("at most 100000") && error.contains("gcra"), "{error}");
    assert!(ExpiringSet::new(100_001).is_err() && ExpiringSet::new(100_000).is_ok());
}

/// A set without room for any member must say so instead of failing.
#[tokio::test]
async fn a_set_of_none_is_always_full() {
    let server = RedisServer::start();
    let set = ExpiringSet::new(0).expect("few enough");
    let added = set.add(&mut connect(&server.sync_client()).await, "k", "a", MINUTE).await.expect("an answer");
    assert_eq!(added, ExpiringSetDecision::Full { retry_after: MINUTE });
}

/// A call that only asks must not take the place.
#[tokio::test]
async fn asking_how_long_a_set_is_full_adds_nobody() {
    let server = RedisServer::start();
    let (client, set) = (connect(&server.sync_client()).await, ExpiringSet::new(2).expect("few enough"));
    let wait = || async { set.wait(&mut client.clone(), "k", MINUTE).await.expect("an answer") };
    for member in ["a", "b"] {
        assert_eq!(wait().await, Duration::ZERO);
        let added = set.add(&mut client.clone(), "k", member, MINUTE).await.expect("an answer");
        assert!(matches!(added, ExpiringSetDecision::Added { .. }), "{added:?}");
    }
    let full = wait().await;
    assert!(full > MINUTE / 2 && full <= MINUTE, "{full:?}");
    assert_eq!(run::<u64>(&client, &["ZCARD", "k"]).await, 2);
    // If no member is allowed, waiting does not help: the wait is a member's lifetime.
    let none = ExpiringSet::new(0).expect("few enough");
    assert_eq!(none.wait(&mut client.clone(), "l", MINUTE).await.expect("an answer"), MINUTE);
}

/// The token's payload is stored elsewhere.
#[tokio::test]
async fn metadata_of_a_token_is_bounded_and_may_be_any_bytes() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    let long = vec![0xff; METADATA_BYTES_MAX];
    let hour = Duration::from_secs(3600);
    assert_eq!(
        one_time_token::create(&mut client.clone(), "k", &long, hour).await.expect("created"),
        TokenCreation::Created
    );
    assert_eq!(
        one_time_token::consume(&mut client.clone(), "k", "claim").await.expect("an answer"),
        Some(long.clone())
    );
    let too_long = one_time_token::create(&mut client.clone(), "l", &[long, vec![0]].concat(), hour).await;
    assert!(matches!(too_long, Err(OneTimeTokenError::MetadataTooLong(bytes)) if bytes == METADATA_BYTES_MAX + 1));
    assert_eq!(
        one_time_token::create(&mut client.clone(), "m", b"", hour).await.expect("created"),
        TokenCreation::Created
    );
    assert_eq!(one_time_token::consume(&mut client.clone(), "m", "claim").await.expect("an answer"), Some(Vec::new()));
}

/// A connection to a server that loses all scripts before each call, as if it failed over between load and call.
struct Forgetful(MultiplexedConnection);

impl ConnectionLike for Forgetful {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut self.0).await?;
            self.0.req_packed_command(command).await
        })
    }

    fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("limiters send single commands")
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}

/// The caller must learn that nothing was taken, and that another try may help.
#[tokio::test]
async fn a_server_that_forgets_scripts_again_is_an_error_that_names_the_cause() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    let limiter = FixedWindow::new(rate(1, MINUTE));
    let error = limiter.take(&mut Forgetful(client.clone()), "k", 1).await.expect_err("no script");
    assert_eq!(error.code(), Some("NOSCRIPT"));
    assert!(limiter.take(&mut client.clone(), "k", 1).await.expect("an answer").is_admitted(), "nothing was taken");
}

/// A restarted server has no scripts.
#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = RedisServer::start();
    let client = connect(&server.sync_client()).await;
    for limiter in Limiter::ALL {
        let _: String = run(&client, &["SCRIPT", "FLUSH"]).await;
        assert!(limiter.take(&client, &format!("{limiter:?}"), MINUTE).await.expect("an answer"), "{limiter:?}");
    }
}
