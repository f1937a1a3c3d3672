//! Replaces the settings of a subject, and erases subjects while the daemon counts.

use std::collections::BTreeSet;

use crate::support::api::{Answer, Caller};
use crate::support::binary::{Finished, quotabell};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, alert, email, subject, webhook};
use crate::support::receivers::{SmtpCatcher, SmtpSetup};
use crate::support::recorded_usage::RecordedUsage;
use crate::support::redis_cluster::RedisCluster;
use quotabell::contacts::Contact;
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::outbox::{EnqueueReply, NewDelivery, enqueue, totals};
use quotabell::redis_client::RedisClient;
use quotabell::types::keys::bucket;
use quotabell::types::{
    Channel, DailyDigest, Day, DeadDelivery, DeliveryId, Keys, Metric, Notification, PartitionNumber, Subject, UnixMs,
};
use redis::Value as Reply;
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";
/// The subject, and another one in the same hashes whose name ends with the first one's name.
const GONE: &str = "gone:1*";
const OTHER: &str = "166:gone:1*";

async fn with_token(setup: DaemonSetup) -> (Daemon, Caller) {
    let mut daemon = setup.env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

async fn put(api: &Caller, path: &str, body: &Value) -> Answer {
    api.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
}

/// Everything in the server except the usage stream and digests of event ids, as text.
async fn stored(client: &RedisClient) -> String {
    let query = async |command: &[&str]| -> Reply {
        client.query(redis::cmd(command[0]).arg(&command[1..])).await.expect("redis answers")
    };
    let keys: Vec<String> = client.query(redis::cmd("KEYS").arg("*")).await.expect("redis answers");
    let mut text = String::new();
    for key in keys.iter().filter(|key| !key.starts_with("usage") && !key.starts_with("quota_seen:")) {
        let kind: String = client.query(redis::cmd("TYPE").arg(key)).await.expect("redis answers");
        let value = match kind.as_str() {
            "hash" => query(&["HGETALL", key]).await,
            "zset" => query(&["ZRANGE", key, "0", "-1"]).await,
            "set" => query(&["SMEMBERS", key]).await,
            "stream" => query(&["XRANGE", key, "-", "+"]).await,
            "string" => query(&["GET", key]).await,
            _ => Reply::Nil,
        };
        text.push_str(&format!("{key} {}\n", shown(&value)));
    }
    text
}

fn shown(reply: &Reply) -> String {
    match reply {
        // A profile is binary.
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).replace('\n', " "),
        Reply::Array(parts) => parts.iter().map(shown).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    }
}

/// The lines that name the subject itself.
fn naming(stored: &str) -> BTreeSet<&str> {
    stored.lines().filter(|line| line.replace(OTHER, "").contains(GONE)).collect()
}

async fn emit(usage: &RecordedUsage, fields: &[&str]) {
    let _: String = usage.client.query(redis::cmd("XADD").arg("usage").arg("*").arg(fields)).await.expect("added");
}

