//! The reading routes of the real daemon: subjects, their usage and their alerts, as on the command line.

use std::collections::BTreeSet;

use crate::support::api::{Answer, Caller};
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::{alert, in_period, subject};
use crate::support::recorded_usage::RecordedUsage;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quotabell::types::{Alert, AlertId, Metric, Period, keys};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";
/// The routes that read with the token.
const ROUTES: [&str; 4] =
    ["/v1/subjects", "/v1/subjects/alice", "/v1/subjects/alice/usage", "/v1/subjects/alice/alerts"];

async fn with_token(usage: &RecordedUsage) -> (Daemon, Caller) {
    let mut daemon = DaemonSetup::on(&usage.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

/// The JSON output of the command line, one object per line.
fn printed(usage: &RecordedUsage, words: &[&str]) -> Vec<Value> {
    quotabell(words.iter().copied().chain(["--json"])).redis(&usage.server.url()).run().expect_json()
}

/// The platform shows its customers the same as the command line shows the operator.
#[tokio::test]
async fn usage_is_the_object_that_the_command_line_prints() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    usage.set("a/b 🦀*", &[("limit:requests", "10/hour 100/day"), ("timezone", "Asia/Tokyo")]).await;
    let event = ["usage", "*", "subject", "a/b 🦀*", "units", "8"];
    let _: String = usage.client.query(redis::cmd("XADD").arg(&event)).await.expect("added");
    let used = async |path: &str| {
        let answer = api.get(path).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{}", answer.text);
        answer.json()
    };
    let path = "/v1/subjects/a%2Fb%20%F0%9F%A6%80*/usage";
    let shown = eventually("it is counted", || async {
        let shown = used(path).await;
        (shown["metrics"][0]["windows"][1]["used"] == 8).then_some(shown)
    })
    .await;
    let hour = &shown["metrics"][0]["windows"][0];
    // The hour may have ended since.
    if hour["used"] == 8 {
        assert_eq!((&hour["limit"], &hour["used_percent"]), (&json!(10), &json!(80.0)));
        assert_eq!(hour["alerts"][0]["threshold_percent"], 80);
    }
    for (query, day) in [("", &[][..]), ("?day=2024-03-31", &["--day", "2024-03-31"][..])] {
        let words = [&["usage", "a/b 🦀*"][..], day].concat();
        let same = || async {
            let shown = used(&format!("{path}{query}")).await;
            (shown == printed(&usage, &words)[0]).then_some(())
        };
        eventually("both show the same, unless the hour ends between them", same).await;
    }
    usage.set("bob", &[("limit:requests", "many")]).await;
    let unreadable = used("/v1/subjects/bob/usage").await["unreadable"].clone();
    assert_eq!(unreadable[0]["field"], "limit:requests");
    // Nobody set it: the default plan, and 0.
    let nobody = used("/v1/subjects/nobody/usage").await;
    assert_eq!((&nobody["plan"], &nobody["metrics"][0]["windows"][0]["used"]), (&json!("free"), &json!(0)));
    daemon.drain().await;
}

/// A wrong request must be answered as such, and usage must not be readable without the token.
#[tokio::test]
async fn reading_needs_the_token_and_a_legal_request() {
    let usage = RecordedUsage::start();
    usage.set("alice", &[("plan", "free")]).await;
    let (daemon, api) = with_token(&usage).await;
    for path in ROUTES {
        let answer = api.get(path).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{path}");
        api.without_token().get(path).await.expect_problem(401, "Authorization: Bearer TOKEN");
        api.with_token("wrong").get(path).await.expect_problem(401, "none of those that are configured");
        if path != "/v1/subjects/alice" {
            let unknown = api.get(&format!("{path}?days=1")).await;
            unknown.expect_problem(400, "the query: ");
            assert!(unknown.text.contains("unknown field `days`"), "{}", unknown.text);
        }
    }
    for path in ["/v1/subjects", "/v1/subjects/alice/alerts"] {
        for limit in ["0", "1001", "-1", "1.5", "", "many"] {
            let answer = api.get(&format!("{path}?limit={limit}")).await;
            answer.expect_problem(400, "limit: must be a whole number, 1 to 1000");
        }
        for after in ["", "x", "1.x", "alert_1", "-1", "18446744073709551616"] {
            api.get(&format!("{path}?after={after}")).await.expect_problem(400, "after: is not the `next` of a list");
        }
    }
    for day in ["today", "2026-02-30", "2026-11-21T14Z", ""] {
        api.get(&format!("/v1/subjects/alice/usage?day={day}")).await.expect_problem(400, "day: a day must be a date");
    }
    api.get("/v1/subjects/a%00b/usage").await.expect_problem(400, "id: subject");
    api.get(&format!("/v1/subjects/{}/usage", "x".repeat(257))).await.expect_problem(400, "at most 256");
    daemon.drain().await;

    let mut daemon = DaemonSetup::on(&usage.server.url()).start().await;
    let api = Caller::of(&mut daemon).await;
    for path in ROUTES {
        api.get(path).await.expect_problem(403, "set http.token, http.token_file or http.tokens");
    }
    daemon.drain().await;
}

/// A caller must not hang when Redis does, and must learn what to do.
#[tokio::test]
async fn reading_is_answered_while_redis_hangs_and_where_a_key_is_not_ours() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    let server = Pid::from_raw(i32::try_from(usage.server.pid()).expect("a process id"));
    kill(server, Signal::SIGSTOP).expect("it runs");
    for answer in futures_of(&api).await {
        answer.expect_problem(503, "Redis does not answer: try again");
    }
    kill(server, Signal::SIGCONT).expect("it runs");
    eventually("it is read again", || async { (api.get(ROUTES[0]).await.status == 200).then_some(()) }).await;
    let () = usage.client.query(redis::cmd("SET").arg("quota_subject:bob").arg("x")).await.expect("set");
    for path in ["/v1/subjects/bob/usage", "/v1/subjects/bob"] {
        api.get(path).await.expect_problem(503, "holds unexpected data");
    }
    daemon.drain().await;
}

