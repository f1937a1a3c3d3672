//! Names, units and links on the real binary: from the configuration and the subject to the mailbox and the commands.

use crate::support::binary::quotabell;
use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PLAN: &str = "[plans.free]\nlimits = { cost = 20000000 }\nthresholds = [50, 80]\n\
    upgrade_url = \"https://example.com/up?customer={{ subject }}\"\n[metrics.cost]\nname = \"API spend\"\nscale = 6\n";

async fn next(api: &mut ContactsApi) -> ParsedMail {
    ParsedMail::parse(&tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time").text())
}

async fn spend(api: &ContactsApi, units: &str) {
    let event = ["usage", "*", "subject", "cust 1", "metric", "cost", "units", units];
    let _: String = api.outbox.run("XADD", &event).await;
}

/// A customer that reads 12,500,000 believes that it owes millions. A unit that is corrected must not need a restart.
#[tokio::test]
async fn amounts_names_and_links_reach_people_and_follow_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quotabell.toml");
    let write = |unit: &str| std::fs::write(&file, format!("{PLAN}unit = \"{unit}\"\n")).expect("written");
    write("UDS");
    let path = file.to_str().expect("a path").to_owned();
    let run = |url: &str, arguments: &[&str]| {
        let command = quotabell(arguments.iter().copied()).redis(url).env("QUOTABELL_CONFIG", &path);
        command.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"cost":20000000}"#).run()
    };
    let mut api = ContactsApi::start_with(|setup| {
        let setup = setup.env("QUOTABELL_CONFIG", &path);
        setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"cost":20000000}"#)
    })
    .await;
    let url = api.outbox.server.url();
    run(&url, &["subject", "set", "cust 1", "--name", "Acme Inc.", "--email", "a@b.test"]).expect_done();
    spend(&api, "12500000").await;
    let mail = next(&mut api).await;
    let subject = mail.header("Subject");
    assert!(subject.starts_with("Acme Inc. (cust 1): 62.5% of the API spend quota"), "{subject}");
    assert!(subject.contains("(12.50 UDS of 20.00 UDS)"), "{subject}");
    let text = &mail.parts[0].content;
    assert!(text.contains("Upgrade: https://example.com/up?customer=cust%201"), "{text}");

    write("USD");
    api.daemon.signal(Signal::SIGHUP);
    api.daemon.says("plans were read again").await;
    spend(&api, "3500000").await;
    let mail = next(&mut api).await;
    assert!(mail.header("Subject").contains("(16.00 USD of 20.00 USD)"), "{}", mail.header("Subject"));

    let usage = run(&url, &["usage", "cust 1"]).expect_done();
    assert!(usage.contains("16.00 USD  20.00 USD  80.0%") && usage.contains("name      Acme Inc."), "{usage}");
    let json = run(&url, &["usage", "cust 1", "--json"]).expect_json();
    let of = |view: &Value| json!([view["name"], view["unit"], view["scale"], view["windows"][0]["used"]]);
    assert_eq!(of(&json[0]["metrics"][0]), json!(["API spend", "USD", 6, 16_000_000]));
    let shown = api.caller.get("/v1/subjects/cust%201/usage").await.json();
    assert_eq!((&shown["name"], of(&shown["metrics"][0])), (&json!("Acme Inc."), of(&json[0]["metrics"][0])));
    let top = run(&url, &["top", "--metric", "cost"]).expect_done();
    assert!(top.contains("16.00 USD  20.00 USD") && top.contains("cust 1   Acme Inc."), "{top}");
    let explained = run(&url, &["explain", "cust 1"]).expect_done();
    assert!(explained.contains("cust 1 (Acme Inc.) has plan free"), "{explained}");
    assert!(explained.contains("It has used 16.00 USD of 20.00 USD of API spend (cost) (80%)"), "{explained}");
    let listed = run(&url, &["alerts"]).expect_done();
    assert!(listed.contains("12.50 USD") && !listed.contains("12500000"), "{listed}");
    let ranked = &run(&url, &["top", "--metric", "cost", "--json"]).expect_json()[0];
    let near = api.caller.get("/v1/near").await.json();
    for one in [&ranked["subjects"][0], &near["subjects"][0]] {
        assert_eq!(one["name"], "Acme Inc.", "{one}");
    }
    let expected = &units_of(&run(&url, &["alerts", "--json"]).expect_json()[0]);
    assert_eq!(expected, &json!(["USD", 6]));
    for (path, pointer) in [
        ("/v1/alerts/newest", "/alerts/0"),
        ("/v1/near", "/subjects/0"),
        ("/v1/subjects/cust%201/alerts", "/alerts/0"),
        ("/v1/subjects/cust%201/usage", "/metrics/0/windows/0/alerts/0"),
    ] {
        let answer = api.caller.get(path).await.json();
        assert_eq!(units_of(answer.pointer(pointer).expect("an object")), *expected, "{path}: {answer}");
    }
    let log = api.caller.get("/v1/alerts").await.text;
    let first: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert_eq!(units_of(&first["alert"]), *expected, "{log}");
    let asked = json!({"subject": "cust 1", "metric": "cost", "units": 5_000_000});
    let refused = api.caller.post("/v1/check", &asked).await;
    assert_eq!((refused.status, units_of(&refused.json())), (429, expected.clone()), "{}", refused.text);
    let checked = run(&url, &["check", "cust 1", "--metric", "cost", "--units", "5000000"]).told();
    assert!(checked.contains("API spend (cost)") && checked.contains("16.00 USD  20.00 USD  4.00 USD"), "{checked}");
    assert!(checked.contains("cust 1 may not use 5.00 USD of cost now"), "{checked}");
    let delivery = run(&url, &["deliveries", "list", "--json"]).expect_json();
    let shown = run(&url, &["deliveries", "show", delivery[0]["id"].as_str().expect("an id")]).expect_done();
    assert!(shown.contains("50%: 12.50 USD of 20.00 USD used"), "{shown}");
    let tried = run(&url, &["whatif", "--limit", "cost=16000000/day", "--threshold", "100"]);
    assert!(tried.told().contains("16.00 USD"), "{}", tried.told());
}

