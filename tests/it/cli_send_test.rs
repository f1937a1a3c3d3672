//! `send-test` on real receivers, and `preview`.

use std::fmt::Display;

use crate::support::binary::{Finished, Quotabell, quotabell};
use crate::support::mail_server::ParsedMail;
use crate::support::receivers::{Answer, HttpCatcher, Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;
use quotabell::channels::TestKind;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

/// 24 bytes, the minimum of a secret.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

/// A run that may call 127.0.0.1.
fn send(arguments: &[&str]) -> Quotabell {
    quotabell(["send-test"].iter().chain(arguments).copied())
        .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
        .env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true")
}

fn snapshot(name: &str, text: impl Display) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT");
    settings.add_filter(r"\bc_[0-9a-f]{16}", "c_ID");
    settings.add_filter(r"whsec_[A-Za-z0-9+/=]+", "whsec_SECRET");
    settings.add_filter(r#""duration_ms":\d+"#, r#""duration_ms":N"#);
    settings.add_filter(r"\b\d+ ms", "N ms");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Sets fields of a subject as the platform does.
async fn set(redis: &RedisServer, subject: &str, fields: &[&str]) {
    let mut command = redis::cmd("HSET");
    command.arg(format!("quota_subject:{subject}")).arg(fields);
    let () = redis.client().query(&command).await.expect("the platform may set subjects");
}

/// A test message is signed like an alert and says that it is a test. It needs no Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_gets_one_signed_test_message() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let url = receiver.url("/hook");
    let done = send(&["--webhook", &url, "--webhook-secret", SECRET]).run();
    assert!(!done.stdout.contains("whsec_"), "a secret that is known need not be shown: {}", done.stdout);
    let request = receiver.next().await;
    Webhook::new(SECRET).expect("a secret").verify(&request.body, &request.headers).expect("the signature is right");
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(body["type"], "quota.test");

    let made = send(&["--webhook", &url, "--json"]).run();
    let told = [("a known secret", done.told()), ("a new secret", made.told())];
    snapshot("webhook", Table::from_iter(told));
    let secret = made.expect_json()[0]["webhook_secret"].as_str().expect("the secret").to_owned();
    let request = receiver.next().await;
    Webhook::new(&secret).expect("a secret").verify(&request.body, &request.headers).expect("the signature is right");
    assert!(receiver.try_next().is_none(), "one run, one message");
}

/// Nobody can wait for a real end or forecast to see whether a receiver takes it; and nobody may take a test for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_notification_can_be_tested() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let url = receiver.url("/hook");
    let mut told = Table::default();
    for kind in TestKind::ALL {
        let of_kind = |address: &[&str]| send(&[address, &["--kind", kind.as_str()]].concat());
        of_kind(&["--webhook", &url, "--webhook-secret", SECRET]).run().expect_done();
        let request = receiver.next().await;
        assert!(request.headers["webhook-id"].to_str().expect("ASCII").starts_with("test_"));
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let is_marked = |message: &Value| message["type"] == "quota.test" || message["data"]["test"] == true;
        let items = body["data"]["items"].as_array();
        assert!(items.map_or_else(|| is_marked(&body), |items| items.iter().all(is_marked)), "{body}");
        assert!(kind == TestKind::Alert || body["type"] == kind.as_str(), "{body}");
        of_kind(&["--email", "a@b.test"]).env("QUOTABELL__EMAIL__SMTP_URL", server.url()).run().expect_done();
        let mail = ParsedMail::parse(&server.next().await.text());
        assert!(mail.header("Subject").starts_with("[test] "), "{}", mail.header("Subject"));
        of_kind(&["--webhook", &url, "--format", "slack"]).run().expect_done();
        let chat = String::from_utf8(receiver.next().await.body.to_vec()).expect("UTF-8");
        assert!(chat.contains("[test]") || chat.contains("Test message"), "{chat}");
    }
    told.add("an unknown kind", send(&["--email", "a@b.test", "--kind", "resolved"]).run().told());
    snapshot("unknown_kind", told);
}