/// A customer has the right to be forgotten: no key about the customer may be left. Other subjects must not lose
/// anything.
#[tokio::test]
async fn everything_of_a_subject_is_removed_and_nothing_of_others() {
    assert_eq!(bucket(GONE), bucket(OTHER));
    let usage = RecordedUsage::start();
    let mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    // Past days of both are archived; a delivery fails and is retried.
    let past = Day::in_utc(usage.now().await).and_then(|today| today.before(30)).expect("a day");
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let contacts = json!([{"channel": "webhook", "url": "http://127.0.0.1:1/hook", "secret": secret}]).to_string();
    for subject in [GONE, OTHER] {
        usage.count(subject, "images", past, 5).await;
        usage.set(subject, &[("limit:requests", "10/hour 100/day 100/year 10/total"), ("contacts", &contacts)]).await;
    }
    let mut archiver = HistoryArchiver::new(usage.keys.clone(), HistoryConfig { days: 90, alerts_days: 400 });
    archiver.after_commit(past);
    while archiver.next().is_some() {
        archiver.archive(&usage.client, usage.now().await).await.expect("redis answers");
    }
    for key in usage.client.query::<Vec<String>>(redis::cmd("KEYS").arg("quota_usage:*")).await.expect("keys") {
        let () = usage.client.query(redis::cmd("DEL").arg(key)).await.expect("deleted");
    }
    // A very late event is counted in an old period that no usual read covers.
    let late = Day::in_utc(usage.now().await).and_then(|today| today.before(50)).expect("a day");
    for subject in [GONE, OTHER] {
        usage.count(subject, "images", late, 5).await;
    }
    // A retry during the erasure would find no contact and create another delivery.
    let setup = DaemonSetup::on(&usage.server.url())
        .env("QUOTABELL__RETRY__FIRST", "1h")
        .env("QUOTABELL__RETRY__MAX_INTERVAL", "1h")
        .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url())
        .env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com")
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"algorithm":"fixed","requests":"60/1h"}"#);
    let (daemon, api) = with_token(setup).await;
    let mut not_confirmed = Vec::new();
    for subject in [GONE, OTHER] {
        emit(&usage, &["subject", subject, "units", "9", "id", "1"]).await;
        emit(&usage, &["subject", subject, "units", "many"]).await;
        let check = json!({"subject": subject});
        assert_eq!(api.post("/v1/check", &check).await.status, 200);
        let path = format!("/v1/subjects/{}/contacts", subject.replace('*', "%2A"));
        for name in ["stays", "leaves"] {
            let contact = json!({"channel": "email", "address": format!("{name}-{}@b.test", subject.len())});
            let added = api.post(&path, &contact).await;
            assert_eq!(added.status, 202, "{}", added.text);
            if name == "leaves" {
                not_confirmed.push(format!("{path}/{}", added.json()["id"].as_str().expect("an id")));
            }
        }
    }
    let total = async |name: &str| -> u64 {
        let reply = usage.client.query::<Option<u64>>(redis::cmd("HGET").arg(usage.keys.totals()).arg(name)).await;
        reply.expect("redis answers").unwrap_or(0)
    };
    // Each subject has a delivery of the hour's alert and one of the total's (the email contacts are not verified yet),
    // and two emails arrive.
    eventually("all of it is there", || async {
        let codes: Vec<String> = usage.client.query(redis::cmd("KEYS").arg("quota_verify_code:*")).await.expect("keys");
        let is_there = total("delivered").await == 4 && total("refused").await == 2 && codes.len() == 4;
        let profiles = usage.keys.profiles(&Metric::default(), bucket(GONE));
        let has_profile = redis::cmd("HEXISTS").arg(profiles).arg(GONE).to_owned();
        let is_learned: bool = usage.client.query(&has_profile).await.expect("redis answers");
        (is_there && is_learned && total("made").await == 8).then_some(())
    })
    .await;
    for contact in not_confirmed {
        assert_eq!(api.send("DELETE", &contact, &[], "").await.status, 204);
    }
    let before = stored(&usage.client).await;
    let families: BTreeSet<&str> = naming(&before).iter().filter_map(|line| line.split(':').next()).collect();
    let expected = [
        "quota_alert",
        "quota_delivery",
        "quota_history",
        "quota_profile",
        "quota_raised",
        "quota_refused",
        "quota_subject",
        "quota_unverified",
        "quota_verify_link",
    ];
    assert!(expected.iter().all(|family| families.contains(family)), "{families:?}");

    let path = format!("/v1/subjects/{}", GONE.replace('*', "%2A"));
    let erased = api.send("DELETE", &path, &[], "").await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let counts = json!({
        "settings": 2, "actions": 3, "counters": 5, "alerts": 2, "flags": 2, "history": 1, "profiles": 1,
        "refused": 1, "undelivered_alerts": 0,
        "deliveries": 4, "pending_deliveries": 2, "verification_codes": 2, "verification_links": 2, "limiters": 1, "grants": 0,
    });
    let mut erased = erased.json();
    let logged = erased["removed"].as_object_mut().and_then(|removed| removed.remove("log_entries"));
    // Two alerts, and their ends if these were noticed before.
    assert!(logged.and_then(|logged| logged.as_u64()).is_some_and(|logged| (2..=4).contains(&logged)), "{erased}");
    assert_eq!(erased, json!({"subject": GONE, "subjects": 1, "removed": counts}));
    let after = stored(&usage.client).await;
    assert_eq!(naming(&after), BTreeSet::new());
    // Except its events, until they are trimmed.
    let events: Reply = usage.client.query(redis::cmd("XRANGE").arg("usage").arg("-").arg("+")).await.expect("events");
    assert!(shown(&events).replace(OTHER, "").contains(GONE));
    // Codes contain no names: those of the other subject are left.
    assert_eq!(after.lines().filter(|line| line.starts_with("quota_verify_code:")).count(), 2);
    let of_other = |text: &str| {
        let lines =
            text.lines().filter(|line| line.contains(OTHER)).map(|line| line.split(' ').next().map(str::to_owned));
        lines.collect::<BTreeSet<_>>()
    };
    assert_eq!(of_other(&after), of_other(&before));
    let sums = totals(&usage.client, &usage.keys).await.expect("redis answers");
    assert_eq!((sums.pending, total("cancelled").await), (2, 2), "two of the other's deliveries are pending");

    api.get(&path).await.expect_problem(404, "nothing is set for subject");
    let again = api.send("DELETE", &path, &[], "").await.json();
    assert!(again["removed"].as_object().expect("numbers").values().all(|count| *count == 0), "{again}");
    // Later usage is counted and alerted as if there had been none before.
    usage.set(GONE, &[("limit:requests", "10/hour")]).await;
    emit(&usage, &["subject", GONE, "units", "8", "id", "2"]).await;
    eventually("the alert is raised again", || async { (total("raised").await == 5).then_some(()) }).await;
    daemon.drain().await;
}

