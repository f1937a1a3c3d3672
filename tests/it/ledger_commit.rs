//! The commit on a real server: all or nothing, once, whatever comes between.

use crate::support::eventually::eventually;
use crate::support::redis_server::RedisServer;
use quotabell::ledger::batch::AppliedLimit;
use quotabell::ledger::commit::{CommitSummary, CommitWarning};
use quotabell::ledger::commit_settings::{CommitSettings, TrimPolicy};
use quotabell::ledger::{Batch, CommitOutcome, Committer, RefusedEvent, Row, SeenId, Thresholds, probe};
use quotabell::types::{Alert, Day, Keys, Metric, Percent, RefusalReason, StreamId, Subject, Units, UnixMs, keys};
use quotabell::wire::{ErrorKind, RedisClient, error_kind};

/// A partition on a server of its own, with what a test does to it.
struct Books {
    server: RedisServer,
    client: RedisClient,
    keys: Keys,
    committer: Committer,
}

fn settings() -> CommitSettings {
    CommitSettings { trim: TrimPolicy::Consumed, partitions: 1, fingerprint: "test".into() }
}

impl Books {
    fn open() -> Self {
        Self::open_with(&["--save", ""])
    }

    fn open_with(options: &[&str]) -> Self {
        let server = RedisServer::start_with(options);
        let keys = Keys::new("usage");
        Self { client: server.client(), server, committer: Committer::new(keys.clone(), settings()), keys }
    }

    async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn add(&self, subject: &str) -> StreamId {
        self.run::<String>(&["XADD", "usage", "*", "subject", subject]).await.parse().expect("an id")
    }

    async fn now(&self) -> UnixMs {
        let (s, us): (i64, i64) = self.run(&["TIME"]).await;
        UnixMs(s * 1000 + us / 1000)
    }

    /// A batch of one entry that counts `sum` units for `subject`, with a limit of 10 and thresholds 80 and 100.
    async fn batch(&self, from: StreamId, subject: &str, sum: u64) -> Batch {
        let to = self.add(subject).await;
        let now = self.now().await;
        self.batch_on(from, to, subject, sum, Day::in_utc(now).expect("a day"), now.plus(3_600_000), now)
    }

    #[allow(clippy::too_many_arguments, reason = "a test spells out what it varies")]
    fn batch_on(
        &self,
        from: StreamId,
        to: StreamId,
        subject: &str,
        sum: u64,
        day: Day,
        ends: UnixMs,
        now: UnixMs,
    ) -> Batch {
        let mut batch = Batch { from, to, entries: 1, read_at: now, counted: 1, ..Batch::default() };
        let metric_day = batch.metric_day(&Metric::default(), day);
        let thresholds = [80, 100].map(|n| Percent::new(n).expect("in range"));
        let thresholds = Thresholds::new(Units::new(10).expect("in range"), &thresholds, ends).expect("reachable");
        batch.limits.push(AppliedLimit { thresholds, limit: 10, plan: "free".into(), timezone: "UTC" });
        let subject = Subject::parse(subject.as_bytes()).expect("legal");
        let bucket = keys::bucket(subject.as_str());
        batch.rows.push(Row { subject, bucket, metric_day, limit: Some(0), expected_before: 0, sum });
        batch.arrange();
        batch
    }

    async fn commit(&self, batch: &Batch) -> CommitOutcome {
        self.committer.commit(&self.client, batch).await.expect("the server answers")
    }

    async fn committed(&self, batch: &Batch) -> CommitSummary {
        match self.commit(batch).await {
            CommitOutcome::Committed(done) => done,
            answer => panic!("{answer:?}"),
        }
    }

    async fn count(&self, batch: &Batch) -> Option<u64> {
        let row = &batch.rows[0];
        let key = self.keys.usage(&Metric::default(), batch.metric_days[0].day, row.bucket);
        self.run(&["HGET", &key, row.subject.as_str()]).await
    }

