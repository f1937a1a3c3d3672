//! The worker on a real server: every entry is counted or refused, once, whatever the stream holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::eventually::eventually;
use crate::support::redis_server::RedisServer;
use quotabell::events::PartitionLease;
use quotabell::events::config::StreamConfig;
use quotabell::events::worker::{EventWorker, EventWorkerParts};
use quotabell::ledger::Committer;
use quotabell::ledger::commit_settings::{CommitSettings, TrimPolicy};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::subjects::rates::RateConfig;
use quotabell::subjects::watch::{ChangeFeed, ChangeListener};
use quotabell::types::{Day, Keys, Metric, Percent, Units, UnixMs, keys};
use quotabell::wire::{RedisClient, RedisConfig, RedisEndpoint};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

/// A worker at work on a server of its own.
struct Desk {
    server: RedisServer,
    client: Arc<RedisClient>,
    keys: Keys,
    stop: CancellationToken,
}

/// How a worker works.
struct Contract {
    lease: Option<PartitionLease>,
    batch_entries: u32,
}

/// A field and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);
/// A hash of counts: subject to units.
type Counts = BTreeMap<String, u64>;

impl Desk {
    async fn open() -> Self {
        let desk = Self::closed();
        desk.hire().await;
        desk
    }

    fn closed() -> Self {
        let server = RedisServer::start();
        let client = Arc::new(server.client());
        Self { client, server, keys: Keys::new("usage"), stop: CancellationToken::new() }
    }

    /// Starts one more worker, which asks nobody whether it may read.
    async fn hire(&self) {
        self.hire_for(Contract { lease: None, batch_entries: 500 }).await;
    }