/// A test email says that it is a test; the mail server's reply is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_gets_one_test_mail() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let mail =
        |server: &SmtpCatcher| send(&["--email", "a@b.test"]).env("QUOTABELL__EMAIL__SMTP_URL", server.url()).run();
    let mut told = Table::default();
    told.add("delivered", mail(&server).told());
    let caught = server.next().await;
    assert_eq!(caught.to, ["a@b.test"]);
    assert!(caught.text().contains("Subject: [test] "), "{}", caught.text());
    server.program(Phase::Rcpt, Reply::Say("550 no such user"), Times::Once);
    told.add("refused", mail(&server).told());
    server.program(Phase::Rcpt, Reply::Say("450 try later"), Times::Once);
    told.add("put off", mail(&server).told());
    snapshot("email", told);
    assert!(server.try_next().is_none());
}

/// The operator must see the error, and whether an alert would be retried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_does_not_arrive_is_a_failure_with_a_hint() {
    let receiver = HttpCatcher::start([Answer::status(503), Answer::status(410)]).await.expect("a receiver");
    let url = receiver.url("/hook");
    let line = ["--webhook", &url, "--webhook-secret", SECRET];
    let mut told = Table::default();
    told.add("transient", send(&line).run().told());
    told.add("permanent", send(&line).run().told());
    // By default internal addresses are not called.
    let blocked = send(&line).env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "false").run();
    told.add("blocked", blocked.told());
    snapshot("webhook_that_does_not_arrive", told);
    assert_eq!(send(&[line.as_slice(), &["--json"]].concat()).run().code, 0);
}

/// A subject's contacts are found as for an alert: its own, else the fallback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subjects_contact_is_found_as_an_alert_finds_it() {
    let redis = RedisServer::start();
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let run = |arguments: &[&str]| send(arguments).redis(&redis.url());
    let mut told = Table::default();
    told.add("no contact", run(&["--subject", "alice"]).run().told());
    let fallback = json!([{"id": "c_ops", "channel": "webhook", "url": receiver.url("/ops"), "secret": SECRET}]);
    let sent = run(&["--subject", "alice", "--json"]).env("QUOTABELL__FALLBACK__CONTACTS", fallback.to_string()).run();
    assert!(
        sent.stderr.contains("alice has no contact of its own: contact c_ops of the fallback gets this message"),
        "{}",
        sent.told()
    );
    assert_eq!(sent.expect_json()[0]["contact"], "c_ops");
    assert_eq!(receiver.next().await.uri.path(), "/ops");

    let own = [("c_one", "/one", false), ("c_two", "/two", true)].map(|(id, path, muted)| {
        json!({"id": id, "channel": "webhook", "url": receiver.url(path), "secret": SECRET, "muted": muted})
    });
    let broken = json!({"id": "c_old", "channel": "sms"});
    let contacts = json!([own[0], own[1], broken]).to_string();
    set(&redis, "alice", &["contacts", &contacts]).await;
    told.add("several contacts", run(&["--subject", "alice"]).run().told());
    told.add("an unknown contact", run(&["--subject", "alice", "--contact", "c_three"]).run().told());
    let unverified = json!([{"id": "c_new", "channel": "email", "address": "a@b.test", "verified": false}]).to_string();
    set(&redis, "alice", &["contacts", &unverified]).await;
    let new = run(&["--subject", "alice", "--contact", "c_new"]).run();
    assert!(new.code == 1 && new.stderr.contains("contact c_new of alice is not confirmed"), "{}", new.told());
    set(&redis, "alice", &["contacts", "[]"]).await;
    let hooks = ["/one", "/two"].map(|path| json!({"channel": "webhook", "url": receiver.url(path), "secret": SECRET}));
    let fallback = run(&["--subject", "alice"]).env("QUOTABELL__FALLBACK__CONTACTS", json!(hooks).to_string()).run();
    let said = "2 contacts of alice fit: name one by its id with --contact";
    assert!(fallback.code == 2 && fallback.stderr.contains(said), "{}", fallback.told());
    set(&redis, "alice", &["contacts", &unverified]).await;
    told.add("an unverified contact", run(&["--subject", "alice"]).run().told());
    snapshot("contact_of_a_subject", told);
    set(&redis, "alice", &["contacts", &contacts]).await;
    // A contact is named as in `contact mute`: by its id, the beginning of the id, or its address.
    let unclear = run(&["--subject", "alice", "--contact", "c_"]).run();
    assert!(unclear.code == 2 && unclear.stderr.contains("several contacts begin with"), "{}", unclear.told());
    let address = receiver.url("/two");
    let two = run(&["--subject", "alice", "--contact", &address]).run();
    assert!(two.code == 0 && two.stderr.contains("c_two is muted"), "{}", two.told());
    assert_eq!(receiver.next().await.uri.path(), "/two");
    assert!(receiver.try_next().is_none(), "a refused choice sends nothing");
    let keys: Vec<String> = redis.client().query(redis::cmd("KEYS").arg("*")).await.expect("KEYS works");
    let (cooldowns, others): (Vec<String>, Vec<String>) =
        keys.into_iter().partition(|key| key.starts_with("quota_cooldown:{usage}:send-test:c_"));
    let mut others = others;
    others.sort_unstable();
    assert_eq!(others, ["quota_actions:{usage}", "quota_subject:alice"], "nothing else is written");
    // That of the first message may be over.
    assert!((1..=2).contains(&cooldowns.len()), "{cooldowns:?}");
}

