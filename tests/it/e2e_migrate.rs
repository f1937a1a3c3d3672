//! Moves all stored data to another deployment, like a team that has outgrown its Redis.

use std::collections::BTreeMap;
use std::process::Stdio;

use quotabell::ledger::daily_usage;
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::outbox::{pause, read_pause, resume, totals};
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::types::keys::bucket;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{AlertKey, Day, Metric, Subject, UnixMs};
use serde_json::json;

use crate::support::binary::{Finished, quotabell};
use crate::support::eventually::eventually;
use crate::support::grants::{Grant, give, prepaid};
use crate::support::outbox::Outbox;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};

pub(crate) const SUBJECTS: u64 = 60;

pub(crate) fn events(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("s:{}", number % SUBJECTS))
}

/// A deployment that has counted this number of events, and whose daemon has stopped.
pub(crate) async fn counted(server: &RedisServer, partitions: u32, count: u64) -> Streams {
    let mut source = Streams::on(&server.url(), partitions).await;
    let daemon = source.daemon().start().await;
    source.send(events(count)).await;
    source.agree().await;
    daemon.drain().await;
    source
}

pub(crate) fn migrate(from: &str, to: &str, partitions: &str) -> Finished {
    quotabell(["migrate", "--from", from, "--to", to, "--partitions", partitions, "--json"]).run()
}

/// Expects a failure with this text.
pub(crate) fn refused(call: &Finished, code: i32, said: &[&str]) {
    assert_eq!((call.code, call.stdout.as_str()), (code, ""), "{}", call.told());
    assert!(said.iter().all(|said| call.stderr.contains(said)), "{}", call.told());
}

/// Checks that deliveries of each partition are created, pending or ended, and none is counted in two partitions.
pub(crate) async fn is_balanced(streams: &Streams) {
    for Partition { client, keys } in streams.partitions.iter() {
        let now = totals(client, keys).await.expect("totals");
        let ended = now.delivered + now.dead + now.muted + now.expired + now.cancelled;
        assert_eq!(now.made, ended + now.pending, "{}: {now:?}", keys.stream());
    }
}

/// The remaining lifetime of the 80 % flag, ms.
async fn flag_left(streams: &Streams, subject: &str) -> i64 {
    let subject: Subject = subject.parse().expect("legal");
    let (metric, threshold) = (Metric::default(), "80".parse().expect("legal"));
    let key =
        AlertKey { subject: &subject, metric: &metric, period: streams.day().into(), threshold, units: LIMIT * 4 / 5 };
    let Partition { client, keys } = streams.partitions.partition_of(&subject);
    client.query(redis::cmd("PTTL").arg(keys.flag(&key))).await.expect("a time to live")
}

/// Counts, flags, pending deliveries and uncounted events move in the middle of a day: no alert may be sent twice or
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_moves_to_a_cluster_in_the_middle_of_a_day() {
    let (old, new) = (RedisServer::start(), RedisCluster::start().await);
    let mut source = counted(&old, 1, SUBJECTS * LIMIT * 9 / 10).await;
    source.send(events(SUBJECTS)).await;
    let settings: u64 = source
        .partitions
        .first()
        .client
        .query(redis::cmd("HSET").arg(&["quota_subject:s:1", "plan", "free"]))
        .await
        .expect("set");
    assert_eq!(settings, 1);

    let moved = migrate(&old.url(), &new.url(""), "4").expect_json();
    // The uncounted events, and the logged alerts.
    assert_eq!(moved[0]["entries"], 2 * SUBJECTS, "{moved:?}");
    let target = source.moved_to(&new.url(""), 4).await;
    assert!((1..=30 * 3_600_000).contains(&flag_left(&target, "s:7").await));
    is_balanced(&target).await;
    refused_to_start(&source, "was moved to redis+cluster://").await;
    let daemon = target.daemon().start().await;
    target.agree().await;

    // A producer that was not switched yet, and all switched ones.
    source.send(events(SUBJECTS)).await;
    let late = migrate(&old.url(), &new.url(""), "4").expect_json();
    assert_eq!(late[0]["entries"], SUBJECTS, "{late:?}");
    let mut target = source.moved_to(&new.url(""), 4).await;
    target.send(events(SUBJECTS * LIMIT / 10)).await;
    target.agree().await;
    assert_eq!(migrate(&old.url(), &new.url(""), "4").expect_json()[0]["entries"], 0);
    let plan: String = target
        .partitions
        .first()
        .client
        .query(redis::cmd("HGET").arg("quota_subject:s:1").arg("plan"))
        .await
        .expect("its plan");
    assert_eq!(plan, "free");
    daemon.drain().await;
    is_balanced(&target).await;
}

