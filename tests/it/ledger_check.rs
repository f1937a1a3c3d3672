//! The check on a real server: limits and rate are judged at one moment, and only admitted units are taken and
//! recorded.

use std::sync::Arc;
use std::time::Duration;

use crate::support::outbox::{Outbox, subject};
use crate::support::redis_server::RedisServer;
use quotabell::ledger::decision::{LimitStatus, PeriodStatus, Recorded};
use quotabell::ledger::{CheckDecision, CheckError, CheckRequest, check};
use quotabell::redis_client::{ErrorKind, Partition, ServerClock, error_kind};
use quotabell::subjects::Algorithm;
use quotabell::subjects::config::PlanConfig;
use quotabell::subjects::rates::RateConfig;
use quotabell::subjects::{Plans, Profile, RefuseAt, SubjectLevel};
use quotabell::types::units::UNITS_MAX;
use quotabell::types::{
    BillingDay, EventId, Metric, MetricFormat, Percent, PeriodSpan, Subject, Units, UnixMs, Window, keys,
};
use quotabell_throttle::{Admission, STORED_KEY_BYTES_MAX};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Fixed, Algorithm::Sliding, Algorithm::Gcra];

/// A partition and a client that sends checks.
struct Gate {
    books: Outbox,
    clock: ServerClock,
}

fn units(units: u64) -> Units {
    Units::new(units).expect("in range")
}

/// The settings of a subject in this zone, whose months begin on the 15th; limits or a rate may be missing.
fn profile(zone: &str, limits: Option<&str>, algorithm: Algorithm, rate: Option<&str>) -> Profile {
    let limits = limits.map(|limits| (Metric::default(), limits.parse().expect("limits"))).into_iter().collect();
    let rates = rate.map(|rate| (Metric::default(), rate.parse().expect("a rate"))).into_iter().collect();
    let plan =
        PlanConfig { limits, thresholds: Vec::new(), rate: RateConfig { algorithm, rates }, ..PlanConfig::default() };
    let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("legal");
    let fields = [("timezone", zone), ("billing_day", "15")];
    Profile::read(&fields.map(|(name, value)| (name.into(), value.into())), &plans, 0, None).0
}

/// The status of the subject's limit of this window.
fn limit_of(judged: &CheckDecision, window: Window) -> PeriodStatus {
    judged.limits.iter().find(|limit| limit.period.window() == window).expect("a limit").clone()
}

fn day(judged: &CheckDecision) -> LimitStatus {
    limit_of(judged, Window::Day).status
}

/// The period of a subject in this zone.
fn period(window: Window, zone: &str, at: UnixMs) -> PeriodSpan {
    let billing_day: BillingDay = "15".parse().expect("a day");
    PeriodSpan::containing(window, zone.parse().expect("a zone"), billing_day, at).expect("in range")
}

fn question(who: &Subject, asked: u64) -> CheckRequest {
    CheckRequest {
        subject: who.clone(),
        metric: Metric::default(),
        units: units(asked),
        record: None,
        traceparent: None,
    }
}

impl Gate {
    fn open() -> Self {
        Self::to(Outbox::start())
    }

    fn to(books: Outbox) -> Self {
        Self { books, clock: ServerClock::default() }
    }

    async fn ask(&self, question: &CheckRequest, profile: &Profile) -> Result<CheckDecision, CheckError> {
        let level = SubjectLevel { subject: question.subject.clone(), profile: Arc::new(profile.clone()) };
        self.ask_levels(question, &[level]).await
    }

    async fn ask_levels(&self, question: &CheckRequest, levels: &[SubjectLevel]) -> Result<CheckDecision, CheckError> {
        let Outbox { client, keys, .. } = &self.books;
        check(&Partition { client: Arc::clone(client), keys: keys.clone() }, &self.clock, question, levels).await
    }

    async fn run(&self, question: &CheckRequest, profile: &Profile) -> CheckDecision {
        self.ask(question, profile).await.expect("it is judged")
    }

    async fn now(&self) -> UnixMs {
        let (seconds, micros): (i64, i64) = self.books.run("TIME", &[] as &[&str]).await;
        UnixMs(seconds * 1000 + micros / 1000)
    }

    /// Counts as a commit does, on the zone's day of this instant.
    async fn count(&self, who: &Subject, zone: &str, at: UnixMs, used: u64) {
        self.count_in(who, period(Window::Day, zone, at), used).await;
    }

