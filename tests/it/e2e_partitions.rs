//! Several partitions: real daemons that share them, come, die and drain, on one Redis and in a cluster; and what is refused.

use std::collections::BTreeSet;

use quotabell::types::Subject;
use serde_json::Value;

use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};

/// So many that each of 8 partitions has some.
const SUBJECTS: u64 = 60;

fn subjects(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("s-{}", number % SUBJECTS))
}

/// The holder of leases whose HTTP port this daemon has.
async fn name_of(daemon: &mut Daemon, readers: &BTreeSet<String>) -> String {
    let address = daemon.http().await.to_string();
    readers.iter().find(|name| name.contains(&address)).expect("it reads").clone()
}

/// A partition that nobody reads is a customer that nobody warns; one that two read is work for nothing. Daemons come, one is killed
/// and one drained under traffic, and every count is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_share_the_partitions_and_take_over_from_one_that_dies_or_drains() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 8).await;
    let (setup, nobody) = (streams.daemon(), BTreeSet::new());
    streams.send(subjects(500)).await;
    let mut first = setup.start().await;
    streams.are_shared_by(1, &nobody).await;
    let mut second = setup.start().await;
    streams.send(subjects(500)).await;
    streams.are_shared_by(2, &nobody).await;
    let third = setup.start().await;
    streams.send(subjects(500)).await;
    let readers = streams.are_shared_by(3, &nobody).await;
    streams.agree().await;

    let mut gone: BTreeSet<String> = [name_of(&mut first, &readers).await].into();
    first.kill().await;
    streams.send(subjects(500)).await;
    let readers = streams.are_shared_by(2, &gone).await;
    streams.agree().await;

    gone.insert(name_of(&mut second, &readers).await);
    second.drain().await;
    streams.send(subjects(500)).await;
    streams.are_shared_by(1, &gone).await;
    streams.agree().await;
    third.drain().await;
    assert_eq!(streams.holders().await, None, "whoever comes next need not wait");
}

/// In a cluster the partitions lie on several nodes: each reader and each script has to go to the node of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_of_a_cluster_are_counted_on_every_node() {
    let cluster = RedisCluster::start().await;
    let mut streams = Streams::on(&cluster.url(""), 8).await;
    let setup = streams.daemon();
    let mut first = setup.start().await;
    let second = setup.start().await;
    let readers = streams.are_shared_by(2, &BTreeSet::new()).await;
    let mut nodes = BTreeSet::new();
    for partition in streams.partitions.iter() {
        nodes.insert(cluster.primary_of(partition.keys.stream()).await);
    }
    assert_eq!(nodes.len(), 3, "every primary serves some of them");
    streams.send(subjects(SUBJECTS * LIMIT)).await;
    streams.agree().await;
    assert_eq!(first.get("/readyz").await.status, 200);
    let gone = [name_of(&mut first, &readers).await].into();
    first.kill().await;
    streams.send(subjects(500)).await;
    streams.are_shared_by(1, &gone).await;
    streams.agree().await;
    second.drain().await;
}