/// An operator tests a muted or disabled contact before enabling it; the output must name that contact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contact_that_gets_no_alerts_is_found_by_its_address_too() {
    let redis = RedisServer::start();
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let base = receiver.url("");
    let hook = |id: &str, path: &str| {
        let url = format!("{base}{path}");
        json!({"id": id, "channel": "webhook", "url": url, "secret": SECRET})
    };
    let run = |arguments: &[&str]| send(&[&["--subject", "alice"], arguments].concat()).redis(&redis.url());
    let fallback = json!([hook("c_ops", "/ops")]).to_string();
    let disabled = |id: &str| {
        let mut contact = hook(id, "/own");
        contact["disabled"] = json!({"reason": "gone", "detail": "HTTP 410", "at": "2026-11-21T08:37:00.123Z"});
        contact
    };
    let new = json!({"id": "c_new", "channel": "email", "address": "new@b.test", "verified": false});
    set(&redis, "alice", &["contacts", &json!([disabled("c_own"), new]).to_string()]).await;

    let url = receiver.url("/own");
    let own = run(&["--contact", &url]).env("QUOTABELL__FALLBACK__CONTACTS", &fallback).run();
    assert!(own.code == 0 && own.stderr.contains("contact c_own is disabled"), "{}", own.told());
    assert!(!own.stderr.contains("fallback"), "{}", own.told());
    assert_eq!(receiver.next().await.uri.path(), "/own");
    let other = run(&[]).env("QUOTABELL__FALLBACK__CONTACTS", &fallback).run();
    let said = "alice has no contact of its own that could be used: contact c_ops of the fallback gets this message";
    assert!(other.code == 0 && other.stderr.contains(said), "{}", other.told());
    assert_eq!(receiver.next().await.uri.path(), "/ops");

    let mut told = Table::default();
    told.add("an unverified one by its address", run(&["--contact", "new@b.test"]).run().told());
    told.add("by the beginning of its id", run(&["--contact", "c_n"]).run().told());
    told.add("no such contact", run(&["--contact", "c_three"]).run().told());
    let unknown = run(&["--contact", "c_three"]).env("QUOTABELL__FALLBACK__CONTACTS", &fallback).run();
    told.add("no such contact beside a fallback", unknown.told());
    told.add("nobody", run(&[]).run().told());
    let contacts = json!([hook("c_one", "/own"), disabled("c_two"), hook("c_three", "/three")]).to_string();
    set(&redis, "alice", &["contacts", &contacts]).await;
    told.add("one address twice", run(&["--contact", &url]).run().told());
    snapshot("contact_that_gets_no_alerts", told);
    assert!(receiver.try_next().is_none(), "a refused choice sends nothing");
}