    async fn hire_for(&self, contract: Contract) {
        let config = RedisConfig {
            url: self.server.url(),
            url_file: None,
            data_dir: "unused".into(),
            embedded_port: 0,
            ca_file: None,
        };
        let target = RedisEndpoint::from_config(&config).expect("a target");
        let limits = [("requests", 5000), ("tokens", 100)];
        let limits = limits.map(|(m, n)| (m.parse::<Metric>().expect("legal"), Units::new(n).expect("in range")));
        let thresholds = [80, 100].map(|n| Percent::new(n).expect("in range")).to_vec();
        let plan = PlanConfig { limits: limits.into(), thresholds, rate: RateConfig::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let settings = CommitSettings { trim: TrimPolicy::Consumed, partitions: 1, fingerprint: plans.fingerprint() };
        let changes = ChangeFeed::default();
        let watch = ChangeListener::new(target.client_resp3().expect("a client"), &self.keys, vec![changes.clone()]);
        tokio::spawn(watch.run(self.stop.clone()));
        // The promise of one second begins when the daemon listens; a test should not have to wait for it.
        eventually("the watch listens", || async { changes.is_live().then_some(()) }).await;
        let worker = EventWorker::new(EventWorkerParts {
            target,
            client: Arc::new(self.server.client()),
            lease: contract.lease,
            keys: self.keys.clone(),
            config: StreamConfig {
                key: "usage".into(),
                partitions: 1,
                trim: TrimPolicy::Consumed,
                late_max: std::time::Duration::from_secs(5 * 3600),
                batch_entries: contract.batch_entries,
            },
            committer: Committer::new(self.keys.clone(), settings),
            plans,
            cache_entries: 1000,
            changes,
            raised: Arc::default(),
        });
        tokio::spawn(worker.run(self.stop.clone()));
    }

    async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn add(&self, fields: &[Pair<'_>]) -> String {
        let mut command = redis::cmd("XADD");
        command.arg("usage").arg("*");
        for (name, value) in fields {
            command.arg(*name).arg(*value);
        }
        self.client.query(&command).await.expect("added")
    }

    async fn now(&self) -> UnixMs {
        let (s, us): (i64, i64) = self.run(&["TIME"]).await;
        UnixMs(s * 1000 + us / 1000)
    }

    async fn today(&self) -> Day {
        Day::in_utc(self.now().await).expect("a day")
    }

    /// Waits until the checkpoint is the stream's newest id.
    async fn caught_up(&self) {
        eventually("the worker has caught up", || async {
            let newest: Vec<(String, Vec<Vec<u8>>)> = self.run(&["XREVRANGE", "usage", "+", "-", "COUNT", "1"]).await;
            let read: Option<String> = self.run(&["HGET", &self.keys.checkpoint(), "id"]).await;
            (newest.first().map(|entry| entry.0.clone()) == read).then_some(())
        })
        .await;
    }

    async fn count(&self, subject: &str, metric: &str, day: Day) -> Option<u64> {
        let metric: Metric = metric.parse().expect("legal");
        self.run(&["HGET", &self.keys.usage(&metric, day, keys::bucket(subject)), subject]).await
    }

    async fn refused(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        self.run(&["XRANGE", &self.keys.refused(), "-", "+"]).await
    }

    async fn alerts(&self) -> Vec<(String, u16)> {
        let entries: Vec<(String, Vec<String>)> = self.run(&["XRANGE", &self.keys.outbox(), "-", "+"]).await;
        let alert = |text: &str| serde_json::from_str::<quotabell::types::Alert>(text).expect("an alert");
        entries
            .iter()
            .map(|entry| alert(&entry.1[1]))
            .map(|a| (a.subject.to_string(), a.threshold_percent.get()))
            .collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// I8: every rule of the event table broken in every way a client can, and the stream goes on.
#[tokio::test]
async fn every_broken_rule_is_refused_with_its_reason_and_the_stream_goes_on() {
    let desk = Desk::open().await;
    let long = vec![b'x'; 257];
    let long_id = vec![b'i'; 129];
    let long_metric = vec![b'm'; 65];
    let mut cases: Vec<(&str, Vec<Pair<'_>>)> = vec![
        ("missing_subject", vec![(b"units", b"1")]),
        ("missing_subject", vec![(b"Subject", b"alice")]),
        ("bad_subject", vec![(b"subject", b"")]),
        ("bad_subject", vec![(b"subject", &long)]),
        ("bad_subject", vec![(b"subject", b"\xff\xfe")]),
        ("bad_subject", vec![(b"subject", b"a\x00b")]),
        ("bad_subject", vec![(b"subject", b"a\nb")]),
        ("bad_metric", vec![(b"subject", b"alice"), (b"metric", &long_metric)]),
        ("bad_id", vec![(b"subject", b"alice"), (b"id", b"")]),
        ("bad_id", vec![(b"subject", b"alice"), (b"id", &long_id)]),
    ];
    let huge = "9".repeat(31);
    for units in ["", "0", "-1", "+1", "1.5", "1e3", "0x10", " 5", "5 ", "9007199254740992", &huge, "NaN"] {
        cases.push(("bad_units", vec![(b"subject", b"alice"), (b"units", units.as_bytes())]));
    }
    for metric in ["", "Requests", "a b", "a:b", "\u{e9}"] {
        cases.push(("bad_metric", vec![(b"subject", b"alice"), (b"metric", metric.as_bytes())]));
    }
    for ts in ["", "tomorrow", "2026-02-30T00:00:00Z", "2026-11-21T10:00:00", "-5", "99999999999999999999"] {
        cases.push(("bad_ts", vec![(b"subject", b"alice"), (b"ts", ts.as_bytes())]));
    }
    let now = desk.now().await;
    let (late, ahead) = (now.plus(-3 * 86_400_000).0.to_string(), now.plus(600_000).0.to_string());
    cases.push(("too_late", vec![(b"subject", b"alice"), (b"ts", late.as_bytes())]));
    cases.push(("too_far_ahead", vec![(b"subject", b"alice"), (b"ts", ahead.as_bytes())]));
    // The table's order decides, not the entry's.
    cases.push(("bad_subject", vec![(b"ts", b"x"), (b"units", b"-1"), (b"subject", b"")]));

    let mut expected = Vec::new();
    for (reason, fields) in &cases {
        expected.push((desk.add(fields).await, (*reason).to_owned()));
    }
    desk.add(&[(b"subject", b"alice"), (b"units", b"7")]).await;
    desk.caught_up().await;
    let seen: Vec<(String, String)> = desk
        .refused()
        .await
        .into_iter()
        .map(|(_, f)| (String::from_utf8_lossy(&f[1]).into_owned(), String::from_utf8_lossy(&f[3]).into_owned()))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(7));
    let totals: Counts = desk.run(&["HGETALL", &desk.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (1, cases.len() as u64));
}

/// Subjects are opaque: colons, braces, spaces and emoji count like any other.
#[tokio::test]
async fn odd_subjects_are_counted_apart() {
    let desk = Desk::open().await;
    let subjects = ["a:b", "a", "{usage}", "}{", "*", "with space", "🦀🔔", "80:alice", "alice", &"y".repeat(256)];
    for (n, subject) in subjects.iter().enumerate() {
        let units = (n + 1).to_string();
        desk.add(&[(b"subject", subject.as_bytes()), (b"units", units.as_bytes()), (b"other", b"field")]).await;
    }
    desk.caught_up().await;
    for (n, subject) in subjects.iter().enumerate() {
        assert_eq!(desk.count(subject, "requests", desk.today().await).await, Some(n as u64 + 1), "{subject}");
    }
}

/// A producer that sends twice because a reply was lost is counted once: inside a batch, across batches, across workers.
#[tokio::test]
async fn an_event_id_counts_once() {
    let desk = Desk::closed();
    for (subject, metric, id) in
        [("a", "requests", "1"), ("a", "requests", "1"), ("a", "tokens", "1"), ("b", "requests", "1")]
    {
        desk.add(&[(b"subject", subject.as_bytes()), (b"metric", metric.as_bytes()), (b"id", id.as_bytes())]).await;
    }
    desk.hire().await;
    desk.caught_up().await;
    desk.add(&[(b"subject", b"a"), (b"id", b"1")]).await;
    desk.add(&[(b"subject", b"a"), (b"id", b"2")]).await;
    desk.add(&[(b"subject", b"a")]).await;
    desk.caught_up().await;
    let today = desk.today().await;
    assert_eq!(desk.count("a", "requests", today).await, Some(3));
    assert_eq!(desk.count("a", "tokens", today).await, Some(1));
    assert_eq!(desk.count("b", "requests", today).await, Some(1));
    let totals: Counts = desk.run(&["HGETALL", &desk.keys.totals()]).await;
    assert_eq!(totals["duplicates"], 2);
}

/// Ids protect for 10 to 20 minutes of stream time, also where an outage lies between: not by the clock of whoever reads.
#[tokio::test]
async fn event_ids_protect_in_stream_time() {
    let desk = Desk::closed();
    let minute = 60_000;
    let entries = [(0, "x"), (9, "x"), (19, "x"), (20, "x"), (41, "x")];
    for (minutes, id) in entries {
        let entry = format!("{}-1", 1_000_000 * 600_000_u64 + minutes * minute);
        desk.run::<String>(&["XADD", "usage", &entry, "subject", "a", "id", id]).await;
    }
    desk.hire().await;
    desk.caught_up().await;
    // Counted at 0, 20 and 41: 9 and 19 lie in the same window and the next.
    let day = Day::in_utc(UnixMs(1_000_000 * 600_000)).expect("a day");
    assert_eq!(desk.count("a", "requests", day).await, Some(3));
}

/// A limit, a zone or a plan written with plain HSET takes effect at once, also for a subject that is in use.
#[tokio::test]
async fn a_plain_hset_takes_effect_within_a_second() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"10")]).await;
    desk.caught_up().await;
    assert_eq!(desk.alerts().await, []);
    desk.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "12"]).await;
    eventually("the new limit is applied to the next event", || async {
        desk.add(&[(b"subject", b"alice")]).await;
        desk.caught_up().await;
        (!desk.alerts().await.is_empty()).then_some(())
    })
    .await;
    assert_eq!(desk.alerts().await[0], ("alice".to_owned(), 80));
}

