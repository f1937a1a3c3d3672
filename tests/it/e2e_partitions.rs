//! Several partitions: real daemons that share them, start, die and drain, on one Redis and in a cluster; and refused
//! configurations.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::receivers::{Answer, HttpCatcher};
use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::types::{PartitionNumber, Separator, Subject, keys};
use serde_json::{Value, json};

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup, http_get};
use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::eventually;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};
use crate::support::webhook_receiver::secret;

/// Enough subjects that each of 8 partitions has some.
const SUBJECTS: u64 = 60;
const TOKEN: &str = "a-token-for-one-test-0123456789";

fn subjects(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("s-{}", number % SUBJECTS))
}

/// The holder name of the daemon with this HTTP port.
async fn name_of(daemon: &mut Daemon, readers: &BTreeSet<String>) -> String {
    let address = daemon.http().await.to_string();
    readers.iter().find(|name| name.contains(&address)).expect("it reads").clone()
}

/// A partition without a reader means unwarned customers; one with two readers means wasted work. Daemons start, one is
/// killed and one drained under traffic, and all counts must be right.
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

/// In a cluster the partitions are on several nodes: each reader and each script must use its own node.
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

/// Sequential writes to all partitions took longer than the check's timeout: a healthy Redis was reported as
/// unavailable. Each call of an open route cost up to 256 commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_tries_one_write_on_each_primary() {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start().await);
    let nodes: Vec<RedisClient> = (0..cluster.nodes.len()).map(|node| cluster.client(node)).collect();
    for (url, servers, primaries) in [(server.url(), vec![server.client()], 1), (cluster.url(""), nodes, 3)] {
        let mut daemon = Streams::on(&url, 64).await.daemon().start().await;
        let before = writes_tried(&servers).await;
        assert_eq!(daemon.get("/readyz").await.status, 200);
        assert_eq!(writes_tried(&servers).await - before, primaries, "{url}");
        daemon.drain().await;
    }
}

/// Number of PERSIST commands on these servers. Without deliveries only readiness sends it.
async fn writes_tried(servers: &[RedisClient]) -> u64 {
    let mut tried = 0;
    for server in servers {
        let stats: String = server.query(redis::cmd("INFO").arg("commandstats")).await.expect("it answers");
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_persist:calls=")?.split(',').next());
        tried += calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"));
    }
    tried
}

