//! `/metrics` of the real binary: every metric appears with its help text, and the values match the test.

use std::collections::BTreeMap;

use crate::support;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use quotabell::types::{RefusalReason, meters};

/// A page of metrics, parsed as Prometheus does.
#[derive(Debug, Default)]
struct Metrics {
    help: BTreeMap<String, String>,
    kinds: BTreeMap<String, String>,
    /// By name and labels as they are written, such as `a_total{x="y"}`.
    samples: BTreeMap<String, f64>,
}

impl Metrics {
    async fn of(daemon: &mut Daemon) -> Self {
        let page = daemon.get("/metrics").await;
        assert_eq!(page.status, 200);
        let mut metrics = Self::default();
        for line in page.body.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').expect("a name and a text");
                assert_eq!(metrics.help.insert(name.to_owned(), text.to_owned()), None, "one HELP for {name}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(metrics.kinds.insert(name.to_owned(), kind.to_owned()), None, "one TYPE for {name}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
                assert_eq!(metrics.samples.insert(series.to_owned(), value), None, "one sample for {series}");
            }
        }
        metrics
    }

    /// The value of one series; 0 if it has not appeared.
    fn get(&self, series: &str) -> u64 {
        self.samples.get(series).copied().unwrap_or(0.0) as u64
    }

    /// The sum over all series of a name.
    fn sum(&self, name: &str) -> u64 {
        let of = |series: &str| series == name || series.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        self.samples.iter().filter(|(series, _)| of(series)).map(|(_, value)| *value as u64).sum()
    }
}

fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

/// Events that make every metric appear.
const TOKEN: &str = "a-token-for-one-test-0123456789";

async fn stage() -> (Outbox, HttpCatcher, Daemon) {
    let outbox = Outbox::on(RedisServer::start());
    // The first alert is refused once, the last one permanently.
    let receiver = HttpCatcher::start([
        Answer::status(503),
        Answer::status(204),
        Answer::status(422).header("webhook-delivery", "abort-message"),
    ])
    .await;
    let receiver = receiver.expect("a receiver");
    let contacts = |id: &str| {
        serde_json::json!([{"id": id, "channel": "webhook", "url": receiver.url("/"), "secret": secret(3)}]).to_string()
    };
    outbox.set_contacts(&subject("alice"), &contacts("a")).await;
    outbox.set_contacts(&subject("bob"), &contacts("b")).await;
    let _: u64 = outbox.run("HSET", &["quota_subject:carol", "plan", "nonesuch"]).await;
    let mut daemon = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#)
        .env("QUOTABELL__HTTP__TOKEN", TOKEN)
        .start()
        .await;
    daemon.http().await;
    (outbox, receiver, daemon)
}

async fn add(outbox: &Outbox, fields: &[&str]) {
    let words = [&["usage", "*"], fields].concat();
    let _: String = outbox.run("XADD", words).await;
}

/// Four entries that nobody can have read.
const ADDED_AND_TRIMMED: &str = "for _ = 1, 4 do redis.call('XADD', 'usage', '*', 'subject', 'alice') end
return redis.call('XTRIM', 'usage', 'MAXLEN', 0)";

/// The counter of one subject, if this hash has it.
const CORRECT_DORA: &str =
    "return redis.call('HEXISTS', KEYS[1], 'dora') == 1 and redis.call('HSET', KEYS[1], 'dora', 50)";