    /// Everything in the server, to see that nothing was written.
    async fn dump(&self) -> Vec<(String, Vec<u8>)> {
        let mut names: Vec<String> = self.run(&["KEYS", "*"]).await;
        names.sort();
        let mut all = Vec::new();
        for name in names {
            let dump: Vec<u8> = self.run(&["DUMP", &name]).await;
            all.push((name, dump));
        }
        all
    }
}

/// I2, I3: a crossing writes counter, flag, record and outbox together, with the texts and lives of the contract.
#[tokio::test]
async fn a_crossing_raises_flag_record_and_outbox_entry_together() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 8).await;
    let done = books.committed(&batch).await;
    assert_eq!(done.raised.iter().map(|r| (r.percent.get(), r.used)).collect::<Vec<_>>(), [(80, 8)]);
    assert_eq!(done.notes, []);

    let (row, day) = (&batch.rows[0], batch.metric_days[0].day);
    let flag = books.keys.flag(&row.subject, &Metric::default(), Percent::new(80).expect("in range"), day);
    assert_eq!(books.run::<String>(&["GET", &flag]).await, done.raised[0].id.as_str());
    let ttl: u64 = books.run(&["TTL", &flag]).await;
    assert!((107_990..=108_000).contains(&ttl), "{ttl}");

    let record: String =
        books.run(&["HGET", &books.keys.raised(&Metric::default(), day, row.bucket), "80:alice"]).await;
    let alert: Alert = serde_json::from_str(&record).expect("an alert");
    assert_eq!((alert.used, alert.limit, alert.subject.as_str()), (8, 10, "alice"));
    let outbox: Vec<(String, Vec<String>)> = books.run(&["XRANGE", &books.keys.outbox(), "-", "+"]).await;
    assert_eq!(outbox.len(), 1);
    assert_eq!(outbox[0].1, ["alert", &record]);

    let life: u64 = books.run(&["TTL", &books.keys.usage(&Metric::default(), day, row.bucket)]).await;
    let expected = 14 * 86_400 + 10 * u64::from(row.bucket);
    assert!((expected - 5..=expected).contains(&life), "{life}");
    assert_eq!(books.count(&batch).await, Some(8));
}

/// I1: a batch sent twice (a lost reply, a cluster client that re-sends) counts once.
#[tokio::test]
async fn a_batch_committed_twice_counts_once() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 3).await;
    books.committed(&batch).await;
    let before = books.dump().await;
    assert!(matches!(books.commit(&batch).await, CommitOutcome::Stale(id) if id == batch.to));
    assert_eq!(books.dump().await, before);
}

/// I1: of two workers that read the same entries, one is told to read again.
#[tokio::test]
async fn two_racing_workers_count_once() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 3).await;
    let other = Committer::new(books.keys.clone(), settings());
    let (a, b) =
        tokio::join!(books.commit(&batch), async { other.commit(&books.client, &batch).await.expect("answers") });
    assert_eq!(
        [&a, &b].iter().filter(|answer| matches!(answer, CommitOutcome::Committed(_))).count(),
        1,
        "{a:?} {b:?}"
    );
    assert_eq!(books.count(&batch).await, Some(3));
}

/// A primary that lost its tail must not be told that the tail was counted.
#[tokio::test]
async fn a_batch_whose_last_entry_is_gone_is_lost() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 3).await;
    books.run::<u64>(&["XDEL", "usage", &batch.to.to_string()]).await;
    let before = books.dump().await;
    assert!(matches!(books.commit(&batch).await, CommitOutcome::Lost));
    assert_eq!(books.dump().await, before);
}

