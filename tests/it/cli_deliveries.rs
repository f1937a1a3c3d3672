//! `deliveries` on a real server with deliveries that the library created.

use std::collections::BTreeSet;

use crate::support::binary::quotabell;
use crate::support::books::{hide_what_varies, ids, run, with_dead};
use crate::support::outbox::{
    EXPIRES_AT, LONG, Outbox, alert, delivery, email, outcome, settle, subject, waiting_delivery, webhook,
};
use crate::support::redis_server::RedisServer;
use crate::support::table::Table;
use quotabell::contacts::Contact;
use quotabell::outbox::{NewDelivery, Settlement, enqueue};
use quotabell::types::{
    Alert, Channel, DeliveryId, DisableReason, DisabledNotice, DisabledState, Mute, Notification, Outcome,
    OutcomeClass, UnixMs,
};
use serde_json::{Value, json};

/// A list that ends after one page would hide the rest; --limit takes the newest.
#[tokio::test]
async fn the_list_of_deliveries_is_complete_and_in_order() {
    let outbox = Outbox::start();
    let mut made = Vec::new();
    for n in 0..1001 {
        let alert = alert(&subject(&format!("s{}", n % 10)), 1 + n / 10);
        outbox.fan_out_new(&alert, &[email("a")]).await;
        made.push(delivery(&alert, &email("a")));
    }
    // Many are created in one millisecond; here each has its own.
    let mut pipeline = redis::pipe();
    for (n, id) in made.iter().enumerate() {
        pipeline.cmd("ZADD").arg(outbox.keys.deliveries()).arg(n).arg(id.as_str()).ignore();
    }
    let () = outbox.client.pipe(&pipeline).await.expect("written");
    let listed = |line: &str| -> Vec<String> {
        let printed = run(&outbox.server, &format!("deliveries list --json {line}")).expect_json();
        ids(&printed).into_iter().map(str::to_owned).collect()
    };
    let all: Vec<&str> = made.iter().map(DeliveryId::as_str).collect();
    assert_eq!(listed(""), all);
    assert_eq!(listed("--limit 2"), all[999..]);
    assert_eq!(listed("--limit 700"), all[301..]);
    assert_eq!(listed("--subject s3 --limit 2"), [all[983], all[993]]);
    let pending: BTreeSet<String> = listed("--state pending").into_iter().collect();
    assert_eq!(pending.len(), 1001);
    assert_eq!(listed("--state dead"), [""; 0]);
}

/// If two of ten replays fail, the output and the exit code must show which.
#[tokio::test]
async fn a_replay_says_what_became_of_each_id() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    let waiting = alert(&subject("carol"), 80);
    outbox.fan_out_new(&waiting, &[webhook("a")]).await;
    let carol = delivery(&waiting, &webhook("a"));
    let unknown = "delivery_00000000000000000000000000000000";
    // The same id twice counts once.
    let line = format!("deliveries replay {} {carol} {unknown} {}", dead[0], dead[0]);
    // These ids are the same every day, so the snapshot shows them.
    let mut told = Table::default();
    told.add(&line, run(&outbox.server, &line).told());
    assert_eq!(outbox.state(&dead[0]).await, "pending");
    assert_eq!(outbox.state(&dead[1]).await, "dead");
    let again = format!("deliveries replay --json {} {} {unknown}", dead[0], dead[1]);
    told.add(&again, run(&outbox.server, &again).told());
    insta::assert_snapshot!("replay", told);
    assert_eq!(run(&outbox.server, "deliveries list --state dead").told(), "exit 0");
}