/// The unit and the scale beside the counts of an object.
fn units_of(of: &Value) -> Value {
    json!([of["unit"], of["scale"]])
}

/// The name is a setting like the others: it is imported, shown, replaced, removed, and an unreadable one costs no
/// alert.
#[tokio::test]
async fn the_name_of_a_subject_is_kept_like_its_other_settings() {
    let mut api = ContactsApi::start().await;
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run();
    let import = quotabell(["subject", "import", "-"]).redis(&url).stdin("subject,name,email\nalice,Acme,a@b.test\n");
    import.run().expect_done();
    assert!(run(&["subject", "show", "alice"]).expect_done().contains("name           Acme"));
    let put = api.caller.put("/v1/subjects/alice", &json!({"name": "Acme Inc."})).await;
    assert_eq!((put.status, &put.json()["name"]), (200, &json!("Acme Inc.")), "{}", put.text);
    for bad in [json!(""), json!("a\nb"), json!(" a"), json!("x".repeat(129)), json!(7)] {
        let refused = api.caller.put("/v1/subjects/alice", &json!({"name": bad})).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    let refused = run(&["subject", "set", "alice", "--name", "a\nb"]);
    assert!(refused.code == 2 && refused.stderr.contains("is not a name"), "{}", refused.told());
    run(&["subject", "set", "alice", "--clear", "name"]).expect_done();
    let shown = api.caller.get("/v1/subjects/alice").await.json();
    assert_eq!(shown["name"], Value::Null);

    let _: u64 = api.outbox.run("HSET", &["quota_subject:alice", "name", "a\u{202e}b"]).await;
    api.use_units("alice", 80).await;
    let mail = next(&mut api).await;
    assert!(mail.header("Subject").starts_with("alice: 80.0%"), "{}", mail.header("Subject"));
    api.daemon.says("name is unreadable").await;
    run(&["subject", "remove", "--everything", "alice"]).expect_done();
    eventually("it is gone", || async { (api.caller.get("/v1/subjects/alice").await.status == 404).then_some(()) })
        .await;
}
