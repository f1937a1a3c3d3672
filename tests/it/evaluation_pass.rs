//! The hourly passes on a real server, with the time that each test gives them.

use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::recorded_usage::RecordedUsage;
use quotabell::evaluation::HourlyPass;
use quotabell::evaluation::pass::PassSlice;
use quotabell::forecast::UsageProfile;
use quotabell::ledger::forget;
use quotabell::ledger::usage_profiles::{self, PassMark, ProfilesReply};
use quotabell::redis_client::{ErrorKind, Partition, error_kind};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, DaySpan, Metric, Subject, UnixMs, keys};
use quotabell::zones::Zone;
use serde_json::Value;

const HOUR_MS: i64 = 3_600_000;

struct Passes {
    usage: RecordedUsage,
    partition: Partition,
    plans: Plans,
}

impl Passes {
    async fn start() -> Self {
        let usage = RecordedUsage::start();
        let partition = Partition { client: usage.server.client().into(), keys: usage.keys.clone() };
        let plan: PlanConfig = toml::from_str("limits = { requests = \"5000/day\" }").expect("a plan");
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let passes = Self { usage, partition, plans };
        passes.run(&["HSET", &passes.usage.keys.checkpoint(), "id", "1-1"]).await;
        passes
    }

    async fn run(&self, words: &[&str]) -> redis::Value {
        let command = words.iter().fold(redis::Cmd::new(), |mut command, word| command.arg(*word).to_owned());
        self.partition.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A whole pass at this time. Returns what it did.
    async fn pass(&self, now: UnixMs) -> PassSlice {
        let mark = usage_profiles::mark(&self.partition).await.expect("read");
        let mut pass = HourlyPass::begin(&self.partition, &self.plans, now, mark).await.expect("begun");
        let mut sum = PassSlice::default();
        while let Some(slice) = pass.next().await.expect("redis answers") {
            sum.counters += slice.counters;
            sum.stored += slice.stored;
            sum.unreadable += slice.unreadable;
        }
        usage_profiles::end_pass(&self.partition, mark.erasure_epoch, now).await.expect("ended");
        sum
    }

    async fn profile(&self, subject: &str) -> Option<UsageProfile> {
        let (subject, metric) = (self::subject(subject), Metric::default());
        let read = usage_profiles::read_each(&self.partition, &[(&subject, &metric)]).await.expect("read");
        read.into_iter().next().expect("one").read()
    }

    fn key(&self, subject: &str) -> String {
        self.usage.keys.profiles(&Metric::default(), keys::bucket(subject))
    }

    /// Plays days with 100 units an hour until this time, with a pass after each hour.
    async fn play(&self, subject: &str, zone: Zone, first: Day, until: UnixMs) {
        let mut day = first;
        loop {
            let span = DaySpan::for_day(zone, day).expect("a day");
            let hours = (span.end.0 - span.start.0) / HOUR_MS;
            for hour in 1..=hours {
                let now = span.start.plus(hour * HOUR_MS);
                if now > until {
                    return;
                }
                self.usage.count(subject, "requests", day, 100 * hour as u64).await;
                self.pass(now).await;
            }
            day = day.next().expect("a day");
        }
    }
}

fn subject(name: &str) -> Subject {
    Subject::parse(name.as_bytes()).expect("legal")
}

fn day(text: &str) -> Day {
    Day::parse(text).expect("a date")
}

fn ms(text: &str) -> UnixMs {
    UnixMs(chrono::DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis())
}

/// In another zone, over a change of clocks: each full day is learned once, the first one not at all.
#[tokio::test]
async fn a_subject_is_known_after_some_days() {
    let passes = Passes::start().await;
    passes.usage.set("alice", &[("timezone", "Europe/Paris")]).await;
    let zone = "Europe/Paris".parse().expect("a zone");
    // The 25th has 25 hours.
    passes.play("alice", zone, day("2026-10-22"), ms("2026-10-27T11:00:00Z")).await;
    let profile = passes.profile("alice").await.expect("there");
    assert_eq!((profile.days(), profile.today()), (4, i32::try_from(day("2026-10-27").since_epoch()).expect("small")));
    let usual = profile.usual_day(chrono::Weekday::Tue);
    assert!((2_390.0..2_510.0).contains(&usual), "{usual}");
}

/// Whatever is interrupted is done again: a pass that ended halfway, and a pass whose end was not stored.
#[tokio::test]
async fn a_repeated_pass_counts_nothing_twice() {
    let passes = Passes::start().await;
    passes.play("alice", Zone::UTC, day("2026-11-20"), ms("2026-11-23T09:00:00Z")).await;
    passes.usage.count("alice", "requests", day("2026-11-23"), 1_000).await;
    let now = ms("2026-11-23T10:00:00Z");
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    assert_eq!(passes.pass(now).await, PassSlice { counters: 2, stored: 1, unreadable: 0 });
    let profile = passes.profile("alice").await;
    passes
        .run(&["HSET", &passes.usage.keys.checkpoint(), "profiled_ms", &mark.passed.expect("set").0.to_string()])
        .await;
    assert_eq!(passes.pass(now).await.stored, 0);
    assert_eq!(passes.profile("alice").await, profile);
}

/// A cut profile, or one of another version, must not stop the pass, and teaches nothing.
#[tokio::test]
async fn an_unreadable_profile_begins_anew() {
    let passes = Passes::start().await;
    passes.play("alice", Zone::UTC, day("2026-11-20"), ms("2026-11-23T09:00:00Z")).await;
    for unreadable in ["", "x", &"9".repeat(182)] {
        passes.run(&["HSET", &passes.key("alice"), "alice", unreadable]).await;
        assert_eq!(passes.pass(ms("2026-11-23T10:00:00Z")).await, PassSlice { counters: 2, stored: 1, unreadable: 1 });
        assert_eq!(passes.profile("alice").await.expect("there").days(), 0, "{unreadable}");
    }
}

/// A daemon that reads counters while their subject is erased must not store them afterwards.
#[tokio::test]
async fn nothing_of_an_erased_subject_is_stored() {
    let passes = Passes::start().await;
    let (alice, metric, bucket) = (subject("alice"), Metric::default(), keys::bucket("alice"));
    passes.play("alice", Zone::UTC, day("2026-11-20"), ms("2026-11-20T09:00:00Z")).await;
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    let profile = passes.profile("alice").await.expect("there");
    passes.run(&["HINCRBY", &passes.usage.keys.checkpoint(), "erasure_epoch", "1"]).await;
    let removed = forget::profiles(&passes.partition, &alice, &[metric.clone()].into()).await.expect("removed");
    let profiles = [(&alice, profile)];
    let reply = usage_profiles::write(&passes.partition, mark, &metric, bucket, &profiles).await.expect("an answer");
    assert_eq!((removed, reply, passes.profile("alice").await), (1, ProfilesReply::Stale, None));
    // After FLUSHALL there is no checkpoint, and none must appear.
    passes.run(&["FLUSHALL"]).await;
    let reply = usage_profiles::end_pass(&passes.partition, 0, UnixMs(1)).await.expect("an answer");
    assert_eq!((reply, passes.run(&["DBSIZE"]).await), (ProfilesReply::Stale, redis::Value::Int(0)));
}

/// After a migration the source must stay as it was.
#[tokio::test]
async fn a_partition_that_was_moved_away_stores_nothing() {
    let passes = Passes::start().await;
    passes.run(&["HSET", &passes.usage.keys.checkpoint(), "moved_to", "elsewhere"]).await;
    let error = usage_profiles::end_pass(&passes.partition, 0, UnixMs(1)).await.expect_err("moved");
    assert_eq!(error_kind(&error), ErrorKind::MovedAway);
}

/// Subjects that come and go must not fill Redis: others keep their hash alive.
#[tokio::test]
async fn profiles_of_idle_subjects_are_removed() {
    let passes = Passes::start().await;
    passes.play("gone", Zone::UTC, day("2026-10-01"), ms("2026-10-01T05:00:00Z")).await;
    passes.play("stays", Zone::UTC, day("2026-11-20"), ms("2026-11-21T12:00:00Z")).await;
    assert_eq!((passes.profile("gone").await, passes.profile("stays").await.is_some()), (None, true));
    let redis::Value::Int(ttl_s) = passes.run(&["TTL", &passes.key("stays")]).await else { panic!("a number") };
    assert!((35 * 86_400 - 60..=35 * 86_400).contains(&ttl_s), "{ttl_s}");
}

/// After an outage of two days the days in between are learned from their counters, and not as days without usage.
#[tokio::test]
async fn days_of_an_outage_are_learned() {
    let passes = Passes::start().await;
    passes.play("alice", Zone::UTC, day("2026-11-15"), ms("2026-11-20T12:00:00Z")).await;
    for (of, units) in [("2026-11-20", 2_400), ("2026-11-21", 2_400), ("2026-11-22", 2_400), ("2026-11-23", 900)] {
        passes.usage.count("alice", "requests", day(of), units).await;
    }
    passes.pass(ms("2026-11-23T09:10:00Z")).await;
    let profile = passes.profile("alice").await.expect("there");
    let usual = profile.usual_day(chrono::Weekday::Mon);
    assert!(profile.days() == 7 && (2_300.0..2_500.0).contains(&usual), "{} {usual}", profile.days());
}

/// A daemon learns by itself, and people see the forecast.
#[tokio::test]
async fn a_daemon_learns_and_forecasts_are_shown() {
    let passes = Passes::start().await;
    let now = passes.usage.now().await;
    // In a zone in which it is about noon, no day begins during the test.
    let hour = now.0.div_euclid(HOUR_MS).rem_euclid(24);
    let name = format!("Etc/GMT{:+}", hour - 12);
    let zone: Zone = name.parse().expect("a zone");
    passes.usage.set("alice", &[("timezone", &name), ("limit:requests", "3000/day 90000/month")]).await;
    let today = DaySpan::containing(zone, now).expect("a day");
    passes.play("alice", zone, today.day.before(6).expect("a day"), today.start).await;
    passes.usage.count("alice", "requests", today.day, 2_600).await;
    let before = passes.profile("alice").await;
    let url = passes.usage.server.url();
    let mut daemon = DaemonSetup::on(&url).start().await;
    daemon.becomes_ready().await;
    eventually("it learns", || async { (passes.profile("alice").await != before).then_some(()) }).await;

    let run = |line: &str| quotabell(line.split_whitespace()).redis(&url).run();
    let usage = run("usage alice --json").expect_json().remove(0);
    let windows = usage["metrics"][0]["windows"].as_array().expect("windows").clone();
    let state = |at: usize| windows[at]["forecast"]["state"].as_str().expect("text").to_owned();
    assert_eq!([state(0), state(1)], ["likely", "unknown"], "{usage}");
    let of_day = &windows[0]["forecast"];
    let (expected, resets) = (of_day["expected_at"].as_str(), windows[0]["resets_at"].as_str());
    assert!(expected < resets && of_day["probability"].as_f64() >= Some(0.9), "{usage}");
    let told = run("usage alice").told();
    assert!(told.contains("At this pace alice reaches its 3,000 requests a day at about "), "{told}");
    let told = run("explain alice").told();
    assert!(told.contains("At this pace alice reaches its 3,000 requests a day at about "), "{told}");
    let period = format!("top --period {}", today.day);
    assert!(run(&period).told().contains("likely "), "{}", run(&period).told());
    let top = run(&format!("{period} --json")).expect_json().remove(0);
    assert_eq!(top["subjects"][0]["forecast"], *of_day);
    let past = format!("usage alice --day {} --json", today.day.before(1).expect("a day"));
    assert_eq!(run(&past).expect_json().remove(0)["metrics"][0]["windows"][0]["forecast"], Value::Null, "it is over");
    daemon.drain().await;
}

/// A mark without a pass before is one of a new deployment.
#[tokio::test]
async fn a_new_deployment_has_no_mark() {
    let passes = Passes::start().await;
    let mark = async || usage_profiles::mark(&passes.partition).await.expect("read");
    assert_eq!(mark().await, PassMark::default());
    passes.pass(UnixMs(7)).await;
    assert_eq!(mark().await, PassMark { erasure_epoch: 0, passed: Some(UnixMs(7)) });
}