/// Dashboards and alarms depend on these names and values.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_appears_with_its_help_and_agrees_with_what_happened() {
    let (outbox, _receiver, mut daemon) = stage().await;
    let before = Metrics::of(&mut daemon).await;
    let refused = RefusalReason::ALL.map(|reason| format!("{}{{reason=\"{reason}\"}}", meters::EVENTS_REFUSED));
    let alone = meters::ALL.iter().filter(|meter| meter.kind == meters::MeterKind::Counter);
    let alone = alone.map(|meter| meter.name.to_owned());
    for series in refused.into_iter().chain(alone) {
        assert_eq!(before.samples.get(&series), Some(&0.0), "{series} starts from zero");
    }
    // Another group that has read nothing prevents trimming.
    let () = outbox.run("XGROUP", &["CREATE", "usage", "other", "0", "MKSTREAM"]).await;
    add(&outbox, &["subject", "alice", "units", "79", "id", "1"]).await;
    add(&outbox, &["subject", "alice", "units", "79", "id", "1"]).await;
    add(&outbox, &["subject", "alice", "units", "1"]).await;
    eventually("alice is told", || async { (outbox.totals().await.delivered == 1).then_some(()) }).await;
    add(&outbox, &["subject", "bob", "units", "80"]).await;
    eventually("bob's receiver has refused", || async { (outbox.totals().await.dead == 1).then_some(()) }).await;
    add(&outbox, &["subject", "dora", "units", "100"]).await;
    add(&outbox, &["subject", "carol", "units", "5"]).await;
    add(&outbox, &["subject", "alice", "units", "-1"]).await;
    add(&outbox, &["subject", "alice", "units", "1.5"]).await;
    add(&outbox, &["units", "1"]).await;
    let address = daemon.http().await;
    eventually("everything is judged, and the daemon knows it", || async {
        let totals = outbox.totals().await;
        let page = support::daemon::http_get(address, "/metrics").await?;
        let judged = totals.counted == 5 && totals.refused == 3 && totals.waiting == 2;
        (judged && page.body.contains(&format!("\n{} 5\n", meters::EVENTS_COUNTED))).then_some(())
    })
    .await;
    // Somebody corrects a counter by hand instead of by a credit.
    let usage: Vec<String> = outbox.run("KEYS", "quota_usage:{usage}:requests:*").await;
    for key in usage {
        let _: Option<u64> = outbox.run("EVAL", &[CORRECT_DORA, "1", &key]).await;
    }
    add(&outbox, &["subject", "dora", "units", "1"]).await;
    daemon.says("a counter was changed by somebody else: what is stored counts").await;
    eventually("what is stored counts", || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.contains(&format!("\n{} 6\n", meters::EVENTS_COUNTED)).then_some(())
    })
    .await;
    // The reader's connection breaks.
    let _: u64 = outbox.run("CLIENT", &["KILL", "TYPE", "pubsub"]).await;
    // Another program trims unread entries. In one script, because a waiting reader takes the first entry that it can.
    let _: u64 = outbox.run("EVAL", &[ADDED_AND_TRIMMED, "0"]).await;
    eventually("the gap is found", || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.contains(&format!("{} 4", meters::ENTRIES_LOST)).then_some(())
    })
    .await;

    eventually("the hourly pass has ended", || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.contains(&format!("\n{} ", meters::HOURLY_PASS)).then_some(())
    })
    .await;

    // An API node sends a check.
    let api = support::api::Caller::of(&mut daemon).await.with_token(TOKEN);
    assert_eq!(api.post("/v1/check", &serde_json::json!({"subject": "bob", "units": 21})).await.status, 429);

    let metrics = Metrics::of(&mut daemon).await;
    // `increase` does not see the first value of a series.
    let counters = |series: &&String| ["_total", "_count"].iter().any(|end| name_of(series).ends_with(end));
    let late: Vec<&String> =
        metrics.samples.keys().filter(counters).filter(|one| !before.samples.contains_key(*one)).collect();
    assert!(late.is_empty(), "{late:?} appeared with their first event");
    for meter in meters::ALL {
        assert_eq!(metrics.help.get(meter.name).map(String::as_str), Some(meter.help), "HELP of {}", meter.name);
        let kind = match meter.kind {
            meters::MeterKind::Counter | meters::MeterKind::LabelledCounter => "counter",
            meters::MeterKind::Gauge => "gauge",
            meters::MeterKind::Histogram => "histogram",
        };
        assert_eq!(metrics.kinds.get(meter.name).map(String::as_str), Some(kind), "TYPE of {}", meter.name);
    }
    assert_eq!(metrics.kinds.len(), meters::ALL.len(), "{:?}", metrics.kinds.keys());

    let get = |series: &str| metrics.get(series);
    assert_eq!((get(meters::EVENTS_COUNTED), get(meters::EVENTS_DUPLICATE), get(meters::ENTRIES_LOST)), (6, 1, 4));
    assert_eq!(get(meters::DRIFT), 1);
    assert_eq!(get(&format!("{}{{answer=\"drift\"}}", meters::COMMITS)), 1);
    assert_eq!(get(&format!("{}{{reason=\"bad_units\"}}", meters::EVENTS_REFUSED)), 2);
    assert_eq!(get(&format!("{}{{reason=\"missing_subject\"}}", meters::EVENTS_REFUSED)), 1);
    assert_eq!(metrics.sum(meters::EVENTS_REFUSED), 3);
    assert!(get(&format!("{}{{answer=\"committed\"}}", meters::COMMITS)) > 0);
    assert_eq!(
        get(&format!("{}_count", meters::COMMIT_SECONDS)),
        get(&format!("{}{{answer=\"committed\"}}", meters::COMMITS))
    );
    assert_eq!(get(&format!("{}{{threshold=\"80\",window=\"day\"}}", meters::ALERTS_RAISED)), 3);
    assert_eq!(get(&format!("{}{{threshold=\"100\",window=\"day\"}}", meters::ALERTS_RAISED)), 1);
    assert_eq!(get(&format!("{}{{channel=\"webhook\"}}", meters::DELIVERIES_MADE)), 2);
    assert_eq!(get(&format!("{}{{channel=\"none\"}}", meters::DELIVERIES_MADE)), 2);
    assert_eq!(get(&format!("{}{{channel=\"webhook\",state=\"delivered\"}}", meters::DELIVERIES_ENDED)), 1);
    assert_eq!(get(&format!("{}{{channel=\"webhook\",state=\"dead\"}}", meters::DELIVERIES_ENDED)), 1);
    assert_eq!(metrics.sum(meters::DELIVERIES_ENDED), 2);
    for outcome in ["delivered", "transient", "permanent"] {
        assert_eq!(get(&format!("{}{{channel=\"webhook\",outcome=\"{outcome}\"}}", meters::ATTEMPTS)), 1, "{outcome}");
    }
    assert_eq!(get(&format!("{}_count{{channel=\"webhook\"}}", meters::DELIVERED_SECONDS)), 1);
    let seconds = metrics.samples[&format!("{}_sum{{channel=\"webhook\"}}", meters::DELIVERED_SECONDS)];
    // The retry came after 50 ms, minus a fifth.
    assert!((0.04..30.0).contains(&seconds), "{seconds}");
    assert_eq!(
        (get(meters::LAG), get(meters::DELIVERIES_PENDING), get(meters::DELIVERIES_DEAD), get(meters::OUTBOX_ENTRIES)),
        (0, 2, 1, 0)
    );
    assert_eq!(get(meters::DELIVERIES_WITHOUT_CONTACT), 2);
    let oldest = metrics.samples[meters::OLDEST_PENDING];
    assert!(oldest > 0.0 && oldest < 60.0, "{oldest}");
    assert!(get(meters::SUBJECTS_UNREADABLE) >= 1);
    assert_eq!(get(meters::SUBJECTS_CACHED), 4);
    assert_eq!(get(&format!("{}{{decision=\"denied_day\"}}", meters::CHECKS)), 1);
    assert_eq!((metrics.sum(meters::CHECKS), get(&format!("{}_count", meters::CHECK_SECONDS))), (1, 1));
    assert_eq!(metrics.sum(meters::TRIM_HELD), 1);
    assert!(metrics.samples.contains_key(&format!("{}{{group=\"other\"}}", meters::TRIM_HELD)));
    assert!(metrics.sum(meters::REDIS_ERRORS) >= 1);
    assert_eq!(get(meters::READY), 1);
    let now_s = crate::support::books::server_time(&outbox.client).await.0.div_euclid(1000) as u64;
    assert!((now_s - 600..=now_s).contains(&get(meters::HOURLY_PASS)), "{}", get(meters::HOURLY_PASS));

    daemon.drain().await;
}