/// Event ids, records and histories of several partitions are merged or split: a migration from several partitions used
/// to keep the ids of only one, and failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_number_of_partitions_becomes_every_other() {
    const COUNTS: [u32; 4] = [1, 2, 3, 8];
    let server = RedisServer::start_with(&["--databases", "32"]);
    let mut sources = tokio::task::JoinSet::new();
    for (from, database) in COUNTS.into_iter().zip([0, 5, 10, 15]) {
        let url = server.url();
        let url = move |target: usize| format!("{url}/{}", database + target);
        sources.spawn(async move {
            let source = counted_with_ids(&url(0), from).await;
            for (to, target) in COUNTS.into_iter().zip(1..) {
                migrate(&url(0), &url(target), &to.to_string()).expect_done();
                knows_its_ids(source.moved_to(&url(target), to).await).await;
                for Partition { client, keys } in source.partitions.iter() {
                    let given_up = redis::cmd("HDEL").arg(keys.checkpoint()).arg("moved_to").to_owned();
                    let () = client.query(&given_up).await.expect("removed");
                }
            }
        });
    }
    assert_eq!(sources.join_all().await.len(), COUNTS.len());
}

/// Events of each batch with ids.
const BATCH: u64 = SUBJECTS * LIMIT / 4;

/// A deployment that has counted three batches of events with ids in separate commits: each has its own value in the
/// list of ids.
async fn counted_with_ids(url: &str, partitions: u32) -> Streams {
    let mut source = Streams::on(url, partitions).await;
    let daemon = source.daemon().start().await;
    for batch in 0..3 {
        source.send_with_ids(events(BATCH), batch).await;
        source.agree().await;
    }
    daemon.drain().await;
    source
}

/// Counts the moved events, and treats every repeated event as a duplicate.
async fn knows_its_ids(target: Streams) {
    let daemon = target.daemon().start().await;
    target.agree().await;
    let mut again = target.clone();
    again.send_with_ids(events(BATCH), 1).await;
    eventually("every event that is sent again is a duplicate", || async {
        let (mut counted, mut duplicates) = (0, 0);
        for Partition { client, keys } in target.partitions.iter() {
            let now = totals(client, keys).await.ok()?;
            (counted, duplicates) = (counted + now.counted, duplicates + now.duplicates);
        }
        assert_eq!(counted, 3 * BATCH, "events are counted again");
        (duplicates == BATCH).then_some(())
    })
    .await;
    daemon.drain().await;
    is_balanced(&target).await;
}

pub(crate) async fn refused_to_start(streams: &Streams, why: &str) {
    let ended = streams.daemon().run_to_its_end().await;
    ended.expect_code(1, &[why]);
}

/// A terminal that is closed in the middle must not matter: the next run continues, any number of times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_is_killed_is_run_again() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = counted(&old, 3, SUBJECTS * LIMIT).await;
    source.send(events(1_000)).await;
    pause(&source.partitions, Some("moving")).await.expect("it works");
    let target = source.moved_to(&new.url(), 2).await;
    for keys in [1, 20, 100, 300] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_quotabell"))
            .args(["migrate", "--from", &old.url(), "--to", &new.url(), "--partitions", "2"])
            .env_clear()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        eventually("it has written so much", || async {
            let written: u64 = target.partitions.first().client.query(&redis::cmd("DBSIZE")).await.ok()?;
            (written >= keys).then_some(())
        })
        .await;
        let _ = child.kill();
        child.wait().expect("it ends");
        // It may have been complete when the signal came.
        let Partition { client, keys } = target.partitions.first();
        let mark = client.query::<String>(redis::cmd("HGET").arg(keys.checkpoint()).arg("migration")).await;
        if mark.expect("the target is marked").starts_with("copying") {
            refused_to_start(&target, "is not complete").await;
        }
    }
    migrate(&old.url(), &new.url(), "2").expect_done();
    is_balanced(&target).await;
    // Deliveries that the source must not send are not sent here either.
    for Partition { client, keys } in target.partitions.iter() {
        let paused = read_pause(client, keys).await.expect("readable").expect("it moved along");
        assert_eq!(paused.reason.as_deref(), Some("moving"));
    }
    resume(&target.partitions).await.expect("it works");
    let daemon = target.daemon().start().await;
    target.agree().await;
    daemon.drain().await;
}