/// After a receiver's outage all deliveries must be repeatable; a second replay is no error.
#[tokio::test]
async fn everything_dead_is_replayed_and_nothing_dead_is_no_failure() {
    let (outbox, dead) = with_dead(&["alice", "bob", "carol"]).await;
    let printed = run(&outbox.server, "deliveries replay --all --json").expect_json();
    let told: BTreeSet<&str> = ids(&printed).into_iter().collect();
    assert_eq!(told, dead.iter().map(DeliveryId::as_str).collect());
    assert!(printed.iter().all(|told| told["result"] == "replayed" && told["state"] == "pending"), "{printed:?}");
    for id in &dead {
        assert_eq!(outbox.state(id).await, "pending");
    }
    assert_eq!(outbox.totals().await.dead_kept, 0, "no alert rule counts them any more");
    let told = run(&outbox.server, "deliveries replay --all").told();
    insta::assert_snapshot!(told, @"
    no delivery is dead; `quotabell deliveries list` shows where they stand
    exit 0
    ");
}

/// A mistake in a filter must be visible before the action, and each of many must be processed once.
#[tokio::test]
async fn many_are_changed_by_a_filter_after_a_look_at_their_number() {
    let (outbox, dead) = with_dead(&["alice", "bob", "carol"]).await;
    let pending = alert(&subject("dave"), 80);
    outbox.fan_out_new(&pending, &[email("d")]).await;
    let told = |line: &str| run(&outbox.server, &format!("deliveries {line}")).told();
    let mut table = Table::default();
    for line in [
        "discard --error 503 --dry-run",
        "discard --error refused --dry-run",
        "retry --destination email --dry-run",
        "retry --all --dry-run --json",
        "discard",
        "discard --all 6f1ed002",
        "cancel --state dead",
        "retry --state muted",
        "discard --subject nobody",
    ] {
        table.add(line, told(line));
    }
    insta::assert_snapshot!("filters", table);
    assert_eq!(outbox.totals().await.dead_kept, 3, "nothing was done");
    let done = run(&outbox.server, "deliveries discard --subject alice --json").expect_json();
    assert_eq!(done, [json!({"id": dead[0], "result": "discarded", "state": "dead"})]);
    let done = run(&outbox.server, "deliveries retry --state dead --destination https://a.test --json").expect_json();
    // If both died in one millisecond, their order is random.
    let replayed: BTreeSet<&str> = ids(&done).into_iter().collect();
    assert_eq!(replayed, [dead[1].as_str(), dead[2].as_str()].into(), "what was discarded is not dealt with again");
    let done = run(&outbox.server, "deliveries cancel --channel email").expect_done();
    assert!(done.contains("cancelled"), "{done}");
    assert_eq!(outbox.state(&delivery(&pending, &email("d"))).await, "cancelled");
    outbox.assert_balanced().await;
    let listed = run(&outbox.server, "deliveries list --subject alice").expect_done();
    assert!(listed.contains("  discarded  "), "{listed}");
}

/// An action that removes deliveries from a list must not skip others.
#[tokio::test]
async fn a_backlog_is_changed_slice_by_slice_and_whole() {
    let outbox = Outbox::start();
    for n in 0..1400 {
        let name = if n % 2 == 0 { "alice" } else { "bob" };
        outbox.fan_out_new(&alert(&subject(name), 1 + n / 2), &[email("a")]).await;
    }
    let dry = run(&outbox.server, "deliveries cancel --all --dry-run").told();
    assert_eq!(dry, "1,400 deliveries would be cancelled\nexit 0");
    let done = run(&outbox.server, "deliveries cancel --subject alice --json").expect_json();
    assert_eq!(ids(&done).into_iter().collect::<BTreeSet<_>>().len(), 700);
    assert!(done.iter().all(|one| one["result"] == "cancelled"), "{done:?}");
    let left = run(&outbox.server, "deliveries list --state pending --json").expect_json();
    assert!(left.len() == 700 && left.iter().all(|one| one["subject"] == "bob"), "{} are left", left.len());
    let done = run(&outbox.server, "deliveries cancel --all --json").expect_json();
    assert_eq!(done.len(), 700);
    assert_eq!(outbox.assert_balanced().await.pending, 0);
}

/// The list of deliveries must show why nothing is sent.
#[tokio::test]
async fn a_pause_is_shown_with_its_reason_until_it_is_resumed() {
    let outbox = Outbox::start();
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[webhook("a"), email("b")]).await;
    outbox.fan_out_new(&alert(&subject("bob"), 80), &[webhook("a")]).await;
    let paused = run(&outbox.server, "deliveries pause --reason moving --json").expect_json().remove(0);
    assert_eq!(
        (&paused["paused"], &paused["reason"], &paused["in_flight"]),
        (&json!(true), &json!("moving"), &json!(0))
    );
    for line in ["deliveries list", "deliveries destinations"] {
        let told = run(&outbox.server, line);
        assert!(
            told.stderr.starts_with("sending is paused since ") && told.stderr.contains(": moving; "),
            "{}",
            told.told()
        );
    }
    assert_eq!(run(&outbox.server, "deliveries resume").told(), "sending goes on\nexit 0");
    let leased = outbox.lease("t", LONG).await.leased;
    let failed = Outcome { status: None, ..outcome(OutcomeClass::Transient) };
    for leased in leased.iter().filter(|leased| leased.destination.as_str() == "email") {
        let retry = Settlement::Retry(failed.clone(), std::time::Duration::from_secs(3600));
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &retry).await.expect("settles");
    }
    let state = format!("{}email", outbox.keys.destination_prefix());
    let () = outbox.run("HSET", &[state.as_str(), "probe_at_ms", "1000", "failures", "7"]).await;
    insta::assert_snapshot!(run(&outbox.server, "deliveries destinations").told(), @"
    DESTINATION     PARTITION  WAITING  IN FLIGHT  BOUND  FAILURES  CIRCUIT  NEXT PROBE
    email           0          1        0          8      7         open     in 59m
    https://a.test  0          0        2          16     0         closed   -
    exit 0
    ");
    let listed = run(&outbox.server, "deliveries destinations --json").expect_json();
    // The circuit permits an attempt, but nothing is due there before.
    let waiting = run(&outbox.server, "deliveries list --json --channel email").expect_json().remove(0);
    assert_eq!((&listed[0]["circuit"], &listed[0]["next_probe"]), (&json!("open"), &waiting["next_due"]));
    assert_eq!(waiting["next_probe"], Value::Null);
    let explained = run(&outbox.server, &format!("explain {}", waiting["id"].as_str().expect("an id"))).expect_done();
    let next = format!("Its next attempt is due at {}", waiting["next_due"].as_str().expect("a time"));
    assert!(explained.contains(&next), "{explained}");
}

