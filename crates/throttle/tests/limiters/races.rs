//! 64 concurrent clients, each with its own connection, on the server's own clock: no limiter admits more than its
//! limit.
//!
//! A caller can't know when the server ran its call, only that it was between request and reply. So a time span is
//! charged only with calls that are certainly inside it, and no correct limiter can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quotabell_throttle::{
    Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, FixedWindow, Gcra, Lease, LeaseDecision, Rate,
    SlidingWindow, one_time_token,
};
use redis::aio::MultiplexedConnection;

use crate::connect;
use crate::redis_server::RedisServer;

const CLIENTS: usize = 64;
const CALLS: usize = 150;
const LIMIT: usize = 40;
const WINDOW: Duration = Duration::from_millis(50);
/// For limiters with millisecond times: the first call of a window may be anywhere in its millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

/// Time span of an admitted call.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    sent: Instant,
    answered: Instant,
}

fn rate() -> Rate {
    Rate::new(LIMIT as u64, WINDOW).expect("legal")
}

/// Runs `act` as each caller concurrently, and returns all results.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send>(
    server: &RedisServer,
    act: impl Fn(usize, MultiplexedConnection) -> F + Send + Sync + 'static,
) -> Vec<T> {
    let start = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let act = Arc::new(act);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|caller| {
            let (server, start, act) = (server.sync_client(), Arc::clone(&start), Arc::clone(&act));
            tokio::spawn(async move {
                let client = connect(&server).await;
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

/// Every caller calls repeatedly; returns the admitted calls.
async fn admitted<F: Future<Output = bool> + Send>(
    call: impl Fn(MultiplexedConnection, String) -> F + Send + Sync + Copy + 'static,
) -> Vec<Admitted> {
    let server = RedisServer::start();
    let brought = at_once(&server, move |caller, client| async move {
        let mut admitted = Vec::new();
        for number in 0..CALLS {
            let sent = Instant::now();
            if call(client.clone(), format!("{caller}-{number}")).await {
                admitted.push(Admitted { sent, answered: Instant::now() });
            }
        }
        admitted
    })
    .await;
    let mut admitted: Vec<Admitted> = brought.into_iter().flatten().collect();
    admitted.sort_by_key(|call| call.sent);
    // Otherwise nothing was tested: the race must last for several windows, and calls must be refused.
    assert!(admitted.len() > 2 * LIMIT && admitted.len() < CLIENTS * CALLS, "{} were admitted", admitted.len());
    admitted
}

/// The maximum number of calls that are certainly inside any span of this length.
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

/// One call too many in a window, although each caller saw free units.
#[tokio::test(flavor = "multi_thread")]
async fn no_window_wherever_it_begins_admits_more_than_the_sliding_limit() {
    let admitted = admitted(|client, _| async move {
        let limiter = SlidingWindow::new(rate()).expect("few enough members");
        limiter.take(&mut client.clone(), "race", 1).await.expect("an answer").is_admitted()
    })
    .await;
    assert!(most_within(&admitted, WINDOW) <= LIMIT, "{}", most_within(&admitted, WINDOW));
}

/// More active members than allowed.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_members_are_alive_than_the_expiring_set_holds() {
    let admitted = admitted(|client, member| async move {
        let set = ExpiringSet::new(LIMIT as u32).expect("few enough members");
        matches!(
            set.add(&mut client.clone(), "race", &member, WINDOW).await.expect("an answer"),
            ExpiringSetDecision::Added { .. }
        )
    })
    .await;
    // Members that are active at the same moment were added within one TTL.
    let ttl = WINDOW - MILLISECOND;
    assert!(most_within(&admitted, ttl) <= LIMIT, "{}", most_within(&admitted, ttl));
}

/// More than twice the limit, which a window boundary may explain.
#[tokio::test(flavor = "multi_thread")]
async fn no_stretch_of_a_fixed_window_admits_more_than_twice_its_limit() {
    let admitted = admitted(|client, _| async move {
        FixedWindow::new(rate()).take(&mut client.clone(), "race", 1).await.expect("an answer").is_admitted()
    })
    .await;
    let window = WINDOW - MILLISECOND;
    assert!(most_within(&admitted, window) <= 2 * LIMIT, "{}", most_within(&admitted, window));
}

/// A bucket that drains faster than its rate under many calls.
#[tokio::test(flavor = "multi_thread")]
async fn gcra_admits_its_limit_and_what_drains_meanwhile() {
    let admitted = admitted(|client, _| async move {
        Gcra::new(rate()).take(&mut client.clone(), "race", 1).await.expect("an answer").is_admitted()
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
        one_time_token::create(&mut connect(&server.sync_client()).await, &key, key.as_bytes(), hour)
            .await
            .expect("created");
    }
    let brought = at_once(&server, |caller, client| async move {
        let mut consumed = Vec::new();
        for number in 0..TOKENS {
            let key = format!("token-{number}");
            // Sent twice, as after a lost reply.
            let claim = caller.to_string();
            let first = one_time_token::consume(&mut client.clone(), &key, &claim).await.expect("an answer");
            let again = one_time_token::consume(&mut client.clone(), &key, &claim).await.expect("an answer");
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
            if lease.acquire(&mut client.clone(), "race").await.expect("an answer") == LeaseDecision::Acquired {
                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                // Its holder renews it and is still the only one.
                assert_eq!(
                    lease.acquire(&mut client.clone(), "race").await.expect("an answer"),
                    LeaseDecision::Acquired
                );
                HELD.fetch_add(1, Ordering::SeqCst);
                assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1, "two hold it");
                lease.release(&mut client.clone(), "race").await.expect("released");
            }
        }
    })
    .await;
    assert!(
        Lease::new("another", WINDOW).acquire(&mut connect(&server.sync_client()).await, "race").await.expect("free")
            == LeaseDecision::Acquired
    );
}

/// A button that sends two emails.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_comes_through_a_cooldown() {
    let server = RedisServer::start();
    let brought = at_once(&server, |_, client| async move {
        let mut through = Vec::new();
        for number in 0..40 {
            let cooldown = Cooldown::new(Duration::from_secs(60));
            let passage =
                cooldown.try_start(&mut client.clone(), &format!("button-{number}")).await.expect("an answer");
            through.extend((passage == CooldownDecision::Started).then_some(number));
        }
        through
    })
    .await;
    let mut through: Vec<usize> = brought.into_iter().flatten().collect();
    through.sort_unstable();
    assert_eq!(through, (0..40).collect::<Vec<_>>());
}