/// A target that already counts, or a source that still counts, would mix numbers of both.
#[tokio::test]
async fn what_can_not_be_moved_is_refused() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let nothing = migrate(&old.url(), &new.url(), "2");
    refused(&nothing, 1, &["nothing was counted", "stream.key"]);
    refused(&migrate(&old.url(), &old.url(), "2"), 2, &["the same deployment"]);
    refused(&migrate(&old.url(), &new.url(), "0"), 2, &["--partitions", "1..=256"]);
    refused(&migrate(&old.url(), "http://h", "2"), 2, &["--to", "redis+cluster://"]);

    let mut source = Streams::on(&old.url(), 1).await;
    let daemon = source.daemon().start().await;
    source.send(events(10)).await;
    source.agree().await;
    refused(&migrate(&old.url(), &new.url(), "2"), 1, &["a daemon is at work", "SIGTERM"]);
    daemon.drain().await;

    let other = Outbox::on(new);
    let single = format!("redis+cluster://127.0.0.1:{}", other.server.port());
    let no_cluster = migrate(&old.url(), &single, "2");
    refused(&no_cluster, 1, &["hint: use redis://host:6379 for a server without cluster mode"]);
    assert_eq!(no_cluster.stderr.matches("is no node of a cluster").count(), 1, "{}", no_cluster.stderr);
    let _: u64 = other.run("HSET", &["quota_usage:{usage:1}:requests:2026-11-21:00", "alice", "7"]).await;
    let taken = migrate(&old.url(), &other.server.url(), "2");
    refused(&taken, 1, &["the target is not empty", "quota_usage:{usage:1}:requests:2026-11-21:00"]);
    let kept: u64 = other.run("DBSIZE", &[] as &[&str]).await;
    assert_eq!(kept, 1, "nothing was written");
    let daemon = source.daemon().start().await;
    source.agree().await;
    daemon.drain().await;
    let odd = redis::cmd("SET").arg("quota_odd:{usage}").arg(1).to_owned();
    let () = source.partitions.first().client.query(&odd).await.expect("set");
    let _: u64 = other.run("DEL", &["quota_usage:{usage:1}:requests:2026-11-21:00"]).await;
    refused(&migrate(&old.url(), &other.server.url(), "2"), 1, &["quota_odd:{usage}", "does not know"]);
}

/// Two deployments with the same initial state send the same alerts, and receivers would drop those of one.
#[tokio::test]
async fn a_source_is_moved_to_one_target_alone() {
    let [old, new, other] = [(); 3].map(|()| RedisServer::start());
    let source = counted(&old, 1, SUBJECTS).await;
    migrate(&old.url(), &new.url(), "1").expect_done();
    let checkpoint = source.partitions.first().keys.checkpoint();
    let elsewhere =
        [format!("was moved to {}", source_name(&new)), format!("HDEL {checkpoint} moved_to"), "--undo".into()];
    for (target, partitions) in [(&other, "1"), (&new, "2")] {
        let twice = migrate(&old.url(), &target.url(), partitions);
        refused(&twice, 1, &elsewhere.each_ref().map(String::as_str));
    }
    let written: u64 = other.client().query(&redis::cmd("DBSIZE")).await.expect("a number");
    assert_eq!(written, 0);
    migrate(&old.url(), &new.url(), "1").expect_done();
    let given_up = redis::cmd("HDEL").arg(&checkpoint).arg("moved_to").to_owned();
    let () = source.partitions.first().client.query(&given_up).await.expect("removed");
    migrate(&old.url(), &other.url(), "1").expect_done();
}