/// A scrape must be answered while Redis is unavailable, and must show that.
#[tokio::test]
async fn metrics_are_served_while_redis_is_away() {
    let mut server = RedisServer::start();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    assert_eq!(Metrics::of(&mut daemon).await.get(meters::READY), 1);
    server.kill();
    let address = daemon.http().await;
    eventually("it is not ready", || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.contains(&format!("{} 0", meters::READY)).then_some(())
    })
    .await;
    server.restart();
    eventually("it is ready again", || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.contains(&format!("{} 1", meters::READY)).then_some(())
    })
    .await;
    daemon.drain().await;
}

/// The alarm is about the mail server that all messages use, and not about one customer's receiver.
#[tokio::test]
async fn a_dead_mail_server_shows_and_a_broken_webhook_does_not() {
    let outbox = Outbox::on(RedisServer::start());
    let broken = HttpCatcher::start_on(([127, 0, 0, 1], 0).into(), |_| Answer::status(503)).await.expect("a receiver");
    let hook = serde_json::json!([{"channel": "webhook", "url": broken.url("/"), "secret": secret(3)}]);
    outbox.set_contacts(&subject("alice"), &hook.to_string()).await;
    outbox.set_contacts(&subject("bob"), r#"[{"channel":"email","address":"bob@b.test"}]"#).await;
    let nobody = format!("smtp://127.0.0.1:{}", support::redis_server::free_port());
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#);
    let mut daemon = setup.env("QUOTABELL__EMAIL__SMTP_URL", &nobody).start().await;
    let address = daemon.http().await;
    let shows = |line: String| async move {
        eventually(&line, || async {
            let page = support::daemon::http_get(address, "/metrics").await?;
            page.body.contains(&line).then_some(())
        })
        .await;
    };
    let circuit = |value: u8| format!("{}{{channel=\"email\"}} {value}", meters::SERVER_CIRCUIT);
    add(&outbox, &["subject", "alice", "units", "80"]).await;
    shows(format!("{}{{state=\"open\"}} 1", meters::DESTINATIONS)).await;
    shows(circuit(0)).await;
    add(&outbox, &["subject", "bob", "units", "80"]).await;
    shows(circuit(1)).await;
    daemon.drain().await;
}

/// One customer's broken receiver used to cause an alarm, because each partition counted it.
#[tokio::test]
async fn a_receiver_that_fails_in_all_partitions_is_one_receiver() {
    let outbox = Outbox::on(RedisServer::start());
    let broken = HttpCatcher::start_on(([127, 0, 0, 1], 0).into(), |_| Answer::status(503)).await.expect("a receiver");
    let contact = serde_json::json!([{"channel": "webhook", "url": broken.url("/"), "secret": secret(3)}]);
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__STREAM__PARTITIONS", "2");
    let setup = setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#);
    let mut daemon = setup.env("QUOTABELL__FALLBACK__CONTACTS", &contact.to_string()).start().await;
    for number in 2..6 {
        let name = format!("s-{number}");
        let stream = format!("usage:{}", crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(name.as_bytes()) % 2);
        let _: String = outbox.run("XADD", &[&stream, "*", "subject", &name, "units", "80"]).await;
    }
    let address = daemon.http().await;
    eventually("both partitions have its circuit open", || async {
        let page = support::daemon::http_get(address, "/metrics").await?.body;
        let open = |partition| format!("{}{{partition=\"{partition}\",state=\"open\"}} 1", meters::DESTINATIONS);
        [0, 1].iter().all(|partition| page.contains(&open(partition))).then_some(())
    })
    .await;
    assert_eq!(Metrics::of(&mut daemon).await.get(meters::RECEIVERS_FAILING), 1);
    daemon.drain().await;
}