/// The test message uses this customer's settings: foreign data would be confusing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_message_to_a_subject_is_about_that_subject() {
    let redis = RedisServer::start();
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contacts = json!([{"channel": "webhook", "url": receiver.url("/"), "secret": SECRET}]).to_string();
    let fields = ["timezone", "Asia/Tokyo", "limit:tokens", "7", "contacts", &contacts];
    let run_with = |arguments: &[&str]| {
        let run = send(&[&["--subject", "alice"], arguments].concat()).redis(&redis.url());
        run.env("QUOTABELL__PLANS__FREE", r#"{"limits":{}}"#)
    };
    let run = || run_with(&[]);
    set(&redis, "alice", &fields).await;
    let cooled = async || {
        let keys: Vec<String> =
            redis.client().query(redis::cmd("KEYS").arg("quota_cooldown:*")).await.expect("KEYS works");
        let () = redis.client().query(redis::cmd("DEL").arg(&keys)).await.expect("the cooldown ends");
    };
    run().run().expect_done();
    cooled().await;
    let body: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    let said = |field: &str| body["data"][field].clone();
    assert_eq!((said("subject"), said("plan"), said("timezone")), (json!("alice"), json!("free"), json!("Asia/Tokyo")));
    assert_eq!((said("metric"), said("limit"), said("used")), (json!("tokens"), json!(7), json!(6)), "{body}");

    // A customer without a daily limit must not get a text about one.
    set(&redis, "alice", &["limit:tokens", "900/month 50/hour", "billing_day", "15"]).await;
    run().run().expect_done();
    cooled().await;
    let body: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    assert_eq!((&body["data"]["window"], &body["data"]["limit"]), (&json!("month"), &json!(900)), "{body}");

    // Nobody gets a forecast of an hour.
    set(&redis, "alice", &["limit:tokens", "50/hour"]).await;
    let hourly = run_with(&["--kind", "quota.forecast"]).run();
    assert!(hourly.code == 2 && hourly.stderr.contains("limits by hour have none"), "{}", hourly.told());

    // Unreadable settings are reported, as in `usage`, and the message is sent.
    set(&redis, "alice", &["plan", "gold"]).await;
    let unknown = run().run();
    assert!(unknown.code == 0 && unknown.stderr.contains("field \"plan\": \"gold\""), "{}", unknown.told());
    let body: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    assert_eq!(body["data"]["plan"], "gold");
}

/// A command in a loop must not fill a customer's mailbox; and contacts with similar ids must be distinguished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_test_to_one_contact_waits_for_the_cooldown() {
    let redis = RedisServer::start();
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    for (subject, path) in [("alice", "/shared"), ("bob", "/own"), ("carol", "/shared")] {
        let contact = json!([{"id": "w", "channel": "webhook", "url": receiver.url(path), "secret": SECRET}]);
        set(&redis, subject, &["contacts", &contact.to_string()]).await;
    }
    let run = |subject| send(&["--subject", subject]).redis(&redis.url()).run();
    // A message that did not arrive was sent anyway.
    assert_eq!(run("alice").code, 1);
    assert_eq!(receiver.next().await.uri.path(), "/shared");
    let again = run("alice");
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\b\d+ s\b", "N s");
    settings.bind(|| {
        insta::assert_snapshot!(again.told(), @"
    error: contact w got a test message just now: the next one may leave in N s
    hint: wait N s; only test messages to this contact wait, alerts do not
    exit 1
    ");
    });
    assert_eq!(run("carol").code, 1, "the same receiver");
    assert_eq!(run("bob").code, 0, "the same id, another receiver");
    assert_eq!(receiver.next().await.uri.path(), "/own");
    assert!(receiver.try_next().is_none(), "what cools down is not sent");

    let keys: Vec<String> = redis.client().query(redis::cmd("KEYS").arg("quota_cooldown:*")).await.expect("KEYS works");
    for key in &keys {
        let left_ms: i64 = redis.client().query(redis::cmd("PTTL").arg(key)).await.expect("PTTL works");
        assert!((1..=10_000).contains(&left_ms), "{key}: {left_ms}");
    }
    let () = redis.client().query(redis::cmd("DEL").arg(&keys)).await.expect("the cooldown ends");
    assert_eq!(run("alice").code, 0);
    // A foreign key must not permit sending.
    let () = redis.client().query(redis::cmd("DEL").arg(&keys)).await.expect("the cooldown ends");
    for key in &keys {
        let () = redis.client().query(redis::cmd("SADD").arg(key).arg("x")).await.expect("a key of another type");
    }
    let broken = run("alice");
    assert!(broken.code == 1 && broken.stderr.contains("\nhint: a key of quotabell holds"), "{}", broken.told());
    assert_eq!(receiver.next().await.uri.path(), "/shared");
    assert!(receiver.try_next().is_none());
}