    async fn count_in(&self, who: &Subject, period: PeriodSpan, used: u64) {
        let key = self.counter(who, period);
        let _: u64 = self.books.run("HSET", &[key.as_str(), who.as_str(), &used.to_string()]).await;
    }

    fn counter(&self, who: &Subject, period: PeriodSpan) -> String {
        self.books.keys.usage(&Metric::default(), period.period, keys::bucket(who.as_str()))
    }

    fn window(&self, algorithm: Algorithm, who: &Subject) -> String {
        self.books.keys.limiter(algorithm.as_str(), &Metric::default(), who)
    }

    async fn exists(&self, key: &str) -> bool {
        self.books.run("EXISTS", key).await
    }

    async fn entries(&self) -> u64 {
        self.books.run("XLEN", self.books.keys.stream()).await
    }
}

/// Admitted units are taken, others are not, and both statuses are right with every limiter.
#[tokio::test]
async fn limits_and_rate_are_judged_together() {
    let gate = Gate::open();
    for algorithm in ALGORITHMS {
        let who = subject(algorithm.as_str());
        let profile = profile("UTC", Some("100"), algorithm, Some("3/1h"));
        gate.count(&who, "UTC", gate.now().await, 40).await;
        for left in [2, 1, 0] {
            let judged = gate.run(&question(&who, 1), &profile).await;
            assert!(judged.is_allowed(), "{algorithm:?}: {judged:?}");
            let (rate, day) = (judged.rates[0].status, day(&judged));
            assert_eq!((rate.limit.get(), rate.remaining), (3, left), "{algorithm:?}");
            assert!(rate.reset > Duration::ZERO && rate.reset <= Duration::from_secs(3600), "{rate:?}");
            assert_eq!(limit_of(&judged, Window::Day).used, 40);
            assert_eq!((day.limit.get(), day.remaining), (100, 60), "{algorithm:?}: what is committed counts");
            assert!(day.reset <= Duration::from_secs(86_400) && day.length == Duration::from_secs(86_400));
        }
        let refused = gate.run(&question(&who, 1), &profile).await;
        assert!(!refused.is_allowed(), "{algorithm:?}: {refused:?}");
        assert!(day(&refused).is_admitted());
        let wait = refused.retry_after().expect("it is refused");
        assert!(wait > Duration::from_secs(1000) && wait <= Duration::from_secs(3600), "{algorithm:?}: {wait:?}");
        let ttl: i64 = gate.books.run("PTTL", gate.window(algorithm, &who)).await;
        assert!(ttl > 0, "{algorithm:?}: every key has an end");
    }
}

/// A used-up limit must not use up the rate too: its units would be missing when the next period begins.
#[tokio::test]
async fn a_limit_that_refuses_takes_nothing_from_the_rate_and_records_nothing() {
    let gate = Gate::open();
    for algorithm in ALGORITHMS {
        let who = subject(algorithm.as_str());
        let profile = profile("UTC", Some("100"), algorithm, Some("60/1m"));
        gate.count(&who, "UTC", gate.now().await, 98).await;
        let ask = CheckRequest { record: Some(EventId::numbered(7)), ..question(&who, 3) };
        let judged = gate.run(&ask, &profile).await;
        assert!(!judged.is_allowed());
        let (rate, day) = (judged.rates[0].status, day(&judged));
        assert_eq!((rate.remaining, rate.is_admitted()), (60, true), "{algorithm:?}");
        assert_eq!((day.remaining, day.admission), (2, Admission::Rejected { retry_after: Some(day.reset) }));
        assert_eq!(judged.recorded, Recorded::No);
        assert!(!gate.exists(&gate.window(algorithm, &who)).await, "{algorithm:?}: nothing was taken");
        assert_eq!(gate.entries().await, 0);
        // Units that fit are still admitted.
        assert!(gate.run(&question(&who, 2), &profile).await.is_allowed());
    }
}

/// A recorded event of a refused request would be counted against its subject.
#[tokio::test]
async fn a_rate_that_refuses_records_nothing() {
    let gate = Gate::open();
    let who = subject("alice");
    let profile = profile("UTC", Some("100"), Algorithm::Fixed, Some("1/1h"));
    let record = |number| CheckRequest { record: Some(EventId::numbered(number)), ..question(&who, 1) };
    assert_eq!(gate.run(&record(1), &profile).await.recorded, Recorded::Yes);
    let refused = gate.run(&record(2), &profile).await;
    assert!(!refused.is_allowed() && refused.recorded == Recorded::No);
    assert_eq!(gate.entries().await, 1);
}