/// The displayed URL of a server.
fn source_name(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// A subject that somebody muted in the target must not stay muted with a limit unknown in the source.
#[tokio::test]
async fn settings_at_the_target_are_not_mixed_with_those_of_the_source() {
    let (old, new) = (RedisServer::start(), Outbox::start());
    let source = counted(&old, 1, SUBJECTS).await;
    let set = async |client: &RedisClient, subject: &str, fields: &[&str]| {
        let mut set = redis::cmd("HSET");
        let () = client.query(set.arg(format!("quota_subject:{subject}")).arg(fields)).await.expect("set");
    };
    let here = &source.partitions.first().client;
    set(here, "s:1", &["plan", "free"]).await;
    for (subject, fields) in [
        ("s:1", &["muted", "true", "limit:requests", "7"][..]),
        ("s:1", &["plan", "free", "thresholds", "3"]),
        ("s:2", &["plan", "free"]),
    ] {
        set(&new.client, subject, fields).await;
        let mixed = migrate(&old.url(), &new.server.url(), "1");
        refused(&mixed, 1, &["other settings of a subject than the source", &format!("quota_subject:{subject}")]);
        let _: u64 = new.run("DEL", &[format!("quota_subject:{subject}").as_str()]).await;
    }
    let written: u64 = new.run("DBSIZE", &[] as &[&str]).await;
    assert_eq!(written, 0);
    // As if another stream of the same server, which shares the settings, had been moved before.
    set(&new.client, "s:1", &["plan", "free"]).await;
    migrate(&old.url(), &new.server.url(), "1").expect_done();
}

/// Last month's usage must be known after the move, even if the last day of a metric differs between partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_moves_along() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let source = counted(&old, 2, SUBJECTS).await;
    let (metric, mut written) = (Metric::default(), Vec::new());
    for (partition, back) in source.partitions.iter().zip([20, 30]) {
        let Partition { client, keys } = partition;
        let now = client.server_time().await.expect("redis answers");
        let day = Day::in_utc(now).and_then(|today| today.before(back)).expect("a day");
        let of = |subject: &Subject| source.partitions.partition_of(subject).number() == partition.number();
        let subject = (0..).map(|n| format!("s:{n}").parse().expect("legal")).find(of).expect("one of them");
        let mut pipeline = redis::pipe();
        let counters = keys.usage(&metric, day, bucket(subject.as_str()));
        pipeline.sadd(keys.metrics(day), metric.as_str()).ignore().hset(counters, subject.as_str(), back).ignore();
        let () = client.pipe(&pipeline).await.expect("written");
        let mut archiver = HistoryArchiver::new(keys.clone(), HistoryConfig { days: 90, alerts_days: 400 });
        archiver.after_commit(day);
        while archiver.next().is_some() {
            archiver.archive(client, now).await.expect("redis answers");
        }
        written.push((subject, day, back));
    }
    assert_eq!(migrate(&old.url(), &new.url(), "1").code, 0);
    let target = source.moved_to(&new.url(), 1).await;
    let Partition { client, keys } = target.partitions.first();
    for (subject, day, units) in written {
        let days = daily_usage::read(client, keys, &subject, None, &[]).await.expect("redis answers");
        assert_eq!(days[&metric].get(&day), Some(&units), "{subject}");
    }
    let newest: Vec<(String, i64)> = client
        .query(redis::cmd("ZRANGE").arg(keys.history_metrics()).arg(0).arg(-1).arg("WITHSCORES"))
        .await
        .expect("redis answers");
    let now = client.server_time().await.expect("redis answers");
    let expected = Day::in_utc(now).and_then(|today| today.before(20)).expect("a day").since_epoch();
    assert_eq!(newest, [("requests".to_owned(), expected)]);
}

/// A contact that has failed for four days must not be retried for five more, because others are told only then.
#[tokio::test]
async fn since_when_contacts_fail_moves_along() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let source = counted(&old, 1, SUBJECTS).await;
    let failing = |at: &Streams, subject: &Subject| {
        let Partition { client, keys } = at.partitions.partition_of(subject);
        (client.clone(), format!("{}{subject}", keys.failing_prefix()))
    };
    let subjects: Vec<Subject> = (0..9).map(|number| format!("s:{number}:x").parse().expect("legal")).collect();
    for subject in &subjects {
        let (client, key) = failing(&source, subject);
        let mut pipeline = redis::pipe();
        pipeline.hset(&key, "contact", format!("1000 {subject}")).ignore().expire(&key, 3600).ignore();
        let () = client.pipe(&pipeline).await.expect("written");
    }
    migrate(&old.url(), &new.url(), "3").expect_done();
    let target = source.moved_to(&new.url(), 3).await;
    for subject in &subjects {
        let (client, key) = failing(&target, subject);
        let noted: Option<String> = client.query(redis::cmd("HGET").arg(&key).arg("contact")).await.expect("read");
        assert_eq!(noted, Some(format!("1000 {subject}")));
        let left: i64 = client.query(redis::cmd("PTTL").arg(&key)).await.expect("read");
        assert!((1..=3_600_000).contains(&left), "{subject}: {left} ms");
    }
}