/// Operators look for destination and subject; the list has the same filters.
#[tokio::test]
async fn lists_are_filtered_by_subject_channel_alert_and_time() {
    let outbox = Outbox::start();
    let (of_alice, of_bob) = (alert(&subject("alice"), 80), alert(&subject("bob"), 100));
    outbox.fan_out_new(&of_alice, &[email("a"), webhook("a")]).await;
    outbox.fan_out_new(&of_bob, &[email("b")]).await;
    outbox.fan_out_new(&alert(&subject("carol"), 80), &[]).await;
    let listed = |line: &str| -> Vec<String> {
        let printed = run(&outbox.server, &format!("deliveries list --json {line}")).expect_json();
        ids(&printed).into_iter().map(str::to_owned).collect()
    };
    let id = |alert: &Alert, contact| delivery(alert, &contact).to_string();
    let bobs = [id(&of_bob, email("b"))];
    assert_eq!(listed("--channel webhook"), [id(&of_alice, webhook("a"))]);
    assert_eq!(listed("--channel none").len(), 1);
    assert_eq!(listed("--channel email --subject bob"), bobs);
    assert_eq!(listed(&format!("--alert {}", of_bob.id)), bobs);
    assert_eq!(listed(&format!("--alert {}", &of_bob.id.as_str()[6..14])), bobs);
    assert_eq!(listed("--since 1h").len(), 4);
    // Created an hour before the others.
    let () = outbox
        .run("HINCRBY", &[&outbox.keys.delivery(&delivery(&of_bob, &email("b"))), "created_at_ms", "-3600000"])
        .await;
    let () = outbox.run("ZINCRBY", &[outbox.keys.deliveries().as_str(), "-3600000", &bobs[0]]).await;
    assert_eq!(listed("--since 30m").len(), 3);
    assert_eq!(listed("--since 30m --state pending").len(), 3);
    assert_eq!(listed("--since 2h --limit 9")[0], bobs[0]);
    assert_eq!((listed("--before 30m"), listed("--before 30m --since 2h").len()), (bobs.to_vec(), 1));
    assert_eq!((listed("--since 2999-01-01").len(), listed("--before 2999-01-01").len()), (0, 4));
    assert_eq!((listed("--since 2026-11-21").len(), listed("--before 2026-11-21").len()), (4, 0));
    assert_eq!((listed("--before 2h").len(), listed("--before 0s").len()), (0, 4));
    let told = run(&outbox.server, "deliveries list --channel sms");
    assert!(told.code == 2 && told.stderr.contains("use email, webhook or none"), "{}", told.told());
    let told = run(&outbox.server, "deliveries list --since 90");
    assert!(told.code == 2 && told.stderr.contains("neither a duration"), "{}", told.told());
}

