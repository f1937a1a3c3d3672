//! The routes of deliveries on the real daemon: filtered lists, one delivery, and the operator's actions.

use crate::support::api::Caller;
use crate::support::books::{ids, run};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, delivery, email, json as stored, outcome, settle, subject, webhook};
use crate::support::receivers::HttpCatcher;
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use quotabell::contacts::Contact;
use quotabell::outbox::Settlement;
use quotabell::types::{Outcome, OutcomeClass, Secret};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";

/// A daemon that sends nothing, so that deliveries keep the state of the test.
async fn idle(outbox: &Outbox) -> (Daemon, Caller) {
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).argument("--no-send");
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

async fn post(api: &Caller, id: &str, action: &str) -> crate::support::api::Answer {
    api.send("POST", &format!("/v1/deliveries/{id}/{action}"), &[], "").await
}

/// A platform that shows deliveries to its customers must find all matching ones, and no others.
#[tokio::test]
async fn deliveries_are_listed_by_filter_page_by_page() {
    let outbox = Outbox::start();
    for n in 0..25 {
        outbox.fan_out_new(&alert(&subject(&format!("s{}", n % 5)), 80 + n), &[email("a"), webhook("b")]).await;
    }
    let (daemon, api) = idle(&outbox).await;
    let all = async |query: &str| -> Vec<Value> {
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let answer = api.get(&format!("/v1/deliveries?limit=7{query}{after}")).await;
            assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{}", answer.text);
            let page = answer.json();
            let deliveries = page["deliveries"].as_array().expect("a list");
            assert!(deliveries.len() <= 7);
            listed.extend(deliveries.iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return listed,
            }
        }
    };
    let listed = all("").await;
    let printed = run(&outbox.server, "deliveries list --json").expect_json();
    let mut newest_first = ids(&printed);
    newest_first.reverse();
    assert_eq!(ids(&listed), newest_first, "the same objects, each once");
    assert_eq!(all("&channel=webhook").await.len(), 25);
    assert_eq!(all("&subject=s3&channel=email").await.len(), 5);
    let of_subject: Vec<Value> = listed.iter().filter(|view| view["subject"] == "s3").cloned().collect();
    assert_eq!(all("&subject=s3").await, of_subject);
    assert_eq!(all("&destination=https%3A%2F%2Fb.test&state=pending").await.len(), 25);
    assert_eq!((all("&state=dead").await.len(), all("&since=2100-01-01T00:00:00Z").await.len()), (0, 0));
    assert_eq!(
        (all("&before=2100-01-01T00:00:00Z").await, all("&before=2000-01-01T00:00:00Z").await.len()),
        (listed.clone(), 0)
    );
    for (query, said) in [
        ("state=lost", "state: \"lost\" is not a state: use pending"),
        ("channel=sms", "channel: \"sms\" is not a channel: use email, webhook or none"),
        ("since=6h", "since: must be a time in RFC 3339"),
        ("alert=x", "alert: an id is alert_"),
        ("after=x", "after: is not the `next` of a list"),
        ("limit=0", "limit: must be a whole number"),
        ("age=1", "unknown field `age`"),
    ] {
        api.get(&format!("/v1/deliveries?{query}")).await.expect_problem(400, said);
    }
    // The deliveries of one subject, with the same filters.
    let of_subject = api.get("/v1/subjects/s3/deliveries?channel=email&limit=1000").await;
    assert_eq!(of_subject.status, 200, "{}", of_subject.text);
    assert_eq!(of_subject.json()["deliveries"], json!(all("&subject=s3&channel=email").await));
    api.get("/v1/subjects/s3/deliveries?subject=s4").await.expect_problem(400, "subject: the path names it already");
    daemon.drain().await;
}

