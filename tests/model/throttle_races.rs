//! 64 clients at once, each on its own connection, on the server's own clock: no limiter lets more through than it
//! says.
//!
//! A caller can't know when the server ran its call, only that it was between sending it and having the answer. So a
//! stretch of time is charged only with calls that lie in it for certain, and no correct limiter can fail here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::redis_server::RedisServer;
use quotabell::redis_client::RedisClient;
use quotabell::throttle::{
    Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, FixedWindow, Gcra, Lease, LeaseDecision,
    SlidingWindow,
};
use quotabell::throttle::{lease, one_time_token};
use quotabell::types::{Rate, Units};

const CLIENTS: usize = 64;
const CALLS: usize = 150;
const LIMIT: usize = 40;
const WINDOW: Duration = Duration::from_millis(50);
/// Limiters that count in milliseconds: the first call of a window may lie anywhere in its millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

/// When a call that was admitted was on its way.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    sent: Instant,
    answered: Instant,
}

fn rate() -> Rate {
    Rate::new(Units::new(LIMIT as u64).expect("in range"), WINDOW).expect("legal")
}

/// Runs `act` as each caller, all at once, and returns what each brought back.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send>(
    server: &RedisServer,
    act: impl Fn(usize, RedisClient) -> F + Send + Sync + 'static,
) -> Vec<T> {
    let start = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let act = Arc::new(act);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|caller| {
            let (client, start, act) = (server.client(), Arc::clone(&start), Arc::clone(&act));
            tokio::spawn(async move {
                let _: String = client.query(&redis::cmd("PING")).await.expect("a connection");
                start.wait().await;
                act(caller, client).await
            })
        })
        .collect();
    let mut brought = Vec::new();
    for caller in clients {
        brought.push(caller.await.expect("no caller panicked"));
    }
    brought
}

/// Every caller calls again and again; the calls that were admitted.
async fn admitted<F: Future<Output = bool> + Send>(
    call: impl Fn(Arc<RedisClient>, String) -> F + Send + Sync + Copy + 'static,
) -> Vec<Admitted> {
    let server = RedisServer::start();
    let brought = at_once(&server, move |caller, client| async move {
        let (client, mut admitted) = (Arc::new(client), Vec::new());
        for number in 0..CALLS {
            let sent = Instant::now();
            if call(Arc::clone(&client), format!("{caller}-{number}")).await {
                admitted.push(Admitted { sent, answered: Instant::now() });
            }
        }
        admitted
    })
    .await;
    let mut admitted: Vec<Admitted> = brought.into_iter().flatten().collect();
    admitted.sort_by_key(|call| call.sent);
    // Otherwise nothing was tried: the race must last for some windows, and calls be refused.
    assert!(admitted.len() > 2 * LIMIT && admitted.len() < CLIENTS * CALLS, "{} were admitted", admitted.len());
    admitted
}

/// The most calls that lie for certain in any stretch of this length.
fn most_within(admitted: &[Admitted], stretch: Duration) -> usize {
    let begins = admitted.iter().map(|call| call.sent);
    begins
        .map(|begin| {
            let inside = admitted.iter().filter(|call| call.sent >= begin && call.answered < begin + stretch);
            inside.count()
        })
        .max()
        .unwrap_or(0)
}

/// One call too many in some window, although each caller saw room.
#[tokio::test(flavor = "multi_thread")]
async fn no_window_wherever_it_begins_admits_more_than_the_sliding_limit() {
    let admitted = admitted(|client, _| async move {
        let limiter = SlidingWindow::new(rate()).expect("few enough members");
        limiter.take(&client, "race", Units::ONE).await.expect("an answer").is_admitted()
    })
    .await;
    assert!(most_within(&admitted, WINDOW) <= LIMIT, "{}", most_within(&admitted, WINDOW));
}

/// More members alive than may be.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_members_are_alive_than_the_expiring_set_holds() {
    let admitted = admitted(|client, member| async move {
        let set = ExpiringSet::new(LIMIT as u32).expect("few enough members");
        matches!(set.add(&client, "race", &member, WINDOW).await.expect("an answer"), ExpiringSetDecision::Added { .. })
    })
    .await;
    // Members that are alive at one moment were added within one TTL.
    let ttl = WINDOW - MILLISECOND;
    assert!(most_within(&admitted, ttl) <= LIMIT, "{}", most_within(&admitted, ttl));
}

