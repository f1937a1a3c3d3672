//! Random histories of hourly passes: those of one deployment are cut off anywhere, made again and by two daemons at
//! once, and replies are lost; those of the other are whole. Both must raise the same notices, each once, and only what
//! is true at that moment; and every spike.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use quotabell::evaluation::HourlyPass;
use quotabell::forecast::observation::weekday;
use quotabell::ledger::usage_notices::{self, RaiseReply};
use quotabell::ledger::usage_profiles::{self, FoundProfile};
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, DaySpan, Keys, Metric, Subject, UnixMs, UsageNotice, UsageNoticeKind, keys};
use quotabell::zones::Zone;

use crate::support::redis_server::RedisServer;
use crate::support::usual_usage::{store_past, usual_until};

/// A plan that asks for everything.
const PLAN: &str = r#"{"limits":{"requests":"3000/day"},"forecast":{"windows":["day"]},"spike":2,"silence":"1d"}"#;
const SUBJECTS: usize = 4;
/// The limits between which subjects change.
const LIMITS: [u64; 3] = [3_000, 4_000, 6_000];
/// The first day. What was used in the two weeks before is known.
const FIRST: &str = "2026-11-23";
const HOUR_MS: i64 = 3_600_000;
/// A history ends before the days that are counted only.
const HOURS_MAX: usize = 10;
const DAYS_BEFORE: u64 = 14;

/// What happens until the next pass, and in it.
#[derive(Debug, Clone)]
struct Step {
    /// Hours since the pass before.
    hours: i64,
    /// Units that subjects use.
    used: Vec<(usize, u64)>,
    /// A subject gets another limit.
    limit: Option<(usize, usize)>,
    /// Passes that end after this number of slices.
    cuts: Vec<u16>,
    /// The slices of two daemons that make the pass at once: whether the first one is next.
    turns: Vec<bool>,
    /// A raised notice whose reply was lost.
    repeated: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let units = prop_oneof![0..300_u64, 300..1_500_u64, 1_000..3_000_u64];
    let used = prop::collection::vec((0..SUBJECTS, units), 0..4);
    let limit = prop::option::of((0..SUBJECTS, 0..LIMITS.len()));
    let cuts = prop::collection::vec(prop_oneof![0..6_u16, 0..300_u16], 0..3);
    let turns = prop::collection::vec(any::<bool>(), 0..12);
    (1..=8_i64, used, limit, cuts, turns, any::<usize>()).prop_map(|(hours, used, limit, cuts, turns, repeated)| Step {
        hours,
        used,
        limit,
        cuts,
        turns,
        repeated,
    })
}

/// A day with usage beyond each of the bounds of a spike alone, and one spike: early in the day twice the usual is
/// little, and late half a usual day is.
fn around_spikes() -> Vec<Step> {
    let step = |hours, used| Step { hours, used: vec![used], limit: None, cuts: vec![4], turns: vec![], repeated: 0 };
    vec![step(3, (0, 1_300)), step(1, (1, 1_900)), step(15, (0, 2_300))]
}

/// One deployment. Settings are those of both.
struct Deployment {
    partition: Partition,
    plans: Plans,
}

impl Deployment {
    async fn start(client: &Arc<RedisClient>, name: &str) -> Self {
        let partition = Partition { client: Arc::clone(client), keys: Keys::new(name) };
        let plan: PlanConfig = serde_json::from_str(PLAN).expect("a plan");
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let of = Self { partition, plans };
        let (first, now) = (first(), now_at(0));
        let days: Vec<Day> = (1..=DAYS_BEFORE).filter_map(|back| first.before(back)).collect();
        let marks = [("used_ms", now.0), ("resumed_ms", now.0 - 30 * 24 * HOUR_MS), ("profiled_ms", now.0)];
        let checkpoint = of.partition.keys.checkpoint();
        let () = of.query(redis::cmd("HSET").arg(&checkpoint).arg("id").arg("1-1").arg("instance").arg("i")).await;
        let () = of.query(redis::cmd("HSET").arg(&checkpoint).arg(&marks)).await;
        let subjects: Vec<Subject> = (0..SUBJECTS).map(subject).collect();
        store_past(&of.partition, &subjects, &days, now).await;
        let (profile, metric) = (usual_until(days[0]), Metric::default());
        for subject in &subjects {
            let mark = usage_profiles::mark(&of.partition).await.expect("read");
            let (bucket, profiles) = (keys::bucket(subject.as_str()), [(subject, &profile)]);
            usage_profiles::write(&of.partition, mark, &metric, bucket, &profiles).await.expect("written");
        }
        of
    }

