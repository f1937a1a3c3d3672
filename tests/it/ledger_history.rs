//! Archiving of past days on a real server.

use std::collections::BTreeMap;

use crate::support::redis_server::RedisServer;
use quotabell::ledger::daily_usage;
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::redis_client::{ErrorKind, RedisClient, error_kind};
use quotabell::types::units::UNITS_MAX;
use quotabell::types::{Day, Keys, Metric, Subject, UnixMs, keys};

const DAYS: u32 = 90;
/// More calls than any of these days needs.
const CALLS_MAX: u32 = 2_000;

struct Books {
    server: RedisServer,
    client: RedisClient,
    keys: Keys,
}

impl Books {
    fn open() -> Self {
        let server = RedisServer::start();
        Self { client: server.client(), server, keys: Keys::new("usage") }
    }

    async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Writes counters as commits do.
    async fn write(&self, day: Day, counts: &[(&str, u64)]) {
        let mut pipeline = redis::pipe();
        pipeline.sadd(self.keys.metrics(day), Metric::default().as_str()).ignore();
        for (subject, units) in counts {
            let key = self.keys.usage(&Metric::default(), day, keys::bucket(subject));
            pipeline.hset(key, *subject, *units).ignore();
        }
        let () = self.client.pipe(&pipeline).await.expect("they are written");
    }

    /// Lets the counters of a day expire.
    async fn expire(&self, day: Day) {
        for key in self.run::<Vec<String>>(&["KEYS", &format!("quota_usage:*:{day}:*")]).await {
            self.run::<u64>(&["DEL", &key]).await;
        }
        self.run::<u64>(&["DEL", &self.keys.metrics(day)]).await;
    }

    fn archiver(&self, days: u32) -> HistoryArchiver {
        HistoryArchiver::new(self.keys.clone(), HistoryConfig { days, alerts_days: 400 })
    }

    /// Archives the pending days.
    async fn archive(&self, archiver: &mut HistoryArchiver) {
        for _ in 0..CALLS_MAX {
            let Some(day) = archiver.next() else { return };
            archiver.archive(&self.client, day.ends_everywhere()).await.expect("redis answers");
        }
        panic!("it never ends");
    }

    async fn archive_day(&self, day: Day, days: u32) {
        let mut archiver = self.archiver(days);
        archiver.assume_counters(day);
        self.archive(&mut archiver).await;
    }

    /// The known usage of a subject, including the counters of `counted`.
    async fn days(&self, subject: &str, counted: &[Day]) -> Vec<(String, u64)> {
        let subject = Subject::parse(subject.as_bytes()).expect("legal");
        let read = daily_usage::read(&self.client, &self.keys, &subject, None, counted).await.expect("redis answers");
        let days: BTreeMap<Day, u64> = read.into_values().next().unwrap_or_default();
        days.into_iter().map(|(day, units)| (day.to_string(), units)).collect()
    }
}

fn day(text: &str) -> Day {
    Day::parse(text).expect("a date")
}

fn now() -> UnixMs {
    day("2026-11-21").ends_everywhere()
}

fn listed(days: &[(&str, u64)]) -> Vec<(String, u64)> {
    days.iter().map(|(day, units)| ((*day).to_owned(), *units)).collect()
}

/// A customer who asks for last month must get more than the last two days.
#[tokio::test]
async fn days_are_known_after_their_counters_have_expired() {
    let books = Books::open();
    let days = ["2026-11-17", "2026-11-18", "2026-11-20"].map(day);
    books.write(days[0], &[("alice", UNITS_MAX), ("bob", 7)]).await;
    books.write(days[1], &[("alice", 300)]).await;
    books.write(days[2], &[("alice", 0), ("bob", 9)]).await;
    for archived in days {
        books.archive_day(archived, DAYS).await;
        let known = books.days("bob", &days).await;
        books.expire(archived).await;
        assert_eq!(books.days("bob", &days).await, known, "{archived}");
    }
    assert_eq!(books.days("alice", &[]).await, listed(&[("2026-11-17", UNITS_MAX), ("2026-11-18", 300)]));
    assert_eq!(books.days("bob", &[]).await, listed(&[("2026-11-17", 7), ("2026-11-20", 9)]));
    // For a day with counters, the counters count.
    books.write(day("2026-11-21"), &[("bob", 1)]).await;
    let expected = listed(&[("2026-11-17", 7), ("2026-11-20", 9), ("2026-11-21", 1)]);
    assert_eq!(books.days("bob", &[day("2026-11-21")]).await, expected);
    let ttl_s: i64 = books.run(&["TTL", &books.keys.history(&Metric::default(), keys::bucket("bob"))]).await;
    assert!((90 * 86_400 - 5..=90 * 86_400 + 2560).contains(&ttl_s), "{ttl_s}");
}