/// The shown part of an id must be enough for commands; an ambiguous part must be refused, because a guess could replay
/// another one.
#[tokio::test]
async fn an_id_is_named_by_its_first_digits() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    let digits = |id: &DeliveryId| id.as_str()["delivery_".len()..].to_owned();
    let list = run(&outbox.server, "deliveries list").expect_done();
    let short: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(short, [&digits(&dead[0])[..8], &digits(&dead[1])[..8]]);
    let shown = run(&outbox.server, &format!("deliveries show --json {}", short[1])).expect_json();
    assert_eq!(shown[0]["id"], json!(dead[1]));
    let told =
        run(&outbox.server, &format!("deliveries replay --json delivery_{} {}", short[0], dead[0])).expect_json();
    assert_eq!((told.len(), &told[0]["id"], &told[0]["result"]), (1, &json!(dead[0]), &json!("replayed")));

    // Two ids with the same beginning.
    let other = format!("delivery_{}{}", short[1], "0".repeat(24));
    let () = outbox.run("ZADD", &[outbox.keys.deliveries().as_str(), "1", &other]).await;
    for command in ["show", "replay"] {
        let told = run(&outbox.server, &format!("deliveries {command} {}", short[1]));
        assert!(told.code == 2 && told.stdout.is_empty(), "{}", told.told());
        assert!(told.stderr.contains(&other) && told.stderr.contains(dead[1].as_str()), "{}", told.stderr);
    }
    assert_eq!(outbox.state(&dead[1]).await, "dead");
    let unknown = run(&outbox.server, "deliveries show ffffffff");
    assert!(
        unknown.code == 1 && unknown.stderr.contains("there is no delivery delivery_ffffffff"),
        "{}",
        unknown.told()
    );
}

/// The receiver of a delivery must be shown, even if the contact has changed since.
#[tokio::test]
async fn a_delivery_shows_its_contact_as_it_is_now() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let facts = alert(&alice, 80);
    let named = webhook("a");
    let secret = named.secret().expect("it has one").clone();
    let contact = Contact { id: named.id, ..Contact::webhook("https://user:pw@a.test/hook", secret) };
    outbox.fan_out_new(&facts, std::slice::from_ref(&contact)).await;
    let id = delivery(&facts, &contact);
    let shown = || run(&outbox.server, &format!("deliveries show --json {id}")).expect_json()[0]["contact"].clone();
    let expected = |address: Value, status: &str| json!({"id": contact.id, "address": address, "status": status});
    assert_eq!(shown(), expected(Value::Null, "removed"));
    for (muted, status) in [(false, "current"), (true, "muted")] {
        let stored = json!([Contact { mute: muted.then(Mute::default), ..contact.clone() }]).to_string();
        outbox.set_contacts(&alice, &stored).await;
        let shown = shown();
        assert_eq!((&shown["address"], &shown["status"]), (&json!("https://user:***@a.test/hook"), &json!(status)));
        assert_eq!(shown.get("mute").is_some(), muted);
    }
    outbox.set_contacts(&alice, &json!([Contact { verified: false, ..contact.clone() }]).to_string()).await;
    assert_eq!(shown()["status"], "unverified");
    outbox.set_contacts(&alice, "[[]").await;
    assert_eq!(shown(), expected(Value::Null, "unreadable"));
    let waiting = alert(&subject("bob"), 100);
    outbox.fan_out_new(&waiting, &[]).await;
    let listed = run(&outbox.server, "deliveries list --channel none --json").expect_json();
    let detail = run(&outbox.server, &format!("deliveries show --json {}", ids(&listed)[0])).expect_json();
    assert_eq!((&detail[0]["contact"], &detail[0]["alert"]["threshold_percent"]), (&Value::Null, &json!(100)));
}