/// What was read from a primary and is not on the replica that took its place must not be counted there, though the replica's
/// checkpoint is the one that the batch was read from: 1050 counted and 1000 surviving was measured without this.
#[tokio::test]
async fn a_batch_read_from_a_primary_whose_tail_was_lost_is_lost() {
    let (primary, replica) = (Books::open_with(&["--save", "", "--repl-diskless-sync-delay", "0"]), Books::open());
    let first = primary.batch(StreamId::ZERO, "alice", 3).await;
    primary.committed(&first).await;
    let port = primary.server.port().to_string();
    replica.run::<String>(&["REPLICAOF", "127.0.0.1", &port]).await;
    eventually("the replica has it all", || async { (replica.count(&first).await == Some(3)).then_some(()) }).await;
    replica.run::<String>(&["REPLICAOF", "NO", "ONE"]).await;

    let tail = primary.batch(first.to, "alice", 5).await;
    let before = replica.dump().await;
    assert!(matches!(replica.commit(&tail).await, CommitOutcome::Lost));
    assert_eq!(replica.dump().await, before);
    // Entries that came after the promotion don't make it this history either.
    let survivor = replica.batch(first.to, "alice", 1).await;
    assert!(matches!(replica.commit(&tail).await, CommitOutcome::Lost));
    replica.committed(&survivor).await;
    assert_eq!(replica.count(&first).await, Some(4));
}

/// A worker that was paused would judge by limits that have changed meanwhile.
#[tokio::test]
async fn a_batch_read_too_long_ago_is_old() {
    let books = Books::open();
    let mut batch = books.batch(StreamId::ZERO, "alice", 3).await;
    batch.read_at = batch.read_at.plus(-5_500);
    let before = books.dump().await;
    assert!(matches!(books.commit(&batch).await, CommitOutcome::Old));
    assert_eq!(books.dump().await, before);
}

/// Above 2^53 - 1 Lua loses units; the count so far tells the worker which events still fit.
#[tokio::test]
async fn a_counter_that_would_overflow_is_reported_with_its_count() {
    let books = Books::open();
    let first = books.batch(StreamId::ZERO, "alice", (1 << 53) - 5).await;
    books.committed(&first).await;
    let fits = books.batch(first.to, "alice", 4).await;
    let too_much = Batch { rows: vec![Row { sum: 5, ..fits.rows[0].clone() }], ..fits.clone() };
    let before = books.dump().await;
    match books.commit(&too_much).await {
        CommitOutcome::Overflow(full) => {
            assert_eq!(full.iter().map(|f| (f.row, f.count)).collect::<Vec<_>>(), [(0, (1 << 53) - 5)])
        }
        answer => panic!("{answer:?}"),
    }
    assert_eq!(books.dump().await, before);
    books.committed(&fits).await;
    assert_eq!(books.count(&fits).await, Some((1 << 53) - 1));
}

/// I3: the flag may expire while its day lasts (26 h days, outages): the record still knows.
#[tokio::test]
async fn an_alert_whose_flag_expired_is_not_raised_again() {
    let books = Books::open();
    let first = books.batch(StreamId::ZERO, "alice", 8).await;
    books.committed(&first).await;
    let flag = books.keys.flag(
        &first.rows[0].subject,
        &Metric::default(),
        Percent::new(80).expect("in range"),
        first.metric_days[0].day,
    );
    books.run::<u64>(&["DEL", &flag]).await;
    let second = books.batch(first.to, "alice", 1).await;
    assert_eq!(books.committed(&second).await.raised, []);
    assert_eq!(books.run::<u64>(&["XLEN", &books.keys.outbox()]).await, 1);
}

/// While the day lasts the count decides, so a lowered limit takes effect with the next event; afterwards only a crossing does.
#[tokio::test]
async fn a_lowered_limit_counts_today_and_not_for_yesterday() {
    let books = Books::open();
    let now = books.now().await;
    let today = Day::in_utc(now).expect("a day");
    let yesterday = today.before(1).expect("a day");
    // No limit yet on either day: 9 units.
    let mut from = StreamId::ZERO;
    for day in [today, yesterday] {
        let mut batch = books.batch_on(from, books.add("alice").await, "alice", 9, day, now.plus(3_600_000), now);
        batch.limits.clear();
        batch.rows[0].limit = None;
        books.committed(&batch).await;
        from = batch.to;
    }
    let late = books.batch_on(from, books.add("alice").await, "alice", 1, yesterday, now.plus(-1), now);
    let raised = books.committed(&late).await.raised;
    assert_eq!(raised.iter().map(|r| r.percent.get()).collect::<Vec<_>>(), [100], "only the crossing from 9 to 10");
    let live = books.batch_on(late.to, books.add("alice").await, "alice", 1, today, now.plus(3_600_000), now);
    let raised = books.committed(&live).await.raised;
    assert_eq!(raised.iter().map(|r| r.percent.get()).collect::<Vec<_>>(), [80, 100]);
}