/// An unreadable setting must not turn into a default: the subject is counted, not judged, and judged again once it is mended.
#[tokio::test]
async fn a_subject_with_an_unreadable_setting_is_counted_and_not_judged() {
    let desk = Desk::closed();
    desk.run::<u64>(&["HSET", "quota_subject:alice", "plan", "gold"]).await;
    desk.hire().await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"6000")]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(6000));
    assert_eq!(desk.alerts().await, []);
    desk.run::<u64>(&["HSET", "quota_subject:alice", "plan", "free"]).await;
    eventually("the alerts are raised once the plan is mended", || async {
        desk.add(&[(b"subject", b"alice")]).await;
        (desk.alerts().await.len() == 2).then_some(())
    })
    .await;
}

/// A subject whose key became a string keeps all its settings: judged by the default plan it would be alerted at another's limit.
#[tokio::test]
async fn a_subject_whose_key_is_no_hash_any_more_keeps_its_last_settings() {
    let desk = Desk::closed();
    desk.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "100000"]).await;
    desk.hire().await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    desk.run::<String>(&["SET", "quota_subject:alice", "mine"]).await;
    // Changes are noticed in their order: once this one is, so is the one before.
    desk.run::<u64>(&["HSET", "quota_subject:bob", "limit:requests", "1", "thresholds", "100"]).await;
    eventually("the change of alice was noticed", || async {
        desk.add(&[(b"subject", b"bob")]).await;
        desk.caught_up().await;
        (!desk.alerts().await.is_empty()).then_some(())
    })
    .await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"6000")]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(6001));
    assert_eq!(desk.alerts().await, [("bob".to_owned(), 100)]);
}