/// The operator's digest also names other subjects: it is kept without the erased one.
#[tokio::test]
async fn an_erased_subject_is_taken_out_of_the_digests() {
    let usage = RecordedUsage::start();
    let dead = |subject: &str| DeadDelivery {
        id: DeliveryId::from_stored(&format!("delivery_of_{}", subject.len())),
        subject: subject.to_owned(),
        channel: Channel::Email,
        error: "mailbox full".to_owned(),
        at_ms: UnixMs(2),
    };
    let named: Vec<Subject> = ["gone", "stays"].map(|name| name.parse().expect("legal")).into();
    for (id, waiting_first) in [("digest_1", named.clone()), ("digest_2", named[1..].to_vec())] {
        let (from_ms, until_ms, dead_first) = (UnixMs(1), UnixMs(3), vec![dead("gone"), dead("stays")]);
        let digest =
            DailyDigest { id: id.to_owned(), from_ms, until_ms, dead: 7, dead_first, waiting: 9, waiting_first };
        let new = NewDelivery { notification: &Notification::Digest(digest), contact: &Contact::email("ops@b.test") };
        assert_eq!(enqueue(&usage.client, &usage.keys, new).await.expect("redis answers"), EnqueueReply::Made);
    }
    let erased = quotabell(["subject", "remove", "--everything", "gone"]).redis(&usage.server.url()).run();
    assert_eq!(erased.code, 0, "{}", erased.stderr);
    let after = stored(&usage.client).await;
    assert!(!after.contains("gone"), "{after}");
    let ids: Vec<String> =
        usage.client.query(redis::cmd("ZRANGE").arg(usage.keys.deliveries()).arg(0).arg(-1)).await.expect("two");
    assert_eq!(ids.len(), 2, "the digests are kept");
    for id in ids {
        let key = usage.keys.delivery(&DeliveryId::from_stored(&id));
        let json: String = usage.client.query(redis::cmd("HGET").arg(key).arg("digest")).await.expect("a digest");
        let digest: DailyDigest = serde_json::from_str(&json).expect("it is readable");
        assert_eq!((digest.dead, digest.dead_first, digest.waiting), (7, vec![dead("stays")], 9));
        assert_eq!(digest.waiting_first, named[1..]);
    }
}

/// A client that loses the connection half-way repeats the request: the rest must still be found.
#[tokio::test]
async fn an_erasure_that_failed_half_way_is_repeated() {
    let usage = RecordedUsage::start();
    usage.set("alice", &[("plan", "free")]).await;
    usage.set("bob", &[("plan", "free")]).await;
    let (daemon, _) = with_token(DaemonSetup::on(&usage.server.url())).await;
    for units in ["4000", "many"] {
        emit(&usage, &["subject", "alice", "units", units]).await;
    }
    let is_there = ["80:alice", "bad_units"];
    eventually("both are judged", || async {
        let stored = stored(&usage.client).await;
        is_there.iter().all(|text| stored.contains(text)).then_some(())
    })
    .await;
    daemon.drain().await;
    let words = ["ACL", "SETUSER", "few", "on", ">few", "~*", "+@all", "-xdel"];
    let () = usage.client.query(redis::cmd(words[0]).arg(&words[1..])).await.expect("a user");
    let few = usage.server.url().replace("redis://", "redis://few:few@");
    let failed = quotabell(["subject", "remove", "--everything", "alice"]).redis(&few).run();
    assert!(failed.code == 1 && failed.stderr.contains("remove everything of alice"), "{}", failed.stderr);
    assert!(stored(&usage.client).await.contains("alice"));
    let again = quotabell(["subject", "remove", "--everything", "alice", "bob"]).redis(&usage.server.url()).run();
    // Whether the alert was fanned out, and so logged, before the daemon ended is open.
    let is_removed = again.stderr.contains("removed alice: 1") && again.stderr.contains("1 refused");
    assert!(again.code == 0 && is_removed, "{}", again.stderr);
    assert!(again.stderr.contains("removed bob: 1 settings"), "{}", again.stderr);
    assert!(!stored(&usage.client).await.contains("alice"), "{}", stored(&usage.client).await);
    let nothing = quotabell(["subject", "remove", "--everything", "alice"]).redis(&usage.server.url()).run();
    assert!(nothing.stderr.contains("removed alice: nothing was stored"), "{}", nothing.stderr);
}

