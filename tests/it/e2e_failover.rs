//! Failovers that lose a tail during traffic: all surviving events are counted and raised exactly once.

use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::proxy::Proxy;
use crate::support::redis_server::RedisServer;
use crate::support::surviving::{agrees, all_counted, counted, length, run};
use quotabell::redis_client::RedisClient;

const SUBJECTS: u64 = 7;
/// Daily limit; the events of one round bring every subject above both thresholds.
const LIMIT: u64 = 60;
const ROUNDS: u64 = 4;
/// Minimum number of entries that are committed on the old primary and lost with it.
const TAIL: u64 = 40;

/// Adds one event on this server; the number selects the subject.
async fn add(client: &RedisClient, number: u64) {
    let subject = format!("s-{}", number % SUBJECTS);
    let _: String = run(client, &["XADD", "usage", "*", "subject", &subject]).await;
}

/// Replication is asynchronous: a promoted replica lacks the last writes of the primary. The worker has read, and even
/// committed, entries that are then gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_that_lose_a_tail_leave_counts_and_alerts_of_what_survived() {
    let mut servers = [RedisServer::start_to_be_followed(), RedisServer::start_to_be_followed()];
    let proxy = Proxy::to(servers[0].port()).await;
    let mut daemon = DaemonSetup::on(&proxy.url())
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
        .env("QUOTABELL__STREAM__BATCH_ENTRIES", "4")
        .start()
        .await;
    let mut lost = 0;
    for round in 0..ROUNDS {
        let [primary, replica] = [0, 1].map(|at| servers[at].client());
        let port = servers[0].port().to_string();
        let _: String = run(&replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        eventually("the replica follows", || async {
            run::<String>(&replica, &["INFO", "replication"]).await.contains("master_link_status:up").then_some(())
        })
        .await;
        // The tail begins at the promotion; the daemon still uses the old primary and commits a part of the tail.
        for number in 0..60 {
            add(&primary, number * 3 + round).await;
        }
        let sent = length(&primary).await;
        eventually("the replica has it all", || async { (length(&replica).await == sent).then_some(()) }).await;
        let _: String = run(&replica, &["REPLICAOF", "NO", "ONE"]).await;
        for number in 0.. {
            add(&primary, number).await;
            if counted(&primary).await > sent + TAIL {
                break;
            }
        }
        lost += length(&primary).await - sent;
        proxy.turn(servers[1].port());
        for number in 0..20 {
            add(&replica, number * 5).await;
        }
        all_counted(&replica).await;
        agrees(&replica, LIMIT).await;
        servers.swap(0, 1);
    }
    println!("{ROUNDS} failovers, {lost} entries lost with them, {} survived", length(&servers[0].client()).await);
    assert!(lost > ROUNDS * TAIL, "a tail is lost each time");
    daemon.becomes_ready().await;
    daemon.drain().await;
}