/// The event has the form of every producer's event, so that it is counted normally.
#[tokio::test]
async fn what_is_recorded_is_a_usage_event() {
    let gate = Gate::open();
    let who = subject("🦀 with: {colons}");
    let metric: Metric = "tokens.in".parse().expect("a metric");
    let ask = CheckRequest { metric, record: "order-7".parse().ok(), ..question(&who, 350) };
    // No limit and no rate for that metric: nothing to judge, but still recorded.
    let judged = gate.run(&ask, &profile("UTC", Some("5"), Algorithm::Gcra, Some("5/1m"))).await;
    assert_eq!((judged.rates.len(), judged.limits.len(), judged.recorded), (0, 0, Recorded::Yes));
    let entries: Vec<(String, Vec<String>)> = gate.books.run("XRANGE", &["usage", "-", "+"]).await;
    let fields = ["subject", who.as_str(), "metric", "tokens.in", "units", "350", "id", "order-7"];
    assert_eq!(entries[0].1, fields);
    assert_eq!(entries.len(), 1);
}

/// An allowed request is recorded up to the last unit: the script and its wrapper must agree.
#[tokio::test]
async fn the_last_units_of_a_limit_are_recorded() {
    let gate = Gate::open();
    let who = subject("alice");
    let ask = CheckRequest { record: "order-8".parse().ok(), ..question(&who, 5) };
    let judged = gate.run(&ask, &profile("UTC", Some("5"), Algorithm::Gcra, Some("5/1m"))).await;
    assert!(judged.is_allowed());
    assert_eq!(judged.recorded, Recorded::Yes);
    assert_eq!(gate.books.run::<u64>("XLEN", "usage").await, 1);
}

/// Without limits and without recording no round trip is necessary, and the request is allowed.
#[tokio::test]
async fn without_a_limit_everything_is_allowed() {
    let gate = Gate::open();
    let judged = gate.run(&question(&subject("alice"), UNITS_MAX), &profile("UTC", None, Algorithm::Fixed, None)).await;
    assert!(judged.is_allowed() && judged.is_judged);
    let plans = Plans::new(&[("free".to_owned(), PlanConfig::clone(&plan_of_one()))].into(), "free").expect("legal");
    let (unreadable, _) = Profile::read(&[(b"plan".to_vec(), b"gold".to_vec())], &plans, 0, None);
    let judged = gate.run(&question(&subject("alice"), 2), &unreadable).await;
    assert!(judged.is_allowed() && !judged.is_judged, "no limit silently becomes the default one");
}

fn plan_of_one() -> PlanConfig {
    let limits = [(Metric::default(), units(1).into())].into();
    PlanConfig { limits, thresholds: Vec::new(), ..PlanConfig::default() }
}

/// A check of the wrong period would refuse a customer whose next period has just begun. The caller's clock must not
/// matter.
#[tokio::test]
async fn the_periods_are_those_of_the_servers_clock_in_the_subjects_zone() {
    let gate = Gate::open();
    // The dates always differ: 25 hours are between them.
    for zone in ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"] {
        let who = subject(zone);
        // A total has one period, so no neighbor can be taken for it.
        let windows = &Window::ALL[..Window::Total as usize];
        let limits = "100/hour 100/day 100/week 100/month 100/quarter 100/year";
        let profile = profile(zone, Some(limits), Algorithm::Fixed, None);
        let now = gate.now().await;
        for &window in windows {
            let current = period(window, zone, now);
            for (at, used) in [(current.start.plus(-1), 11), (now, 22), (current.end, 33)] {
                gate.count_in(&who, period(window, zone, at), used).await;
            }
        }
        for wrong_h in [0, -9, 9, -30, 30, -200, 200, -10_000, 10_000] {
            gate.clock.set(now.0 + wrong_h * 3_600_000);
            let judged = gate.run(&question(&who, 1), &profile).await;
            let after = gate.now().await;
            assert_eq!(judged.limits.len(), windows.len());
            for (limit, &window) in judged.limits.iter().zip(windows) {
                // A period may end during the test.
                let expected = if after < period(window, zone, now).end { (now, 22) } else { (after, 33) };
                assert_eq!(
                    (limit.period, limit.used, limit.status.remaining),
                    (period(window, zone, expected.0).period, expected.1, 100 - expected.1),
                    "{zone}, {wrong_h} h wrong"
                );
                assert!(limit.status.reset <= limit.status.length, "{limit:?}");
            }
        }
        let known = gate.clock.now_ms() - gate.now().await.0;
        assert!(known.abs() < 1000, "it has learnt the time: {known} ms off");
    }
}