/// I8: a key of another type stops the partition with its name, before anything is written.
#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 8).await;
    let (day, bucket) = (batch.metric_days[0].day, batch.rows[0].bucket);
    let metric = Metric::default();
    for key in [
        books.keys.outbox(),
        books.keys.refused(),
        books.keys.totals(),
        books.keys.usage(&metric, day, bucket),
        books.keys.raised(&metric, day, bucket),
        books.keys.metrics(day),
        books.keys.checkpoint(),
    ] {
        books.run::<String>(&["SET", &key, "mine"]).await;
        let before = books.dump().await;
        let error = books.committer.commit(&books.client, &batch).await.expect_err("refused");
        assert_eq!(error_kind(&error), ErrorKind::WrongType, "{key}: {error}");
        assert_eq!(books.dump().await, before, "{key}");
        books.run::<u64>(&["DEL", &key]).await;
    }
    let counter = books.keys.usage(&metric, day, bucket);
    for value in ["abc", "1.5", "-1", "nan", "9007199254740993"] {
        books.run::<u64>(&["HSET", &counter, "alice", value]).await;
        let error = books.committer.commit(&books.client, &batch).await.expect_err("refused");
        assert!(error.to_string().contains(&counter), "{value}: {error}");
    }
    books.run::<u64>(&["DEL", &counter]).await;
    books.committed(&batch).await;
}

/// A total that Redis can't add to would fail the commit midway, with the counters written and the checkpoint not: the batch would
/// be counted again at each try.
#[tokio::test]
async fn a_total_that_is_no_number_is_named_and_nothing_is_counted() {
    let books = Books::open();
    let mut batch = books.batch(StreamId::ZERO, "alice", 8).await;
    batch.duplicates = 1;
    let (entry, detail) = (batch.to, "units must be digits".to_owned());
    batch.refused.push(RefusedEvent { entry, reason: RefusalReason::BadUnits, detail, fields: Vec::new() });
    let totals = books.keys.totals();
    for field in ["counted", "duplicates", "refused", "raised"] {
        for value in ["", "abc", "1.5", "007", "-0", "99999999999999999999", "9223372036854775807"] {
            books.run::<u64>(&["HSET", &totals, field, value]).await;
            let before = books.dump().await;
            let error = books.committer.commit(&books.client, &batch).await.expect_err("refused");
            assert_eq!(error_kind(&error), ErrorKind::WrongType, "{field} {value:?}: {error}");
            assert!(books.dump().await == before, "{field} {value:?}");
        }
        books.run::<u64>(&["DEL", &totals]).await;
    }
    books.committed(&batch).await;
    assert_eq!(books.count(&batch).await, Some(8));
}

/// Tools that know consumer groups show a true lag, also for entries trimmed before the first commit.
#[tokio::test]
async fn the_group_shows_a_true_lag() {
    let books = Books::open();
    books.add("trimmed").await;
    books.run::<u64>(&["XTRIM", "usage", "MAXLEN", "0"]).await;
    let batch = books.batch(StreamId::ZERO, "alice", 1).await;
    books.add("unread").await;
    books.committed(&batch).await;
    let groups: Vec<redis::Value> = books.run(&["XINFO", "GROUPS", "usage"]).await;
    let text = format!("{groups:?}");
    assert!(text.contains("quotabell"), "{text}");
    let lag: Vec<std::collections::HashMap<String, redis::Value>> = books.run(&["XINFO", "GROUPS", "usage"]).await;
    assert_eq!(lag[0]["lag"], redis::Value::Int(1));
    assert_eq!(lag[0]["entries-read"], redis::Value::Int(2));
}