/// The platform replaces a subject's settings as a whole: unnamed settings must not stay, but contacts must.
#[tokio::test]
async fn settings_are_replaced_and_contacts_stay() {
    let usage = RecordedUsage::start();
    let contacts = r#"[{"channel":"email","address":"a@b.test"}]"#;
    let before = [("limit:tokens", "5"), ("timezone", "UTC"), ("contacts", contacts), ("note", "the platform's own")];
    usage.set("a/b", &before).await;
    let (mut daemon, api) = with_token(DaemonSetup::on(&usage.server.url())).await;
    let path = "/v1/subjects/a%2Fb";
    let settings = json!({
        "plan": "free", "timezone": null, "billing_day": 15, "limits": {"requests": ["600/hour", "5000/day"], "images": 7},
        "thresholds": [90, 50], "locale": "vi-vn",
    });
    let replaced = put(&api, path, &settings).await;
    assert_eq!((replaced.status, replaced.header("cache-control")), (200, Some("no-store")), "{}", replaced.text);
    let shown = replaced.json();
    assert_eq!(shown, api.get(path).await.json());
    assert_eq!((&shown["thresholds"], &shown["timezone"]), (&json!([50, 90]), &Value::Null));
    assert_eq!(shown["locale"], "vi-VN");
    assert_eq!(shown["limits"], json!({"images": 7, "requests": ["600/hour", "5000/day"]}));
    assert_eq!(shown["contacts"][0]["address"], "a@b.test");
    let note = usage.client.query::<String>(redis::cmd("HGET").arg("quota_subject:a/b").arg("note")).await;
    assert_eq!(note.as_deref(), Ok("the platform's own"));
    let odd = put(&api, "/v1/subjects/unreachable", &json!({"limits": {"requests": ["600/hour", "500/day"]}})).await;
    assert_eq!(odd.status, 200, "{}", odd.text);
    daemon.says("the limits of requests: 600/hour is above 500/day: the limit of the day is reached first").await;
    let nulls = json!({"plan": null, "billing_day": null, "limits": null, "thresholds": null, "locale": null});
    for nothing in [json!({}), nulls] {
        let nothing = put(&api, "/v1/subjects/new", &nothing).await;
        assert_eq!((nothing.status, &nothing.json()["plan"]), (200, &Value::Null), "{}", nothing.text);
    }

    for (body, problem) in [
        (json!({"plan": "gold"}), "plan: there is no plan \"gold\", only free"),
        (json!({"timezone": "Mars/Base"}), "timezone: \"Mars/Base\" is not an IANA time zone"),
        (json!({"billing_day": 0}), "billing_day: invalid value: 0, expected a day of the month, 1 to 31"),
        (json!({"billing_day": 300}), "billing_day: invalid value: 300, expected a day of the month, 1 to 31"),
        (json!({"billing_month": 13}), "billing_month: invalid value: 13, expected a month of the year, 1 to 12"),
        (json!({"limits": "5000"}), "limits: invalid type: string \"5000\", expected an object"),
        (json!({"thresholds": "80"}), "thresholds: invalid type: string \"80\", expected a list"),
        (json!({"limits": {"requests": "5/decade"}}), "limits.requests: "),
        (json!({"limits": {"requests": ["5/day", 6]}}), "two limits for the same window"),
        (json!({"limits": {"a b": 5}}), "limits"),
        (json!({"thresholds": [80, 80]}), "thresholds: 80 is listed twice"),
        (json!({"thresholds": (1..=101).collect::<Vec<_>>()}), "thresholds: 101 thresholds are too many, at most 100"),
        (json!({"thresholds": []}), "thresholds: is an empty list"),
        (json!({"thresholds": [0]}), "thresholds[0]: a threshold must be"),
        (json!({"locale": "vi_VN"}), "locale: \"vi_VN\" is not a language tag (BCP 47)"),
        (json!({"contacts": []}), "contacts: can't be changed here, it must be as GET shows it or be left out"),
        (json!({"subject": "a"}), "subject: can't be changed here"),
        (json!({"mute": {}, "metric_mutes": {"tokens": {"reason": null}}}), "metric_mutes: can't be changed here"),
        (json!({"unreadable": [{"field": "plan", "why": "x"}]}), "unreadable: the PUT would remove these values"),
        (json!({"contact": []}), "unknown field `contact`"),
        (json!([]), "the body must be a JSON object"),
    ] {
        put(&api, path, &body).await.expect_problem(400, problem);
    }
    assert_eq!(shown, api.get(path).await.json(), "what is refused changes nothing");
    let without = api.without_token();
    put(&without, path, &json!({})).await.expect_problem(401, "Authorization: Bearer TOKEN");
    without.send("DELETE", path, &[], "").await.expect_problem(401, "Authorization: Bearer TOKEN");
    api.send("PUT", path, &[], "{}").await.expect_problem(415, "application/json");
    let () = usage.client.query(redis::cmd("SET").arg("quota_subject:odd").arg("x")).await.expect("set");
    for method in ["PUT", "DELETE"] {
        let answer = api.send(method, "/v1/subjects/odd", &[("content-type", "application/json")], "{}").await;
        answer.expect_problem(503, "holds unexpected data");
    }
    daemon.drain().await;
}