/// A customer who has used up the month must be refused even in a new hour.
#[tokio::test]
async fn each_window_refuses_by_its_own_count() {
    let gate = Gate::open();
    let profile = profile(
        "Asia/Tokyo",
        Some("10/hour 20/day 30/week 40/month 50/quarter 60/year 70/total"),
        Algorithm::Fixed,
        Some("5/1m"),
    );
    for (used_up, limit) in Window::ALL.into_iter().zip([10, 20, 30, 40, 50, 60, 70]) {
        let who = subject(used_up.as_str());
        let now = gate.now().await;
        gate.count_in(&who, period(used_up, "Asia/Tokyo", now), limit).await;
        let judged = gate.run(&question(&who, 1), &profile).await;
        // An hour may end between counting and checking.
        let current = period(used_up, "Asia/Tokyo", now).period;
        if limit_of(&judged, used_up).period != current {
            continue;
        }
        let refusing: Vec<Window> = judged
            .limits
            .iter()
            .filter(|limit| !limit.status.is_admitted())
            .map(|limit| limit.period.window())
            .collect();
        assert_eq!((refusing, judged.longest_refusal()), (vec![used_up], Some(used_up)));
        // No wait helps if a total is used up, so that a client that retries anyway may do it once an hour.
        let total = used_up == Window::Total;
        let wait = if total { Duration::from_secs(3600) } else { limit_of(&judged, used_up).status.reset };
        assert_eq!((judged.retry_after(), judged.never_fits()), (Some(wait), total));
        assert_eq!(judged.rates[0].status.remaining, 5, "nothing was taken");
    }
    // More than the smallest limit never fits, whatever the others have left.
    assert!(gate.run(&question(&subject("all"), 11), &profile).await.never_fits());
}

/// A soft limit must refuse at its own share, not at the quota, and one that never refuses must only alert.
#[tokio::test]
async fn a_soft_limit_refuses_at_its_share_of_the_limit() {
    let gate = Gate::open();
    let judged = async |refuse_at, used, asked| {
        let plan = PlanConfig {
            limits: [(Metric::default(), units(10).into())].into(),
            thresholds: Vec::new(),
            refuse_at,
            ..PlanConfig::default()
        };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("legal");
        let who = subject(&format!("{refuse_at:?} {used}"));
        let now = gate.now().await;
        gate.count_in(&who, period(Window::Day, "UTC", now), used).await;
        gate.run(&question(&who, asked), &Profile::of_unknown(&plans, 0)).await
    };
    let at_150 = RefuseAt::Percent(Percent::new(150).expect("legal"));
    for (refuse_at, used, asked, is_allowed) in [
        (RefuseAt::default(), 9, 1, true),
        (RefuseAt::default(), 10, 1, false),
        (at_150, 10, 5, true),
        (at_150, 11, 5, false),
        (at_150, 15, 1, false),
        (RefuseAt::Never, 1000, 1, true),
    ] {
        let judged = judged(refuse_at, used, asked).await;
        assert_eq!(judged.is_allowed(), is_allowed, "{refuse_at:?}: {used} used, {asked} asked for");
        assert_eq!((day(&judged).limit, day(&judged).remaining), (units(10).into(), 10_u64.saturating_sub(used)));
        assert!(!judged.never_fits());
    }
    assert!(judged(at_150, 0, 16).await.never_fits());
}

/// If the event can't be appended, the rate must not be taken: the caller proceeds or is refused unrecorded, and
/// retries.
#[tokio::test]
async fn an_event_that_cannot_be_appended_takes_nothing_from_the_rate() {
    let gate = Gate::open();
    let (who, profile) = (subject("alice"), profile("UTC", Some("10"), Algorithm::Fixed, Some("5/1m")));
    let ask = CheckRequest { record: Some(EventId::numbered(1)), ..question(&who, 1) };
    let failure = async || match gate.ask(&ask, &profile).await {
        Err(CheckError::Redis(error)) => error,
        other => panic!("{other:?}"),
    };
    let _: String = gate.books.run("ACL", &["SETUSER", "default", "-xadd"]).await;
    let error = failure().await;
    assert_eq!(error_kind(&error), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("XADD on usage"), "{error}");
    let _: String = gate.books.run("ACL", &["SETUSER", "default", "+xadd"]).await;
    let _: String = gate.books.run("SET", &["usage", "x"]).await;
    let error = failure().await;
    assert_eq!(error_kind(&error), ErrorKind::WrongType, "{error}");
    assert!(!gate.exists(&gate.window(Algorithm::Fixed, &who)).await, "nothing was taken");
    let _: u64 = gate.books.run("DEL", "usage").await;
    assert_eq!(gate.run(&ask, &profile).await.recorded, Recorded::Yes);
}