    async fn query<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        self.partition.client.query(command).await.expect("redis answers")
    }

    async fn used(&self, subject: &Subject, day: Day) -> u64 {
        let key = self.partition.keys.usage(&Metric::default(), day, keys::bucket(subject.as_str()));
        self.query::<Option<u64>>(redis::cmd("HGET").arg(key).arg(subject.as_str())).await.unwrap_or(0)
    }

    async fn count(&self, subject: &Subject, day: Day, units: u64) {
        let Partition { keys, .. } = &self.partition;
        let () = self.query(redis::cmd("SADD").arg(keys.metrics(day)).arg(Metric::default().as_str())).await;
        let key = keys.usage(&Metric::default(), day, keys::bucket(subject.as_str()));
        let () = self.query(redis::cmd("HINCRBY").arg(key).arg(subject.as_str()).arg(units)).await;
    }

    /// A pass tells of no silence if nothing was used since the pass before.
    async fn somebody_uses(&self, now: UnixMs) {
        self.count(&subject(SUBJECTS), Day::in_utc(now).expect("a day"), 1).await;
    }

    async fn begin(&self, now: UnixMs) -> HourlyPass<'_> {
        let mark = usage_profiles::mark(&self.partition).await.expect("read");
        HourlyPass::begin(&self.partition, &self.plans, now, mark).await.expect("begun")
    }

    /// A pass from its beginning to its end.
    async fn pass(&self, now: UnixMs) {
        let mut pass = self.begin(now).await;
        while pass.next().await.expect("redis answers").is_some() {}
        pass.end(0).await.expect("ended");
    }

    /// The same after passes that have learned everything or a part of it, beside one that ends later.
    async fn pass_with_faults(&self, now: UnixMs, Step { cuts, turns, .. }: &Step) {
        for slices in cuts {
            let mut pass = self.begin(now).await;
            for _ in 0..*slices {
                if pass.next().await.expect("redis answers").is_none() {
                    break;
                }
            }
        }
        let (mut one, mut other) = (self.begin(now).await, self.begin(now).await);
        for is_first in turns {
            let next = if *is_first { one.next().await } else { other.next().await };
            next.expect("redis answers");
        }
        self.pass(now).await;
        while other.next().await.expect("redis answers").is_some() {}
    }

    /// What was raised, in its order.
    async fn notices(&self) -> Vec<UsageNotice> {
        let entries: Vec<(String, [String; 2])> =
            self.query(redis::cmd("XRANGE").arg(self.partition.keys.outbox()).arg("-").arg("+")).await;
        entries.into_iter().map(|(_, fields)| serde_json::from_str(&fields[1]).expect("a notice")).collect()
    }

    /// The rule of a spike under [`PLAN`], with what the last pass has learned.
    async fn is_spike(&self, subject: &Subject, now: UnixMs) -> bool {
        let today = DaySpan::containing(Zone::UTC, now).expect("a day");
        let number = i32::try_from(today.day.since_epoch()).expect("a day of our time");
        let found = usage_profiles::read_each(&self.partition, &[(subject, &Metric::default())]).await.expect("read");
        let profile = found.into_iter().next().and_then(FoundProfile::read).expect("it was stored");
        if profile.today() != number {
            // Nothing was used, or the day is too young.
            return false;
        }
        let hour = now.since(today.start).as_secs_f64() / 3_600.0;
        let (usual_day, by_now) = (profile.usual_day(weekday(number)), profile.usual_by(weekday(number), hour));
        let used = self.used(subject, today.day).await as f64;
        let least = f64::max(2.0, (1.5 * profile.reliability()).exp());
        used >= 20.0 && used >= by_now + 0.5 * usual_day && used + 0.1 * usual_day >= least * (by_now + 0.1 * usual_day)
    }

    /// Takes a step, and returns what was raised so far.
    async fn step(&self, step: &Step, now: UnixMs, has_faults: bool) -> Vec<UsageNotice> {
        let day = Day::in_utc(now).expect("a day");
        for (number, units) in &step.used {
            self.count(&subject(*number), day, *units).await;
        }
        let before = self.notices().await.len();
        self.somebody_uses(now).await;
        if has_faults {
            self.pass_with_faults(now, step).await;
        } else {
            self.pass(now).await;
        }
        let raised = self.notices().await;
        for notice in &raised[before..] {
            // Nothing was counted since.
            let used = self.used(&notice.subject, day).await;
            let is_true = match notice.kind {
                UsageNoticeKind::Forecast => used < notice.limit.expect("it has a limit"),
                UsageNoticeKind::Spike => self.is_spike(&notice.subject, now).await,
                UsageNoticeKind::Silence => used == 0,
            };
            assert!(is_true, "{used} are used: {notice:?}");
        }
        for subject in (0..SUBJECTS).map(subject) {
            let is_told =
                |of: &UsageNotice| (&of.subject, of.kind, of.period) == (&subject, UsageNoticeKind::Spike, day.into());
            assert!(raised.iter().any(is_told) || !self.is_spike(&subject, now).await, "no spike of {subject}");
        }
        if has_faults && !raised.is_empty() {
            let repeated = &raised[step.repeated % raised.len()];
            let reply = usage_notices::raise(&self.partition, 0, repeated).await.expect("redis answers");
            assert_eq!(reply, RaiseReply::Known, "{repeated:?}");
        }
        raised
    }
}

