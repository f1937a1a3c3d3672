//! Thresholds in units, on the real binary: from the plan and the settings of a subject to its receivers, in lists and
//! in explanations.

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::Outbox;
use crate::support::receivers::HttpCatcher;
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{secret, verify};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";

/// Adds units of alice, and waits until they are counted.
async fn use_units(outbox: &Outbox, units: u64) {
    let before = outbox.totals().await.counted;
    let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice", "units", &units.to_string()]).await;
    eventually("it is counted", || async { (outbox.totals().await.counted > before).then_some(()) }).await;
}

/// The data of the next webhook.
async fn told(receiver: &mut HttpCatcher) -> Value {
    let request = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    verify(&request, &secret(7)).body["data"].take()
}

fn run(outbox: &Outbox, words: &[&str]) -> String {
    quotabell(words.iter().copied()).redis(&outbox.server.url()).run().expect_done()
}

fn shown(outbox: &Outbox, words: &[&str]) -> Vec<Value> {
    quotabell(words.iter().copied().chain(["--json"])).redis(&outbox.server.url()).run().expect_json()
}

/// A platform that sells units asks for alerts at units. A top-up must arm what remains again, and not what is used.
#[tokio::test]
async fn thresholds_in_units_alert_at_their_counts_and_reach_those_who_want_them() {
    let outbox = Outbox::on(RedisServer::start());
    let mut all = HttpCatcher::start([]).await.expect("a receiver");
    let mut few = HttpCatcher::start([]).await.expect("a receiver");
    let contact = |receiver: &HttpCatcher| json!({"channel": "webhook", "url": receiver.url("/"), "secret": secret(7)});
    let mut of_few = contact(&few);
    of_few["thresholds"] = json!(["remaining:1000"]);
    let contacts = json!([contact(&all), of_few]).to_string();
    let _: u64 = outbox.run("HSET", &["quota_subject:alice", "contacts", contacts.as_str()]).await;
    let setup = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":10000}"#)
        .env("QUOTABELL__PLANS__FREE__THRESHOLDS", r#"[80,"used:5000","remaining:1000"]"#);
    let daemon = setup.clone().start().await;

    use_units(&outbox, 4_999).await;
    assert_eq!(outbox.totals().await.raised, 0);
    use_units(&outbox, 1).await;
    let used = told(&mut all).await;
    assert_eq!((&used["threshold"], &used["used"]), (&json!({"kind": "used", "units": 5000}), &json!(5000)));
    assert_eq!(used.get("threshold_percent"), None);
    use_units(&outbox, 3_000).await;
    let percent = told(&mut all).await;
    assert_eq!(percent["threshold"], json!({"kind": "percent", "percent": 80}));
    assert_eq!(percent["threshold_percent"], 80);
    use_units(&outbox, 1_000).await;
    let left = json!({"kind": "remaining", "units": 1000});
    for receiver in [&mut all, &mut few] {
        let remaining = told(receiver).await;
        assert_eq!((&remaining["threshold"], &remaining["used"]), (&left, &json!(9000)));
    }

    // A running daemon would notice the top-up within a second.
    daemon.drain().await;
    run(&outbox, &["subject", "set", "alice", "--limit", "requests=20000"]);
    let daemon = setup.start().await;
    use_units(&outbox, 9_999).await;
    assert_eq!(told(&mut all).await["threshold"]["kind"], "percent");
    use_units(&outbox, 1).await;
    for receiver in [&mut all, &mut few] {
        let remaining = told(receiver).await;
        assert_eq!((&remaining["threshold"], &remaining["used"]), (&left, &json!(19_000)));
    }
    eventually("all are settled", || async { (outbox.totals().await.delivered == 7).then_some(()) }).await;
    daemon.drain().await;
    assert!(all.try_next().is_none() && few.try_next().is_none());
    assert_eq!(outbox.assert_balanced().await.raised, 5, "used:5000 once, the others twice");

    let alerts = shown(&outbox, &["alerts", "--subject", "alice"]);
    let of_used: Vec<&Value> = alerts.iter().filter(|alert| alert["threshold"]["kind"] == "used").collect();
    assert_eq!((alerts.len(), of_used.len()), (5, 1));
    assert_eq!((&of_used[0]["threshold_units"], of_used[0].get("threshold_percent")), (&json!(5000), None));
    let listed = run(&outbox, &["alerts", "--subject", "alice"]);
    assert!(listed.contains("used 5,000") && listed.contains("remaining 1,000") && listed.contains("80%"), "{listed}");
    let usage = run(&outbox, &["usage", "alice"]);
    assert!(usage.contains("used 5,000, ") && usage.contains("remaining 1,000"), "{usage}");
    let deliveries = shown(&outbox, &["deliveries", "list"]);
    let of_left = deliveries.iter().filter(|delivery| delivery["threshold"] == left);
    assert_eq!(of_left.clone().count(), 4);
    assert!(of_left.clone().all(|delivery| delivery["threshold_percent"].is_null()));
    let id = of_left.map(|delivery| delivery["id"].as_str().expect("an id")).next().expect("four");
    let detail = run(&outbox, &["deliveries", "show", id]);
    assert!(detail.contains("remaining 1,000: "), "{detail}");
}

/// The platform that asks at which count the next alert is due must not wait for one that never comes.
#[tokio::test]
async fn explain_says_when_a_threshold_in_units_is_due_and_when_it_never_is() {
    let outbox = Outbox::on(RedisServer::start());
    let set = ["HSET", "quota_subject:alice", "limit:requests", "1000", "thresholds", "remaining:1000,used:700"];
    let _: u64 = outbox.run(set[0], &set[1..]).await;
    let daemon = DaemonSetup::on(&outbox.server.url()).argument("--no-send").start().await;
    use_units(&outbox, 699).await;
    let explained = run(&outbox, &["explain", "alice"]);
    for said in [
        "The next alert is due at the threshold used 700, which is 700 units: 1 more is needed.",
        "The threshold remaining 1,000 is never due in the day: the limit is 1,000 units.",
    ] {
        assert!(explained.contains(said), "{said} is not in {explained}");
    }
    use_units(&outbox, 1).await;
    let explained = run(&outbox, &["explain", "alice"]);
    assert!(
        explained.contains(": the threshold used 700 of the limit of 1,000 units in the day was reached"),
        "{explained}"
    );
    let alert = shown(&outbox, &["alerts", "--subject", "alice"]).remove(0);
    let explained = run(&outbox, &["explain", alert["id"].as_str().expect("an id")]);
    assert!(explained.contains("alice reached the threshold used 700 of 1,000 units of requests"), "{explained}");

    let with = async |thresholds: &str| {
        let _: u64 = outbox.run("HSET", &["quota_subject:alice", "thresholds", thresholds]).await;
        run(&outbox, &["explain", "alice"])
    };
    let explained = with("used:650,used:700,used:800").await;
    for said in [
        "An alert at the threshold used 650 is due: it is raised with the next event that is counted.",
        "The next alert is due at the threshold used 800, which is 800 units: 100 more are needed.",
    ] {
        assert!(explained.contains(said), "{said} is not in {explained}");
    }
    // A higher limit arms a percentage again, but not what is used.
    let explained = with("used:700").await;
    assert!(explained.contains("Every threshold is reached; the next alert comes in the next period."), "{explained}");
    let explained = with("70").await;
    assert!(explained.contains("An alert at 70% is due: it is raised with the next event"), "{explained}");
    use_units(&outbox, 1).await;
    let explained = run(&outbox, &["explain", "alice"]);
    assert!(
        explained
            .contains("Every threshold is reached; the next alert comes in the next period, or with a higher limit."),
        "{explained}"
    );

    let _: u64 = outbox.run("HSET", &["quota_subject:alice", "thresholds", "remaining:5000"]).await;
    let explained = run(&outbox, &["explain", "alice"]);
    assert!(explained.contains("No threshold can be reached, so no alert is raised."), "{explained}");
    daemon.drain().await;
}

/// What a platform sets over HTTP or by command must be what it reads back, in the same order and form.
#[tokio::test]
async fn thresholds_in_units_are_set_and_shown_everywhere() {
    let outbox = Outbox::on(RedisServer::start());
    let mut daemon =
        DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).argument("--no-send").start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let thresholds = json!([80, "used:5000", "remaining:1000"]);
    let put = async |body: Value| api.put("/v1/subjects/alice", &body).await;
    let answer = put(json!({"thresholds": ["remaining:1000", "used:5000", 80]})).await;
    assert!(answer.status < 300, "{}", answer.text);
    assert_eq!(api.get("/v1/subjects/alice").await.json()["thresholds"], thresholds);
    for (bad, said) in [
        (json!(["used:0"]), "thresholds[0]: \"used:0\": a threshold must be a whole number of percent"),
        (json!([80, "used:9007199254740992"]), "thresholds[1]: \"used:9007199254740992\": a threshold must be"),
        (json!(["remaining:-1"]), "used:N or remaining:N with N units, 1 to 9007199254740991"),
        (json!(["remaining:"]), "thresholds[0]: \"remaining:\": a threshold must be"),
        (json!(["left:5"]), "thresholds[0]: \"left:5\": a threshold must be"),
        (json!(["80"]), "expected a whole number of percent, 1 to 1000, \"used:N\" or \"remaining:N\""),
        (json!(["used:5", "used:05"]), "thresholds: used:5 is listed twice"),
        (json!((1..=101).map(|n| format!("used:{n}")).collect::<Vec<_>>()), "101 thresholds are too many, at most 100"),
    ] {
        put(json!({"thresholds": bad})).await.expect_problem(400, said);
    }
    assert_eq!(api.get("/v1/subjects/alice").await.json()["thresholds"], thresholds);

    let email = ["--email", "a@b.test", "--threshold"];
    let add = |threshold: &'static str| [&["contact", "add", "alice"], email.as_slice(), &[threshold]].concat();
    run(&outbox, &add("100,remaining:1000"));
    let listed = run(&outbox, &["contact", "list", "alice"]);
    assert!(listed.contains("100,remaining:1000"), "{listed}");
    assert_eq!(shown(&outbox, &["contact", "list", "alice"])[0]["thresholds"], json!([100, "remaining:1000"]));
    let wrong = quotabell(add("left:5").iter().copied()).redis(&outbox.server.url()).run();
    assert!(wrong.code != 0 && wrong.stderr.contains("\"left:5\": a threshold must be"), "{}", wrong.told());

    run(&outbox, &["subject", "set", "bob", "--threshold", "remaining:10,50", "--threshold", "used:7"]);
    let stored: String = outbox.run("HGET", &["quota_subject:bob", "thresholds"]).await;
    assert_eq!(stored, "50,used:7,remaining:10");
    assert_eq!(shown(&outbox, &["subject", "show", "bob"])[0]["thresholds"], json!([50, "used:7", "remaining:10"]));
    let wrong = quotabell(["subject", "set", "bob", "--threshold", "used:0"]).redis(&outbox.server.url()).run();
    assert!(wrong.code != 0 && wrong.stderr.contains("a threshold must be"), "{}", wrong.told());
    let limits = ["subject", "set", "bob", "--limit", "requests=600/hour", "--limit", "requests=1000/day"];
    let set = |thresholds| {
        let words = limits.iter().copied().chain(["--threshold", thresholds]);
        quotabell(words).redis(&outbox.server.url()).run()
    };
    let fine = set("remaining:999");
    assert!(fine.code == 0 && !fine.stderr.contains("warning"), "{}", fine.told());
    let warned = set("remaining:1000,used:5000");
    let said = "warning: remaining:1000 is never due, no limit here is higher\n";
    assert!(warned.code == 0 && warned.stderr.contains(said), "{}", warned.told());
    let row = r#"{"subject":"carol","thresholds":[50,"used:7"],"email":"c@b.test","email_thresholds":["used:7"]}"#;
    quotabell(["subject", "import", "-"]).redis(&outbox.server.url()).stdin(row).run().expect_done();
    let carol = shown(&outbox, &["subject", "show", "carol"]).remove(0);
    assert_eq!(carol["thresholds"], json!([50, "used:7"]));
    assert_eq!(carol["contacts"][0]["thresholds"], json!(["used:7"]));
    daemon.drain().await;
}