/// If no wait helps, the response must not promise that one does; and sums of large counts must not lose a unit.
#[tokio::test]
async fn units_up_to_the_largest_are_judged_exactly() {
    let gate = Gate::open();
    let who = subject("alice");
    let now = gate.now().await;
    let all = profile("UTC", Some(&UNITS_MAX.to_string()), Algorithm::Fixed, None);
    gate.count(&who, "UTC", now, UNITS_MAX - 1).await;
    assert!(gate.run(&question(&who, 1), &all).await.is_allowed());
    assert!(!gate.run(&question(&who, 2), &all).await.is_allowed());
    assert!(!gate.run(&question(&who, UNITS_MAX), &all).await.is_allowed());
    for algorithm in ALGORITHMS {
        let rate = if algorithm == Algorithm::Sliding { "100000/1h".to_owned() } else { format!("{UNITS_MAX}/1h") };
        let profile = profile("UTC", None, algorithm, Some(&rate));
        let limit = profile.limiter(&Metric::default()).expect("a rate").rate().limit();
        let who = subject(algorithm.as_str());
        assert!(gate.run(&question(&who, limit), &profile).await.is_allowed(), "{algorithm:?}");
        // All units again: such a large bucket has meanwhile drained by millions.
        assert!(!gate.run(&question(&who, limit), &profile).await.is_allowed(), "{algorithm:?}");
    }
    let small = profile("UTC", Some("10"), Algorithm::Fixed, Some("5/1m"));
    assert!(gate.run(&question(&subject("bob"), 6), &small).await.never_fits());
    // If the limit refuses for now, the rate is not asked, and could never have admitted the request.
    gate.count(&subject("bob"), "UTC", gate.now().await, 9).await;
    let judged = gate.run(&question(&subject("bob"), 6), &small).await;
    let day = day(&judged);
    assert_eq!(day.admission, Admission::Rejected { retry_after: Some(day.reset) });
    assert!(judged.never_fits() && !gate.run(&question(&subject("bob"), 5), &small).await.never_fits());
}

/// A foreign value in a key must stop the check with an error before anything is written.
#[tokio::test]
async fn a_key_of_another_type_is_an_error() {
    let gate = Gate::open();
    let who = subject("alice");
    for algorithm in ALGORITHMS {
        let profile = profile("UTC", Some("100"), algorithm, Some("60/1m"));
        let _: u64 = gate.books.run("LPUSH", &[gate.window(algorithm, &who).as_str(), "x"]).await;
        let ask = CheckRequest { record: Some(EventId::numbered(1)), ..question(&who, 1) };
        match gate.ask(&ask, &profile).await {
            Err(CheckError::Redis(error)) => {
                assert_eq!(error_kind(&error), ErrorKind::WrongType, "{algorithm:?}: {error}")
            }
            other => panic!("{algorithm:?}: {other:?}"),
        }
    }
    assert_eq!(gate.entries().await, 0);
    gate.count(&who, "UTC", gate.now().await, 1).await;
    let key = gate.counter(&who, period(Window::Day, "UTC", gate.now().await));
    let _: u64 = gate.books.run("HSET", &[key.as_str(), who.as_str(), "many"]).await;
    let judged = gate.ask(&question(&who, 1), &profile("UTC", Some("1"), Algorithm::Fixed, None)).await;
    assert!(judged.is_err_and(|error| error.to_string().contains("no number")));
}

/// A subject may have 256 bytes: its key is shortened, and still unique.
#[tokio::test]
async fn the_longest_subjects_have_windows_of_their_own() {
    let gate = Gate::open();
    let profile = profile("UTC", None, Algorithm::Fixed, Some("1/1h"));
    for last in ["a", "b"] {
        let who = subject(&format!("{}{last}", "x".repeat(255)));
        assert!(gate.run(&question(&who, 1), &profile).await.is_allowed(), "{last}");
        assert!(!gate.run(&question(&who, 1), &profile).await.is_allowed(), "{last}");
    }
    let names: Vec<String> = gate.books.run("KEYS", "*window*").await;
    assert!(names.len() == 2 && names.iter().all(|name| name.len() <= STORED_KEY_BYTES_MAX), "{names:?}");
}