/// "HTTP 550" alone would send the operator to the mail server's log; the server's reply is enough.
#[tokio::test]
async fn what_the_other_side_said_is_shown_with_the_attempt() {
    let outbox = Outbox::start();
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[email("a")]).await;
    let leased = outbox.lease_one("t", LONG).await;
    let refused = Outcome {
        reply: Some("5.1.1 no such user".to_owned()),
        peer: Some("mail.test:25".to_owned()),
        ..outcome(OutcomeClass::Permanent)
    };
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Dead(refused)).await.expect("settles");
    let shown = run(&outbox.server, &format!("deliveries show {}", leased.id)).expect_done();
    assert!(shown.contains("\npeer   mail.test:25\nreply  5.1.1 no such user\n"), "{shown}");
    let shown = run(&outbox.server, &format!("deliveries show --json {}", leased.id)).expect_json();
    let attempt = &shown[0]["attempt_log"][0];
    assert_eq!((&attempt["peer"], &attempt["reply"]), (&json!("mail.test:25"), &json!("5.1.1 no such user")));
}

/// A delivery without an alert must be listed too, with its kind.
#[tokio::test]
async fn a_request_for_consent_is_shown_as_what_it_is() {
    let outbox = Outbox::start();
    let id = format!("delivery_{}", "ab".repeat(16));
    let request = json!({
        "id": "verification_1", "subject": "alice", "contact": "c_1", "consent": "x", "requested_at_ms": 1_000,
        "expires_at_ms": 2_000,
    });
    let hash = outbox.keys.delivery(&DeliveryId::from_stored(&id));
    let request = request.to_string();
    let fields = ["type", "verification", "verification", &request, "subject", "alice", "channel", "email"];
    let () = outbox.run("HSET", [hash.as_str()].into_iter().chain(fields).collect::<Vec<_>>()).await;
    let fields = ["contact_id", "c_1", "state", "pending", "attempts", "0", "created_at_ms", "1000"];
    let () = outbox.run("HSET", [hash.as_str()].into_iter().chain(fields).collect::<Vec<_>>()).await;
    let () = outbox.run("ZADD", &[outbox.keys.deliveries().as_str(), "1000", &id]).await;
    let listed = run(&outbox.server, "deliveries list --json").expect_json();
    assert_eq!((&listed[0]["type"], &listed[0]["alert_id"]), (&json!("verification"), &Value::Null));
    let shown = run(&outbox.server, "deliveries show --json abab").expect_json();
    assert_eq!(shown[0]["verification"]["expires_at"], json!("1970-01-01T00:00:02.000Z"));
    assert_eq!((&shown[0]["alert"], &shown[0]["contact"]["id"]), (&Value::Null, &json!("c_1")));
    assert!(run(&outbox.server, "deliveries show abab").expect_done().contains("\nverification  verification_1\n"));
}