/// A platform that keeps its own fields in a subject's hash may write them all the time: that must not stop the counting.
#[tokio::test]
async fn a_subject_that_is_written_all_the_time_is_counted() {
    let desk = Desk::open().await;
    let (stop, client) = (desk.stop.clone(), desk.server.client());
    tokio::spawn(async move {
        let mut writes = redis::pipe();
        for n in 0..2000 {
            writes.cmd("HSET").arg("quota_subject:alice").arg("last_seen").arg(n).ignore();
        }
        while !stop.is_cancelled() {
            let () = client.pipe(&writes).await.expect("written");
        }
    });
    for n in 1..=20 {
        desk.add(&[(b"subject", b"alice")]).await;
        desk.caught_up().await;
        assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(n));
    }
}

/// I8: a day that was over before 1970 ends at a negative instant, which the commit has to read like any other.
#[tokio::test]
async fn an_event_of_the_last_day_of_1969_is_counted_and_judged() {
    let desk = Desk::closed();
    desk.run::<u64>(&["HSET", "quota_subject:alice", "timezone", "Asia/Dubai"]).await;
    let event = ["subject", "alice", "units", "5000", "ts", "1969-12-31T19:00:00Z"];
    desk.run::<String>(&[&["XADD", "usage", "1-1"], event.as_slice()].concat()).await;
    desk.add(&[(b"subject", b"bob")]).await;
    desk.hire().await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", Day::parse("1969-12-31").expect("a date")).await, Some(5000));
    assert_eq!(desk.alerts().await, [("alice".to_owned(), 80), ("alice".to_owned(), 100)]);
}