/// No script can append an event with more than 7,999 values. A script that failed there had already appended earlier
/// events, and appended them again at each attempt: the target counted 300 of 100, and neither side started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_with_too_many_fields_moves_as_the_refused_event_that_it_is() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = counted(&old, 1, SUBJECTS).await;
    source.send(events(SUBJECTS)).await;
    let mut add = redis::cmd("XADD");
    add.arg("usage").arg("*").arg("subject").arg("s:1");
    (0..4_200).for_each(|number| {
        add.arg(format!("f{number}")).arg("x");
    });
    let _: String = source.partitions.first().client.query(&add).await.expect("appended");
    source.send(events(SUBJECTS)).await;

    let moved = migrate(&old.url(), &new.url(), "1").expect_json();
    assert_eq!(moved[0]["entries"], 2 * SUBJECTS + 1, "{moved:?}");
    let target = source.moved_to(&new.url(), 1).await;
    let daemon = target.daemon().start().await;
    let Partition { client, keys } = target.partitions.first();
    eventually("everything is counted or refused", || async {
        let totals = totals(client, keys).await.ok()?;
        (totals.counted + totals.refused == 3 * SUBJECTS + 1).then(|| assert_eq!(totals.refused, 1))
    })
    .await;
    let refused: Vec<(String, Vec<String>)> =
        client.query(redis::cmd("XRANGE").arg(keys.refused()).arg(&["-", "+"])).await.expect("entries");
    assert_eq!(refused[0].1[3], "too_many_fields", "{refused:?}");
    daemon.drain().await;
}

/// The grants, the time of the next expiry and the children of a subject, as its partition stores them.
async fn branch_of(streams: &Streams, subject: &str) -> (BTreeMap<String, String>, Option<f64>, Vec<(String, f64)>) {
    let of: Subject = subject.parse().expect("legal");
    let Partition { client, keys } = streams.partitions.partition_of(&of);
    let grants = client.query(redis::cmd("HGETALL").arg(keys.grants(&of))).await.expect("grants");
    let due = client.query(redis::cmd("ZSCORE").arg(keys.grants_due()).arg(subject)).await.expect("a time");
    let children = redis::cmd("ZRANGE")
        .arg(format!("{}{subject}", keys.children_prefix()))
        .arg(&["0", "-1", "WITHSCORES"])
        .to_owned();
    (grants, due, client.query(&children).await.expect("children"))
}