/// A producer that computes a wrong partition must be told the right one, and nothing may be counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_metrics_are_about_every_partition() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 4).await;
    let mut daemon = streams.daemon().start().await;
    let command = |arguments: &[&str]| {
        let run = quotabell(arguments.iter().copied()).redis(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "4");
        run.env("QUOTABELL__PLANS__FREE__LIMITS", format!(r#"{{"requests":{LIMIT}}}"#)).run()
    };
    streams.send(subjects(SUBJECTS * LIMIT)).await;
    streams.agree().await;

    let alerts = command(&["alerts", "--json"]).expect_json();
    assert_eq!(alerts.len() as u64, SUBJECTS * 2);
    let times: Vec<&str> = alerts.iter().map(|alert| alert["raised_at"].as_str().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let usage = &command(&["usage", "s-7", "--json"]).expect_json()[0];
    assert_eq!(usage["metrics"][0]["windows"][0]["used"], LIMIT);
    let listed = command(&["deliveries", "list", "--json"]).expect_json();
    let made: Vec<&str> = listed.iter().map(|delivery| delivery["created_at"].as_str().expect("a time")).collect();
    assert!(made.len() as u64 == SUBJECTS * 2 && made.is_sorted(), "{made:?}");
    assert_eq!(command(&["deliveries", "list", "--limit", "7", "--json"]).expect_json(), listed[listed.len() - 7..]);
    let last = listed.last().expect("there are some")["id"].as_str().expect("an id");
    assert_eq!(command(&["deliveries", "show", last, "--json"]).expect_json()[0]["id"], last);
    let prefix = &last["delivery_".len()..][..12];
    assert_eq!(command(&["deliveries", "show", prefix, "--json"]).expect_json()[0]["id"], last);

    // The error names the right partition, and the commands choose it.
    let subject: Subject = "s-7".parse().expect("legal");
    let right = streams.partitions.partition_of(&subject).keys.stream().to_owned();
    let wrong = streams.partitions.iter().find(|one| one.keys.stream() != right).expect("there are four");
    let mut add = redis::cmd("XADD");
    let entry: String =
        wrong.client.query(add.arg(wrong.keys.stream()).arg("*").arg("subject").arg("s-7")).await.expect("appended");
    let emitted = command(&["emit", "--subject", "s-7", "--json"]).expect_json();
    assert_eq!(emitted[0]["stream"], Value::from(right.as_str()));
    let refused = eventually("it is refused", || async {
        command(&["refused", "list", "--json"]).expect_json().into_iter().next()
    })
    .await;
    assert_eq!((&refused["reason"], &refused["entry"]), (&"wrong_partition".into(), &entry.into()));
    assert_eq!(refused["stream"], wrong.keys.stream());
    assert!(refused["detail"].as_str().expect("text").contains(&format!("stream {right}:")), "{refused}");
    eventually("the other one is counted", || async {
        let usage = &command(&["usage", "s-7", "--json"]).expect_json()[0];
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

/// A producer that hashes a whole path appends to a wrong stream: it must be told the stream of the tree, commands must
/// choose that stream, and rankings must find a branch wherever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_refusals_know_the_partition_of_a_tree() {
    let server = RedisServer::start();
    let mut streams = Streams::of_trees(&server.url(), 4).await;
    let daemon = streams.daemon().start().await;
    let command = |arguments: &[&str]| {
        let run = quotabell(arguments.iter().copied()).redis(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "4");
        let run = run.env("QUOTABELL__PLANS__FREE__LIMITS", format!(r#"{{"requests":{LIMIT}}}"#));
        run.env("QUOTABELL__SUBJECTS__SEPARATOR", "/").run()
    };
    // Trees in all partitions, with teams and keys whose own checksums lie elsewhere.
    streams.send((0..8 * 3 * 2 * 5).map(|n| format!("o{}/t{}/k{}", n % 8, n / 8 % 3, n / 24 % 2))).await;
    streams.agree().await;
    let trees: BTreeSet<PartitionNumber> =
        (0..8).map(|n| streams.partitions.partition_of(&format!("o{n}").parse().expect("legal")).number()).collect();
    assert_eq!(trees.len(), 4, "every partition has a tree");

    let path = "o3/t1/k0";
    let right = streams.partitions.partition_of(&path.parse().expect("legal")).keys.stream().to_owned();
    let hashed = PartitionNumber::of_subject(path.as_bytes(), Separator::NONE, 4).get();
    let wrong = streams.partitions.iter().nth(hashed as usize).expect("there are four");
    assert_ne!(wrong.keys.stream(), right, "another path would show more");
    let add = redis::cmd("XADD").arg(wrong.keys.stream()).arg(&["*", "subject", path]).to_owned();
    let _: String = wrong.client.query(&add).await.expect("appended");
    let refused = eventually("it is refused", || async {
        command(&["refused", "list", "--json"]).expect_json().into_iter().next()
    })
    .await;
    assert_eq!((&refused["reason"], &refused["stream"]), (&json!("wrong_partition"), &json!(wrong.keys.stream())));
    assert!(refused["detail"].as_str().expect("text").contains(&format!("stream {right}:")), "{refused}");

    let emitted = command(&["emit", "--subject", path, "--json"]).expect_json();
    assert_eq!(emitted[0]["stream"], Value::from(right.as_str()));
    let children = eventually("the emitted one is counted", || async {
        let shown = command(&["usage", "o3", "--children", "--json"]).expect_json().swap_remove(0);
        (shown["used"] == 31).then(|| shown["children"].clone())
    })
    .await;
    let of = |subject: &str, used: u64, percent: f64| json!({"subject": subject, "used": used, "percent": percent});
    assert_eq!(children, json!([of("o3/t1", 11, 35.4), of("o3/t0", 10, 32.2), of("o3/t2", 10, 32.2)]));
    for (tree, used) in [("o3", [11, 10, 10]), ("o6", [10, 10, 10])] {
        let ranked = command(&["top", "--under", tree, "--json"]).expect_json().swap_remove(0);
        let ranked = ranked["subjects"].as_array().expect("a list").clone();
        let sum: u64 = ranked.iter().filter_map(|one| one["used"].as_u64()).sum();
        // Each team and its two keys.
        assert_eq!((ranked.len(), sum), (9, 2 * used.iter().sum::<u64>()), "{ranked:?}");
        assert!(ranked.iter().all(|one| one["subject"].as_str().is_some_and(|name| name.starts_with(tree))));
    }
    let below = command(&["top", "--under", "o3/t1"]).expect_done();
    assert!(below.contains("o3/t1/k0") && below.contains("o3/t1/k1") && !below.contains("t2"), "{below}");

    let bad = command(&["top", "--under", "acme//x"]);
    assert!(bad.code == 2 && bad.stderr.contains("--under: subject has an empty part"), "{}", bad.told());
    daemon.drain().await;
}

/// A refused start is better than one event in a wrong partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_partitions_is_refused_while_there_is_state() {
    for (begun, others) in [(1, [2, 8]), (4, [1, 8]), (8, [1, 4])] {
        let server = RedisServer::start();
        let mut streams = Streams::on(&server.url(), begun).await;
        let daemon = streams.daemon().start().await;
        // An event of the last partition only: a smaller number would not have that partition.
        let last = streams.partitions.iter().last().expect("there is one").number();
        let is_last =
            |subject: &String| streams.partitions.partition_of(&subject.parse().expect("legal")).number() == last;
        let subject = (0..).map(|number| format!("s-{number}")).find(is_last).expect("there is one");
        streams.send([subject].into_iter()).await;
        streams.agree().await;
        daemon.drain().await;
        let checkpoint = streams.partitions.iter().last().expect("there is one").keys.checkpoint();
        for other in others {
            let setup = DaemonSetup::on(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", &other.to_string());
            let partitions = if begun == 1 { "partition" } else { "partitions" };
            let said = format!("{checkpoint} belongs to {begun} {partitions}, but stream.partitions is {other}");
            let hint = format!("set stream.partitions = {begun}");
            setup.run_to_its_end().await.expect_code(1, &[&said, &hint]);
            for command in ["usage s-1", "emit --subject s-1", "deliveries list"] {
                let command = quotabell(command.split(' ')).redis(&server.url());
                let told = command.env("QUOTABELL__STREAM__PARTITIONS", other.to_string()).run().told();
                assert!(
                    told.starts_with(&format!("error: {said}\nhint: {hint}")) && told.ends_with("exit 1"),
                    "{told}"
                );
            }
        }
        streams.daemon().start().await.drain().await;
    }
    // Nothing was counted yet, so nothing is refused; but a producer with the old number must be reported.
    let server = RedisServer::start();
    let streams = Streams::on(&server.url(), 4).await;
    let mut add = redis::cmd("XADD");
    let add = add.arg("usage").arg("*").arg("subject").arg("alice");
    let _: String = streams.partitions.first().client.query(add).await.expect("appended");
    let mut daemon = streams.daemon().start().await;
    daemon.says("nobody reads usage: a producer uses another number of partitions").await;
    let told = quotabell(["check-config"]).redis(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "4").run().told();
    assert!(told.contains("nobody reads usage: "), "{told}");
    daemon.drain().await;
}

/// A route that asked a partition other than the subject's would always answer "nothing used".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_are_about_the_subjects_partition() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 4).await;
    // More than Redis does in the additional time of a busy machine.
    let setup = streams.daemon().env("QUOTABELL__HTTP__TOKEN", TOKEN).env("QUOTABELL__CHECK__TIMEOUT", "5s");
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    streams.send(subjects(SUBJECTS * LIMIT)).await;
    streams.agree().await;
    for number in 0..SUBJECTS {
        let of = format!("/v1/subjects/s-{number}");
        let usage = api.get(&format!("{of}/usage?day={}", streams.day())).await.json();
        assert_eq!(usage["metrics"][0]["windows"][0]["used"], LIMIT, "{usage}");
        assert_eq!(api.get(&format!("{of}/alerts")).await.json()["alerts"].as_array().map(Vec::len), Some(2), "{of}");
    }
    let mut recorded: BTreeMap<PartitionNumber, u64> = BTreeMap::new();
    for number in 0..20 {
        let name = format!("c-{number}");
        let answer = api.post("/v1/check", &json!({"subject": name, "record": true})).await;
        assert_eq!(answer.json()["recorded"], true, "{}", answer.text);
        *recorded.entry(streams.partitions.partition_of(&name.parse().expect("legal")).number()).or_default() += 1;
    }
    assert_eq!(recorded.len(), 4, "{recorded:?}");
    let sent = |number| (0..SUBJECTS).map(|at| format!("s-{at}")).filter(move |name| streams_of(name) == number);
    eventually("what was recorded is counted where it belongs", || async {
        for Partition { client, keys } in streams.partitions.iter() {
            let before = sent(keys.partition()).count() as u64 * LIMIT;
            let totals = totals(client, keys).await.ok()?;
            assert_eq!(totals.refused, 0);
            if totals.counted != before + recorded[&keys.partition()] {
                return None;
            }
        }
        Some(())
    })
    .await;

    // The request is a delivery in the subject's partition; its code is in the first partition.
    let asked = EchoReceiver::start(Echo::Right).await;
    for number in 0..4 {
        let contact = json!({"channel": "webhook", "url": asked.url(&format!("/{number}"))});
        let answer = api.post(&format!("/v1/subjects/c-{number}/contacts"), &contact).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    let verified = r#"quotabell_verifications_total{outcome="verified"} 4"#;
    eventually(verified, || async { api.get("/metrics").await.text.contains(verified).then_some(()) }).await;
    daemon.drain().await;
}

fn streams_of(name: &str) -> PartitionNumber {
    PartitionNumber::of_subject(name.as_bytes(), Separator::NONE, 4)
}

/// A receiver has one cap for customers in all partitions; and its refused deliveries are dead in all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_and_a_replay_are_about_all_partitions() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 4).await;
    let one_of_each: Vec<String> = (0..4).map(|number| name_in(&streams, number)).collect();
    let mut receiver = HttpCatcher::start(vec![Answer::status(422).header("webhook-delivery", "abort-message"); 4])
        .await
        .expect("a receiver");
    for name in &one_of_each {
        let contact = json!([{"channel": "webhook", "url": receiver.url(&format!("/{name}")), "secret": secret(7)}]);
        let key = streams.partitions.first().keys.subject(&name.parse().expect("legal"));
        let mut command = redis::cmd("HSET");
        let client = &streams.partitions.first().client;
        let () = client.query(command.arg(key).arg("contacts").arg(contact.to_string())).await.expect("set");
    }
    let uncapped = streams.daemon().start().await;
    streams.send(one_of_each.iter().flat_map(|name| vec![name.clone(); 32])).await;
    streams.agree().await;
    let command = |arguments: &[&str]| {
        let run = quotabell(arguments.iter().copied()).redis(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "4");
        run.run()
    };
    let dead = eventually("the receiver refused all of them", || async {
        let dead = command(&["deliveries", "list", "--state", "dead", "--json"]).expect_json();
        (dead.len() == 4).then_some(dead)
    })
    .await;
    uncapped.drain().await;

    let ids: Vec<&str> = dead.iter().map(|delivery| delivery["id"].as_str().expect("an id")).collect();
    let replayed = command(&["deliveries", "replay", ids[3], ids[0], "--json"]).expect_json();
    assert_eq!(replayed.iter().map(|one| &one["id"]).collect::<Vec<_>>(), [&ids[3], &ids[0]]);
    assert_eq!(command(&["deliveries", "replay", "--all", "--json"]).expect_json().len(), 2);
    for _ in 0..4 {
        assert_eq!(receiver.next().await.status, 422);
    }
    let mut capped = streams.daemon().env("QUOTABELL__WEBHOOK__PER_DESTINATION", "1/1h").start().await;
    assert_eq!(receiver.next().await.status, 204);
    let put_off = r#"quotabell_deliveries_throttled_total{channel="webhook"} "#;
    let address = capped.http().await;
    eventually("the others are put off", || async {
        let text = http_get(address, "/metrics").await?.body;
        let times = text.lines().find_map(|line| line.strip_prefix(put_off)?.parse::<u64>().ok())?;
        (times >= 3).then_some(())
    })
    .await;
    assert!(receiver.try_next().is_none(), "one an hour, whichever partition the others are in");
    capped.drain().await;
}

/// The subject of a partition.
fn name_in(streams: &Streams, number: u32) -> String {
    let is_there =
        |name: &String| streams.partitions.partition_of(&name.parse().expect("legal")).number().get() == number;
    (0..).map(|at| format!("s-{at}")).find(is_there).expect("there is one")
}

/// All streams share the list of daemons, and anybody may damage it. Every partition must still have a reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_read_whatever_the_list_of_daemons_says() {
    let server = RedisServer::start();
    let mut streams = Streams::on(&server.url(), 4).await;
    let nobody = BTreeSet::new();
    let stranger = DaemonSetup::on(&server.url()).env("QUOTABELL__STREAM__KEY", "other").start().await;
    let first = streams.daemon().start().await;
    streams.are_shared_by(1, &nobody).await;
    let mut instances = BTreeSet::new();
    for Partition { client, keys } in streams.partitions.iter() {
        let instance: String =
            client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("instance")).await.expect("it has one");
        instances.insert(instance);
    }
    assert_eq!(instances.len(), 1, "one deployment, one instance");
    first.drain().await;
    stranger.drain().await;
    let client = &streams.partitions.first().client;
    let left: u64 = client.query(redis::cmd("ZCARD").arg(keys::DAEMONS)).await.expect("answered");
    assert_eq!(left, 0, "who drains leaves the list");

    let () = client.query(redis::cmd("SET").arg(keys::DAEMONS).arg("mine")).await.expect("set");
    let mut second = streams.daemon().start().await;
    second.says("leases alone share the partitions").await;
    streams.send(subjects(100)).await;
    streams.are_shared_by(1, &nobody).await;
    streams.agree().await;
    second.drain().await;
}