/// I8: entries so large that the first reading can't come through are read in smaller ones. Here the server hangs up on a reply
/// above 1 MB; a slow network that runs into the deadline does the same.
#[tokio::test]
async fn entries_too_large_for_one_reading_are_read_in_smaller_ones() {
    let desk = Desk::closed();
    desk.run::<String>(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0"]).await;
    let large = vec![b'x'; 100_000];
    for _ in 0..64 {
        desk.add(&[(b"subject", b"alice"), (b"payload", &large)]).await;
    }
    desk.hire().await;
    eventually("all are counted", || async {
        (desk.count("alice", "requests", desk.today().await).await == Some(64)).then_some(())
    })
    .await;
}

/// I7: the same instant lies in different days of different zones.
#[tokio::test]
async fn days_lie_in_the_subjects_zone() {
    let desk = Desk::closed();
    desk.run::<u64>(&["HSET", "quota_subject:kiri", "timezone", "Pacific/Kiritimati"]).await;
    desk.run::<u64>(&["HSET", "quota_subject:pago", "timezone", "Pacific/Pago_Pago"]).await;
    let noon = "1700000000000-0"; // 2023-11-14T22:13:20Z
    desk.run::<String>(&["XADD", "usage", noon, "subject", "kiri"]).await;
    desk.run::<String>(&["XADD", "usage", "1700000000000-1", "subject", "pago"]).await;
    desk.hire().await;
    desk.caught_up().await;
    let day = |text: &str| Day::parse(text).expect("a date");
    assert_eq!(desk.count("kiri", "requests", day("2023-11-15")).await, Some(1));
    assert_eq!(desk.count("pago", "requests", day("2023-11-14")).await, Some(1));
}

/// Near 2^53 - 1 each event counts or is refused by itself, in the order of the stream.
#[tokio::test]
async fn events_that_do_not_fit_a_full_counter_are_refused_one_by_one() {
    let desk = Desk::closed();
    let most = "9007199254740991";
    for units in ["9007199254740981", most, "4", "7", "6", "1"] {
        desk.add(&[(b"subject", b"alice"), (b"units", units.as_bytes())]).await;
    }
    desk.add(&[(b"subject", b"bob")]).await;
    desk.hire().await;
    desk.caught_up().await;
    let today = desk.today().await;
    assert_eq!(desk.count("alice", "requests", today).await, Some(9_007_199_254_740_991));
    assert_eq!(desk.count("bob", "requests", today).await, Some(1));
    let reasons: Vec<_> = desk.refused().await.into_iter().map(|(_, f)| (f[3].clone(), f[9].clone())).collect();
    let overflow = b"counter_overflow".to_vec();
    assert_eq!(reasons, [most, "7", "1"].map(|units| (overflow.clone(), units.as_bytes().to_vec())));
}

/// Three workers that ask for no lease race for every batch: each entry counts once, each alert is raised once.
#[tokio::test]
async fn racing_workers_count_every_entry_once() {
    let desk = Desk::open().await;
    desk.hire().await;
    desk.hire().await;
    for n in 0..3000_u64 {
        let subject = format!("s{}", n % 7);
        let units = (1 + n % 3 * 10).to_string();
        desk.add(&[(b"subject", subject.as_bytes()), (b"units", units.as_bytes())]).await;
    }
    desk.caught_up().await;
    let today = desk.today().await;
    let mut expected = Counts::new();
    for n in 0..3000_u64 {
        *expected.entry(format!("s{}", n % 7)).or_default() += 1 + n % 3 * 10;
    }
    for (subject, units) in &expected {
        assert_eq!(desk.count(subject, "requests", today).await, Some(*units), "{subject}");
    }
    let mut alerts = desk.alerts().await;
    alerts.sort();
    let due: Vec<(String, u16)> = expected
        .iter()
        .flat_map(|(subject, units)| {
            [(80, 4000), (100, 5000)]
                .into_iter()
                .filter(move |(_, at)| *units >= *at)
                .map(|(p, _)| (subject.clone(), p))
        })
        .collect();
    assert_eq!(alerts, due);
    let totals: Counts = desk.run(&["HGETALL", &desk.keys.totals()]).await;
    assert_eq!(totals["counted"], 3000);
}

/// After a race for a nearly full counter a worker must not remember the room that its own failed commit would have used: it would
/// refuse events that fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_for_full_counters_refuses_only_what_does_not_fit() {
    const COUNT_MAX: u64 = (1 << 53) - 1;
    const ROOM: u64 = 2_000;
    const SUBJECTS: u64 = 12;
    const EVENTS: u64 = 6_000;
    let seed =
        std::env::var("QUOTABELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("QUOTABELL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut counts, mut refused) = (Counts::new(), 0_u64);
    let mut pipeline = redis::pipe();
    let mut add = |subject: String, units: u64| {
        pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg(&subject).arg("units").arg(units).ignore();
        let count = counts.entry(subject).or_default();
        if *count + units > COUNT_MAX {
            refused += 1;
        } else {
            *count += units;
        }
    };
    for number in 0..SUBJECTS {
        add(format!("s{number}"), COUNT_MAX - ROOM);
    }
    for _ in 0..EVENTS {
        let bits = random.random_range(0..9);
        add(format!("s{}", random.random_range(0..SUBJECTS)), 1 << bits);
    }
    let desk = Desk::closed();
    // Small batches, many commits, many races.
    for _ in 0..2 {
        desk.hire_for(Contract { lease: None, batch_entries: 5 }).await;
    }
    let () = desk.client.pipe(&pipeline).await.expect("they are added");
    desk.caught_up().await;
    let today = desk.today().await;
    for (subject, units) in &counts {
        assert_eq!(desk.count(subject, "requests", today).await, Some(*units), "{subject}");
    }
    let totals: Counts = desk.run(&["HGETALL", &desk.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (SUBJECTS + EVENTS - refused, refused));
}

/// Two containers with the same host name and the same address inside: each takes the other for its own dead predecessor. Were that
/// believed more than once, they would take the lease from each other for ever.
#[tokio::test]
async fn two_workers_of_the_same_home_do_not_take_the_lease_from_each_other() {
    let desk = Desk::closed();
    let key = desk.keys.lease();
    let mut holders: Vec<String> = Vec::new();
    for _ in 0..2 {
        let lease = PartitionLease::new(&desk.keys, "box", "0.0.0.0:9464".parse().expect("an address"));
        desk.hire_for(Contract { lease: Some(lease), batch_entries: 500 }).await;
        let holder = eventually("the new one holds the lease", || async {
            let holder: Option<String> = desk.run(&["GET", &key]).await;
            holder.filter(|holder| !holders.contains(holder))
        })
        .await;
        holders.push(holder);
    }
    // Nothing else asks how long a key will live: the first has noticed, and has asked again and again.
    eventually("the first stands by", || async {
        assert_eq!(desk.run::<String>(&["GET", &key]).await, holders[1]);
        let stats: String = desk.run(&["INFO", "commandstats"]).await;
        let calls: Option<u64> = stats.split("cmdstat_pttl:calls=").nth(1)?.split(',').next()?.parse().ok();
        calls.filter(|calls| *calls >= 4)
    })
    .await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
}

/// Entries that a producer trimmed before they were read are counted as missing, and the group's lag stays true.
#[tokio::test]
async fn entries_trimmed_before_they_were_read_are_noticed() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    let mut both = redis::pipe();
    both.atomic().cmd("XADD").arg("usage").arg("*").arg("subject").arg("lost").ignore();
    both.cmd("XTRIM").arg("usage").arg("MAXLEN").arg(0).ignore();
    let () = desk.client.pipe(&both).await.expect("done");
    eventually("the gap is booked", || async {
        let read: u64 = desk.run(&["HGET", &desk.keys.checkpoint(), "entries_read"]).await;
        (read == 2).then_some(())
    })
    .await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(2));
}

