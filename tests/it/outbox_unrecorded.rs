//! Outcomes that can't be recorded: what is sent meanwhile is bounded.

use crate::support::outbox::{Outbox, email, until};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, raised, until_ended};

/// A right that only recording needs, withdrawn and given back.
const WITHDRAWN: [&str; 5] = ["SETUSER", "default", "resetkeys", "~[^q]*", "~quota_[^f]*"];
const GIVEN_BACK: [&str; 4] = ["SETUSER", "default", "resetkeys", "~*"];
/// What is recorded is tried at least so often before the test looks.
const TRIES: u64 = 20;

/// Each attempt gives its slot back when it ends. If no more held up the next ones, a daemon that can't record would
/// send all that is due, and all of it again when the leases run out.
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
    until("recording was tried again and again", || async { refused().await >= TRIES }).await;
    assert_eq!(notifier.seen().len(), 4, "two for each slot");
    let () = outbox.run("ACL", &GIVEN_BACK).await;
    until_ended(&outbox, 12).await;
    loops.drain().await;
    assert_eq!(notifier.seen().len(), 12, "each once");
}