/// Actions over HTTP must equal the operator's commands, and impossible ones must be refused clearly.
#[tokio::test]
async fn deliveries_are_retried_cancelled_discarded_and_replayed() {
    let outbox = Outbox::start();
    let raised = alert(&subject("alice"), 80);
    outbox.fan_out_new(&raised, &[webhook("a"), webhook("b")]).await;
    let leased = outbox.lease("t", LONG).await.leased;
    let of = |name: &str| delivery(&raised, &webhook(name));
    let dead = leased.iter().find(|leased| leased.id == of("a")).expect("leased");
    let reply = Outcome { reply: Some("no such hook".to_owned()), ..outcome(OutcomeClass::Permanent) };
    settle(&outbox.client, &outbox.keys, &dead.id, &dead.token, &Settlement::Dead(reply)).await.expect("settles");
    let (daemon, api) = idle(&outbox).await;
    let (a, b) = (of("a").to_string(), of("b").to_string());

    let shown = api.get(&format!("/v1/deliveries/{a}")).await.json();
    assert_eq!((&shown["state"], &shown["attempt_log"][0]["status"]), (&json!("dead"), &json!(503)));
    assert_eq!(shown["attempt_log"][0]["reply"], Value::Null, "what the receiver said is the operator's");
    for (id, action, said) in [
        (&a, "cancel", "the delivery is dead, only pending deliveries can be cancelled"),
        (&b, "cancel", "being attempted right now"),
        (&b, "retry", "being attempted right now"),
        (&b, "discard", "the delivery is pending, only dead deliveries can be discarded"),
        (&b, "replay", "only dead deliveries can be replayed"),
    ] {
        post(&api, id, action).await.expect_problem(409, said);
    }
    let far = outbox.totals().await.now.plus(600_000).0.to_string();
    let open = format!("{}https://a.test", outbox.keys.destination_prefix());
    let () = outbox.run("HSET", &[open.as_str(), "failures", "5", "probe_at_ms", &far]).await;
    for (action, expected) in [
        ("discard", json!({"id": a, "result": "discarded", "state": "dead"})),
        ("replay", json!({"id": a, "result": "replayed", "state": "pending", "circuit": "open"})),
        ("retry", json!({"id": a, "result": "retried", "state": "pending", "circuit": "open"})),
        ("cancel", json!({"id": a, "result": "cancelled", "state": "cancelled"})),
    ] {
        let answer = post(&api, &a, action).await;
        assert_eq!((answer.status, answer.json()), (200, expected), "{action}");
    }
    assert_eq!(outbox.state(&of("a")).await, "cancelled");
    outbox.assert_balanced().await;
    let unknown = format!("delivery_{}", "0".repeat(32));
    post(&api, &unknown, "retry").await.expect_problem(404, "there is no delivery");
    api.get(&format!("/v1/deliveries/{unknown}")).await.expect_problem(404, "there is no delivery");
    post(&api, &a[..20], "retry").await.expect_problem(400, "id: must be delivery_ and 32 hex digits");
    api.without_token().get("/v1/deliveries").await.expect_problem(401, "Authorization: Bearer TOKEN");
    daemon.drain().await;
}

/// A copy that was restored for inspection must count, and send nothing.
#[tokio::test]
async fn a_daemon_that_sends_nothing_counts_and_leaves_deliveries_to_others() {
    let outbox = Outbox::on(RedisServer::start());
    outbox.set_contacts(&subject("alice"), &json!([{"channel": "email", "address": "a@b.test"}]).to_string()).await;
    let (daemon, _api) = idle(&outbox).await;
    let event = ["usage", "*", "subject", "alice", "units", "5000"];
    let _: String = outbox.run("XADD", &event).await;
    eventually("both alerts are fanned out", || async { (outbox.totals().await.made == 2).then_some(()) }).await;
    // A caller that asks why nothing arrives gets the reason.
    let listed = run(&outbox.server, "deliveries list --json").expect_json();
    for about in ["alice", listed[0]["id"].as_str().expect("an id")] {
        let explained = run(&outbox.server, &format!("explain {about}")).expect_done();
        assert!(
            explained.contains("The daemons that run send nothing: each was started with `--no-send`"),
            "{explained}"
        );
    }
    daemon.drain().await;
    let listed = run(&outbox.server, "deliveries list --json").expect_json();
    assert!(listed.iter().all(|delivery| delivery["attempts"] == 0), "{listed:?}");
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.pending, totals.counted), (2, 1));
    let sender =
        DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__EMAIL__SMTP_URL", "smtp://127.0.0.1:1").start().await;
    let explained = run(&outbox.server, "explain alice").expect_done();
    assert!(!explained.contains("send nothing"), "{explained}");
    sender.drain().await;
}

/// The log and the metrics must show why nothing is sent; the waiting deliveries must be sent afterwards.
#[tokio::test]
async fn a_pause_is_logged_and_measured_and_what_waited_leaves_after_it() {
    let outbox = Outbox::start();
    let receiver = HttpCatcher::start([]).await.expect("a free port");
    let contact = Contact::webhook(&receiver.url("/hook"), Secret::new(secret(7)));
    outbox.set_contacts(&subject("alice"), &stored(std::slice::from_ref(&contact))).await;
    run(&outbox.server, "deliveries pause --reason moving").expect_done();
    let mut daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    let raised = alert(&subject("alice"), 80);
    outbox.raise(&raised).await;
    daemon.says("sending is paused").await;
    let id = delivery(&raised, &contact);
    eventually("it is fanned out", || async { outbox.field(&id, "state").await }).await;
    assert!(daemon.get("/metrics").await.body.contains("\nquotabell_deliveries_paused 1\n"));
    assert_eq!(outbox.field(&id, "attempts").await.as_deref(), Some("0"));
    run(&outbox.server, "deliveries resume").expect_done();
    daemon.says("sending is resumed").await;
    eventually("it is delivered", || async { (outbox.state(&id).await == "delivered").then_some(()) }).await;
    assert!(daemon.get("/metrics").await.body.contains("\nquotabell_deliveries_paused 0\n"));
    daemon.drain().await;
}