/// Another consumer of the stream must find every entry it has not been given or not acknowledged.
#[tokio::test]
async fn trimming_stops_at_what_another_group_needs() {
    let books = Books::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(books.add(&format!("s{n}")).await);
    }
    books.run::<String>(&["XGROUP", "CREATE", "usage", "billing", "0"]).await;
    books.run::<redis::Value>(&["XREADGROUP", "GROUP", "billing", "c", "COUNT", "4", "STREAMS", "usage", ">"]).await;
    books.run::<u64>(&["XACK", "usage", "billing", &ids[0].to_string()]).await;
    let now = books.now().await;
    let day = Day::in_utc(now).expect("a day");
    let batch = books.batch_on(StreamId::ZERO, ids[5], "alice", 1, day, now.plus(1000), now);
    let done = books.committed(&batch).await;
    assert_eq!(done.notes, [CommitWarning::TrimHeld("billing".into())]);
    let left: Vec<(String, Vec<String>)> = books.run(&["XRANGE", "usage", "-", "+"]).await;
    assert_eq!(left[0].0, ids[1].to_string(), "entry 2 is pending for billing, entry 1 is acknowledged");
}

/// RefusedEvent events are kept with reason and fields, event ids in their window, and windows that are past are removed.
#[tokio::test]
async fn refusals_and_event_ids_are_written_with_the_batch() {
    let books = Books::open();
    books.run::<String>(&["XADD", "usage", "600000-1", "subject", "old"]).await;
    let now = books.now().await;
    let day = Day::in_utc(now).expect("a day");
    let mut first =
        books.batch_on(StreamId::ZERO, StreamId { ms: 600_000, seq: 1 }, "alice", 1, day, now.plus(1000), now);
    first.seen.push(SeenId { window: 1, member: b"m1".to_vec() });
    books.committed(&first).await;
    assert_eq!(books.run::<u64>(&["SISMEMBER", &books.keys.seen(1), "m1"]).await, 1);

    let mut second = books.batch(first.to, "alice", 1).await;
    second.refused.push(RefusedEvent {
        entry: second.to,
        reason: RefusalReason::BadUnits,
        detail: "units must be".into(),
        fields: vec![b"units".to_vec(), b"\xff".to_vec()],
    });
    books.committed(&second).await;
    assert_eq!(books.run::<u64>(&["EXISTS", &books.keys.seen(1)]).await, 0, "two windows behind");
    let kept: Vec<(String, Vec<Vec<u8>>)> = books.run(&["XRANGE", &books.keys.refused(), "-", "+"]).await;
    assert_eq!(kept[0].1[3], b"bad_units");
    assert_eq!(kept[0].1[6..], [b"units".to_vec(), b"\xff".to_vec()]);
    let totals: std::collections::HashMap<String, u64> = books.run(&["HGETALL", &books.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (2, 1));
}

/// A full server must recover by itself: the commit is what frees memory.
#[tokio::test]
async fn a_full_server_still_commits() {
    let books = Books::open();
    let batch = books.batch(StreamId::ZERO, "alice", 8).await;
    books.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(books.committed(&batch).await.raised.len(), 1);
}

/// The rehearsal passes on a healthy server, leaves nothing, and names what a user may not do.
#[tokio::test]
async fn the_rehearsal_leaves_nothing_and_finds_missing_permissions() {
    let books = Books::open();
    probe::rehearse(&books.client, &books.keys, &settings(), "t1").await.expect("healthy");
    assert_eq!(books.dump().await, []);

    books.run::<String>(&["ACL", "SETUSER", "default", "-xtrim"]).await;
    let error = probe::rehearse(&books.client, &books.keys, &settings(), "t2").await.expect_err("no xtrim");
    assert!(error.to_string().contains("trim was refused"), "{error}");
    books.run::<String>(&["ACL", "SETUSER", "default", "+xtrim", "-hset"]).await;
    let error = probe::rehearse(&books.client, &books.keys, &settings(), "t3").await.expect_err("no hset");
    assert!(matches!(error, probe::ProbeError::Redis { .. }), "{error}");
    for command in ["get", "set", "pttl", "del"] {
        books.run::<String>(&["ACL", "SETUSER", "default", "+@all", &format!("-{command}")]).await;
        let error = probe::rehearse(&books.client, &books.keys, &settings(), command).await.expect_err(command);
        assert!(matches!(error, probe::ProbeError::Lease { .. }), "no {command}: {error}");
    }
}

/// A daemon that starts beside a full server must get as far as freeing memory.
#[tokio::test]
async fn the_rehearsal_passes_on_a_full_server() {
    let books = Books::open();
    books.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    probe::rehearse(&books.client, &books.keys, &settings(), "full").await.expect("flags=allow-oom");
}

/// Where a counter stood is only a guess of the reader, who may have begun in the middle of the day or counted a batch twice.
#[tokio::test]
async fn a_wrong_guess_of_the_count_neither_hides_nor_invents_an_alert() {
    let books = Books::open();
    let mut batch = books.batch(StreamId::ZERO, "alice", 8).await;
    batch.rows[0].expected_before = 1_000;
    let raised = |done: &CommitSummary| done.raised.iter().map(|r| (r.percent.get(), r.used)).collect::<Vec<_>>();
    assert_eq!(raised(&books.committed(&batch).await), [(80, 8)], "believed to be past it");

    let mut next = books.batch(batch.to, "bob", 3).await;
    next.rows[0].expected_before = 6;
    assert_eq!(raised(&books.committed(&next).await), [], "believed to reach it");

    let mut last = books.batch(next.to, "alice", 2).await;
    last.rows[0].expected_before = 8;
    assert_eq!(raised(&books.committed(&last).await), [(100, 10)], "believed rightly");
}

/// The life of a key is renewed once a minute only; a key that was deleted by hand meanwhile must not come back without one.
#[tokio::test]
async fn a_counter_that_is_made_anew_within_the_minute_has_a_life() {
    let books = Books::open();
    let first = books.batch(StreamId::ZERO, "alice", 8).await;
    books.committed(&first).await;
    let (day, bucket) = (first.metric_days[0].day, first.rows[0].bucket);
    let keys = [books.keys.usage(&Metric::default(), day, bucket), books.keys.raised(&Metric::default(), day, bucket)];
    for key in &keys {
        let _: u64 = books.run(&["DEL", key]).await;
    }
    let flag = books.keys.flag(&first.rows[0].subject, &Metric::default(), Percent::new(80).expect("in range"), day);
    let _: u64 = books.run(&["DEL", &flag]).await;
    books.committed(&books.batch(first.to, "alice", 8).await).await;
    let expected = 14 * 86_400 + 10 * u64::from(bucket);
    for key in &keys {
        let life: u64 = books.run(&["TTL", key]).await;
        assert!((expected - 5..=expected).contains(&life), "{key}: {life}");
    }
}

/// A record that is written in a minute in which nothing is renewed must live as long as its counter, not for ever.
#[tokio::test]
async fn a_record_that_comes_later_in_the_minute_has_a_life() {
    let books = Books::open();
    let first = books.batch(StreamId::ZERO, "alice", 1).await;
    books.committed(&first).await;
    books.committed(&books.batch(first.to, "alice", 8).await).await;
    let (day, bucket) = (first.metric_days[0].day, first.rows[0].bucket);
    let life: u64 = books.run(&["TTL", &books.keys.raised(&Metric::default(), day, bucket)]).await;
    let expected = 14 * 86_400 + 10 * u64::from(bucket);
    assert!((expected - 5..=expected).contains(&life), "{life}");
}