/// A stream that is made again with lower ids would otherwise never be read: XREAD after the checkpoint finds nothing.
#[tokio::test]
async fn a_stream_made_again_is_read_from_its_beginning() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    desk.run::<u64>(&["DEL", "usage"]).await;
    desk.run::<String>(&["XADD", "usage", "1700000000000-0", "subject", "alice"]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", Day::parse("2023-11-14").expect("a date")).await, Some(1));
}

/// Made again, a stream may hold entries on both sides of the old checkpoint: XREAD after it would skip the lower ones for ever.
#[tokio::test]
async fn a_stream_made_again_around_the_checkpoint_is_read_from_its_beginning() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    let mut again = redis::pipe();
    again.atomic().cmd("DEL").arg("usage").ignore();
    again.cmd("XADD").arg("usage").arg("1700000000000-0").arg("subject").arg("alice").ignore();
    again.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    let () = desk.client.pipe(&again).await.expect("done");
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", Day::parse("2023-11-14").expect("a date")).await, Some(1));
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(2));
}

/// Entries that stay before the checkpoint are no sign of another stream: taken for one, they would be counted twice.
#[tokio::test]
async fn an_entry_deleted_or_trimmed_at_the_checkpoint_is_no_new_stream() {
    let desk = Desk::open().await;
    for trimming in [None, Some("0")] {
        for _ in 0..3 {
            desk.add(&[(b"subject", b"alice")]).await;
        }
        desk.caught_up().await;
        let last: String = desk.run(&["HGET", &desk.keys.checkpoint(), "id"]).await;
        match trimming {
            None => desk.run::<u64>(&["XDEL", "usage", &last]).await,
            Some(length) => desk.run::<u64>(&["XTRIM", "usage", "MAXLEN", length]).await,
        };
        desk.add(&[(b"subject", b"alice")]).await;
        desk.caught_up().await;
    }
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(8));
}