/// The hint for a receiver that moved must not be about its certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hint_fits_what_went_wrong() {
    let hint = |finished: &Finished| finished.stderr.lines().last().unwrap_or_default().to_owned();
    let mut told = Table::default();
    for status in [301, 401, 404, 422, 500] {
        let receiver = HttpCatcher::start([Answer::status(status)]).await.expect("a receiver");
        let url = receiver.url("/hook");
        told.add(status.to_string(), hint(&send(&["--webhook", &url, "--webhook-secret", SECRET]).run()));
    }
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let nobody = format!("http://127.0.0.1:{}/hook", free_port());
    for (case, url) in [("no TLS", receiver.url("/").replace("http:", "https:")), ("refused", nobody)] {
        let finished = send(&["--webhook", &url, "--webhook-secret", SECRET]).run();
        assert!(finished.stderr.starts_with("error: the test message to 127.0.0.1:"), "{}", finished.stderr);
        told.add(case, hint(&finished));
    }
    let server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let mail = |url: &str| send(&["--email", "a@b.test"]).env("QUOTABELL__EMAIL__SMTP_URL", url).run();
    for (phase, line) in [
        (Phase::Greeting, "421 busy"),
        (Phase::Greeting, "HTTP/1.1 400 Bad Request"),
        (Phase::Mail, "530 5.7.0 Must issue a STARTTLS command first"),
        (Phase::Mail, "553 5.7.1 sender rejected"),
        (Phase::Rcpt, "554 5.7.1 Relay access denied"),
        (Phase::Rcpt, "550 5.1.1 no such user"),
        (Phase::Rcpt, "450 try later"),
        (Phase::Message, "554 5.6.0 no"),
    ] {
        server.program(phase, Reply::Say(line), Times::Once);
        told.add(line, hint(&mail(&server.url())));
    }
    told.add("mail refused", hint(&mail(&format!("smtp://127.0.0.1:{}", free_port()))));
    snapshot("hints", told);
}

/// Exit codes for messages that can't be sent at all.
#[test]
fn failures_have_their_codes() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let code = |arguments: &[&str]| send(arguments).redis(&nobody).run().code;
    assert_eq!(code(&[]), 2);
    assert_eq!(code(&["--email", "alice"]), 2);
    assert_eq!(code(&["--webhook", "https://x.test", "--webhook-secret", "hunter2"]), 2);
    assert_eq!(code(&["--email", "a@b.test", "--webhook", "https://x.test"]), 2);
    assert_eq!(code(&["--email", "a@b.test", "--email", "b@b.test"]), 2);
    assert_eq!(code(&["--contact", "c_1", "--email", "a@b.test"]), 2);
    assert_eq!(code(&["--webhook-secret", SECRET, "--subject", "alice"]), 2);
    assert_eq!(code(&["--webhook-secret", SECRET, "--email", "a@b.test"]), 2);
    assert_eq!(code(&["--subject", "alice"]), 1);
    let misconfigured = send(&["--email", "a@b.test"]).env("QUOTABELL__EMAIL__TEMPLATES", "/absent").run();
    assert!(misconfigured.code == 78 && misconfigured.stderr.contains("/absent"), "{}", misconfigured.stderr);
}

/// Operators compare templates by previews: the same arguments print the same, and only the requested part.
#[test]
fn each_part_of_an_alert_is_previewed() {
    let printed = ["subject", "text", "webhook"].map(|part| {
        let run = quotabell(["preview", part, "--threshold", "100", "--limit", "7", "--subject", "bob"]).run();
        (format!("preview {part}"), run.told())
    });
    insta::assert_snapshot!("preview", Table::from_iter(printed));
    let html = quotabell(["preview", "html", "--subject", "<b>"]).run().expect_done();
    assert!(html.trim_end().ends_with("</html>") && html.contains("&lt;b&gt;"), "{html}");
    assert!(!html.ends_with("\n\n"));
}