/// "now" for a delivery behind a circuit, or a time for one without a contact, would make an operator look for a fault.
#[tokio::test]
async fn what_a_delivery_waits_for_is_said() {
    let outbox = Outbox::start();
    let alice = subject("a-customer-with-a-long-name");
    outbox.fan_out_new(&alert(&alice, 80), &[webhook("leased")]).await;
    let leased = outbox.lease_one("t", LONG).await.id;
    outbox.fan_out_new(&alert(&alice, 80), &[webhook("open"), webhook("probed"), email("a")]).await;
    outbox.fan_out_new(&alert(&alice, 100), &[]).await;
    let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(0) };
    let address = "https://gone.test/".to_owned();
    let notice = DisabledNotice::new(&alice, &webhook("gone").id, (Channel::Webhook, address), state);
    let notification = Notification::ContactDisabled(notice);
    let new = NewDelivery { notification: &notification, contact: &email("b") };
    enqueue(&outbox.client, &outbox.keys, new).await.expect("it works");
    let notice = notification.delivery_to(&new.contact.id);
    let now = outbox.totals().await.now;
    for (name, probe) in [("open", now.plus(600_900)), ("probed", UnixMs(1000)), ("leased", now.plus(100_000_000))] {
        let state = format!("{}https://{name}.test", outbox.keys.destination_prefix());
        let probe = probe.0.to_string();
        let () = outbox.run("HSET", &[state.as_str(), "failures", "5", "probe_at_ms", &probe]).await;
    }
    let told = run(&outbox.server, "deliveries list");
    // In the order of the ids, which are the same every day: several are created in one millisecond.
    let mut rows: Vec<&str> = told.stdout.lines().collect();
    rows[1..].sort_unstable();
    hide_what_varies().bind(|| insta::assert_snapshot!("waits", format!("{}\n\n{}", rows.join("\n"), told.stderr)));
    let shown = quotabell(["deliveries", "list"]).redis(&outbox.server.url()).env("NO_COLOR", "1").print_on_terminal();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let listed = run(&outbox.server, "deliveries list --json --channel webhook").expect_json();
    let probes: BTreeSet<&str> = listed.iter().filter_map(|one| one["next_probe"].as_str()).collect();
    let expected = [UnixMs(1000), now.plus(600_900)].map(|probe| probe.to_string());
    assert_eq!(probes, expected.iter().map(String::as_str).collect());
    let show = |id: &DeliveryId| run(&outbox.server, &format!("deliveries show {id}")).expect_done();
    for (contact, expected) in [
        (
            webhook("open"),
            format!(
                "\nnext due     behind the open circuit of https://open.test: one attempt is made there at {}\n",
                now.plus(600_900)
            ),
        ),
        (
            webhook("probed"),
            "\nnext due     behind the open circuit of https://probed.test: one attempt is made there now\n".to_owned(),
        ),
        (email("a"), "\nnext due     now, since ".to_owned()),
    ] {
        let shown = show(&delivery(&alert(&alice, 80), &contact));
        assert!(shown.contains(&expected), "{shown}");
    }
    let waiting = show(&waiting_delivery(&alert(&alice, 100)));
    let expires = format!("\nnext due     once the subject has a contact; expires at {EXPIRES_AT}\n");
    assert!(waiting.contains(&expires), "{waiting}");
    let shown = show(&notice);
    let about = format!("\nabout        contact {} (webhook https://gone.test/)\n", webhook("gone").id);
    assert!(shown.contains("\ntype         contact_disabled\n") && shown.contains(&about), "{shown}");
    assert!(shown.contains("\ndisabled     gone (HTTP 410) at 1970-01-01T00:00:00.000Z\n"), "{shown}");
    // A running attempt waits for nothing; when its lease ends, the delivery waits like the others.
    let shown = show(&leased);
    assert!(!shown.contains("circuit"), "{shown}");
    let id = delivery(&alert(&alice, 80), &webhook("open"));
    let shown = quotabell(["deliveries", "show", id.as_str()]).redis(&outbox.server.url()).print_on_terminal();
    assert!(shown.contains("behind the open circuit"), "{shown}");
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    outbox.let_time_pass(&leased).await;
    let shown = show(&leased);
    assert!(shown.contains("\nnext due     behind the open circuit of https://leased.test: "), "{shown}");
}

