//! The daemon and the commands in a cluster: during the failover of a node, with a moving slot, and with wrong URLs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::receivers::{Answer, HttpCatcher};
use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{RedisClient, RedisEndpoint};
use quotabell::types::{Keys, keys::SUBJECT_PREFIX_DEFAULT};
use tokio_util::sync::CancellationToken;

use crate::support::binary::quotabell;
use crate::support::daemon::{DaemonSetup, READY};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::redis_users::{PASSWORD, documented, documented_user, expect_nothing_refused, set_user};
use crate::support::surviving::{agrees, all_counted, run};

/// Enough subjects that their keys are on every node.
const SUBJECTS: u64 = 12;
/// Daily limit of each subject.
const LIMIT: u64 = 40;
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

fn client(url: &str) -> RedisClient {
    let config =
        RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 1, ca_file: None };
    RedisEndpoint::from_config(&config).expect("a good URL").client("usage").expect("a client")
}

fn daemon_on(url: &str) -> DaemonSetup {
    DaemonSetup::on(url)
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":1000000}"#)
        .env("QUOTABELL__STREAM__BATCH_ENTRIES", "20")
}

/// Gives every subject its own limit, and a webhook if there is one.
async fn set_subjects(client: &RedisClient, webhook: Option<&str>) {
    for number in 0..SUBJECTS {
        let mut command = redis::cmd("HSET");
        command.arg(format!("{SUBJECT_PREFIX_DEFAULT}s-{number}")).arg("limit:requests").arg(LIMIT);
        if let Some(url) = webhook {
            let contacts = format!(r#"[{{"channel":"webhook","url":"{url}","secret":"{SECRET}"}}]"#);
            command.arg("contacts").arg(contacts);
        }
        let () = client.query(&command).await.expect("it is set");
    }
}

/// Appends events until stopped, like a producer with a cluster client.
async fn produce(url: String, stop: CancellationToken) {
    let client = client(&url);
    for number in 0_u64.. {
        if stop.is_cancelled() {
            return;
        }
        let mut command = redis::cmd("XADD");
        command.arg("usage").arg("*").arg("subject").arg(format!("s-{}", number % SUBJECTS));
        // If the reply was lost, the stream shows whether the event survived.
        let _: Result<String, _> = client.query_within(Duration::from_millis(500), &command).await;
    }
}

async fn more_are_counted(client: &RedisClient, events: u64) {
    let before = eventually("the count is known", || async { try_counted(client).await }).await;
    eventually("counting goes on", || async { (try_counted(client).await? > before + events).then_some(()) }).await;
}

async fn try_counted(client: &RedisClient) -> Option<u64> {
    let mut command = redis::cmd("HGET");
    command.arg(Keys::new("usage").totals()).arg("counted");
    client.query::<Option<u64>>(&command).await.ok().map(Option::unwrap_or_default)
}

async fn give_rights(cluster: &RedisCluster) {
    for node in 0..cluster.nodes.len() {
        set_user(&cluster.client(node), &documented_user("quotabell")).await;
        let more = documented("docs/deployments.md", "ACL SETUSER quotabell +cluster|shards");
        set_user(&cluster.client(node), &more).await;
    }
}

/// A dying node loses the writes that its replica had not received. Everything that survived must be counted and raised
/// once, by a daemon that is not restarted and has only the documented rights; changes of subjects must be noticed on
/// all nodes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_failover_of_a_node_costs_no_event_that_survives_and_doubles_none() {
    let mut cluster = RedisCluster::start().await;
    give_rights(&cluster).await;
    let url = cluster.url("");
    let mut daemon = daemon_on(&cluster.url(&format!("quotabell:{PASSWORD}@"))).start().await;
    let client = client(&url);
    set_subjects(&client, None).await;
    let stop = CancellationToken::new();
    let producer = tokio::spawn(produce(url, stop.clone()));
    more_are_counted(&client, 200).await;
    let owner = cluster.primary_of("usage").await;
    cluster.nodes[owner].kill();
    daemon.says("Redis has another primary").await;
    more_are_counted(&client, 200 + SUBJECTS * LIMIT).await;
    stop.cancel();
    producer.await.expect("the producer ends");
    all_counted(&client).await;
    agrees(&client, LIMIT).await;
    assert_eq!(cluster.primary_of("usage").await, 3, "the replica took over");

    // Cached, until somebody changes them.
    let raised = run::<u64>(&client, &["HGET", &Keys::new("usage").totals(), "raised"]).await;
    for number in 0..SUBJECTS {
        let _: String = run(&client, &["XADD", "usage", "*", "subject", &format!("t-{number}")]).await;
    }
    all_counted(&client).await;
    for number in 0..SUBJECTS {
        let key = format!("{SUBJECT_PREFIX_DEFAULT}t-{number}");
        let () = run(&client, &["HSET", &key, "limit:requests", "1"]).await;
    }
    eventually("the new limits count", || async {
        for number in 0..SUBJECTS {
            let _: String = run(&client, &["XADD", "usage", "*", "subject", &format!("t-{number}")]).await;
        }
        let now = run::<u64>(&client, &["HGET", &Keys::new("usage").totals(), "raised"]).await;
        (now == raised + 2 * SUBJECTS).then_some(())
    })
    .await;
    daemon.becomes_ready().await;
    for node in (0..cluster.nodes.len()).filter(|node| *node != owner) {
        expect_nothing_refused(&cluster.client(node)).await;
    }
    daemon.drain().await;
}