/// All routes at once.
async fn futures_of(api: &Caller) -> [Answer; 4] {
    let [list, show, used, alerts] = ROUTES;
    tokio::join!(api.get(list), api.get(show), api.get(used), api.get(alerts)).into()
}

/// All pages of a list, and the number of elements on each.
async fn pages(api: &Caller, path: &str, member: &str, limit: usize) -> (Vec<Value>, Vec<usize>) {
    let (mut things, mut lengths, mut after) = (Vec::new(), Vec::new(), String::new());
    loop {
        let answer = api.get(&format!("{path}?limit={limit}{after}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let page = answer.json();
        let listed = page[member].as_array().expect("a list");
        lengths.push(listed.len());
        things.extend(listed.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return (things, lengths),
        }
    }
}

/// If a page omits a subject, the platform never bills it.
#[tokio::test]
async fn subjects_are_listed_page_by_page_and_none_is_left_out() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    assert_eq!(api.get("/v1/subjects").await.json(), json!({"subjects": [], "next": null}));
    let names: BTreeSet<String> = (0..157).map(|n| format!("customer:{n} 🦀")).collect();
    for name in &names {
        usage.set(name, &[("plan", "free")]).await;
    }
    // More keys of the ledger than of subjects.
    let day = usage.periods("UTC", 1).await[1].period;
    for n in 0..400 {
        usage.count(&format!("s{n}"), "requests", day, 1).await;
    }
    let mut illegal = redis::cmd("HSET");
    let () = usage.client.query(illegal.arg(b"quota_subject:\xff").arg("plan").arg("free")).await.expect("set");
    for limit in [1, 7, 100, 1000] {
        let (listed, lengths) = pages(&api, "/v1/subjects", "subjects", limit).await;
        assert!(lengths.iter().all(|length| *length <= limit), "{limit}: {lengths:?}");
        let found: BTreeSet<String> =
            listed.iter().map(|subject| subject["subject"].as_str().expect("text").to_owned()).collect();
        assert_eq!(found, names, "{limit}");
    }
    let () = usage.client.query(redis::cmd("SET").arg("quota_subject:no hash").arg("x")).await.expect("set");
    let (listed, _) = pages(&api, "/v1/subjects", "subjects", 1000).await;
    let broken = listed.iter().find(|subject| subject["subject"] == "no hash").expect("it is listed");
    assert_eq!(broken["unreadable"][0]["field"], "*");
    daemon.drain().await;
}

/// The platform shows its customer the settings, and must never receive a secret.
#[tokio::test]
async fn a_subject_is_the_object_that_the_command_line_prints() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    let contacts = json!([
        {"id": "c_1", "channel": "webhook", "url": "https://user:pw@x.test/hook", "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"},
        {"id": "c_2", "channel": "email", "address": "nobody"},
        {"id": "c_3"},
        {"id": "c_4", "channel": "email", "address": "a@b.test", "thresholds": [80], "metrics": ["requests"], "muted": true,
         "disabled": {"reason": "failing", "detail": "HTTP 500", "at": "2026-11-21T08:37:00.123Z"}},
    ]);
    let fields = [
        ("plan", "gold"),
        ("timezone", "Asia/Tokyo"),
        ("billing_day", "15"),
        ("limit:requests", "600/hour 5000"),
        ("thresholds", "90,50"),
        ("contacts", &contacts.to_string()),
    ];
    usage.set("alice", &fields).await;
    let answer = api.get("/v1/subjects/alice").await;
    let shown = answer.json();
    assert_eq!(shown, printed(&usage, &["subject", "show", "alice"])[0]);
    assert_eq!(api.get("/v1/subjects").await.json(), json!({"subjects": [shown], "next": null}));
    assert_eq!((&shown["billing_day"], &shown["thresholds"]), (&json!(15), &json!([50, 90])));
    assert_eq!(shown["limits"], json!({"requests": ["600/hour", "5000/day"]}));
    let named: Vec<&str> = shown["unreadable"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|error| error["why"].as_str()?.split(' ').next())
        .collect();
    assert_eq!(named, ["\"gold\"", "c_3:", "c_1:", "c_2:"]);
    assert!(!answer.text.contains("MDEyMzQ1") && !answer.text.contains("pw"), "{}", answer.text);
    api.get("/v1/subjects/nobody").await.expect_problem(404, "nothing is set for subject nobody");
    daemon.drain().await;
}