/// After a retry of a backlog the output must not suggest that all are attempted at once.
#[tokio::test]
async fn a_retry_behind_an_open_circuit_says_that_one_attempt_is_made() {
    let outbox = Outbox::start();
    for name in ["alice", "bob"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook("open")]).await;
    }
    outbox.fan_out_new(&alert(&subject("carol"), 80), &[email("a")]).await;
    let state = format!("{}https://open.test", outbox.keys.destination_prefix());
    let open = async || {
        let far = outbox.totals().await.now.plus(600_900).0.to_string();
        let () = outbox.run("HSET", &[state.as_str(), "failures", "5", "probe_at_ms", &far]).await;
    };
    open().await;
    let told = run(&outbox.server, "deliveries retry --all");
    assert_eq!(
        told.stderr,
        "the circuit of https://open.test is open: one attempt is made there now\n\
         waiting deliveries follow once an attempt succeeds; each failed attempt delays the next one further\n"
    );
    let rows: BTreeSet<&str> =
        told.stdout.lines().skip(1).filter_map(|line| line.split_once("  ")).map(|(_, said)| said).collect();
    assert_eq!(rows, BTreeSet::from(["retried", "retried, behind an open circuit"]), "{}", told.told());
    open().await;
    let told = quotabell(["deliveries", "retry", "--all"]).redis(&outbox.server.url()).run_on_terminal();
    assert!(told.contains("waiting deliveries follow"), "{told}");
    assert!(told.lines().all(|line| line.trim_end().chars().count() <= 80), "{told}");
    open().await;
    let told = run(&outbox.server, "deliveries retry --all --json").expect_json();
    let circuits: Vec<&Value> = told.iter().filter_map(|one| one.get("circuit")).collect();
    assert_eq!((circuits, told.len()), (vec![&json!("open"), &json!("open")], 3));
    assert!(told.iter().all(|one| one["result"] == "retried"), "{told:?}");
    // A replay does not change the circuit.
    open().await;
    let leased = outbox.lease_one("t", LONG).await;
    let end = Settlement::Dead(outcome(OutcomeClass::Permanent));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
    let destination = outbox.field(&leased.id, "destination").await;
    assert_eq!(destination.as_deref(), Some("email"), "nothing leaves behind the circuit");
    let hash = outbox.keys.delivery(&leased.id);
    let () = outbox.run("HSET", &[hash.as_str(), "destination", "https://open.test"]).await;
    let told = run(&outbox.server, &format!("deliveries replay {}", &leased.id.as_str()[..20]));
    assert!(told.stdout.ends_with("  replayed, behind an open circuit\n"), "{}", told.told());
    let said = "the circuit of https://open.test is open: one attempt is made there in 10m\n";
    assert!(told.stderr.starts_with(said), "{}", told.told());
    // The log names the whole delivery, and whose it is.
    let logged = run(&outbox.server, "actions --limit 1 --json").expect_json().remove(0);
    let of = outbox.field(&leased.id, "subject").await;
    assert_eq!((logged["target"].as_str(), logged["subject"].as_str()), (Some(leased.id.as_str()), of.as_deref()));
    // One delivery is one.
    let one = run(&outbox.server, &format!("deliveries cancel --dry-run {}", leased.id));
    assert_eq!(one.told(), "1 delivery would be cancelled\nexit 0");
}

/// A mistyped id must not look like a delivery without attempts.
#[tokio::test]
async fn a_delivery_that_is_not_there_is_said() {
    let server = RedisServer::start();
    let unknown = run(&server, "deliveries show delivery_00000000000000000000000000000000");
    insta::assert_snapshot!(unknown.told(), @"
    error: there is no delivery delivery_00000000000000000000000000000000
    hint: `quotabell deliveries list` lists them; they stay readable for 14 days after their end
    exit 1
    ");
}
