//! Outcomes that can't be recorded: the number of messages sent meanwhile is bounded.

use std::time::{Duration, Instant};

use crate::support::eventually::WAIT_MAX;
use crate::support::outbox::{Outbox, email, until};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, raised, until_ended};

/// A right that only recording needs; it is withdrawn and returned.
const WITHDRAWN: [&str; 5] = ["SETUSER", "default", "resetkeys", "~[^q]*", "~quota_[^f]*"];
const GIVEN_BACK: [&str; 4] = ["SETUSER", "default", "resetkeys", "~*"];
/// Minimum number of attempts to record before the test looks.
const TRIES: u64 = 8;

/// Each attempt frees its slot at its end. Without a further bound, a daemon that can't record would send everything
/// that is due, and again when the leases end.
#[tokio::test]
async fn nothing_more_is_sent_while_outcomes_cannot_be_recorded() {
    let outbox = Outbox::start();
    for n in 0..12 {
        raised(&outbox, &format!("s{n}"), &[email("a")]).await;
    }
    outbox.trust("email").await;
    let () = outbox.run("ACL", &WITHDRAWN).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting { concurrency: 2, ..Setting::default() });
    let refused = async || -> u64 {
        let log: Vec<redis::Value> = outbox.run("ACL", &["LOG", "1"]).await;
        assert!(log.is_empty(), "a script asks before it writes: {log:?}");
        let stats: String = outbox.run("INFO", "commandstats").await;
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        let failed = line.split("failed_calls=").nth(1).and_then(|count| count.trim().parse().ok());
        failed.unwrap_or(0)
    };
    until("two for each slot are sent", || async { notifier.seen().len() >= 4 }).await;
    let enough = refused().await + TRIES;
    until("recording was tried again and again", || async { refused().await >= enough }).await;
    assert_eq!(notifier.seen().len(), 4, "two for each slot");
    let () = outbox.run("ACL", &GIVEN_BACK).await;
    until_ended(&outbox, 12).await;
    loops.drain().await;
    assert_eq!(notifier.seen().len(), 12, "each once");
}

/// An outcome used to be dropped when its lease ended while the password was withdrawn, and the message was sent again
/// after the fix.
#[tokio::test]
async fn an_outcome_survives_a_withdrawn_password_for_longer_than_its_lease() {
    let outbox = Outbox::start();
    let () = outbox.run("ACL", &["SETUSER", "daemon", "on", ">right", "~*", "&*", "+@all"]).await;
    raised(&outbox, "alice", &[email("a")]).await;
    outbox.trust("email").await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Gate);
    let setting = || Setting { lease_margin: Duration::from_secs(1), user: Some("daemon:right"), ..Setting::default() };
    let loops = Loops::start(&outbox, &notifier, setting());
    until("the attempt runs", || async { notifier.seen().len() == 1 }).await;
    // The lease of 1.1 s began before this moment.
    let lease_ends = Instant::now() + Duration::from_millis(1100);
    let () = outbox.run("ACL", &["SETUSER", "daemon", "resetpass", ">other"]).await;
    let _: u64 = outbox.run("CLIENT", &["KILL", "USER", "daemon"]).await;
    notifier.open();
    until("the lease ran out", || async { Instant::now() > lease_ends }).await;
    let refused = async || -> u64 {
        let stats: String = outbox.run("INFO", "errorstats").await;
        let count = stats.split("errorstat_WRONGPASS:count=").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        count.expect("a number")
    };
    let before = refused().await;
    until("recording was tried again", || async { refused().await > before }).await;
    let () = outbox.run("ACL", &["SETUSER", "daemon", ">right"]).await;
    let ended = tokio::time::timeout(WAIT_MAX, loops.dispatcher).await.expect("the drain ends");
    ended.expect("no panic").expect_err("a refused login ends the loop");
    let loops = Loops::start(&outbox, &notifier, setting());
    until_ended(&outbox, 1).await;
    loops.drain().await;
    assert_eq!(notifier.seen().len(), 1, "the message is not sent again");
}