/// Days come in any order: a daemon may find a fortnight after an outage, and a late event changes an archived day.
#[tokio::test]
async fn days_are_archived_in_any_order_and_again() {
    let books = Books::open();
    let days = ["2026-11-20", "2026-11-10", "2026-11-15"].map(day);
    let mut archiver = books.archiver(DAYS);
    for (day, units) in days.into_iter().zip([20, 10, 15]) {
        books.write(day, &[("alice", units)]).await;
        archiver.after_commit(day);
        books.archive(&mut archiver).await;
    }
    let expected = [("2026-11-10", 10), ("2026-11-15", 15), ("2026-11-20", 20)];
    assert_eq!(books.days("alice", &[]).await, listed(&expected));
    books.write(days[1], &[("alice", 11)]).await;
    // Another process has nothing to do here; the one that wrote the counter does.
    books.archive_day(days[1], DAYS).await;
    assert_eq!(books.days("alice", &[]).await, listed(&expected));
    archiver.after_commit(days[1]);
    books.archive(&mut archiver).await;
    assert_eq!(books.days("alice", &[]).await[0], ("2026-11-10".to_owned(), 11));
    // If that one is killed after its commit, the next process finds its earlier note.
    for units in [12, 13] {
        archiver.before_commit(&books.client, days[1]).await.expect("redis answers");
        books.write(days[1], &[("alice", units)]).await;
        books.archive_day(days[1], DAYS).await;
        assert_eq!(books.days("alice", &[]).await[0], ("2026-11-10".to_owned(), units));
        archiver.after_commit(days[1]);
        books.archive(&mut archiver).await;
    }
}

/// History must not grow without bound, neither by days nor by unused subjects and metrics.
#[tokio::test]
async fn what_is_older_than_history_is_kept_goes() {
    let books = Books::open();
    let first = day("2026-11-12");
    books.write(first, &[("alice", 1), ("gone", 1)]).await;
    books.run::<u64>(&["SADD", &books.keys.metrics(first), "tokens"]).await;
    books.archive_day(first, 3).await;
    let held = async |subject: &str| -> bool {
        books.run(&["HEXISTS", &books.keys.history(&Metric::default(), keys::bucket(subject)), subject]).await
    };
    assert!(held("gone").await);
    let next_days = std::iter::successors(first.next(), |day| day.next());
    for (units, day) in (2..).zip(next_days.take(4)) {
        books.write(day, &[("alice", units)]).await;
        books.archive_day(day, 3).await;
        books.expire(day).await;
    }
    assert_eq!(books.days("alice", &[]).await, listed(&[("2026-11-14", 3), ("2026-11-15", 4), ("2026-11-16", 5)]));
    assert!(!held("gone").await);
    let metrics: Vec<String> = books.run(&["ZRANGE", &books.keys.history_metrics(), "0", "-1"]).await;
    assert_eq!(metrics, ["requests"]);
}

/// A million subjects in one call would block the server for seconds; a killed worker must lose none of them, and on
/// another server with the same data the cursor must not be used.
#[tokio::test]
async fn a_day_is_archived_in_slices_by_whoever_is_there() {
    let books = Books::open();
    let (over, subjects) = (day("2026-11-20"), 3_000);
    let names: Vec<String> = (0..subjects).map(|n| format!("subject {n}")).collect();
    let counts: Vec<(&str, u64)> = names.iter().zip(1..).map(|(name, units)| (name.as_str(), units)).collect();
    // All in one hash, as a hundred times as many would be.
    let mut hset = redis::cmd("HSET");
    hset.arg(books.keys.usage(&Metric::default(), over, 7));
    counts.iter().for_each(|(name, units)| {
        hset.arg(name).arg(units);
    });
    books.write(over, &[]).await;
    let () = books.client.query(&hset).await.expect("written");
    let history = books.keys.history(&Metric::default(), 7);
    let mut calls = 0;
    loop {
        // Each slice by a new process.
        let mut archiver = books.archiver(DAYS);
        archiver.assume_counters(over);
        archiver.archive(&books.client, now()).await.expect("redis answers");
        if archiver.next().is_none() {
            break;
        }
        calls += 1;
        assert!(calls < CALLS_MAX, "it never ends");
        if calls == 8 {
            let progress = books.keys.history_progress(over);
            let reached: String = books.run(&["HGET", &progress, "requests"]).await;
            assert!(
                reached.starts_with("14:") && !reached.starts_with("14:0:"),
                "in the middle of the hash: {reached}"
            );
            // As after a restart: the cursor belongs to another server with another order of subjects.
            let (place, server) = reached.rsplit_once(':').expect("a server");
            let elsewhere = format!("{place}:{}", server.chars().rev().collect::<String>());
            books.run::<u64>(&["HSET", &progress, "requests", &elsewhere]).await;
            books.run::<u64>(&["DEL", &history]).await;
        }
    }
    assert_eq!(books.run::<usize>(&["HLEN", &history]).await, subjects);
    // 3,000 counters by 100, as many values by 400, the progress before the restart, and a call for each 64 buckets.
    assert!((38..80).contains(&calls), "{calls}");
}

