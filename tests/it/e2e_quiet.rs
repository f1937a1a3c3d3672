//! Quiet times and windows of contacts on the real binary, and emails of one period as a thread.

use crate::support::binary::quotabell;
use crate::support::contacts_api::ContactsApi;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;
use serde_json::{Value, json};

/// From three hours before now to three hours after it, in a zone seven hours ahead of UTC.
async fn quiet_around_now(api: &ContactsApi) -> String {
    let time: Vec<String> = api.outbox.run("TIME", &[""; 0]).await;
    let minutes = time[0].parse::<u64>().expect("seconds") / 60 + 7 * 60;
    let clock = |minutes: u64| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
    format!("{}-{}", clock(minutes - 180), clock(minutes + 180))
}

/// The next email: its recipient, and the email.
async fn next(api: &mut ContactsApi) -> (String, ParsedMail) {
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    (mail.to[0].clone(), ParsedMail::parse(&mail.text()))
}

/// The deliveries of a subject, as the API lists them.
async fn deliveries(api: &ContactsApi, state: &str) -> Vec<Value> {
    let listed = api.caller.get(&format!("/v1/deliveries?subject=alice&state={state}")).await.json();
    listed["deliveries"].as_array().expect("a list").clone()
}

/// Nobody is woken by a warning, nothing is lost when the daemon is killed meanwhile, and a used up limit is told at
/// once.
#[tokio::test]
async fn a_quiet_contact_hears_of_a_warning_later_and_of_a_used_up_limit_at_once() {
    let limits =
        |setup: DaemonSetup| setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","135/month"]}"#);
    let mut api = ContactsApi::start_with(limits).await;
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run();
    let quiet = quiet_around_now(&api).await;
    run(&["subject", "set", "alice", "--timezone", "Asia/Ho_Chi_Minh"]).expect_done();
    run(&["contact", "add", "alice", "--email", "awake@b.test"]).expect_done();
    run(&["contact", "add", "alice", "--email", "asleep@b.test", "--quiet", &quiet]).expect_done();
    assert!(run(&["contact", "list", "alice"]).expect_done().contains(&format!("all, quiet {quiet}")));

    api.use_units("alice", 80).await;
    let (to, first) = next(&mut api).await;
    assert_eq!(to, "awake@b.test");
    let waiting = eventually("the other one waits", || async {
        let pending = deliveries(&api, "pending").await;
        let is_later = pending.len() == 1 && pending[0]["next_due"].as_str() > pending[0]["created_at"].as_str();
        (is_later && pending[0]["attempts"] == 0).then(|| pending[0].clone())
    })
    .await;
    let id = waiting["id"].as_str().expect("an id").to_owned();
    let explained = run(&["explain", &id]).expect_done().replace("\n  ", " ");
    let said = format!("Its contact is quiet at {quiet} (Asia/Ho_Chi_Minh): nothing is sent before");
    assert!(explained.contains(&said) && explained.contains("alerts at 100 % do not wait"), "{explained}");

    api.use_units("alice", 20).await;
    let (two, three) = (next(&mut api).await, next(&mut api).await);
    let mut told = [two.0.as_str(), three.0.as_str()];
    told.sort_unstable();
    assert_eq!(told, ["asleep@b.test", "awake@b.test"]);
    // All emails about the day are one thread, whoever gets them first.
    let thread = first.header("References");
    assert!(thread.starts_with("<period_") && first.header("In-Reply-To") == thread, "{thread}");
    for (_, mail) in [&two, &three] {
        assert!(mail.header("Subject").contains("reached"), "{}", mail.header("Subject"));
        assert_eq!(mail.header("References"), thread);
        assert_ne!(mail.header("Message-ID"), first.header("Message-ID"));
    }

    api.use_units("alice", 8).await;
    let (to, mail) = next(&mut api).await;
    assert!(to == "awake@b.test" && mail.header("Subject").contains("80.0%"), "{to} {}", mail.header("Subject"));
    eventually("their outcomes are recorded", || async {
        (deliveries(&api, "delivered").await.len() == 4).then_some(())
    })
    .await;
    let mut api = api.restart_after_kill(limits).await;
    let mut waiting: Vec<String> =
        deliveries(&api, "pending").await.iter().map(|of| of["id"].as_str().expect("an id").to_owned()).collect();
    assert!(waiting.len() == 2 && waiting.contains(&id), "{waiting:?}");
    run(&["contact", "add", "alice", "--email", "asleep@b.test", "--quiet", "none"]).expect_done();
    waiting.splice(0..0, ["deliveries", "retry"].map(str::to_owned));
    run(&waiting.iter().map(String::as_str).collect::<Vec<_>>()).expect_done();
    // Who knows that the day is used up reads no warning of it afterwards.
    let (to, mail) = next(&mut api).await;
    let text = &mail.parts[0].content;
    assert!(to == "asleep@b.test" && text.contains("a month (80.0%)"), "{to} {text}");
    eventually("nothing waits", || async { deliveries(&api, "pending").await.is_empty().then_some(()) }).await;
    assert_eq!(deliveries(&api, "delivered").await.len(), 5);
    assert_eq!(deliveries(&api, "expired").await[0]["id"], json!(id));
    let explained = run(&["explain", &id]).expect_done().replace("\n  ", " ");
    assert!(explained.contains("or the contact had been told of a higher threshold"), "{explained}");
    assert!(api.mailbox.try_next().is_none(), "each contact was told once of each alert");

    // The delivery keeps where it went.
    let delivered = deliveries(&api, "delivered").await.pop().expect("some");
    for address in ["awake@b.test", "asleep@b.test"] {
        run(&["contact", "remove", "alice", address]).expect_done();
    }
    let explained = run(&["explain", delivered["id"].as_str().expect("an id")]).expect_done().replace("\n  ", " ");
    let said = "(email a***@b.test), which the subject does not have any more";
    assert!(explained.contains(said), "{explained}");
}