/// Many concurrent nodes must not get more than the window together, and each event counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_ask_at_once_share_one_window() {
    let gate = std::sync::Arc::new(Gate::open());
    for algorithm in ALGORITHMS {
        let before = gate.entries().await;
        let profile = std::sync::Arc::new(profile("UTC", Some("1000"), algorithm, Some("20/1h")));
        let mut nodes = tokio::task::JoinSet::new();
        for number in 0..64 {
            let (gate, profile) = (std::sync::Arc::clone(&gate), std::sync::Arc::clone(&profile));
            nodes.spawn(async move {
                let who = subject(algorithm.as_str());
                let ask = CheckRequest { record: Some(EventId::numbered(number)), ..question(&who, 1) };
                gate.run(&ask, &profile).await.is_allowed()
            });
        }
        let allowed = nodes.join_all().await.into_iter().filter(|allowed| *allowed).count();
        assert_eq!((allowed, gate.entries().await - before), (20, 20), "{algorithm:?}");
    }
}

/// A server that accepts no writes must report that; `on_error` then decides the check.
#[tokio::test]
async fn a_full_server_is_a_fault_and_not_a_yes() {
    let server = RedisServer::start_with(&["--save", "", "--maxmemory", "1"]);
    let gate = Gate::to(Outbox::on(server));
    let profile = profile("UTC", Some("10"), Algorithm::Fixed, Some("5/1m"));
    match gate.ask(&question(&subject("alice"), 1), &profile).await {
        Err(CheckError::Redis(error)) => assert_eq!(error_kind(&error), ErrorKind::Full, "{error}"),
        other => panic!("{other:?}"),
    }
}

/// A gateway must refuse what any level may not use, name that level, and take from no rate then.
#[tokio::test]
async fn all_levels_are_judged_and_all_rates_are_taken_or_none() {
    for algorithm in ALGORITHMS {
        let gate = Gate::open();
        let levels = |limit: &str, rate_of_team: &str| {
            let level = |name: &str, limit: &str, rate: &str| SubjectLevel {
                subject: subject(name),
                profile: Arc::new(profile("UTC", Some(limit), algorithm, Some(rate))),
            };
            [level("acme/a/k", "100", "9/1h"), level("acme/a", "100", rate_of_team), level("acme", limit, "9/1h")]
        };
        let ask = question(&subject("acme/a/k"), 2);
        let left = |judged: &CheckDecision| judged.rates.iter().map(|rate| rate.status.remaining).collect::<Vec<_>>();
        let allowed = gate.ask_levels(&ask, &levels("10", "3/1h")).await.expect("judged");
        assert!(allowed.is_allowed(), "{algorithm:?}: {allowed:?}");
        assert_eq!((left(&allowed), allowed.limits.len()), (vec![7, 1, 7], 3), "{algorithm:?}");
        // The team's rate has one unit left: nothing is taken from the others.
        let refused = gate.ask_levels(&ask, &levels("10", "3/1h")).await.expect("judged");
        assert_eq!((refused.is_allowed(), left(&refused)), (false, vec![7, 1, 7]), "{algorithm:?}");
        assert!(
            refused.refusal(&ask, &MetricFormat::default()).ends_with(" now, by the limit of acme/a"),
            "{}",
            refused.refusal(&ask, &MetricFormat::default())
        );
        // The organization's limit refuses: no rate is taken, and its status has the number of its level.
        gate.count(&subject("acme"), "UTC", gate.now().await, 9).await;
        let refused = gate.ask_levels(&ask, &levels("10", "3/1h")).await.expect("judged");
        let refusing = refused.limits.iter().filter(|limit| !limit.status.is_admitted());
        let refusing: Vec<_> = refusing.map(|limit| (limit.subject.as_str(), limit.level_above, limit.used)).collect();
        assert_eq!(refusing, [("acme", Some(1), 9)], "{algorithm:?}");
        assert_eq!(left(&refused), [7, 1, 7], "{algorithm:?}");
        assert!(
            refused.refusal(&ask, &MetricFormat::default()).ends_with(" now, by the limit of acme"),
            "{}",
            refused.refusal(&ask, &MetricFormat::default())
        );
    }
}