/// More than the doubled limit that a boundary explains.
#[tokio::test(flavor = "multi_thread")]
async fn no_stretch_of_a_fixed_window_admits_more_than_twice_its_limit() {
    let admitted = admitted(|client, _| async move {
        FixedWindow::new(rate()).take(&client, "race", Units::ONE).await.expect("an answer").is_admitted()
    })
    .await;
    let window = WINDOW - MILLISECOND;
    assert!(most_within(&admitted, window) <= 2 * LIMIT, "{}", most_within(&admitted, window));
}

/// A bucket that drains faster than its rate when many call.
#[tokio::test(flavor = "multi_thread")]
async fn gcra_admits_its_limit_and_what_drains_meanwhile() {
    let admitted = admitted(|client, _| async move {
        Gcra::new(rate()).take(&client, "race", Units::ONE).await.expect("an answer").is_admitted()
    })
    .await;
    for windows in 1..8 {
        let most = most_within(&admitted, WINDOW * windows);
        assert!(most <= LIMIT * (1 + windows as usize), "{most} in {windows} windows");
    }
}

/// Two clicks on one link at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_consumed_once_however_many_try() {
    const TOKENS: usize = 40;
    let server = RedisServer::start();
    for number in 0..TOKENS {
        let key = format!("token-{number}");
        let hour = Duration::from_secs(3600);
        one_time_token::create(&server.client(), &key, key.as_bytes(), hour).await.expect("created");
    }
    let brought = at_once(&server, |caller, client| async move {
        let mut consumed = Vec::new();
        for number in 0..TOKENS {
            let key = format!("token-{number}");
            // Sent twice, as after a lost answer.
            let claim = caller.to_string();
            let first = one_time_token::consume(&client, &key, &claim).await.expect("an answer");
            let again = one_time_token::consume(&client, &key, &claim).await.expect("an answer");
            assert_eq!(first, again);
            consumed.extend(first.map(|metadata| {
                assert_eq!(metadata, key.as_bytes());
                number
            }));
        }
        consumed
    })
    .await;
    let mut consumed: Vec<usize> = brought.into_iter().flatten().collect();
    consumed.sort_unstable();
    assert_eq!(consumed, (0..TOKENS).collect::<Vec<_>>());
}

/// Two readers of one partition.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_one_holder_at_a_time() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static HELD: AtomicUsize = AtomicUsize::new(0);
    let server = RedisServer::start();
    at_once(&server, |caller, client| async move {
        let lease = Lease::new(format!("holder-{caller}"), Duration::from_secs(60));
        while HELD.load(Ordering::SeqCst) < 500 {
            if lease.acquire(&client, "race").await.expect("an answer") == LeaseDecision::Acquired {
                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                // Renewed by its holder, and still alone.
                assert_eq!(lease.acquire(&client, "race").await.expect("an answer"), LeaseDecision::Acquired);
                HELD.fetch_add(1, Ordering::SeqCst);
                assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1, "two hold it");
                lease.release(&client, "race").await.expect("released");
            }
        }
    })
    .await;
    assert!(
        lease::Lease::new("another", WINDOW).acquire(&server.client(), "race").await.expect("free")
            == LeaseDecision::Acquired
    );
}

/// A button that sends two mails.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_comes_through_a_cooldown() {
    let server = RedisServer::start();
    let brought = at_once(&server, |_, client| async move {
        let mut through = Vec::new();
        for number in 0..40 {
            let cooldown = Cooldown::new(Duration::from_secs(60));
            let passage = cooldown.try_start(&client, &format!("button-{number}")).await.expect("an answer");
            through.extend((passage == CooldownDecision::Started).then_some(number));
        }
        through
    })
    .await;
    let mut through: Vec<usize> = brought.into_iter().flatten().collect();
    through.sort_unstable();
    assert_eq!(through, (0..40).collect::<Vec<_>>());
}