/// A caller must be able to send back what it got with one changed member, and must not believe that this changed a
/// contact.
#[tokio::test]
async fn what_was_got_can_be_put() {
    let usage = RecordedUsage::start();
    let contacts = r#"[{"channel":"email","address":"a@b.test"},{"channel":"webhook","url":"https://x.test/h","secret":"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]"#;
    let before =
        [("plan", "free"), ("limit:tokens", "600/hour 5000/day"), ("thresholds", "80"), ("contacts", contacts)];
    usage.set("alice", &before).await;
    let (daemon, api) = with_token(DaemonSetup::on(&usage.server.url())).await;
    let path = "/v1/subjects/alice";
    put(&api, "/v1/subjects/alice/mute?metric=tokens", &json!({"reason": "load test"})).await;
    put(&api, "/v1/subjects/alice/mute", &json!({"for": "2h"})).await;
    let got = api.get(path).await.json();
    let replaced = put(&api, path, &got).await;
    assert_eq!((replaced.status, replaced.json()), (200, got.clone()), "{}", replaced.text);
    let mut changed = got.clone();
    changed["timezone"] = json!("Asia/Tokyo");
    let replaced = put(&api, path, &changed).await;
    assert_eq!((replaced.status, replaced.json()), (200, changed.clone()), "{}", replaced.text);
    changed["contacts"][0]["address"] = json!("b@b.test");
    put(&api, path, &changed).await.expect_problem(400, "contacts: can't be changed here");
    changed = api.get(path).await.json();
    changed["mute"] = json!({"until": null, "reason": null});
    put(&api, path, &changed).await.expect_problem(400, "mute: can't be changed here");
    daemon.drain().await;
}

/// The daemon caches counts: an erased count must not return with the next event, and others must be exact.
#[tokio::test]
async fn a_subject_is_erased_while_the_daemon_counts() {
    const ROUNDS: u64 = 20;
    const EVENTS: u64 = 50;
    let usage = RecordedUsage::start();
    let (daemon, api) = with_token(DaemonSetup::on(&usage.server.url())).await;
    let used = async |subject: &str| {
        let usage = api.get(&format!("/v1/subjects/{subject}/usage")).await.json();
        usage["metrics"][0]["windows"][0]["used"].as_u64().expect("a count")
    };
    let burst = || async {
        let mut pipeline = redis::pipe();
        for subject in ["alice", "bob"].repeat(EVENTS as usize) {
            pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg(subject).ignore();
        }
        let () = usage.client.pipe(&pipeline).await.expect("added");
    };
    for round in 1..=ROUNDS {
        let (erased, ()) = tokio::join!(api.send("DELETE", "/v1/subjects/alice", &[], ""), burst());
        assert_eq!(erased.status, 200, "{}", erased.text);
        eventually("all are counted", || async { (used("bob").await == round * EVENTS).then_some(()) }).await;
        assert!(used("alice").await <= EVENTS, "no more than came since the erasure began");
    }
    burst().await;
    eventually("all are counted", || async { (used("bob").await == (ROUNDS + 1) * EVENTS).then_some(()) }).await;
    assert!((EVENTS..=2 * EVENTS).contains(&used("alice").await));
    daemon.drain().await;
}