/// Moving a slot is an everyday operation. While its keys are on two nodes nothing can be counted or sent; afterwards
/// everything must have been, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_traffic_costs_nothing_and_doubles_nothing() {
    let cluster = RedisCluster::start().await;
    let url = cluster.url("");
    let client = client(&url);
    let mut receiver =
        HttpCatcher::start([Answer::status(503), Answer::status(503), Answer::status(503)]).await.expect("a receiver");
    set_subjects(&client, Some(&receiver.url("/hook"))).await;
    let mut daemon = daemon_on(&url).start().await;
    let stop = CancellationToken::new();
    let producer = tokio::spawn(produce(url, stop.clone()));
    more_are_counted(&client, 100).await;
    for _ in 0..4 {
        let to = (cluster.primary_of("usage").await + 1) % 3;
        let moving = cluster.begin_move("usage", to).await;
        while cluster.move_keys(&moving, 3).await {
            tokio::task::yield_now().await;
        }
        cluster.end_move(moving).await;
        more_are_counted(&client, SUBJECTS * LIMIT / 3).await;
    }
    stop.cancel();
    producer.await.expect("the producer ends");
    all_counted(&client).await;
    let mut delivered: BTreeMap<String, u32> = BTreeMap::new();
    while delivered.len() < 2 * usize::try_from(SUBJECTS).expect("a few") {
        let caught = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("every alert arrives");
        if caught.status == 204 {
            let id = caught.headers["webhook-id"].to_str().expect("an id").to_owned();
            *delivered.entry(id).or_default() += 1;
        }
    }
    eventually("every delivery has ended well", || async {
        let total: Option<u64> = run(&client, &["HGET", &Keys::new("usage").totals(), "delivered"]).await;
        (total == Some(2 * SUBJECTS)).then_some(())
    })
    .await;
    // Not earlier: deliveries that end during the read would look lost.
    agrees(&client, LIMIT).await;
    assert!(receiver.try_next().is_none() && delivered.values().all(|times| *times == 1), "{delivered:?}");
    daemon.becomes_ready().await;
    daemon.drain().await;
}

/// Commands use the node of each key: subjects on every node, everything else on the partition's node.
#[tokio::test]
async fn every_command_works_in_a_cluster() {
    let cluster = RedisCluster::start().await;
    give_rights(&cluster).await;
    for node in 0..cluster.nodes.len() {
        set_user(&cluster.client(node), &["quotabell", "+multi", "+discard"].map(str::to_owned)).await;
    }
    let url = cluster.url("");
    let run = |line: &str| quotabell(line.split(' ')).redis(&url).run();
    let mut csv = "subject,plan,limit:requests,email\n".to_owned();
    for number in 0..SUBJECTS {
        csv.push_str(&format!("s-{number},free,10,s{number}@b.test\n"));
    }
    let imported = quotabell(["subject", "import", "-"]).redis(&url).stdin(&csv).run();
    assert_eq!((imported.code, imported.stderr.as_str()), (0, "imported 12 lines\n"));
    let again = quotabell(["subject", "import", "-"]).redis(&url).stdin(&csv.replace(",10,", ",20,")).run();
    assert_eq!(again.code, 0, "{}", again.stderr);
    let listed = run("subject list --json").expect_json();
    assert_eq!(listed.len(), usize::try_from(SUBJECTS).expect("a few"));
    assert!(listed.iter().all(|subject| subject["limits"]["requests"] == 20), "{listed:?}");
    run("subject set s-3 --limit requests=30").expect_done();
    assert!(run("subject show s-3").expect_done().contains("30"));
    run("contact add s-3 --email other@b.test").expect_done();
    run("subject remove s-0 s-1 s-2").expect_done();
    assert_eq!(run("subject list --json").expect_json().len(), usize::try_from(SUBJECTS).expect("a few") - 3);
    run("emit --subject s-3 --count 25 --id once").expect_done();
    for command in ["usage s-3", "alerts", "deliveries list", "refused list"] {
        run(command).expect_done();
    }
    let checked = quotabell(["check", "s-3"]).redis(&url).run();
    assert_eq!(checked.code, 0, "{}", checked.stderr);

    // A URL that names a cluster node like a single server.
    let node = |at: usize| format!("redis://127.0.0.1:{}", cluster.nodes[at].port());
    let told =
        (0..2).map(|at| quotabell(["subject", "show", "s-3"]).redis(&node(at)).run()).find(|told| told.code != 0);
    let told = told.expect("one of them does not serve the key").stderr;
    assert!(told.contains("hint: this is a node of a cluster") && told.contains("redis+cluster://"), "{told}");

    let user = cluster.url(&format!("quotabell:{PASSWORD}@"));
    let told = quotabell(["check-config"]).redis(&user).run().stderr;
    assert!(told.contains("ok: Redis answers (redis+cluster://") && told.contains(", primary 127.0.0.1:"), "{told}");
    assert!(told.contains("may do what the daemon does"), "{told}");
    let lacking = ["quotabell", "-cluster|shards", "-asking"].map(str::to_owned);
    set_user(&cluster.client(0), &lacking).await;
    let told = quotabell(["check-config"]).redis(&user).run().stderr;
    assert!(told.contains("no right to CLUSTER SHARDS, ASKING"), "{told}");
}