/// The texts of a spike and of a silence can be read before the first of them is raised.
#[test]
fn each_kind_of_notice_is_previewed() {
    let preview = |part: &str, kind: &str| quotabell(["preview", part, "--kind", kind]).run();
    let text = preview("usage-notice-text", "quota.spike").expect_done();
    assert!(text.contains("by now you have used 3.0 times your usual"), "{text}");
    let heading = preview("usage-notice-subject", "quota.silence").expect_done();
    assert!(heading.contains("alice: no requests since 2026-11-18 09:00"), "{heading}");
    let html = preview("usage-notice-html", "quota.silence").expect_done();
    assert!(html.contains("alice has used no requests since") && !html.contains("<pre"), "{html}");
    let json = preview("webhook-usage-notice", "quota.spike").expect_done();
    assert!(json.contains("\"type\":\"quota.spike\"") && json.contains("\"times_usual\":3.0"), "{json}");
    let forecast = quotabell(["preview", "usage-notice-text"]).run().expect_done();
    assert!(forecast.contains("at about 13:40 (likely between 12:40 and 14:40)"), "{forecast}");
    let silence = quotabell(["preview", "--format", "cloudevents", "webhook-usage-notice", "--kind", "quota.silence"]);
    let json = silence.run().expect_done();
    assert!(json.contains("\"id\":\"silence_") && json.contains("\"window\":\"day\""), "{json}");
    for part in ["usage-notice-text", "webhook-digest", "alerts-text"] {
        let hourly = quotabell(["preview", part, "--limit", "100/total"]).run();
        assert!(hourly.code == 2 && hourly.stderr.contains("limits by total have none"), "{}", hourly.told());
    }
    let monthly = quotabell(["preview", "usage-notice-text", "--kind", "quota.spike", "--limit", "9000/month"]).run();
    assert!(monthly.expect_done().contains("Used      7,200 requests\n"), "a spike is of a day");
    let other = preview("text", "quota.spike");
    assert!(other.code == 2 && other.stderr.contains("usage-notice"), "{}", other.told());
    let unknown = preview("usage-notice-text", "quota.resolved");
    assert!(unknown.code == 2 && unknown.stderr.contains("quota.silence"), "{}", unknown.told());
}

/// A template has branches for units, which an operator wants to see before the first such alert.
#[test]
fn thresholds_in_units_are_previewed() {
    let preview = |threshold| quotabell(["preview", "subject", "--threshold", threshold, "--limit", "7000"]).run();
    let left = "alice: 1,000 of 7,000 requests left for 2026-11-21\n";
    assert_eq!(preview("remaining:1000").expect_done(), left);
    let used = "alice: 1,000 of 7,000 requests used for 2026-11-21\n";
    assert_eq!(preview("used:1000").expect_done(), used);
    let never = preview("remaining:7000");
    assert_eq!(never.code, 2, "{}", never.told());
    assert!(never.stderr.contains("remaining:7000 is never due with a limit of 7000"), "{}", never.told());
}

/// The email that asks for confirmation can be customized too, so it has a preview.
#[test]
fn the_mail_that_asks_for_consent_is_previewed() {
    let preview = |part: &str| quotabell(["preview", part, "--subject", "<b>"]).run().expect_done();
    assert_eq!(preview("verify-subject"), "Confirm this address for quota alerts about <b>\n");
    assert!(preview("verify-text").contains("  012345\n") && preview("verify-html").contains("&lt;b&gt;"));
    let disabled = "<b>: no more quota alerts to bob@example.com\n";
    assert_eq!(preview("disabled-subject"), disabled);
    assert!(preview("disabled-text").contains("because the mail server knows no such mailbox."));
    let vietnamese = |part: &str| quotabell(["preview", part, "--locale", "vi-VN"]).run().expect_done();
    assert_eq!(vietnamese("subject"), "alice: đã dùng 80,0% hạn mức requests của ngày 21/11/2026 (4.000 trên 5.000)\n");
    assert!(vietnamese("html").contains("<html lang=\"vi\"") && vietnamese("disabled-text").contains("đã khắc phục"));
    let refused = quotabell(["preview", "text", "--locale", "vi_VN"]).run();
    assert!(refused.code == 2 && refused.stderr.contains("is not a language tag"), "{}", refused.stderr);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("verify.txt"), "{{ code }}\n{{ used }}\n").expect("written");
    let broken = quotabell(["preview", "text"]).env("QUOTABELL__EMAIL__TEMPLATES", folder.path()).run();
    assert_eq!(broken.code, 78);
    let said = "verify.txt, line 2: \"used\" is not known; known are the variables subject, code, link, minutes";
    assert!(broken.stderr.contains(said), "{}", broken.stderr);
}