/// A producer that computes another partition must learn which one is right, and nothing may be counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_and_metrics_are_about_every_partition() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 4).await;
    let mut daemon = streams.daemon().start().await;
    let verb = |arguments: &[&str]| {
        let run = quotabell(arguments.iter().copied()).redis(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "4");
        run.env("QUOTABELL__PLANS__FREE__LIMITS", format!(r#"{{"requests":{LIMIT}}}"#)).run()
    };
    streams.send(subjects(SUBJECTS * LIMIT)).await;
    streams.agree().await;

    let alerts = verb(&["alerts", "--json"]).expect_json();
    assert_eq!(alerts.len() as u64, SUBJECTS * 2);
    let times: Vec<i64> = alerts.iter().map(|alert| alert["raised_at_ms"].as_i64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let usage = &verb(&["usage", "s-7", "--json"]).expect_json()[0];
    assert_eq!(usage["metrics"][0]["windows"][0]["used"], LIMIT);
    let listed = verb(&["deliveries", "list", "--json"]).expect_json();
    let made: Vec<i64> = listed.iter().map(|delivery| delivery["created_at_ms"].as_i64().expect("a time")).collect();
    assert!(made.len() as u64 == SUBJECTS * 2 && made.is_sorted(), "{made:?}");
    assert_eq!(verb(&["deliveries", "list", "--limit", "7", "--json"]).expect_json(), listed[listed.len() - 7..]);
    let last = listed.last().expect("there are some")["id"].as_str().expect("an id");
    assert_eq!(verb(&["deliveries", "show", last, "--json"]).expect_json()[0]["id"], last);
    let prefix = &last["delivery_".len()..][..12];
    assert_eq!(verb(&["deliveries", "show", prefix, "--json"]).expect_json()[0]["id"], last);

    // The right one is named, and the verbs choose it.
    let subject: Subject = "s-7".parse().expect("legal");
    let right = streams.partitions.of(&subject).keys.stream().to_owned();
    let wrong = streams.partitions.iter().find(|one| one.keys.stream() != right).expect("there are four");
    let mut add = redis::cmd("XADD");
    let entry: String =
        wrong.client.query(add.arg(wrong.keys.stream()).arg("*").arg("subject").arg("s-7")).await.expect("appended");
    let emitted = verb(&["emit", "--subject", "s-7", "--json"]).expect_json();
    assert_eq!(emitted[0]["stream"], Value::from(right.as_str()));
    let refused =
        eventually("it is refused", || async { verb(&["refused", "list", "--json"]).expect_json().into_iter().next() })
            .await;
    assert_eq!((&refused["reason"], &refused["entry"]), (&"wrong_partition".into(), &entry.into()));
    assert_eq!(refused["stream"], wrong.keys.stream());
    assert!(refused["detail"].as_str().expect("text").contains(&format!("stream {right}:")), "{refused}");
    eventually("the other one is counted", || async {
        let usage = &verb(&["usage", "s-7", "--json"]).expect_json()[0];
        (usage["metrics"][0]["windows"][0]["used"] == LIMIT + 1).then_some(())
    })
    .await;

    let page = daemon.get("/metrics").await.body;
    for number in 0..4 {
        for gauge in ["quotabell_reading", "quotabell_lag_entries", "quotabell_deliveries_pending"] {
            let name = format!("{gauge}{{partition=\"{number}\"}} ");
            assert!(page.contains(&name), "{name} is not in:\n{page}");
        }
    }
    daemon.drain().await;
}

/// One event in the wrong books is worse than a start that is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_partitions_is_refused_while_there_is_state() {
    for (begun, others) in [(1, [2, 8]), (4, [1, 8]), (8, [1, 4])] {
        let server = RedisServer::start();
        let mut streams = Streams::on(&server.url(), begun).await;
        let daemon = streams.daemon().start().await;
        // Of the last partition alone: a smaller number would not have it.
        let last = streams.partitions.iter().last().expect("there is one").number();
        let is_last = |subject: &String| streams.partitions.of(&subject.parse().expect("legal")).number() == last;
        let subject = (0..).map(|number| format!("s-{number}")).find(is_last).expect("there is one");
        streams.send([subject].into_iter()).await;
        streams.agree().await;
        daemon.drain().await;
        let checkpoint = streams.partitions.iter().last().expect("there is one").keys.checkpoint();
        for other in others {
            let setup = DaemonSetup::on(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", &other.to_string());
            let said = format!("{checkpoint} counts {begun} partitions, stream.partitions is {other}");
            let hint = format!("set stream.partitions = {begun}");
            setup.run_to_its_end().await.expect_code(1, &[&said, &hint]);
        }
        streams.daemon().start().await.drain().await;
    }
}