/// A stream that never rests is never read to its end by a blocking read: the gap would be said at night, or never.
#[tokio::test]
async fn entries_trimmed_from_a_busy_stream_are_noticed() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice")]).await;
    desk.caught_up().await;
    let mut both = redis::pipe();
    both.atomic().cmd("XADD").arg("usage").arg("*").arg("subject").arg("lost").ignore();
    both.cmd("XTRIM").arg("usage").arg("MAXLEN").arg(0).ignore();
    let () = desk.client.pipe(&both).await.expect("done");
    let mut added = 2;
    eventually("the gap is booked", || {
        added += 1;
        let desk = &desk;
        async move {
            desk.add(&[(b"subject", b"alice")]).await;
            desk.caught_up().await;
            let read: u64 = desk.run(&["HGET", &desk.keys.checkpoint(), "entries_read"]).await;
            (read == added).then_some(())
        }
    })
    .await;
}

/// After FLUSHALL the daemon counts what comes next; nothing of the past is left to agree with.
#[tokio::test]
async fn counting_goes_on_after_flushall() {
    let desk = Desk::open().await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"5")]).await;
    desk.caught_up().await;
    desk.run::<String>(&["FLUSHALL"]).await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"2")]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(2));
}

/// A key of ours that holds something else stops the partition until it is mended, and then nothing is missing.
#[tokio::test]
async fn a_key_of_another_type_stops_counting_until_it_is_mended() {
    let desk = Desk::open().await;
    desk.run::<String>(&["SET", &desk.keys.outbox(), "mine"]).await;
    desk.add(&[(b"subject", b"alice"), (b"units", b"5000")]).await;
    eventually("the server has refused a commit", || async {
        let stats: String = desk.run(&["INFO", "errorstats"]).await;
        stats.contains("errorstat_WRONGTYPE").then_some(())
    })
    .await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, None);
    desk.run::<u64>(&["DEL", &desk.keys.outbox()]).await;
    desk.caught_up().await;
    assert_eq!(desk.count("alice", "requests", desk.today().await).await, Some(5000));
    assert_eq!(desk.alerts().await.len(), 2);
}