/// With partitions, a ranking must include all of them, and an erasure must find the subject in its partition, and its
/// events that were sent to a wrong one.
#[tokio::test]
async fn rankings_and_erasures_know_the_partitions() {
    const COUNT: u32 = 3;
    let usage = RecordedUsage::start();
    let setup = DaemonSetup::on(&usage.server.url()).env("QUOTABELL__STREAM__PARTITIONS", &COUNT.to_string());
    let (daemon, api) = with_token(setup).await;
    let add = async |partition: u32, subject: &str, units: usize| {
        let stream = format!("usage:{partition}");
        let fields = ["subject", subject, "units", &units.to_string()].map(str::to_owned);
        let added = usage.client.query::<String>(redis::cmd("XADD").arg(stream).arg("*").arg(&fields)).await;
        added.expect("added");
    };
    let names: Vec<String> = (0..9).map(|n| format!("subject {n}")).collect();
    let partitions: Vec<PartitionNumber> = names
        .iter()
        .map(|name| PartitionNumber::of_subject(name.as_bytes(), quotabell::types::Separator::NONE, COUNT))
        .collect();
    assert!((0..COUNT).all(|number| partitions.iter().any(|partition| partition.get() == number)));
    for (units, (name, partition)) in names.iter().zip(&partitions).enumerate() {
        add(partition.get(), name, 100 - units).await;
    }
    let wrong = (partitions[4].get() + 1) % COUNT;
    add(wrong, &names[4], 7).await;
    let ranked = || {
        let run =
            quotabell(["top", "--json"]).redis(&usage.server.url()).env("QUOTABELL__STREAM__PARTITIONS", "3").run();
        let subjects = run.expect_json().swap_remove(0)["subjects"].as_array().expect("a list").clone();
        subjects.iter().map(|ranked| ranked["subject"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    eventually("all are counted", || async { (ranked() == names).then_some(()) }).await;
    eventually("the event in the wrong partition is refused", || async {
        let refused = format!("quota_refused:{{usage:{wrong}}}");
        (usage.client.query::<u64>(redis::cmd("XLEN").arg(refused)).await == Ok(1)).then_some(())
    })
    .await;
    let shown = api.get("/v1/top?limit=9").await.json();
    assert_eq!(shown["subjects"][8]["subject"], names[8].as_str());
    let history = api.get("/v1/subjects/subject%204/history").await.json();
    assert_eq!(history["metrics"][0]["days"][0]["used"], 96);
    let erased = api.send("DELETE", "/v1/subjects/subject%204", &[], "").await.json();
    assert_eq!((&erased["removed"]["counters"], &erased["removed"]["refused"]), (&json!(1), &json!(1)));
    let left: Vec<String> = names.iter().filter(|name| *name != "subject 4").cloned().collect();
    assert_eq!(ranked(), left);
    daemon.drain().await;
}

/// In a cluster the settings, the counts and the messages to contacts are on several nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_is_erased_on_every_node_of_a_cluster() {
    const COUNT: u32 = 4;
    let cluster = RedisCluster::start().await;
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let setup = DaemonSetup::on(&cluster.url(""))
        .env("QUOTABELL__STREAM__PARTITIONS", &COUNT.to_string())
        .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url())
        .env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com")
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"algorithm":"fixed","requests":"60/1h"}"#);
    let (daemon, api) = with_token(setup).await;
    let number = PartitionNumber::of_subject(GONE.as_bytes(), quotabell::types::Separator::NONE, COUNT).get();
    let path = format!("/v1/subjects/{}", GONE.replace('*', "%2A"));
    assert_eq!(put(&api, &path, &json!({"limits": {"requests": ["10/hour", "100/day"]}})).await.status, 200);
    let contact = json!({"channel": "email", "address": "gone@b.test"});
    assert_eq!(api.post(&format!("{path}/contacts"), &contact).await.status, 202);
    assert_eq!(api.post("/v1/check", &json!({"subject": GONE})).await.status, 200);
    for (partition, units) in [(number, "9"), (number, "many"), ((number + 1) % COUNT, "1")] {
        let stream = format!("usage:{partition}");
        let event = ["XADD", &stream, "*", "subject", GONE, "units", units];
        let _: String = cluster.try_on(cluster.primary_of(&stream).await, &event).await.expect("added");
    }
    let everything = async || {
        let mut texts = Vec::new();
        for node in cluster.primaries().await {
            texts.push(stored(&cluster.client(node)).await);
        }
        texts
    };
    let families = |texts: &[String]| -> BTreeSet<String> {
        let lines = texts.iter().flat_map(|text| naming(text));
        lines.filter_map(|line| line.split(':').next()).map(str::to_owned).collect()
    };
    mailbox.next().await;
    eventually("all of it is there", || async {
        let texts = everything().await;
        let refused = texts.iter().map(|text| text.matches(&format!("subject {GONE} units")).count()).sum::<usize>();
        let found = families(&texts);
        let wanted = ["quota_alert", "quota_raised", "quota_subject", "quota_usage", "quota_verify_link"];
        (refused == 2 && wanted.iter().all(|family| found.contains(*family))).then_some(())
    })
    .await;
    let erased = api.send("DELETE", &path, &[], "").await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let removed = &erased.json()["removed"];
    let count = |name: &str| removed[name].as_u64().expect("a number");
    let counts = ["counters", "flags", "refused", "verification_codes", "verification_links", "limiters"].map(count);
    assert_eq!(counts, [2, 1, 2, 1, 1, 1], "{removed}");
    assert_eq!(count("deliveries") + count("undelivered_alerts"), 2, "the mail, and an alert without a contact");
    let left = everything().await;
    assert_eq!(families(&left), BTreeSet::new(), "{left:?}");
    assert!(!left.iter().any(|text| text.contains("quota_verify_code:")), "{left:?}");
    daemon.drain().await;
}