/// Two daemons that archive the same day do it once, together.
#[tokio::test]
async fn two_daemons_share_a_day() {
    let books = Books::open();
    let over = day("2026-11-20");
    books.write(over, &[("alice", 5), ("bob", 6)]).await;
    let (mut one, mut two) = (books.archiver(DAYS), books.archiver(DAYS));
    one.assume_counters(over);
    two.assume_counters(over);
    while one.next().or(two.next()).is_some() {
        one.archive(&books.client, now()).await.expect("redis answers");
        two.archive(&books.client, now()).await.expect("redis answers");
    }
    for (subject, units) in [("alice", 5), ("bob", 6)] {
        assert_eq!(books.days(subject, &[]).await, listed(&[("2026-11-20", units)]));
    }
}

/// A withdrawn right, or a foreign value in a key, must leave nothing half done.
#[tokio::test]
async fn what_can_not_be_archived_is_left_as_it_is() {
    let books = Books::open();
    let over = day("2026-11-20");
    books.write(over, &[("alice", 5)]).await;
    let history = books.keys.history(&Metric::default(), keys::bucket("alice"));
    books.run::<()>(&["SET", &history, "x"]).await;
    let mut archiver = books.archiver(DAYS);
    archiver.assume_counters(over);
    // Calls for other buckets may come first.
    let mut archive = async |client: &RedisClient| {
        for _ in 0..CALLS_MAX {
            if let Err(error) = archiver.archive(client, now()).await {
                return error_kind(&error);
            }
        }
        panic!("no error")
    };
    assert_eq!(archive(&books.client).await, ErrorKind::WrongType);
    books.run::<u64>(&["DEL", &history]).await;
    books.run::<()>(&["ACL", "SETUSER", "few", "on", ">few", "~*", "+@all", "-expire"]).await;
    let few = RedisClient::open(&books.server.url().replace("redis://", "redis://few:few@")).expect("a URL");
    assert_eq!(archive(&few).await, ErrorKind::Denied);
    assert_eq!(books.run::<u64>(&["EXISTS", &history]).await, 0);
    books.archive(&mut archiver).await;
    assert_eq!(books.days("alice", &[]).await, listed(&[("2026-11-20", 5)]));
}

/// Metrics that are invented every day must not delay the metrics that customers look at.
#[tokio::test]
async fn metrics_with_a_history_are_archived_before_names_that_are_new() {
    let books = Books::open();
    let days = ["2026-11-19", "2026-11-20"].map(day);
    books.write(days[0], &[("alice", 1)]).await;
    books.archive_day(days[0], DAYS).await;
    books.write(days[1], &[("alice", 2)]).await;
    let mut names = redis::cmd("SADD");
    names.arg(books.keys.metrics(days[1]));
    (0..200).for_each(|number| {
        names.arg(format!("new{number}"));
    });
    let () = books.client.query(&names).await.expect("written");
    let mut archiver = books.archiver(DAYS);
    archiver.assume_counters(days[1]);
    for _ in 0..5 {
        archiver.archive(&books.client, now()).await.expect("redis answers");
    }
    assert_eq!(archiver.metrics_left(), 200, "the others are left");
    assert_eq!(books.days("alice", &[]).await, listed(&[("2026-11-19", 1), ("2026-11-20", 2)]));
}