/// A customer that moves to another zone sleeps there, also while an alert of the old zone waits.
#[tokio::test]
async fn a_quiet_time_follows_the_zone_of_the_subject() {
    let mut api = ContactsApi::start().await;
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run().expect_done();
    let quiet = quiet_around_now(&api).await;
    run(&["contact", "add", "alice", "--email", "asleep@b.test", "--quiet", &quiet]);
    run(&["deliveries", "pause"]);
    api.use_units("alice", 85).await;
    eventually("the alert waits", || async { (deliveries(&api, "pending").await.len() == 1).then_some(()) }).await;
    run(&["subject", "set", "alice", "--timezone", "Asia/Ho_Chi_Minh"]);
    run(&["deliveries", "resume"]);
    let waiting = eventually("it waits for the end of the quiet time", || async {
        let pending = deliveries(&api, "pending").await.pop()?;
        (pending["next_due"].as_str() > pending["created_at"].as_str()).then_some(pending)
    })
    .await;
    let explained = run(&["explain", waiting["id"].as_str().expect("an id")]).replace("\n  ", " ");
    assert!(explained.contains(&format!("Its contact is quiet at {quiet} (Asia/Ho_Chi_Minh)")), "{explained}");
    run(&["subject", "set", "alice", "--timezone", "UTC"]);
    run(&["deliveries", "retry", "--all"]);
    assert_eq!(next(&mut api).await.0, "asleep@b.test");
}

/// With `quiet_all` a used up limit waits too; and who pays by the month hears of months only.
#[tokio::test]
async fn the_api_sets_windows_and_quiet_times() {
    let mut api = ContactsApi::start_with(|setup| {
        setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","100/month"]}"#)
    })
    .await;
    let url = api.outbox.server.url();
    let quiet = quiet_around_now(&api).await;
    let contacts = json!([
        {"id": "month", "channel": "email", "address": "month@b.test", "windows": ["month"]},
        {"id": "asleep", "channel": "email", "address": "asleep@b.test"}
    ]);
    let fields = ["quota_subject:alice", "timezone", "Asia/Ho_Chi_Minh", "contacts", &contacts.to_string()];
    let _: u64 = api.outbox.run("HSET", &fields).await;
    let path = "/v1/subjects/alice/contacts/asleep";
    for (bad, said) in [
        (json!({"quiet": "22:00-22:00"}), "covers the whole day"),
        (json!({"quiet": "10pm-7am"}), "is not a quiet time"),
        (json!({"quiet": 7}), "quiet"),
        (json!({"windows": []}), "windows is an empty list"),
        (json!({"windows": ["day", "day"]}), "windows names day twice"),
        (json!({"windows": ["days"]}), "days"),
    ] {
        api.caller.put(path, &bad).await.expect_problem(400, said);
    }
    let put = api.caller.put(path, &json!({"windows": ["day"], "quiet": quiet, "quiet_all": true})).await;
    let shown = put.json();
    assert_eq!(
        (put.status, &shown["windows"], &shown["quiet"], &shown["quiet_all"]),
        (200, &json!(["day"]), &json!(quiet), &json!(true)),
        "{shown}"
    );
    api.use_units("alice", 100).await;
    let (to, mail) = next(&mut api).await;
    assert_eq!((to.as_str(), mail.header("Subject").as_str()), ("month@b.test", "alice: 2 quota alerts"));
    assert!(mail.parts[0].content.contains("a month"), "{}", mail.parts[0].content);
    eventually("both alerts of the day wait", || async {
        let pending = deliveries(&api, "pending").await;
        let wait = |of: &Value| of["next_due"].as_str() > of["created_at"].as_str() && of["attempts"] == 0;
        (pending.len() == 2 && pending.iter().all(wait)).then_some(())
    })
    .await;
    let listed = quotabell(["contact", "list", "alice"]).redis(&url).run().expect_done();
    assert!(
        listed.contains(&format!("all in day, quiet {quiet} for all")) && listed.contains("all in month"),
        "{listed}"
    );
    // What is left out of a PUT is taken back.
    let plain = api.caller.put(path, &json!({})).await.json();
    assert!(plain["quiet"].is_null() && plain["windows"].is_null() && plain["quiet_all"].is_null(), "{plain}");
}