/// Number of times that the server has run this command.
async fn calls(outbox: &Outbox, command: &str) -> usize {
    let stats: String = outbox.run("INFO", "commandstats").await;
    let of = format!("cmdstat_{command}:calls=");
    stats.split(&of).nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Checks that only data of one subject was read. Resets the numbers.
async fn assert_read_nothing_of_others(outbox: &Outbox, what: &str) {
    for walk in ["scan", "zscan", "zrevrangebyscore"] {
        assert_eq!(calls(outbox, walk).await, 0, "{what} has walked by {walk}");
    }
    let read = calls(outbox, "hmget").await;
    assert!(read < 50, "{what} has read {read} hashes");
    let () = outbox.run("CONFIG", "RESETSTAT").await;
}

/// An erasure beside 2,000,000 deliveries of others took 18 s, and ten at once 156 s, because each scanned all keys.
/// Other requests about one subject read every delivery.
#[tokio::test]
async fn what_is_asked_of_one_subject_reads_no_deliveries_of_others() {
    const OTHERS: usize = 600;
    // It resembles the first digits of an id.
    const NAME: &str = "20261121";
    let outbox = Outbox::start();
    let contacts = [email("a"), webhook("w")];
    for number in 0..OTHERS {
        outbox.fan_out_new(&alert(&subject(&format!("other{number}")), 80), &contacts).await;
    }
    outbox.fan_out_new(&alert(&subject(NAME), 80), &contacts).await;
    let url = outbox.server.url();
    let (daemon, api) = with_token(DaemonSetup::on(&url).argument("--no-send")).await;
    let () = outbox.run("CONFIG", "RESETSTAT").await;
    for path in [format!("/v1/deliveries?subject={NAME}"), format!("/v1/subjects/{NAME}/deliveries")] {
        let listed = api.get(&path).await.json();
        assert_eq!(listed["deliveries"].as_array().map(Vec::len), Some(2), "{listed}");
        assert_read_nothing_of_others(&outbox, &path).await;
    }
    daemon.drain().await;
    let () = outbox.run("CONFIG", "RESETSTAT").await;
    for (line, said) in [
        (format!("deliveries list --subject {NAME}"), "pending"),
        (format!("deliveries cancel --subject {NAME} --dry-run"), "2 deliveries would be cancelled"),
        (format!("explain {NAME}"), "has plan free"),
        (format!("subject remove --everything {NAME}"), "2 deliveries"),
    ] {
        let told = quotabell(line.split(' ')).redis(&url).run().told();
        assert!(told.contains(said) && told.ends_with("exit 0"), "{told}");
        assert_read_nothing_of_others(&outbox, &line).await;
    }
    assert_eq!(outbox.assert_balanced().await.pending, 2 * OTHERS as u64);
}

fn paths(setup: DaemonSetup) -> DaemonSetup {
    setup.env("QUOTABELL__SUBJECTS__SEPARATOR", "/")
}

fn remove(usage: &RecordedUsage, subject: &str, partitions: &str) -> Finished {
    let command = quotabell(["subject", "remove", "--everything", subject]).redis(&usage.server.url());
    command.env("QUOTABELL__SUBJECTS__SEPARATOR", "/").env("QUOTABELL__STREAM__PARTITIONS", partitions).run()
}

/// An alert of an organization names its largest teams: a team that is erased must not stay in it, whether the alert is
/// recorded, waits to be fanned out, or has deliveries.
#[tokio::test]
async fn an_erased_subject_is_taken_out_of_the_alerts_of_the_levels_above() {
    let usage = RecordedUsage::start();
    usage.set("acme", &[("limit:requests", "10")]).await;
    let (daemon, _) = with_token(paths(DaemonSetup::on(&usage.server.url()))).await;
    for (subject, units) in [("acme/stays", "2"), ("acme/gone/key", "6")] {
        emit(&usage, &["subject", subject, "units", units]).await;
    }
    let families = ["quota_delivery:", "quota_outbox:", "quota_raised:"];
    let naming = async |name: &str| {
        let stored = stored(&usage.client).await;
        let is_named = |family: &&&str| stored.lines().any(|line| line.starts_with(**family) && line.contains(name));
        families.iter().filter(is_named).copied().collect::<Vec<_>>()
    };
    eventually("the alert waits for a contact", || async {
        (naming("acme/gone").await == ["quota_delivery:", "quota_raised:"]).then_some(())
    })
    .await;
    daemon.drain().await;
    let deliveries: Vec<String> =
        usage.client.query(redis::cmd("ZRANGE").arg(usage.keys.deliveries()).arg(0).arg(-1)).await.expect("one");
    let delivery = usage.keys.delivery(&DeliveryId::from_stored(&deliveries[0]));
    let alert: String = usage.client.query(redis::cmd("HGET").arg(&delivery).arg("alert")).await.expect("its alert");
    let outbox = usage.keys.outbox();
    let _: String =
        usage.client.query(redis::cmd("XADD").arg(&outbox).arg("*").arg("alert").arg(&alert)).await.expect("added");
    assert_eq!(naming("acme/gone").await, families);

    remove(&usage, "acme/gone", "1").expect_done();
    let after = stored(&usage.client).await;
    assert!(!after.contains("acme/gone"), "{after}");
    assert_eq!(naming("acme/stays").await, families, "the alerts stay");
    let left: String = usage.client.query(redis::cmd("HGET").arg(&delivery).arg("alert")).await.expect("its alert");
    let (mut expected, left): (Value, Value) =
        (serde_json::from_str(&alert).expect("JSON"), serde_json::from_str(&left).expect("JSON"));
    expected["largest"] = json!([{"subject": "acme/stays", "used": 2, "percent": 25.0}]);
    assert_eq!(left, expected);
}

/// The lists of children forget what was not used lately: whatever else names a subject of the branch must be found.
#[tokio::test]
async fn a_branch_is_erased_with_what_no_list_of_children_names() {
    let usage = RecordedUsage::start();
    let past = Day::in_utc(usage.now().await).and_then(|today| today.before(30)).expect("a day");
    usage.count("acme/archived", "images", past, 5).await;
    let mut archiver = HistoryArchiver::new(usage.keys.clone(), HistoryConfig { days: 90, alerts_days: 400 });
    archiver.after_commit(past);
    while archiver.next().is_some() {
        archiver.archive(&usage.client, usage.now().await).await.expect("redis answers");
    }
    for key in usage.client.query::<Vec<String>>(redis::cmd("KEYS").arg("quota_usage:*")).await.expect("keys") {
        let () = usage.client.query(redis::cmd("DEL").arg(key)).await.expect("deleted");
    }
    let of_told = alert(&subject("acme/told"), 80);
    let new = NewDelivery { notification: &Notification::Alert(of_told), contact: &email("told") };
    assert_eq!(enqueue(&usage.client, &usage.keys, new).await.expect("redis answers"), EnqueueReply::Made);
    let setup = paths(DaemonSetup::on(&usage.server.url()))
        .env("QUOTABELL__SUBJECTS__DEFAULT_PLANS", r#"["free", "free"]"#)
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"algorithm":"fixed","requests":"60/1h"}"#);
    let (daemon, api) = with_token(setup).await;
    emit(&usage, &["subject", "acme/refused", "units", "many"]).await;
    assert_eq!(api.post("/v1/check", &json!({"subject": "acme/checked"})).await.status, 200);
    eventually("the event is refused", || async { stored(&usage.client).await.contains("acme/refused").then_some(()) })
        .await;
    let before = stored(&usage.client).await;
    for name in ["archived", "told", "refused", "checked"] {
        assert!(before.contains(&format!("acme/{name}")), "{name}");
    }
    let erased = api.send("DELETE", "/v1/subjects/acme", &[], "").await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let after = stored(&usage.client).await;
    assert!(!after.contains("acme"), "{after}");
    daemon.drain().await;
}

/// Grants of a key that was never used are in no list of children: an erasure must find them and the times of their
/// expiries, in each level of the branch, and leave those of others.
#[tokio::test]
async fn a_branch_is_erased_with_the_grants_below_it() {
    let usage = RecordedUsage::start();
    let levels = ["acme", "acme/search", "acme/search/key-7", "acme-2"];
    for level in levels {
        usage.set(level, &[("limit:requests", "0/total")]).await;
    }
    let (daemon, api) = with_token(paths(DaemonSetup::on(&usage.server.url()))).await;
    for level in levels {
        let path = format!("/v1/subjects/{}/grants", level.replace('/', "%2F"));
        for id in ["one", "two"] {
            let grant = json!({"units": 5, "id": id, "expires_at": "2100-01-01T00:00:00Z", "note": "for acme"});
            assert_eq!(api.post(&path, &grant).await.status, 201, "{level}");
        }
    }
    // Its settings are gone, so that only its grants name it.
    let () = usage.client.query(redis::cmd("DEL").arg("quota_subject:acme/search/key-7")).await.expect("deleted");
    let told = remove(&usage, "acme", "1").told();
    assert!(told.contains("6 grants"), "{told}");
    let after = stored(&usage.client).await;
    assert!(!after.replace("acme-2", "").replace("for acme", "").contains("acme"), "{after}");
    let due: Vec<String> =
        usage.client.query(redis::cmd("ZRANGE").arg(usage.keys.grants_due()).arg(0).arg(-1)).await.expect("read");
    assert_eq!(due, ["acme-2"]);
    let left = api.get("/v1/subjects/acme-2/grants").await.json()["grants"].as_array().map(Vec::len);
    assert_eq!(left, Some(2));
    daemon.drain().await;
}

/// Refused events, alerts and digests are read once for a branch, not once for each of its subjects.
#[tokio::test]
async fn a_large_branch_costs_no_pass_over_the_streams_for_each_subject() {
    let usage = RecordedUsage::start();
    for number in 0..50 {
        usage.set(&format!("acme/{number}"), &[("plan", "free")]).await;
    }
    remove(&usage, "acme", "1").expect_done();
    let stats: String = usage.client.query(redis::cmd("INFO").arg("commandstats")).await.expect("redis answers");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_xrange:calls=")).unwrap_or_default();
    let calls: u64 = calls.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number");
    assert!(calls < 10, "{calls} reads of streams");
    assert!(!stored(&usage.client).await.contains("acme"));
}

/// Before subjects were paths, each had a partition of its own: what is left there must be found too.
#[tokio::test]
async fn an_erasure_looks_in_all_partitions() {
    let mut usage = RecordedUsage::start();
    let today = Day::in_utc(usage.now().await).expect("a day");
    for partition in PartitionNumber::all(3) {
        usage.keys = Keys::of_partition("usage", partition);
        usage.count("acme/gone", "requests", today, 5).await;
    }
    usage.set("acme/gone", &[("plan", "free")]).await;
    remove(&usage, "acme", "3").expect_done();
    let after = stored(&usage.client).await;
    assert!(!after.contains("acme"), "{after}");
}
