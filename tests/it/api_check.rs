//! `POST /v1/check` of the real daemon: the responses to API nodes, and the behavior while Redis is unavailable.

use crate::support::api::{Answer, Caller};
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use quotabell::types::{BillingDay, Keys, Period, PeriodSpan, UnixMs, Window};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";
const PATH: &str = "/v1/check";

/// A daemon with a plan of 5 requests per hour, 100 per day and 900 per month.
fn setup(books: &Outbox) -> DaemonSetup {
    DaemonSetup::on(&books.server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","900/month"]}"#)
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"algorithm":"sliding","requests":"5/1h"}"#)
        // A slow response in this test means a busy machine.
        .env("QUOTABELL__CHECK__TIMEOUT", "5s")
}

async fn with_token(books: &Outbox) -> (Daemon, Caller) {
    let mut daemon = setup(books).env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

async fn checked(api: &Caller, subject: &str) -> Answer {
    api.post(PATH, &json!({"subject": subject})).await
}

/// Today and this month, in UTC.
async fn periods(books: &Outbox) -> [Period; 2] {
    let (seconds, _): (i64, i64) = books.run("TIME", &[] as &[&str]).await;
    let now = UnixMs(seconds * 1000);
    let period = |window| PeriodSpan::containing(window, quotabell::zones::Zone::UTC, BillingDay::FIRST, now);
    [Window::Day, Window::Month].map(|window| period(window).expect("in range").period)
}

/// Today's count of a subject.
async fn committed(books: &Outbox, subject: &str) -> u64 {
    let [day, _] = periods(books).await;
    let key =
        Keys::new("usage").usage(&"requests".parse().expect("a metric"), day, quotabell::types::keys::bucket(subject));
    books.run::<Option<u64>>("HGET", &[key.as_str(), subject]).await.unwrap_or(0)
}

/// A parameter of one policy in a RateLimit field, parsed as a client of the draft does.
fn parameter(field: &str, policy: &str, name: &str) -> u64 {
    let item = field.split(", ").find(|item| item.starts_with(&format!("\"{policy}\";"))).expect("the policy");
    let value = item.split(';').find_map(|part| part.strip_prefix(&format!("{name}="))).expect("the parameter");
    value.parse().expect("a number")
}

/// Clients depend on the form of the response.
#[tokio::test]
async fn an_api_node_is_answered_until_the_rate_is_used_up() {
    let books = Outbox::start();
    let mut daemon = setup(&books).start().await;
    let api = Caller::of(&mut daemon).await;
    for left in [4, 3, 2, 1, 0] {
        let answer = checked(&api, "alice 🦀").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        let [day, month] = periods(&books).await;
        let body = answer.json();
        let seconds = |of: &Value| of["reset_s"].as_u64().expect("a number");
        let (reset_s, day_s, month_s) =
            (seconds(&body["rate"]), seconds(&body["limits"][0]), seconds(&body["limits"][1]));
        assert_eq!(
            body,
            json!({"allowed": true, "subject": "alice 🦀", "metric": "requests",
                   "rate": {"limit": 5, "remaining": left, "reset_s": reset_s},
                   "limits": [
                       {"subject": "alice 🦀", "window": "day", "period": day, "limit": 100, "used": 0, "remaining": 100, "reset_s": day_s},
                       {"subject": "alice 🦀", "window": "month", "period": month, "limit": 900, "used": 0, "remaining": 900,
                        "reset_s": month_s}]})
        );
        assert!((3599..=3600).contains(&reset_s) && (1..=86_400).contains(&day_s) && month_s >= day_s, "{body}");
        let (limit, policy) = (answer.header("ratelimit").expect("it"), answer.header("ratelimit-policy").expect("it"));
        let month_length = parameter(policy, "month", "w");
        assert_eq!(policy, format!(r#""rate";q=5;w=3600, "day";q=100;w=86400, "month";q=900;w={month_length}"#));
        assert!((28..=31).contains(&(month_length / 86_400)));
        for (name, left, reset) in [("rate", left, reset_s), ("day", 100, day_s), ("month", 900, month_s)] {
            assert_eq!((parameter(limit, name, "r"), parameter(limit, name, "t")), (left, reset), "{name}");
        }
        assert_eq!(answer.header("retry-after"), None);
    }
    let refused = checked(&api, "alice 🦀").await;
    refused.expect_problem(429, "alice 🦀 may not use 1 of requests now (rate)");
    let body = refused.json();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&body["allowed"], &body["violated-policies"]), (&json!(false), &json!(["rate"])));
    assert_eq!((&body["rate"]["remaining"], &body["limits"][0]["remaining"]), (&json!(0), &json!(100)));
    let wait: u64 = refused.header("retry-after").expect("it").parse().expect("seconds");
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(parameter(refused.header("ratelimit").expect("it"), "rate", "r"), 0);
    // Another subject has a rate of its own; another metric has no limit at all.
    assert_eq!(checked(&api, "bob").await.status, 200);
    let free = api
        .post(PATH, &json!({"subject": "alice 🦀", "metric": "tokens.in", "units": 9_007_199_254_740_991_u64}))
        .await;
    assert_eq!((free.status, free.header("ratelimit")), (200, None));
    assert_eq!((&free.json()["rate"], &free.json()["limits"]), (&Value::Null, &json!([])));
    assert_eq!(body.get("fits"), None, "it fits, later");
    // More than the whole limit never fits: a client that retries anyway must not retry constantly.
    let never = api.post(PATH, &json!({"subject": "carol", "units": 6})).await;
    never.expect_problem(429, "more than the whole limit (rate)");
    assert_eq!((&never.json()["fits"], never.header("retry-after")), (&json!(false), Some("3600")));
    let never = api.post(PATH, &json!({"subject": "carol", "units": 101})).await;
    never.expect_problem(429, "more than the whole limit (rate, day)");
    assert_eq!(never.json()["fits"], json!(false));
    daemon.drain().await;
}

/// A recorded event must be counted once, and the limits must include it.
#[tokio::test]
async fn what_is_recorded_counts_once_and_against_every_limit() {
    let books = Outbox::start();
    let (mut daemon, api) = with_token(&books).await;
    let record = |units: u64, id: &str| json!({"subject": "alice", "units": units, "record": true, "id": id});
    for _ in 0..2 {
        let body = api.post(PATH, &record(2, "order-1")).await.json();
        assert_eq!(
            (&body["allowed"], &body["recorded"], &body["event_id"]),
            (&json!(true), &json!(true), &json!("order-1"))
        );
    }
    let made = api.post(PATH, &json!({"subject": "alice", "record": true})).await.json();
    let id = made["event_id"].as_str().expect("an id");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    // The call that was sent twice has used up the rate, to its caller's disadvantage; a refused call is not recorded.
    let refused = api.post(PATH, &record(1, "order-2")).await;
    refused.expect_problem(429, "(rate)");
    assert_eq!((&refused.json()["recorded"], &refused.json()["event_id"]), (&json!(false), &json!("order-2")));
    eventually("it is counted", || async { (committed(&books, "alice").await == 3).then_some(()) }).await;
    eventually("the repetition is told", || async {
        let page = api.without_token().get("/metrics").await;
        page.text.contains("quotabell_events_duplicate_total 1").then_some(())
    })
    .await;
    assert_eq!(committed(&books, "alice").await, 3);
    let body = checked(&api, "alice").await.json();
    for (limit, left) in [(0, 97), (1, 897)] {
        let limit = &body["limits"][limit];
        assert_eq!((&limit["used"], &limit["remaining"]), (&json!(3), &json!(left)));
    }

    // A used-up day refuses, takes nothing from the rate, and returns the later time.
    let _: String = books.run("XADD", &["usage", "*", "subject", "bob", "units", "99"]).await;
    eventually("it is counted", || async { (committed(&books, "bob").await == 99).then_some(()) }).await;
    let refused = api.post(PATH, &json!({"subject": "bob", "units": 2, "record": true})).await;
    refused.expect_problem(429, "bob may not use 2 of requests now (day)");
    let body = refused.json();
    assert_eq!((&body["rate"]["remaining"], &body["limits"][0]["remaining"]), (&json!(5), &json!(1)));
    assert_eq!(refused.header("retry-after"), Some(body["limits"][0]["reset_s"].to_string().as_str()));
    assert_eq!(checked(&api, "bob").await.json()["rate"]["remaining"], 4);

    // A used-up month refuses on its first day too.
    let _: u64 = books.run("HSET", &["quota_subject:carol", "limit:requests", "2/hour 100/day 3/month"]).await;
    let _: String = books.run("XADD", &["usage", "*", "subject", "carol", "units", "3"]).await;
    eventually("it is counted", || async { (committed(&books, "carol").await == 3).then_some(()) }).await;
    let refused = checked(&api, "carol").await;
    let body = refused.json();
    let hour = body["limits"][0].clone();
    // The hour may have ended since.
    if hour["used"] == 3 {
        refused.expect_problem(429, "carol may not use 1 of requests now (hour, month)");
        assert_eq!((&hour["remaining"], &hour["limit"]), (&json!(0), &json!(2)));
    }
    assert_eq!((&body["limits"][2]["window"], &body["limits"][2]["remaining"]), (&json!("month"), &json!(0)));
    assert_eq!(refused.header("retry-after"), Some(body["limits"][2]["reset_s"].to_string().as_str()));

    let metrics = daemon.get("/metrics").await.body;
    for (decision, count) in
        [("allowed", 4), ("denied_rate", 2), ("denied_day", 1), ("denied_month", 1), ("error_allowed", 0)]
    {
        let line = format!("quotabell_checks_total{{decision=\"{decision}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains("quotabell_check_seconds_count 8"), "{metrics}");
    daemon.drain().await;
}

/// If a token is set, requests without it must be refused; if none is set, nobody may write.
#[tokio::test]
async fn the_token_is_needed_where_it_is_set() {
    let books = Outbox::start();
    let (daemon, api) = with_token(&books).await;
    let anonymous = api.without_token();
    let missing = checked(&anonymous, "alice").await;
    missing.expect_problem(401, "Authorization: Bearer TOKEN");
    assert_eq!(missing.header("www-authenticate"), Some(r#"Bearer realm="quotabell""#));
    for wrong in ["x", &TOKEN[1..], &TOKEN.to_uppercase(), &format!("{TOKEN} {TOKEN}")] {
        let answer = checked(&api.with_token(wrong), "alice").await;
        answer.expect_problem(401, "none of those that are configured");
        assert_eq!(answer.header("www-authenticate"), Some(r#"Bearer realm="quotabell", error="invalid_token""#));
    }
    assert_eq!(checked(&api, "alice").await.status, 200);
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(anonymous.get(open).await.status, 200, "{open}");
    }
    daemon.drain().await;

    let mut daemon = setup(&books).start().await;
    let api = Caller::of(&mut daemon).await;
    assert_eq!(checked(&api, "alice").await.status, 200);
    let off = api.post(PATH, &json!({"subject": "alice", "record": true})).await;
    off.expect_problem(403, "record is off until the operator sets a token: set http.token");
    assert_eq!(books.run::<u64>("XLEN", "usage").await, 0);
    daemon.drain().await;
}

/// An invalid body must be answered with the wrong field, and must never stop the daemon.
#[tokio::test]
async fn bodies_that_are_wrong_are_told_why() {
    let books = Outbox::start();
    let (daemon, api) = with_token(&books).await;
    let json = [("content-type", "application/json")];
    for (body, said) in [
        ("", "not JSON"),
        ("{\"subject\":", "not JSON"),
        ("[\"alice\"]", "must be a JSON object"),
        ("{}", "the body: missing field `subject`"),
        (r#"{"subject":""}"#, "subject is empty"),
        (r#"{"subject":"a\u0000b"}"#, "control character"),
        (r#"{"subject":"alice","metric":"Requests"}"#, "metric must match"),
        (r#"{"subject":"alice","units":0}"#, "1 to 9007199254740991"),
        (r#"{"subject":"alice","units":"3"}"#, "units: is \"3\", it must be a whole number"),
        (r#"{"subject":"alice","record":1}"#, "record: invalid type: integer `1`, expected a boolean"),
        (r#"{"subject":"alice","record":true,"id":""}"#, "1 to 128 are allowed"),
        (r#"{"subject":"alice","unit":3}"#, "unknown field `unit`, expected one of `subject`, `metric`"),
    ] {
        api.send("POST", PATH, &json, body).await.expect_problem(400, said);
    }
    let long = json!({"subject": "🦀".repeat(65)});
    api.post(PATH, &long).await.expect_problem(400, "subject has 260 bytes, at most 256 are allowed");
    assert_eq!(api.post(PATH, &json!({"subject": "🦀".repeat(64)})).await.status, 200);
    let not_utf8 = b"{\"subject\":\"\xff\"}".to_vec();
    api.send("POST", PATH, &json, not_utf8).await.expect_problem(400, "not JSON");
    let large = format!("{{\"subject\":\"{}\"}}", "x".repeat(16 * 1024));
    api.send("POST", PATH, &json, large).await.expect_problem(413, "at most 16384 bytes");
    for other in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = api.send("POST", PATH, &[("content-type", other)], r#"{"subject":"alice"}"#).await;
        answer.expect_problem(415, "application/json");
    }
    api.send("POST", PATH, &[], r#"{"subject":"alice"}"#).await.expect_problem(415, "application/json");
    api.send("GET", PATH, &[], "").await.expect_problem(405, "does not take GET");
    assert_eq!(checked(&api, "alice").await.status, 200);
    daemon.drain().await;
}

/// A customer who has paid for more must not be refused until the daemon restarts or its cached settings expire.
#[tokio::test]
async fn a_change_of_a_subject_takes_effect_while_its_settings_are_held() {
    let books = Outbox::start();
    let (daemon, api) = with_token(&books).await;
    assert_eq!(checked(&api, "alice").await.json()["limits"][0]["limit"], 100);
    for limit in [7, 8, 9] {
        let _: u64 = books.run("HSET", &["quota_subject:alice", "limit:requests", &limit.to_string()]).await;
        let asked = json!({"subject": "alice", "units": 50});
        eventually("it has changed", || async {
            (api.post(PATH, &asked).await.json()["limits"][0]["limit"] == limit).then_some(())
        })
        .await;
    }
    daemon.drain().await;
}

/// If `on_error` denies, a typing error in a subject's plan must not let requests pass.
#[tokio::test]
async fn a_subject_whose_settings_cannot_be_read_is_answered_for_by_on_error() {
    for (on_error, status, decision) in [("allow", 200, "error_allowed"), ("deny", 503, "error_denied")] {
        let books = Outbox::start();
        let setup = setup(&books).env("QUOTABELL__HTTP__TOKEN", TOKEN).env("QUOTABELL__CHECK__ON_ERROR", on_error);
        let mut daemon = setup.start().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        let _: u64 = books.run("HSET", &["quota_subject:alice", "limit:requests", "9"]).await;
        eventually("it is known", || async {
            (checked(&api, "alice").await.json()["limits"][0]["limit"] == 9).then_some(())
        })
        .await;
        let _: u64 = books.run("HSET", &["quota_subject:bob", "plan", "gold"]).await;
        for body in [json!({"subject": "bob"}), json!({"subject": "bob", "record": true, "id": "1"})] {
            let answer = api.post(PATH, &body).await;
            assert_eq!(answer.status, status, "{}", answer.text);
            let told = answer.json();
            assert_eq!((&told["allowed"], &told["judged"]), (&json!(on_error == "allow"), &json!(false)));
            assert_eq!((&told["rate"], &told["limits"]), (&Value::Null, &json!([])));
            if body["record"] == true {
                // Redis answers: an allowed request is recorded and counted, as without a limit.
                assert_eq!((&told["recorded"], &told["event_id"]), (&json!(on_error == "allow"), &json!("1")));
            }
            if status == 503 {
                answer.expect_problem(503, "check.on_error is \"deny\"");
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
        }
        assert_eq!(books.run::<u64>("XLEN", "usage").await, u64::from(on_error == "allow"));
        let metrics = daemon.get("/metrics").await.body;
        let line = format!("quotabell_checks_total{{decision=\"{decision}\"}} 2");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
        assert!(!daemon.has_said("a check could not be judged"), "the line that names the field is enough");

        // An unreadable setting keeps its last good value.
        let _: u64 = books.run("HSET", &["quota_subject:alice", "limit:requests", "many"]).await;
        eventually("it is read again", || async {
            assert_eq!(checked(&api, "alice").await.json()["limits"][0]["limit"], 9);
            daemon.has_said("subject=alice").then_some(())
        })
        .await;
        daemon.drain().await;
    }
}

/// An API must not stop because its limiter does.
#[tokio::test]
async fn a_redis_that_hangs_is_answered_for_by_on_error() {
    for (on_error, status) in [("allow", 200), ("deny", 503)] {
        let books = Outbox::start();
        let setup = setup(&books).env("QUOTABELL__HTTP__TOKEN", TOKEN).env("QUOTABELL__CHECK__ON_ERROR", on_error);
        let mut daemon = setup.env("QUOTABELL__CHECK__TIMEOUT", "100ms").start().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        eventually("it is judged", || async { checked(&api, "alice").await.json()["judged"].is_null().then_some(()) })
            .await;
        let server = Pid::from_raw(i32::try_from(books.server.pid()).expect("a process id"));
        nix::sys::signal::kill(server, Signal::SIGSTOP).expect("it runs");
        for subject in ["alice", "new", "alice"] {
            // The server is paused until all requests are answered.
            let answer = api.post(PATH, &json!({"subject": subject, "record": true, "id": "1"})).await;
            assert_eq!(answer.status, status, "{}", answer.text);
            let body = answer.json();
            assert_eq!((&body["allowed"], &body["judged"]), (&json!(on_error == "allow"), &json!(false)));
            assert_eq!((&body["rate"], &body["limits"]), (&Value::Null, &json!([])));
            assert_eq!((&body["recorded"], &body["event_id"]), (&json!(false), &json!("1")));
            if status == 503 {
                answer.expect_problem(503, "check.on_error is \"deny\"");
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
        }
        // Within this deadline, and not within the longer timeout of calls to Redis.
        daemon.says("no answer within check.timeout").await;
        nix::sys::signal::kill(server, Signal::SIGCONT).expect("it runs");
        eventually("it is judged again", || async {
            checked(&api, "alice").await.json()["judged"].is_null().then_some(())
        })
        .await;
        let metrics = daemon.get("/metrics").await.body;
        let counted = |line: &str| metrics.lines().any(|found| found.starts_with(line) && !found.ends_with(" 0"));
        let decision = if on_error == "allow" { "error_allowed" } else { "error_denied" };
        assert!(counted(&format!("quotabell_checks_total{{decision=\"{decision}\"}}")), "{metrics}");
        daemon.drain().await;
    }
}

/// Also before Redis was reached and after it was killed; the daemon reconnects by itself.
#[tokio::test]
async fn a_redis_that_is_not_there_is_answered_for_at_once() {
    let mut books = Outbox::start();
    let setup = setup(&books).env("QUOTABELL__CHECK__TIMEOUT", "100ms");
    books.server.kill();
    let mut daemon = setup.spawn();
    let api = Caller::of(&mut daemon).await;
    assert_eq!(checked(&api, "alice").await.json()["judged"], json!(false));
    books.server.restart();
    for _ in 0..2 {
        eventually("it is judged", || async { checked(&api, "alice").await.json()["judged"].is_null().then_some(()) })
            .await;
        books.server.kill();
        eventually("it is let pass", || async {
            let answer = checked(&api, "alice").await;
            (answer.status == 200 && answer.json()["judged"] == json!(false)).then_some(())
        })
        .await;
        books.server.restart();
    }
    daemon.says("quotabell is ready").await;
    daemon.drain().await;
}

/// A daemon whose organization may use 20 % more than its plan, whose teams are never refused, and whose keys may use
/// what their limit says.
async fn soft(books: &Outbox, file: &std::path::Path, org: &str) -> (Daemon, Caller) {
    write_soft(file, org);
    let setup = DaemonSetup::on(&books.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN);
    let setup = setup.env("QUOTABELL__CHECK__TIMEOUT", "5s");
    let mut daemon = setup.env("QUOTABELL_CONFIG", file.to_str().expect("a path")).start().await;
    daemon.becomes_ready().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

fn write_soft(file: &std::path::Path, org: &str) {
    let plan = |name: &str, limit: u64, refuse_at: &str| {
        format!("[plans.{name}]\nlimits = {{ requests = \"{limit}/day\" }}\nrefuse_at = {refuse_at}\n")
    };
    let plans = plan("org", 100, org) + &plan("team", 50, "\"never\"") + &plan("key", 40, "100");
    let levels =
        "default_plan = \"org\"\n[subjects]\nseparator = \"/\"\ndefault_plans = [\"org\", \"team\", \"key\"]\n";
    std::fs::write(file, format!("{levels}{plans}")).expect("written");
}

/// Each level refuses at its own share: an overrun that the contract allows must pass, on every way to ask, and not one
/// unit more; a reload changes it at once.
#[tokio::test]
async fn soft_limits_let_an_overrun_through_and_no_unit_more() {
    let (books, folder) = (Outbox::start(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("quotabell.toml");
    let (mut daemon, api) = soft(&books, &file, "120").await;
    for (subject, units) in [("acme/a", "60"), ("acme/b/k", "35")] {
        let _: String = books.run("XADD", &["usage", "*", "subject", subject, "units", units]).await;
    }
    eventually("they are counted", || async { (committed(&books, "acme").await == 95).then_some(()) }).await;
    let check = async |subject: &str, units: u64| api.post(PATH, &json!({"subject": subject, "units": units})).await;
    let authorize = async |subject: &str, units: u64| {
        let (path, units) = ("/v1/authorize", units.to_string());
        api.send("GET", path, &[("x-quota-subject", subject), ("x-quota-units", &units)], "").await
    };
    let command = |subject: &str, units: u64| {
        let line = ["check", subject, "--units", &units.to_string()].map(str::to_owned);
        let run = quotabell(line.iter().map(String::as_str)).redis(&books.server.url());
        run.env("QUOTABELL_CONFIG", &file).run()
    };
    // The team has used 60 of 50, the organization 95 of 100: 120 % of it are 120.
    let allowed = check("acme/a", 25).await;
    assert_eq!(allowed.status, 200, "{}", allowed.text);
    let limits = allowed.json()["limits"].clone();
    assert_eq!((&limits[0]["used"], &limits[0]["limit"], &limits[0]["remaining"]), (&json!(60), &json!(50), &json!(0)));
    let headers = |answer: &Answer| {
        let (limit, policy) = (answer.header("ratelimit").expect("it"), answer.header("ratelimit-policy").expect("it"));
        [parameter(limit, "day", "r"), parameter(limit, "1/day", "r"), parameter(policy, "1/day", "q")]
    };
    assert_eq!(headers(&allowed), [0, 5, 100]);
    let asked = authorize("acme/a", 25).await;
    assert_eq!((asked.status, headers(&asked)), (200, [0, 5, 100]));
    assert_eq!(command("acme/a", 25).code, 0);
    let refused = check("acme/a", 26).await;
    refused.expect_problem(429, "acme/a may not use 26 of requests now, by the limit of acme (1/day)");
    assert_eq!(headers(&refused), [0, 5, 100]);
    authorize("acme/a", 26).await.expect_problem(429, "by the limit of acme (1/day)");
    let refused = command("acme/a", 26);
    assert!(refused.code == 1 && refused.stderr.contains("by the limit of acme"), "{}", refused.told());
    // A key of the same organization is refused at its own limit.
    assert_eq!(check("acme/b/k", 5).await.status, 200);
    check("acme/b/k", 6).await.expect_problem(429, "acme/b/k may not use 6 of requests now (day)");

    // Granted units are part of the limit whose share decides: 120 % of 150 are 180.
    let granted = api.post("/v1/subjects/acme/grants", &json!({"units": 50, "window": "day"})).await;
    assert_eq!(granted.status, 201, "{}", granted.text);
    eventually("the grant is known", || async { (check("acme/a", 85).await.status == 200).then_some(()) }).await;
    check("acme/a", 86).await.expect_problem(429, "(1/day)");
    assert_eq!((command("acme/a", 85).code, command("acme/a", 86).code), (0, 1));

    // Nothing is prepaid: "never" refuses.
    assert_eq!(api.put("/v1/subjects/free%2Fteam", &json!({"limits": {"requests": "0/total"}})).await.status, 200);
    eventually("the limit is known", || async { (check("free/team", 1).await.status == 429).then_some(()) }).await;
    check("free/team", 1).await.expect_problem(429, "(total)");
    assert_eq!(command("free/team", 1).code, 1);

    write_soft(&file, "150");
    daemon.signal(Signal::SIGHUP);
    daemon.says("plans were read again and are in effect").await;
    // 150 % of 150 are 225.
    assert_eq!((check("acme/a", 130).await.status, check("acme/a", 131).await.status), (200, 429));
    write_soft(&file, "\"never\"");
    let before = daemon.lines();
    daemon.signal(Signal::SIGHUP);
    daemon.says_again("plans were read again and are in effect", before).await;
    assert_eq!(check("acme/a", 9_000_000).await.status, 200);
    check("acme/b/k", 6).await.expect_problem(429, "(day)");
    daemon.drain().await;
}
