//! The hourly passes on a real server, with the time that each test gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::json as stored;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::recorded_usage::RecordedUsage;
use crate::support::usual_usage::zone_at_noon;
use crate::support::webhook_receiver::{secret, verify};
use quotabell::contacts::Contact;
use quotabell::evaluation::pass::PassSlice;
use quotabell::evaluation::{HourlyPass, StoredNoticeJudge};
use quotabell::forecast::UsageProfile;
use quotabell::ledger::forget;
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::ledger::usage_notices::{self, RaiseReply};
use quotabell::ledger::usage_profiles::{self, PassMark, ProfilesReply};
use quotabell::outbox::NoticeJudge as _;
use quotabell::redis_client::{ErrorKind, Partition, Partitions, error_kind};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{Day, DaySpan, Metric, Secret, Subject, UnixMs, UsageNotice, UsageNoticeKind, keys};
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
        // Windows without a limit have nothing to tell.
        let windows = r#"["day", "week", "month"]"#;
        let asks = format!("limits = {{ requests = \"3000/day\" }}\nforecast = {{ windows = {windows} }}\nspike = 2");
        let asks: PlanConfig = toml::from_str(&asks).expect("a plan");
        let plans = Plans::new(&[("free".to_owned(), plan), ("asks".to_owned(), asks)].into(), "free").expect("there");
        let passes = Self { usage, partition, plans };
        passes.run(&["HSET", &passes.usage.keys.checkpoint(), "id", "1-1", "instance", "i"]).await;
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
            sum.notices += slice.notices;
        }
        pass.end(mark.erasure_epoch).await.expect("ended");
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

    /// Plays days with 100 units an hour of each subject until this time, with a pass after each hour.
    async fn play(&self, subjects: &[&str], zone: Zone, first: Day, until: UnixMs) {
        let mut day = first;
        loop {
            let span = DaySpan::for_day(zone, day).expect("a day");
            let hours = (span.end.0 - span.start.0) / HOUR_MS;
            for hour in 1..=hours {
                let now = span.start.plus(hour * HOUR_MS);
                if now > until {
                    return;
                }
                for subject in subjects {
                    self.usage.count(subject, "requests", day, 100 * hour as u64).await;
                }
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
    passes.play(&["alice"], zone, day("2026-10-22"), ms("2026-10-27T11:00:00Z")).await;
    let profile = passes.profile("alice").await.expect("there");
    assert_eq!((profile.days(), profile.today()), (4, i32::try_from(day("2026-10-27").since_epoch()).expect("small")));
    let usual = profile.usual_day(chrono::Weekday::Tue);
    assert!((2_390.0..2_510.0).contains(&usual), "{usual}");
}

/// Whatever is interrupted is done again: a pass that ended halfway, and a pass whose end was not stored.
#[tokio::test]
async fn a_repeated_pass_counts_nothing_twice() {
    let passes = Passes::start().await;
    passes.play(&["alice"], Zone::UTC, day("2026-11-20"), ms("2026-11-23T09:00:00Z")).await;
    passes.usage.count("alice", "requests", day("2026-11-23"), 1_000).await;
    let now = ms("2026-11-23T10:00:00Z");
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    assert_eq!(passes.pass(now).await, PassSlice { counters: 2, stored: 1, ..PassSlice::default() });
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
    passes.play(&["alice"], Zone::UTC, day("2026-11-20"), ms("2026-11-23T09:00:00Z")).await;
    for unreadable in ["", "x", &"9".repeat(182)] {
        passes.run(&["HSET", &passes.key("alice"), "alice", unreadable]).await;
        assert_eq!(
            passes.pass(ms("2026-11-23T10:00:00Z")).await,
            PassSlice { counters: 2, stored: 1, unreadable: 1, notices: 0 }
        );
        assert_eq!(passes.profile("alice").await.expect("there").days(), 0, "{unreadable}");
    }
}

/// A daemon that reads counters while their subject is erased must not store them afterwards.
#[tokio::test]
async fn nothing_of_an_erased_subject_is_stored() {
    let passes = Passes::start().await;
    let (alice, metric, bucket) = (subject("alice"), Metric::default(), keys::bucket("alice"));
    passes.play(&["alice"], Zone::UTC, day("2026-11-20"), ms("2026-11-20T09:00:00Z")).await;
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    let profile = passes.profile("alice").await.expect("there");
    passes.run(&["HINCRBY", &passes.usage.keys.checkpoint(), "erasure_epoch", "1"]).await;
    let removed = forget::profiles(&passes.partition, &alice, &[metric.clone()].into()).await.expect("removed");
    let profiles = [(&alice, &profile)];
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
    passes.play(&["gone"], Zone::UTC, day("2026-10-01"), ms("2026-10-01T05:00:00Z")).await;
    passes.play(&["stays"], Zone::UTC, day("2026-11-20"), ms("2026-11-21T12:00:00Z")).await;
    assert_eq!((passes.profile("gone").await, passes.profile("stays").await.is_some()), (None, true));
    let redis::Value::Int(ttl_s) = passes.run(&["TTL", &passes.key("stays")]).await else { panic!("a number") };
    assert!((35 * 86_400 - 60..=35 * 86_400).contains(&ttl_s), "{ttl_s}");
}

/// After an outage of two days the days in between are learned from their counters, and not as days without usage.
#[tokio::test]
async fn days_of_an_outage_are_learned() {
    let passes = Passes::start().await;
    passes.play(&["alice"], Zone::UTC, day("2026-11-15"), ms("2026-11-20T12:00:00Z")).await;
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
    let zone = zone_at_noon(now);
    passes.usage.set("alice", &[("timezone", zone.name()), ("limit:requests", "3000/day 90000/month")]).await;
    let today = DaySpan::containing(zone, now).expect("a day");
    passes.play(&["alice"], zone, today.day.before(6).expect("a day"), today.start).await;
    passes.usage.count("alice", "requests", today.day, 2_600).await;
    let before = passes.profile("alice").await;
    let url = passes.usage.server.url();
    let setup = DaemonSetup::on(&url).env("QUOTABELL__PLANS__FREE__FORECAST", r#"{"windows":["day"]}"#);
    let mut daemon = setup.start().await;
    daemon.becomes_ready().await;
    daemon.says("notice raised").await;
    let metrics = daemon.get("/metrics").await.body;
    for (kind, raised) in [("forecast", 1), ("spike", 0), ("silence", 0), ("grant_expires", 0), ("resolved", 0)] {
        let series = format!("quotabell_notices_raised_total{{type=\"quota.{kind}\"}} {raised}\n");
        assert!(metrics.contains(&series), "{metrics}");
    }
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
    // A moment later, so its times may be rounded otherwise.
    let of_top = &top["subjects"][0]["forecast"];
    assert!(of_top["state"] == "likely" && of_top["expected_at"].is_string(), "{top}");
    let past = format!("usage alice --day {} --json", today.day.before(1).expect("a day"));
    assert_eq!(run(&past).expect_json().remove(0)["metrics"][0]["windows"][0]["forecast"], Value::Null, "it is over");
    daemon.drain().await;
}

/// What a pass raises reaches the receiver, once under one id, although the daemon is killed in the pass, before it and
/// after it.
#[tokio::test]
async fn notices_reach_the_receiver_across_kills() {
    let passes = Passes::start().await;
    let now = passes.usage.now().await;
    let zone = zone_at_noon(now);
    let mut receiver = HttpCatcher::start([]).await.expect("a free port");
    let hook = |path: &str| stored(&[Contact::webhook(&receiver.url(path), Secret::new(secret(7)))]);
    let (forecast, spike) = ([("alice", "3000"), ("anna", "3000")], [("bob", "90000"), ("ben", "90000")]);
    for (subject, limit) in forecast.into_iter().chain(spike) {
        let fields =
            [("timezone", zone.name()), ("limit:requests", limit), ("contacts", &hook(&format!("/{subject}")))];
        passes.usage.set(subject, &fields).await;
    }
    let today = DaySpan::containing(zone, now).expect("a day");
    let first = today.day.before(6).expect("a day");
    passes.play(&["alice", "anna", "bob", "ben"], zone, first, today.start).await;
    for (subject, _) in forecast {
        passes.usage.count(subject, "requests", today.day, 2_600).await;
    }
    for (subject, _) in spike {
        passes.usage.count(subject, "requests", today.day, 9_000).await;
    }
    let setup = DaemonSetup::on(&passes.usage.server.url())
        .env("QUOTABELL__PLANS__FREE__FORECAST", r#"{"windows":["day"]}"#)
        .env("QUOTABELL__PLANS__FREE__SPIKE", "2");
    for kill_after in [0, 20, 40, 80, 500] {
        let mut daemon = setup.clone().start().await;
        daemon.becomes_ready().await;
        // At the first notice, or before or after it.
        let raised = daemon.says("notice raised");
        let _ = tokio::time::timeout(Duration::from_millis(kill_after), raised).await;
        daemon.kill().await;
    }
    let daemon = setup.start().await;
    let (mut told, expected) = (BTreeMap::<_, BTreeSet<String>>::new(), 4);
    eventually("all of them arrive", || {
        while let Some(request) = receiver.try_next() {
            let body: Value = serde_json::from_slice(&request.body).expect("JSON");
            let id = request.headers["webhook-id"].to_str().expect("text").to_owned();
            let what = (body["type"].to_string(), body["data"]["subject"].to_string());
            told.entry(what).or_default().insert(id);
        }
        let is_all = told.len() == expected;
        async move { is_all.then_some(()) }
    })
    .await;
    daemon.drain().await;
    let mut kinds: Vec<&str> = told.keys().map(|(kind, _)| kind.trim_matches('"')).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["quota.forecast", "quota.forecast", "quota.spike", "quota.spike"], "{told:?}");
    assert!(told.values().all(|ids| ids.len() == 1), "{told:?}");
}

/// Nobody is woken by a forecast. In the morning it tells the numbers of the morning, and whoever refused it gets the
/// same bytes again: receivers know the id. A forecast that came to nothing in the night is not told.
#[tokio::test]
async fn a_forecast_waits_for_the_end_of_a_quiet_time_and_then_tells_one_thing() {
    let passes = Passes::start().await;
    let now = passes.usage.now().await;
    let zone = zone_at_noon(now);
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a free port");
    let quiet_at = |time: &str| {
        let mut contact = Contact::webhook(&receiver.url("/"), Secret::new(secret(7)));
        contact.filter.quiet = Some(time.parse().expect("a quiet time"));
        stored(&[contact])
    };
    let (noon, morning) = (quiet_at("09:00-15:00"), quiet_at("05:00-11:00"));
    let subjects = ["alice", "bob"];
    for subject in subjects {
        let fields = [("plan", "asks"), ("timezone", zone.name()), ("contacts", &noon)];
        passes.usage.set(subject, &fields).await;
    }
    let today = DaySpan::containing(zone, now).expect("a day");
    passes.play(&subjects, zone, today.day.before(8).expect("a day"), today.start).await;
    let counted = async |units| {
        for subject in subjects {
            passes.usage.count(subject, "requests", today.day, units).await;
        }
    };
    counted(2_400).await;
    assert_eq!(passes.pass(now.plus(-HOUR_MS)).await.notices, 2);

    let url = passes.usage.server.url();
    let run = |line: &str| quotabell(line.split_whitespace()).redis(&url).run();
    let daemon = DaemonSetup::on(&url)
        .env("QUOTABELL__PLANS__ASKS__LIMITS", r#"{"requests":"3000/day"}"#)
        .env("QUOTABELL__PLANS__ASKS__FORECAST", r#"{"windows":["day"]}"#)
        .env("QUOTABELL__RETRY__FIRST", "1h")
        .env("QUOTABELL__RETRY__MAX_INTERVAL", "1h")
        .start()
        .await;
    let deliveries = |state: &str| run(&format!("deliveries list --state {state} --json")).expect_json();
    let waiting = eventually("both wait for the end", || async {
        let pending = deliveries("pending");
        let waits = |of: &Value| of["attempts"] == 0 && of["next_due"].as_str() > of["created_at"].as_str();
        (pending.len() == 2 && pending.iter().all(waits)).then_some(pending)
    })
    .await;
    assert!(receiver.try_next().is_none());

    counted(2_600).await;
    run("subject set bob --limit requests=9000/day").expect_done();
    let mut ids = BTreeMap::new();
    for of in &waiting {
        let (subject, id) = (of["subject"].as_str().expect("text"), of["id"].as_str().expect("text"));
        passes.usage.set(subject, &[("contacts", &morning)]).await;
        ids.insert(subject, id);
    }
    run(&format!("deliveries retry {} {}", ids["alice"], ids["bob"])).expect_done();
    let refused = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    counted(2_700).await;
    eventually("the refusal is recorded", || async {
        let pending = deliveries("pending");
        (pending.len() == 1 && pending[0]["attempts"] == 1 && pending[0]["last_error"].is_string()).then_some(())
    })
    .await;
    run(&format!("deliveries retry {}", ids["alice"])).expect_done();
    let again = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    let (first, second) = (verify(&refused, &secret(7)), verify(&again, &secret(7)));
    assert_eq!(
        (first.body["type"].as_str(), first.body["data"]["used"].as_u64()),
        (Some("quota.forecast"), Some(2_600))
    );
    assert_eq!((second.id, &again.body), (first.id, &refused.body));
    eventually("all is settled", || async { deliveries("pending").is_empty().then_some(()) }).await;
    assert_eq!(deliveries("expired")[0]["id"], ids["bob"], "another limit has a forecast of its own");
    assert!(receiver.try_next().is_none());
    daemon.drain().await;
}

/// A mark without a pass before is one of a new deployment.
#[tokio::test]
async fn a_new_deployment_has_no_mark() {
    let passes = Passes::start().await;
    let mark = async || usage_profiles::mark(&passes.partition).await.expect("read");
    assert_eq!(mark().await, PassMark::default());
    passes.pass(UnixMs(7)).await;
    assert_eq!(mark().await, PassMark { passed: Some(UnixMs(7)), ..PassMark::default() });
}

const NOON: &str = "2026-11-23T12:00:00Z";

/// Subjects with a plan that asks for notices, whose usual day of 2,400 units is known, at noon with these units.
async fn at_noon(subjects: &[(&str, u64)]) -> Passes {
    let passes = Passes::start().await;
    for (subject, _) in subjects {
        passes.usage.set(subject, &[("plan", "asks")]).await;
    }
    let names: Vec<&str> = subjects.iter().map(|(subject, _)| *subject).collect();
    passes.play(&names, Zone::UTC, day("2026-11-15"), ms("2026-11-23T00:30:00Z")).await;
    for (subject, units) in subjects {
        passes.usage.count(subject, "requests", day("2026-11-23"), *units).await;
    }
    passes.run(&["DEL", &passes.usage.keys.outbox()]).await;
    passes
}

impl Passes {
    fn judge(&self) -> StoredNoticeJudge {
        let partitions = Partitions::new(&self.usage.server.client(), &self.usage.keys);
        StoredNoticeJudge { partitions, plans: self.plans.clone() }
    }

    /// The notices in the outbox: subject, kind and limit.
    async fn notices(&self) -> Vec<(String, UsageNoticeKind, Option<u64>)> {
        let entries: Vec<(String, Vec<(String, String)>)> = self
            .partition
            .client
            .query(redis::cmd("XRANGE").arg(self.usage.keys.outbox()).arg("-").arg("+"))
            .await
            .expect("entries");
        let notice = |(_, fields): (String, Vec<(String, String)>)| {
            let notice: UsageNotice = serde_json::from_str(&fields[0].1).expect("a notice");
            (notice.subject.to_string(), notice.kind, notice.limit)
        };
        let mut notices: Vec<_> = entries.into_iter().map(notice).collect();
        notices.sort();
        notices
    }
}

/// A customer is told once that a limit will be reached, whatever is repeated, and again of another limit.
#[tokio::test]
async fn a_forecast_is_told_once_for_each_limit() {
    let passes = at_noon(&[("alice", 2_400), ("calm", 1_200), ("late", 3_100)]).await;
    let forecast = |limit| ("alice".to_owned(), UsageNoticeKind::Forecast, Some(limit));
    passes.pass(ms(NOON)).await;
    // Late's limit is reached, so that only its usage is unusual.
    assert_eq!(passes.notices().await, [forecast(3_000), ("late".to_owned(), UsageNoticeKind::Spike, Some(3_000))]);
    let mut units = 2_400;
    for (at, limit) in [("13:00", None), ("14:00", Some("3500")), ("15:00", Some("3000")), ("16:00", Some("3500"))] {
        if let Some(limit) = limit {
            passes.usage.set("alice", &[("limit:requests", limit)]).await;
        }
        units += 90;
        passes.usage.count("alice", "requests", day("2026-11-23"), units).await;
        passes.pass(ms(&format!("2026-11-23T{at}:00Z"))).await;
    }
    let of_alice: Vec<_> = passes.notices().await.into_iter().filter(|(subject, ..)| subject == "alice").collect();
    assert_eq!(of_alice, [forecast(3_000), forecast(3_500)]);
}

/// A customer whose limit changes is told once a day that usage is far above the usual.
#[tokio::test]
async fn a_spike_is_told_once_a_day() {
    let passes = at_noon(&[("late", 3_100)]).await;
    let (mut units, spike) = (3_100, ("late".to_owned(), UsageNoticeKind::Spike, Some(3_000)));
    for (at, limit) in [("12:00", "3000"), ("13:00", "3000"), ("14:00", "3100"), ("15:00", "3000")] {
        passes.usage.set("late", &[("limit:requests", limit)]).await;
        units += 400;
        passes.usage.count("late", "requests", day("2026-11-23"), units).await;
        passes.pass(ms(&format!("2026-11-23T{at}:00Z"))).await;
        assert_eq!(passes.notices().await, std::slice::from_ref(&spike), "at {at}");
    }
    let (notice, judge) = (passes.newest_notice().await, passes.judge());
    passes.usage.set("late", &[("limit:requests", "50000")]).await;
    let present = async |at: &str| judge.usage(&notice, ms(at)).await.expect("redis answers");
    let later = present("2026-11-23T16:00:00Z").await.expect("it is far above the usual");
    assert_eq!((later.used, later.limit, later.times_usual()), (units, Some(50_000), 2.9));
    passes.usage.count("late", "requests", day("2026-11-23"), 3_200).await;
    assert_eq!(present("2026-11-23T23:50:00Z").await, None, "nearer to the usual than to twice as much");
}

/// A server whose clock shows another day for a while, or a subject that moves between zones: nobody hears twice of a
/// limit, and what is usual stays known.
#[tokio::test]
async fn a_clock_that_jumps_and_a_zone_that_changes_tell_nothing_twice() {
    let passes = at_noon(&[("alice", 2_400)]).await;
    passes.pass(ms(NOON)).await;
    let mut units = 2_400;
    for (at, zone) in [
        ("2026-11-24T12:00:00Z", "UTC"),
        ("2026-11-23T13:00:00Z", "UTC"),
        ("2026-11-23T14:00:00Z", "Pacific/Kiritimati"),
        ("2026-11-23T15:00:00Z", "UTC"),
        ("2026-11-22T15:00:00Z", "UTC"),
        ("2026-11-23T16:00:00Z", "UTC"),
    ] {
        passes.usage.set("alice", &[("timezone", zone)]).await;
        units += 20;
        passes.usage.count("alice", "requests", day("2026-11-23"), units).await;
        passes.pass(ms(at)).await;
    }
    let forecasts = passes.notices().await.into_iter().filter(|(_, kind, _)| *kind == UsageNoticeKind::Forecast);
    assert_eq!(forecasts.collect::<Vec<_>>(), [("alice".to_owned(), UsageNoticeKind::Forecast, Some(3_000))]);
    let profile = passes.profile("alice").await.expect("there");
    let usual = profile.usual_day(chrono::Weekday::Tue);
    assert!(profile.days() >= 7 && (2_000.0..2_800.0).contains(&usual), "{} {usual}", profile.days());
}

/// A pass that is cut off anywhere, and done again by another daemon with the same counts, tells each customer once.
#[tokio::test]
async fn passes_that_are_cut_off_tell_nothing_twice() {
    let subjects: Vec<(String, u64)> = (0..12).map(|number| (format!("s{number:02}"), 2_400)).collect();
    let subjects: Vec<(&str, u64)> = subjects.iter().map(|(name, units)| (name.as_str(), *units)).collect();
    let passes = at_noon(&subjects).await;
    for cut_after in 0..60 {
        let mark = usage_profiles::mark(&passes.partition).await.expect("read");
        let mut pass = HourlyPass::begin(&passes.partition, &passes.plans, ms(NOON), mark).await.expect("begun");
        let whole = async { while pass.next().await.expect("redis answers").is_some() {} };
        let _ = tokio::time::timeout(Duration::from_micros(400 * cut_after), whole).await;
    }
    passes.pass(ms(NOON)).await;
    let told: Vec<String> = passes.notices().await.into_iter().map(|(subject, ..)| subject).collect();
    assert_eq!(told, subjects.iter().map(|(subject, _)| (*subject).to_owned()).collect::<Vec<_>>());
}

/// What is no longer true when it is sent is not told.
#[tokio::test]
async fn a_notice_is_judged_again_when_it_is_sent() {
    let passes = at_noon(&[("alice", 2_400)]).await;
    passes.pass(ms(NOON)).await;
    let entries: Vec<(String, Vec<(String, String)>)> = passes
        .partition
        .client
        .query(redis::cmd("XRANGE").arg(passes.usage.keys.outbox()).arg("-").arg("+"))
        .await
        .expect("entries");
    let notice: UsageNotice = serde_json::from_str(&entries[0].1[0].1).expect("a notice");
    let judge = passes.judge();
    let present = async |at: &str| judge.usage(&notice, ms(at)).await.expect("redis answers");
    let is_true = async |at: &str| present(at).await.is_some();
    assert!((1_195..1_205).contains(&notice.usual_by_now), "{notice:?}");
    assert_eq!((notice.used, notice.times_usual()), (2_400, 2.0));
    assert!(is_true("2026-11-23T12:05:00Z").await);
    passes.usage.count("alice", "requests", day("2026-11-23"), 2_600).await;
    let later = present("2026-11-23T14:00:00Z").await.expect("it is true");
    assert!((1_395..1_405).contains(&later.usual_by_now), "{later:?}");
    assert_eq!((later.used, later.times_usual()), (2_600, 1.9));
    assert!(later.id == notice.id && later.raised_at == notice.raised_at && later.expected_at > notice.expected_at);
    let latest = notice.latest_at.expect("it is likely").0;
    passes.usage.count("alice", "requests", day("2026-11-23"), 2_990).await;
    assert!(judge.usage(&notice, latest.plus(-1)).await.expect("redis answers").is_some());
    assert_eq!(judge.usage(&notice, latest).await.expect("redis answers"), None, "it should have been reached");
    passes.usage.count("alice", "requests", day("2026-11-23"), 2_400).await;
    assert!(!is_true("2026-11-24T00:05:00Z").await, "the day is over");
    assert!(!is_true("2026-11-23T23:30:00Z").await, "it came to nothing");
    passes.usage.set("alice", &[("limit:requests", "9000")]).await;
    assert!(!is_true("2026-11-23T12:05:00Z").await, "the limit was raised");
    passes.usage.set("alice", &[("limit:requests", "3000")]).await;
    passes.usage.count("alice", "requests", day("2026-11-23"), 3_000).await;
    assert!(!is_true("2026-11-23T12:05:00Z").await, "it is reached");
}

impl Passes {
    /// From here on, plans tell of three days of silence. What is over is archived.
    async fn tell_silence(&mut self, until: Day) {
        let plan = "limits = { requests = \"3000/day\" }\nsilence = \"3d\"";
        let plan: PlanConfig = toml::from_str(plan).expect("a plan");
        self.plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let config = HistoryConfig { days: 35, alerts_days: 400 };
        let mut archiver = HistoryArchiver::new(self.usage.keys.clone(), config);
        (1..=20).filter_map(|back| until.before(back)).for_each(|day| archiver.assume_counters(day));
        let client = &self.partition.client;
        while archiver.next().is_some() {
            archiver.archive(client, until.ends_everywhere()).await.expect("redis answers");
        }
    }

    /// An hour with usage of somebody, and the pass after it.
    async fn busy_hour(&self, at: &str) {
        let now = ms(at);
        self.usage.count("busy", "requests", Day::in_utc(now).expect("a day"), 1 + now.0.unsigned_abs() / 60_000).await;
        self.pass(now).await;
    }

    async fn newest_notice(&self) -> UsageNotice {
        let newest = redis::cmd("XREVRANGE").arg(self.usage.keys.outbox()).arg(&["+", "-", "COUNT", "1"]).to_owned();
        let entries: Vec<(String, Vec<(String, String)>)> = self.partition.client.query(&newest).await.expect("read");
        serde_json::from_str(&entries[0].1[0].1).expect("a notice")
    }
}

/// Who used something on most days, and nothing for three days while others did, is told so once, until it is used
/// again.
#[tokio::test]
async fn a_silence_is_told_once() {
    let mut passes = Passes::start().await;
    let weekly = async |day: &Day| passes.usage.count("weekly", "requests", *day, 100).await;
    for back in [1, 4, 7, 10] {
        weekly(&day("2026-11-15").before(back).expect("a day")).await;
    }
    passes.play(&["alice", "busy"], Zone::UTC, day("2026-11-01"), ms("2026-11-15T00:30:00Z")).await;
    for at in ["2026-11-15T20:00:00Z", "2026-11-16T19:00:00Z", "2026-11-17T12:00:00Z"] {
        passes.busy_hour(at).await;
    }
    passes.tell_silence(day("2026-11-16")).await;
    passes.busy_hour("2026-11-17T23:40:00Z").await;
    assert_eq!(passes.notices().await, [], "less than three days");
    let silence = |subject: &str| (subject.to_owned(), UsageNoticeKind::Silence, Some(3_000));
    let (at, today) = (ms("2026-11-18T00:40:00Z"), day("2026-11-18"));
    passes.usage.count("busy", "requests", today, 1).await;
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    let mut pass = HourlyPass::begin(&passes.partition, &passes.plans, at, mark).await.expect("begun");
    while pass.next().await.expect("redis answers").expect("it finds something new").stored == 0 {}
    assert_eq!(passes.notices().await, [], "it is cut off before it looks for silence");
    assert_eq!((passes.pass(at).await.stored, passes.notices().await), (0, vec![silence("alice")]), "nothing is new");
    for at in ["2026-11-18T01:40:00Z", "2026-11-19T02:40:00Z"] {
        passes.busy_hour(at).await;
        assert_eq!(passes.notices().await, [silence("alice")], "at {at}");
    }
    let notice = passes.newest_notice().await;
    assert_eq!((notice.silent_since, notice.usual_per_day), (Some(Rfc3339(ms("2026-11-15T00:00:00Z"))), Some(2_400)));
    let judge = passes.judge();
    let present = async || judge.usage(&notice, ms("2026-11-19T03:00:00Z")).await.expect("redis answers");
    let on_the_next_day = UsageNotice {
        period: day("2026-11-19").into(),
        resets_at: Rfc3339(ms("2026-11-20T00:00:00Z")),
        ..notice.clone()
    };
    assert_eq!(present().await, Some(on_the_next_day));
    assert_eq!(notice.valid_until(), notice.raised_at.0.plus(48 * HOUR_MS));
    let erasures = usage_profiles::mark(&passes.partition).await.expect("read").erasure_epoch;
    let again =
        UsageNotice { id: "silence_of_another_day".to_owned(), period: day("2026-11-19").into(), ..notice.clone() };
    let raise = async || usage_notices::raise(&passes.partition, erasures, &again).await.expect("redis answers");
    passes.usage.count("alice", "requests", day("2026-11-19"), 1).await;
    assert_eq!(present().await, None, "it is over");
    assert_eq!(raise().await, RaiseReply::Known, "it is over since the pass");
    passes.usage.count("alice", "requests", day("2026-11-19"), 0).await;
    assert_eq!(raise().await, RaiseReply::Raised);
    let metrics = [Metric::default()].into();
    let flags = usage_notices::forget(&passes.partition, &subject("alice"), &[], &metrics).await;
    assert_eq!(flags.expect("forgotten"), 1, "an erasure finds the flag");
}

/// A stream that was silent itself says nothing about its subjects.
#[tokio::test]
async fn a_silent_stream_tells_of_no_subject() {
    let mut passes = Passes::start().await;
    passes.play(&["alice", "busy"], Zone::UTC, day("2026-11-01"), ms("2026-11-15T00:30:00Z")).await;
    passes.tell_silence(day("2026-11-16")).await;
    for at in ["2026-11-16T12:00:00Z", "2026-11-18T00:40:00Z", "2026-11-18T12:00:00Z"] {
        passes.pass(ms(at)).await;
    }
    for at in ["2026-11-18T13:00:00Z", "2026-11-19T12:00:00Z", "2026-11-20T11:00:00Z", "2026-11-21T10:30:00Z"] {
        passes.busy_hour(at).await;
        assert_eq!(passes.notices().await, [], "at {at}");
    }
    passes.busy_hour("2026-11-21T13:10:00Z").await;
    assert_eq!(passes.notices().await.len(), 1, "three days after others used something again");
}

/// A pass that is cut off after it looked at an old day changes nothing when it is done again.
#[tokio::test]
async fn days_are_learned_once_after_an_outage() {
    let passes = Passes::start().await;
    passes.play(&["alice"], Zone::UTC, day("2026-11-01"), ms("2026-11-10T12:00:00Z")).await;
    for of in ["2026-11-10", "2026-11-11", "2026-11-12", "2026-11-13"] {
        passes.usage.count("alice", "requests", day(of), 2_400).await;
    }
    let mark = usage_profiles::mark(&passes.partition).await.expect("read");
    let mut pass =
        HourlyPass::begin(&passes.partition, &passes.plans, ms("2026-11-13T18:00:00Z"), mark).await.expect("begun");
    while pass.next().await.expect("redis answers").is_some() {}
    // Its end is not stored.
    let learned = passes.profile("alice").await;
    assert_eq!(passes.pass(ms("2026-11-13T18:00:00Z")).await.stored, 0);
    assert_eq!(passes.profile("alice").await, learned);
}

/// A forecast that was judged before the limit was reached is no forecast any more.
#[tokio::test]
async fn a_forecast_of_a_limit_that_is_reached_meanwhile_is_not_raised() {
    let passes = at_noon(&[("alice", 2_400)]).await;
    passes.pass(ms(NOON)).await;
    let notice = passes.newest_notice().await;
    let erasures = usage_profiles::mark(&passes.partition).await.expect("read").erasure_epoch;
    let raise = async || usage_notices::raise(&passes.partition, erasures, &notice).await.expect("redis answers");
    assert_eq!(raise().await, RaiseReply::Known, "it was raised");
    passes
        .run(&["DEL", &passes.usage.keys.notice_flag(notice.kind, &notice.subject, &notice.metric, notice.period)])
        .await;
    passes.usage.count("alice", "requests", day("2026-11-23"), 3_000).await;
    assert_eq!(raise().await, RaiseReply::Known, "the limit is reached");
    passes.usage.count("alice", "requests", day("2026-11-23"), 2_999).await;
    assert_eq!(raise().await, RaiseReply::Raised);
}

/// A usual day of a few units says too little for a forecast; far more than that is a spike.
#[tokio::test]
async fn few_units_raise_a_spike_but_no_forecast() {
    let passes = Passes::start().await;
    passes.usage.set("few", &[("plan", "asks"), ("limit:requests", "20")]).await;
    for of in 15..23 {
        let date = format!("2026-11-{of}");
        for hour in 1..=24 {
            passes.usage.count("few", "requests", day(&date), 14 * hour / 24).await;
            passes.pass(ms(&format!("{date}T00:00:00Z")).plus(hour as i64 * HOUR_MS)).await;
        }
    }
    passes.usage.count("few", "requests", day("2026-11-23"), 18).await;
    passes.pass(ms("2026-11-23T11:00:00Z")).await;
    assert_eq!(passes.notices().await, []);
    passes.usage.count("few", "requests", day("2026-11-23"), 200).await;
    passes.pass(ms(NOON)).await;
    assert_eq!(passes.notices().await, [("few".to_owned(), UsageNoticeKind::Spike, Some(20))]);
}