/// The operator's template is used, and an invalid one is reported with file and line.
#[test]
fn a_template_of_ones_own_is_previewed_or_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("subject.txt");
    let preview = || quotabell(["preview", "subject"]).env("QUOTABELL__EMAIL__TEMPLATES", folder.path()).run();
    std::fs::write(&template, "{{ subject }}: {{ used_percent }}%\n").expect("written");
    assert_eq!(preview().expect_done(), "alice: 80.0%\n");
    std::fs::write(&template, "{{ subject }}\n{{ useed }}\n").expect("written");
    let broken = preview();
    assert!(broken.code == 78 && broken.stdout.is_empty(), "{}", broken.told());
    assert!(broken.stderr.contains("subject.txt, line 2: \"useed\" is not known"), "{}", broken.stderr);
    assert!(broken.stderr.contains("\nhint: fix the template"), "{}", broken.stderr);
}

/// Each format can be previewed and tested before a customer's alert depends on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_format_is_previewed_and_sent() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ops.json"), r#"{"who": {{ subject }}}"#).expect("written");
    let url = receiver.url("/hook");
    for (format, of_format) in [
        ("standard", "data"),
        ("cloudevents", "specversion"),
        ("slack", "blocks"),
        ("discord", "embeds"),
        ("teams", "attachments"),
        ("pagerduty", "routing_key"),
        ("template:ops", "who"),
    ] {
        let preview = quotabell(["preview", "--format", format]).env("QUOTABELL__WEBHOOK__TEMPLATES", folder.path());
        let shown: Value = serde_json::from_str(&preview.run().expect_done()).expect("JSON");
        assert!(shown.get(of_format).is_some(), "{format}: {shown}");
        let mut line = vec!["--webhook", &url, "--format", format];
        if format == "pagerduty" {
            line.extend(["--webhook-secret", "R0123456789abcdefghijklmnopqrstu"]);
        }
        send(&line).env("QUOTABELL__WEBHOOK__TEMPLATES", folder.path()).run().expect_done();
        let sent: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
        assert!(sent.get(of_format).is_some(), "{format}: {sent}");
    }
    for part in ["webhook-usage-notice", "webhook-digest"] {
        let never = quotabell(["preview", part, "--format", "pagerduty"]).run();
        let said = format!("pagerduty gets no message of the kind {part}");
        assert!(never.code == 2 && never.stderr.contains(&said), "{}", never.told());
    }
    let english = quotabell(["preview", "--format", "slack", "--locale", "vi"]).run();
    assert!(english.code == 2 && english.stderr.contains("--locale applies only to emails"), "{}", english.told());
    let wrong = quotabell(["preview", "text", "--format", "slack"]).run();
    assert!(wrong.code == 2 && wrong.stderr.contains("text has no formats, only webhook has"), "{}", wrong.told());
    let unknown = send(&["--webhook", &url, "--format", "template:gone"]).run();
    assert!(unknown.code == 1 && unknown.stderr.contains("there is no template \"gone\""), "{}", unknown.told());
    let key = ["--format", "pagerduty", "--webhook-secret", "R0123456789abcdefghijklmnopqrstu"];
    let incident = send(&[&["--webhook", &url, "--kind", "quota.spike"], &key[..]].concat()).run();
    let said = "PagerDuty gets no message of the kind quota.spike";
    assert!(incident.code == 2 && incident.stderr.contains(said), "{}", incident.told());
    assert!(receiver.try_next().is_none());
    let mut incidents = Vec::new();
    for kind in ["quota.threshold_reached", "quota.resolved"] {
        send(&[&["--webhook", &url, "--kind", kind], &key[..]].concat()).run().expect_done();
        let body: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
        incidents.push(body["dedup_key"].clone());
    }
    assert!(incidents[0].is_string() && incidents[0] == incidents[1], "the end closes the incident: {incidents:?}");
}