fn subject(number: usize) -> Subject {
    format!("customer {number}").parse().expect("legal")
}

fn first() -> Day {
    Day::parse(FIRST).expect("a date")
}

fn now_at(hours: i64) -> UnixMs {
    DaySpan::for_day(Zone::UTC, first()).expect("a day").start.plus(hours * HOUR_MS)
}

/// A notice that a cut pass has raised would be raised again, or one that it has not would be lost.
#[test]
fn any_history_of_passes_raises_each_notice_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = RedisServer::start();
    let (number, raised) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 8, max_shrink_iters: 50, ..ProptestConfig::default() };
    let play = |steps: &[Step]| {
        number.set(number.get() + 1);
        runtime.block_on(async {
            let client: Arc<RedisClient> = server.client().into();
            let (whole, faulty) = (format!("whole{}", number.get()), format!("faulty{}", number.get()));
            let deployments = [Deployment::start(&client, &whole).await, Deployment::start(&client, &faulty).await];
            let mut hours = 0;
            for number in 0..SUBJECTS {
                // The limits are those of the history before.
                let key = deployments[0].partition.keys.subject(&subject(number));
                let () = deployments[0].query(redis::cmd("DEL").arg(key)).await;
            }
            for step in steps {
                hours += step.hours;
                if let Some((number, limit)) = step.limit {
                    let limit = format!("{}/day", LIMITS[limit]);
                    let key = deployments[0].partition.keys.subject(&subject(number));
                    let () = deployments[0].query(redis::cmd("HSET").arg(key).arg("limit:requests").arg(limit)).await;
                }
                let expected = deployments[0].step(step, now_at(hours), false).await;
                let found = deployments[1].step(step, now_at(hours), true).await;
                let ids = |notices: &[UsageNotice]| notices.iter().map(|of| of.id.clone()).collect::<BTreeSet<_>>();
                assert_eq!((ids(&found).len(), ids(&found)), (found.len(), ids(&expected)), "{found:?}");
                assert_eq!(ids(&expected).len(), expected.len());
            }
            raised.set(raised.get() + deployments[0].notices().await.len());
        });
    };
    play(&around_spikes());
    proptest!(config, |(steps in prop::collection::vec(step(), 1..=HOURS_MAX))| { play(&steps) });
    eprintln!("{} notices in {} histories", raised.get(), number.get());
}