/// Otherwise each of these would cause single errors later, or endless waiting.
#[tokio::test]
async fn urls_that_name_something_else_end_the_start_with_what_to_do() {
    let server = RedisServer::start();
    let no_cluster = format!("redis+cluster://127.0.0.1:{}", server.port());
    let ended = DaemonSetup::on(&no_cluster).run_to_its_end().await;
    ended.expect_code(1, &["is no node of a cluster", "redis://host:6379"]);
    let told = quotabell(["check-config"]).redis(&no_cluster).run();
    assert!(told.code == 1 && told.stderr.contains("is no node of a cluster"), "{}", told.stderr);

    let bus = free_port().to_string();
    let node = RedisServer::start_with(&["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus]);
    let ended = DaemonSetup::on(&node.url()).run_to_its_end().await;
    ended.expect_code(1, &["is a node of a cluster", "redis+cluster://host:port"]);
}

/// A new cluster has slots without a node. The daemon used to exit and had to be restarted.
#[tokio::test]
async fn slots_that_nobody_serves_are_named_and_waited_for() {
    let bus = free_port().to_string();
    let node = RedisServer::start_with(&["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.port());
    let mut daemon = DaemonSetup::on(&url).spawn();
    daemon.says("no primary of the cluster serves slots 0-16383").await;
    let () = run(&node.client(), &["CLUSTER", "ADDSLOTSRANGE", "0", "5460", "6000", "16382"]).await;
    daemon.says("no primary of the cluster serves slots 5461-5999, 16383").await;
    let told = quotabell(["check-config"]).redis(&url).run();
    assert!(told.code == 1 && told.stderr.contains("serves slots 5461-5999, 16383"), "{}", told.stderr);
    assert!(told.stderr.contains("--cluster fix"), "{}", told.stderr);
    let () = run(&node.client(), &["CLUSTER", "ADDSLOTSRANGE", "5461", "5999", "16383", "16383"]).await;
    daemon.says(READY).await;
    daemon.drain().await;
}

/// A node that has just joined knows no slots. If asked first, it used to end the start of a daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_knows_no_slots_is_not_believed_before_the_others() {
    let cluster = RedisCluster::start().await;
    let bus = free_port().to_string();
    let knows_none = RedisServer::start_with(&["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus]);
    let both = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", knows_none.port(), cluster.nodes[1].port());
    let daemon = DaemonSetup::on(&both).start().await;
    assert!(!daemon.has_said("serves slots"));
    daemon.drain().await;
}

/// Nodes and the daemon start one after another.
#[tokio::test]
async fn a_cluster_that_is_away_is_waited_for() {
    // A port that no other test uses.
    let mut daemon = DaemonSetup::on("redis+cluster://127.0.0.1:1").spawn();
    let said = daemon.says("waiting for Redis").await;
    assert!(said.contains("no node of the cluster answers") && said.contains("127.0.0.1:1"), "{said}");
}

/// A node of a new cluster first is a primary without slots and soon a replica. A daemon that keeps the first answer
/// would wait forever for its promotion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_becomes_a_replica_while_the_daemon_starts_does_not_hold_it_up() {
    let cluster = RedisCluster::start().await;
    cluster.becomes_empty_primary(3).await;
    let owner = cluster.primary_of("usage").await;
    let client = cluster.client(owner);
    // Another obstacle, so that the daemon has its first answer by the time of the change.
    let () = run(&client, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let mut daemon = daemon_on(&cluster.url("")).spawn();
    daemon.says("waiting for Redis").await;
    cluster.becomes_replica(3, owner).await;
    let () = run(&client, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    daemon.says(READY).await;
    daemon.drain().await;
}