/// A tree belongs to the partition of its first part: the units that its team paid for, the time at which they expire,
/// and the lists of its children must be found there, or money is lost and an expiry never happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_with_their_grants_move_to_more_partitions() {
    const EVENTS: u64 = 8 * 4 * 15;
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = Streams::of_trees(&old.url(), 1).await;
    let with_total = redis::cmd("HSET").arg(&["quota_subject:o3/t1", "limit:requests", "40/day 0/total"]).to_owned();
    let _: u64 = source.partitions.first().client.query(&with_total).await.expect("set");
    let daemon = source.daemon().start().await;
    source.send((0..EVENTS).map(|n| format!("o{}/t{}/k{}", n % 8, n / 8 % 2, n / 16 % 2))).await;
    source.agree().await;
    daemon.drain().await;
    // The first one is over, but no daemon was there to end it: it has paid for the 30 units of the team.
    let until = |at| Some(Rfc3339(UnixMs(at)));
    let over = Grant { expires_at: until(1_700_000_000_000), ..prepaid("over", 100) };
    give(source.partitions.first(), "o3/t1", [over, prepaid("kept", 5)]).await;
    let later = Grant { expires_at: until(4_102_444_800_000), ..prepaid("later", 7) };
    give(source.partitions.first(), "o5/t0/k1", [later]).await;
    let branches = ["o3", "o3/t1", "o5", "o5/t0", "o5/t0/k1", "o7", "o7/t1"];
    let mut before = Vec::new();
    for branch in branches {
        before.push(branch_of(&source, branch).await);
    }
    assert_eq!((before[1].0.contains_key("grant:over"), before[1].1), (true, Some(1_700_000_000_000.0)));
    assert_eq!(before[0].2.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["o3/t0", "o3/t1"]);

    let move_it = quotabell(["migrate", "--from", &old.url(), "--to", &new.url(), "--partitions", "4"]);
    let moved = move_it.env("QUOTABELL__SUBJECTS__SEPARATOR", "/").run();
    assert!(moved.code == 0 && !moved.stderr.contains("warning"), "{}", moved.told());
    let mut target = source.moved_to(&new.url(), 4).await;
    for (branch, before) in branches.into_iter().zip(before) {
        assert_eq!(branch_of(&target, branch).await, before, "{branch}");
    }
    is_balanced(&target).await;

    // The team has 5 units left of 35: 80 % is reached, although nothing was used since.
    target.expect_judged_alert();
    let daemon = target.daemon().start().await;
    target.agree().await;
    let run = |line: &str| {
        let command = quotabell(line.split(' ')).redis(&new.url()).env("QUOTABELL__STREAM__PARTITIONS", "4");
        let command = command.env("QUOTABELL__SUBJECTS__SEPARATOR", "/");
        command.env("QUOTABELL__PLANS__FREE__LIMITS", format!(r#"{{"requests":{LIMIT}}}"#)).run()
    };
    let grants = run("grant list o3/t1 --json").expect_json();
    let states: Vec<_> = grants.iter().map(|grant| [&grant["id"], &grant["status"], &grant["spent"]]).collect();
    assert_eq!(json!(states), json!([["kept", "active", 0], ["over", "expired", 30]]));
    let alerts = run("alerts --subject o3/t1 --json").expect_json();
    let of_total: Vec<_> = alerts.iter().filter(|alert| alert["window"] == "total").collect();
    assert_eq!(of_total.len(), 1, "{alerts:?}");
    assert_eq!((&of_total[0]["threshold_percent"], &of_total[0]["limit"]), (&json!(80), &json!(35)));
    let refused = run("check o3/t1/k0 --units 6");
    assert!(refused.code == 1 && refused.stderr.contains("by the limit of o3 and of o3/t1\n"), "{}", refused.told());
    let refused = run("check o3/t1/k0 --units 5");
    assert!(refused.code == 1 && refused.stderr.contains("by the limit of o3\n"), "{}", refused.told());
    target.send((0..EVENTS).map(|n| format!("o{}/t2/k{}", n % 8, n / 8 % 2))).await;
    target.agree().await;
    let children = run("usage o3 --children --json").expect_json();
    let names: Vec<_> = children[0]["children"].as_array().expect("a list").iter().map(|one| &one["subject"]).collect();
    assert_eq!(names, [&json!("o3/t2"), &json!("o3/t0"), &json!("o3/t1")]);
    daemon.drain().await;
    is_balanced(&target).await;
}

/// Ids get another meaning if the separator changes: who moves a deployment, and who starts it, must be told which
/// subjects that concerns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_separator_is_told_by_a_migration_and_at_the_start() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let source = counted(&old, 1, SUBJECTS).await;
    for subject in ["acme/a", "acme//b", "a/b/c/d/e", "plain"] {
        let set = redis::cmd("HSET").arg(format!("quota_subject:{subject}")).arg(&["plan", "free"]).to_owned();
        let _: u64 = source.partitions.first().client.query(&set).await.expect("set");
    }
    let told = "subjects.separator is \"/\", and was \"\" at the last commit: 3 subjects with settings contain it \
                (a/b/c/d/e, acme//b, acme/a) and will be levels of a tree";
    let broken = "; events of 2 of them are refused, because a part is empty or the levels are too many";
    let move_it = quotabell(["migrate", "--from", &old.url(), "--to", &new.url(), "--partitions", "2"]);
    let moved = move_it.env("QUOTABELL__SUBJECTS__SEPARATOR", "/").run();
    assert!(moved.code == 0 && moved.stderr.contains(&format!("warning: {told}{broken}\n")), "{}", moved.told());

    let target = source.moved_to(&new.url(), 2).await;
    let mut daemon = target.daemon().env("QUOTABELL__SUBJECTS__SEPARATOR", "/").start().await;
    daemon
        .says(&format!("{told}; those subjects may belong to another partition, where they begin at zero{broken}"))
        .await;
    target.agree().await;
    daemon.drain().await;
    // Back again, after a commit with the separator.
    let mut streams = target.clone();
    streams.send(events(SUBJECTS)).await;
    let daemon = target.daemon().env("QUOTABELL__SUBJECTS__SEPARATOR", "/").start().await;
    streams.agree().await;
    daemon.drain().await;
    let mut daemon = target.daemon().start().await;
    daemon.says("subjects.separator is \"\", and was \"/\" at the last commit: subjects have no levels any more").await;
    daemon.drain().await;
}