/// If pages overlapped or had a gap, a platform would show alerts twice or not at all.
#[tokio::test]
async fn alerts_are_listed_page_by_page() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    let path = "/v1/subjects/alice/alerts";
    assert_eq!(api.get(path).await.json(), json!({"alerts": [], "next": null}));
    let now = usage.now().await;
    for span in usage.periods("UTC", 1).await {
        for percent in [80, 100] {
            // Two are raised at the same moment.
            let facts = alert(&subject("alice"), percent);
            let first = in_period(facts, span.period);
            let first = Alert { raised_at_ms: now.plus(-2), ..first };
            let again =
                Alert { id: AlertId::from_stored(&first.id.as_str().replace("alert_", "alert_0")), ..first.clone() };
            let again = Alert { raised_at_ms: now, ..again };
            usage.raise(&again, &[&first]).await;
        }
    }
    let all = printed(&usage, &["alerts", "--subject", "alice"]);
    assert_eq!(all.len(), 28);
    for limit in [1, 3, 28, 1000] {
        let (listed, lengths) = pages(&api, path, "alerts", limit).await;
        assert_eq!(listed, all, "{limit}");
        assert!(lengths.iter().all(|length| *length <= limit), "{limit}: {lengths:?}");
    }
    // An alert that expired between two pages, with its whole period: others of the same moment must not be omitted.
    let first = api.get(&format!("{path}?limit=15")).await.json();
    let (last, next) = (&first["alerts"][14], first["next"].as_str().expect("there is more"));
    assert_eq!(last, &all[14]);
    let period: Period = last["period"].as_str().and_then(|period| period.parse().ok()).expect("a period");
    let raised = usage.keys.raised(&Metric::default(), period, keys::bucket("alice"));
    let _: u64 = usage.client.query(redis::cmd("DEL").arg(raised)).await.expect("deleted");
    let rest = api.get(&format!("{path}?after={next}")).await.json();
    let kept: Vec<&Value> = all[14..].iter().filter(|alert| alert["period"] != last["period"]).collect();
    assert_eq!(rest["alerts"].as_array().expect("a list").iter().collect::<Vec<_>>(), kept);
    daemon.drain().await;
}

/// Of callers that change what they have read at once, one may succeed: the others must read again.
#[tokio::test]
async fn settings_are_replaced_only_if_they_are_as_they_were_read() {
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(&usage).await;
    let put = async |if_match: &str, limit: u64| {
        let headers = [("content-type", "application/json"), ("if-match", if_match)];
        api.send("PUT", "/v1/subjects/alice", &headers, json!({"limits": {"requests": limit}}).to_string()).await
    };
    put("*", 1).await.expect_problem(412, "subject alice is no longer as If-Match says");
    usage.set("alice", &[("limit:requests", "5")]).await;
    let read = api.get("/v1/subjects/alice").await;
    let etag = read.header("etag").expect("a tag").to_owned();
    assert_eq!(api.get("/v1/subjects/alice").await.header("etag"), Some(etag.as_str()), "the same twice");
    let answers = futures_util::future::join_all((11..=18).map(|limit| put(&etag, limit))).await;
    let written: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!((written.len(), answers.iter().filter(|answer| answer.status == 412).count()), (1, 7));
    let now = api.get("/v1/subjects/alice").await;
    assert_eq!((now.json(), now.header("etag")), (written[0].json(), written[0].header("etag")));
    // Contacts are a part of what was read.
    usage.set("alice", &[("contacts", r#"[{"channel":"email","address":"a@b.test"}]"#)]).await;
    assert_eq!(put(now.header("etag").expect("a tag"), 9).await.status, 412);
    assert_eq!((put("*", 9).await.status, api.put("/v1/subjects/alice", &json!({})).await.status), (200, 200));
    daemon.drain().await;
}
