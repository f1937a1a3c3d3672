//! The state of everything: what needs attention, who is near to a limit, who was notified, and what fails.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::books::{raise, raise_many, server_time};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, email, json as stored, outcome, settle, subject, webhook};
use quotabell::contacts::Contact;
use quotabell::outbox::Settlement;
use quotabell::types::{Keys, Mute, Outcome, OutcomeClass, PartitionNumber, Separator, UnixMs, keys};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";

/// A daemon that sends nothing, so that deliveries keep the state of the test.
async fn idle(outbox: &Outbox) -> (Daemon, Caller) {
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).argument("--no-send");
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

async fn get(api: &Caller, path: &str) -> Value {
    let answer = api.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()
}

/// Ends every delivery that is due with this outcome.
async fn end_all(outbox: &Outbox, settlement: &Settlement) {
    for leased in outbox.lease("t", LONG).await.leased {
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, settlement).await.expect("settles");
    }
}

fn column<'a>(listed: &'a Value, field: &str) -> Vec<&'a str> {
    listed.as_array().expect("a list").iter().map(|one| one[field].as_str().expect(field)).collect()
}

/// An operator must see who runs out first, and whether that customer knows: a stale count or a lost notification
/// would mislead.
#[tokio::test]
async fn subjects_near_a_limit_are_listed_by_urgency_with_who_was_notified() {
    let outbox = Outbox::start();
    for (name, percent, used) in [("alice", 80, 4990), ("bob", 80, 5100), ("bob", 100, 5100), ("carol", 80, 100)] {
        let raised = raise(&outbox.client, name, percent, used, 1000).await;
        if name != "carol" {
            outbox.set_contacts(&subject(name), &stored(&[email(name)])).await;
            outbox.fan_out_new(&raised, &[email(name)]).await;
        }
    }
    end_all(&outbox, &Settlement::Delivered(Outcome::delivered())).await;
    let key = outbox.keys.subject(&subject("alice"));
    let () = outbox.run("HSET", &[key.as_str(), "muted:requests", "2100-01-01T00:00:00Z moving"]).await;
    let (daemon, api) = idle(&outbox).await;
    let near = get(&api, "/v1/near").await;
    assert_eq!(column(&near["subjects"], "subject"), ["alice", "carol", "bob"], "who has used up all comes last");
    assert_eq!((&near["examined"], &near["next"]), (&json!(4), &Value::Null));
    let [alice, carol, bob] = near["subjects"].as_array().expect("a list").as_slice() else { panic!("{near}") };
    assert_eq!((&bob["used"], &bob["limit"], &bob["used_percent"]), (&json!(5100), &json!(5000), &json!(102.0)));
    let thresholds = bob["reached"].as_array().expect("a list").iter().map(|one| &one["threshold"]["percent"]);
    assert_eq!(thresholds.collect::<Vec<_>>(), [&json!(80), &json!(100)]);
    assert_eq!((&alice["reached"][0]["outcome"], &alice["reached"][0]["notified"]), (&json!("notified"), &json!(1)));
    assert_eq!(alice["reached"][0]["deliveries"][0]["contact_id"], json!(email("alice").id));
    assert_eq!(carol["reached"][0]["outcome"], "nobody");
    let mute = json!({"until": "2100-01-01T00:00:00.000Z", "reason": "moving"});
    assert_eq!((&alice["reached"][0]["mute"], &bob["reached"][0]["mute"]), (&mute, &Value::Null));

    assert_eq!(column(&get(&api, "/v1/near?percent=100").await["subjects"], "subject"), ["bob"]);
    assert_eq!(get(&api, "/v1/near?window=month").await["examined"], 0);
    assert_eq!(get(&api, "/v1/near?metric=tokens").await["examined"], 0);
    assert_eq!((&near["is_complete"], &near["ranked_at"]), (&json!(true), &near["read_at"]));
    let first = get(&api, "/v1/near?limit=2").await;
    let rest = get(&api, &format!("/v1/near?limit=2&after={}", first["next"].as_str().expect("more"))).await;
    assert_eq!(column(&rest["subjects"], "subject"), ["bob"]);
    for (query, said) in [
        ("percent=0", "percent: must be a whole number of percent"),
        ("window=decade", "window: "),
        ("after=x", "after: is not the `next` of a list"),
        ("limit=0", "limit: must be a whole number"),
        ("sort=used", "unknown field `sort`"),
    ] {
        api.get(&format!("/v1/near?{query}")).await.expect_problem(400, said);
    }
    daemon.drain().await;
}

/// The question of a support case: was the customer notified of it?
#[tokio::test]
async fn alerts_of_all_subjects_are_listed_newest_first_with_who_was_notified() {
    let outbox = Outbox::start();
    let ends = [
        ("told", Some(Settlement::Delivered(Outcome::delivered()))),
        ("muted", Some(Settlement::Muted("the subject is muted".to_owned()))),
        ("dead", Some(Settlement::Dead(outcome(OutcomeClass::Permanent)))),
        ("pending", None),
    ];
    for (n, (name, end)) in ends.into_iter().enumerate() {
        let raised = raise(&outbox.client, name, 80, 4500, 5000 - 1000 * n as i64).await;
        outbox.set_contacts(&subject(name), &stored(&[email(name)])).await;
        outbox.fan_out_new(&raised, &[email(name)]).await;
        if let Some(end) = end {
            end_all(&outbox, &end).await;
        }
    }
    let alone = raise(&outbox.client, "alone", 100, 5000, 500).await;
    outbox.fan_out_new(&alone, &[]).await;
    // It was told although its contact is gone. Of the others, too much is stored to tell, or nothing any more.
    outbox.set_contacts(&subject("told"), "[]").await;
    raise(&outbox.client, "busy", 80, 4500, 6000).await;
    let busy = format!("{}busy", outbox.keys.subject_deliveries_prefix());
    let listed = (0..=2000).flat_map(|n| ["9007199254740991".to_owned(), format!("delivery_{n}")]);
    let _: u64 = outbox.run("ZADD", &[&[busy][..], &listed.collect::<Vec<_>>()].concat()).await;
    raise(&outbox.client, "old", 80, 4500, 15 * 86_400_000).await;
    let (daemon, api) = idle(&outbox).await;
    let listed = get(&api, "/v1/alerts/newest").await;
    let names = ["alone", "pending", "dead", "muted", "told", "busy", "old"];
    assert_eq!(column(&listed["alerts"], "subject"), names);
    let outcomes = ["nobody", "on_the_way", "nobody", "muted", "notified", "unknown", "unknown"];
    assert_eq!(column(&listed["alerts"], "outcome"), outcomes);
    assert_eq!(listed["alerts"][4]["deliveries"][0]["contact_id"], json!(email("told").id));
    assert_eq!((&listed["examined"], &listed["next"]), (&json!(7), &Value::Null));
    let overview = get(&api, "/v1/overview").await;
    let problems = overview["problems"].as_array().expect("a list");
    let unheard: Vec<_> = problems.iter().filter(|problem| problem["kind"] == "nobody_notified").collect();
    let cause = json!("1 alert has reached nobody (dead). Examined: the newest 7 alerts.");
    assert_eq!(unheard.iter().map(|problem| &problem["cause"]).collect::<Vec<_>>(), [&cause]);
    let printed = quotabell(["status"]).redis(&outbox.server.url()).run().stdout;
    let row = printed.lines().find(|line| line.contains("  told")).unwrap_or_else(|| panic!("{printed}"));
    assert!(row.contains("80%") && row.ends_with(" 1"), "{printed}");
    let subjects = async |query: &str| -> Vec<String> {
        let listed = get(&api, &format!("/v1/alerts/newest?{query}")).await;
        column(&listed["alerts"], "subject").into_iter().map(str::to_owned).collect()
    };
    assert_eq!(subjects("nobody=true").await, ["alone", "dead"]);
    assert_eq!(subjects("percent=81").await, ["alone"]);
    assert_eq!(subjects("window=day&metric=requests&limit=1000").await.len(), 7);
    assert_eq!(subjects("window=hour").await, [""; 0]);
    assert_eq!(subjects(&format!("since={}", alone.raised_at_ms)).await, ["alone"]);
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let part = get(&api, &format!("/v1/alerts/newest?limit=1{after}")).await;
        all.extend(column(&part["alerts"], "subject").into_iter().map(str::to_owned));
        let Some(next) = part["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all, names, "each once");
    api.get("/v1/alerts/newest?nobody=1").await.expect_problem(400, "nobody: must be true or false");
    daemon.drain().await;
}

/// Number of times that the server has run these commands.
async fn calls(outbox: &Outbox, commands: &[&str]) -> usize {
    let stats: String = outbox.run("INFO", "commandstats").await;
    let of = |command: &&str| {
        stats.split(&format!("cmdstat_{command}:calls=")).nth(1)?.split(',').next()?.parse::<usize>().ok()
    };
    commands.iter().filter_map(of).sum::<usize>()
}

/// With many subjects a list must cost a bounded number of calls, its slices must leave out nobody, and who runs out
/// first must come first, wherever the records have it.
#[tokio::test]
async fn lists_of_many_subjects_are_read_in_bounded_slices() {
    const SUBJECTS: usize = 12_000;
    let outbox = Outbox::start();
    let is_last = |n: &usize| keys::bucket(&format!("s{n}")) == u8::MAX;
    let worst = (1..SUBJECTS).rfind(is_last).expect("many are in each bucket");
    raise_many(&outbox, SUBJECTS, |n| if n == worst { 4999 } else { 4000 + n as u64 % 900 }).await;
    // Another daemon reads the stream, so that nothing but the lists reads what is counted here.
    let lease = outbox.keys.lease();
    let _: String = outbox.run("SET", &[lease.as_str(), "another/10.0.0.1:1/1", "PX", "9000000"]).await;
    let (daemon, api) = idle(&outbox).await;
    // Each request reads two slices of subjects near a limit, and one of alerts.
    let bounded = async |path: &str, slices: usize| {
        let before = [calls(&outbox, &["hlen"]).await, calls(&outbox, &["hvals"]).await];
        let others = calls(&outbox, &["hget", "hmget"]).await;
        let part = get(&api, path).await;
        assert!(calls(&outbox, &["hlen"]).await - before[0] <= slices * 64 * 256, "hashes are counted without a bound");
        assert!(calls(&outbox, &["hvals"]).await - before[1] <= slices * 256, "hashes are read without a bound");
        // The counts and settings of a slice with the forecasts that order it, the deliveries and forecasts of a
        // page, and what the daemon reads meanwhile.
        let read = calls(&outbox, &["hget", "hmget"]).await - others;
        assert!(
            read <= slices * (3 * 5_100 + 8 * 500) + 13 * 1000 + 1000,
            "{read} hashes are read for one page of {path}"
        );
        part
    };
    let (mut seen, mut after, mut slices) = (BTreeSet::new(), String::new(), BTreeSet::new());
    loop {
        let part = bounded(&format!("/v1/alerts/newest?limit=1000{after}"), 1).await;
        assert!(part["examined"].as_u64().is_some_and(|examined| examined <= 5_000), "{}", part["examined"]);
        slices.insert(part["examined"].as_u64());
        for name in column(&part["alerts"], "subject") {
            assert!(seen.insert(name.to_owned()), "{name} is listed twice");
        }
        let Some(next) = part["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen.len(), SUBJECTS);
    assert!(slices.len() >= 2, "one slice has everything: {slices:?}");

    let worst = format!("s{worst}");
    let partial = bounded("/v1/near?limit=1000", 2).await;
    assert_eq!(partial["is_complete"], false);
    assert_ne!(column(&partial["subjects"], "subject")[0], worst, "its slice is read already");
    let complete = bounded("/v1/near?limit=1000", 2).await;
    assert_eq!((&complete["is_complete"], &complete["examined"]), (&json!(true), &json!(SUBJECTS)));
    assert_eq!(complete["ranked_at"], partial["read_at"]);
    // The next request begins a new ranking, and lists the complete one until the new one is complete too.
    let again = bounded("/v1/near?limit=1000", 2).await;
    assert_eq!((&again["subjects"], &again["ranked_at"]), (&complete["subjects"], &complete["ranked_at"]));
    let (mut seen, mut shares, mut page) = (BTreeSet::new(), Vec::new(), again);
    while let Some(next) = page["next"].as_str().map(str::to_owned) {
        for row in page["subjects"].as_array().expect("a list") {
            assert!(seen.insert(row["subject"].as_str().expect("a subject").to_owned()), "{row} is listed twice");
            shares.push(row["used"].as_u64().map(|used| used * 1000 / 5000));
        }
        page = bounded(&format!("/v1/near?limit=1000&after={next}"), 0).await;
    }
    assert!(seen.len() + page["subjects"].as_array().expect("a list").len() == 5_000, "{} of 5,000", seen.len());
    assert!(shares.is_sorted_by(|higher, lower| higher >= lower), "not in the order of all");
    assert!(shares[0] == Some(999) && seen.contains(&worst), "who runs out first does not come first");
    let overview = async || get(&api, "/v1/overview").await;
    assert_eq!(overview().await["near"]["is_complete"], true, "the overview continues the same ranking");
    assert_eq!(overview().await["nearest"][0]["subject"], worst);
    let status = quotabell(["status", "--json"]).redis(&outbox.server.url()).run();
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!((&status["near"]["is_complete"], &status["nearest"][0]["subject"]), (&json!(true), &json!(worst)));
    let erased = quotabell(["subject", "remove", &worst, "--everything"]).redis(&outbox.server.url()).run();
    assert!(erased.stderr.contains("1 alerts"), "{}", erased.stderr);
    let nearest = overview().await["nearest"].clone();
    assert!(!column(&nearest, "subject").contains(&worst.as_str()), "it is erased: {nearest}");
    daemon.drain().await;
}

/// With many partitions the dead deliveries of each hour must not cost thousands of calls with every refresh.
#[tokio::test]
async fn the_hours_of_many_partitions_are_read_in_few_calls() {
    const PARTITIONS: u32 = 256;
    let outbox = Outbox::start();
    let of = PartitionNumber::of_subject(b"alice", Separator::NONE, PARTITIONS);
    let dead = Keys::of_partition("usage", of).dead();
    let _: u64 = outbox.run("ZADD", &[dead.as_str(), &server_time(&outbox.client).await.0.to_string(), "x"]).await;
    let before = calls(&outbox, &["zcount", "exists"]).await;
    let count = PARTITIONS.to_string();
    let run = quotabell(["status", "--json"]).env("QUOTABELL__STREAM__PARTITIONS", &count);
    let run = run.redis(&outbox.server.url()).run();
    let hours = serde_json::from_str::<Value>(&run.stdout).expect("JSON")["hours"].clone();
    let dead = hours.as_array().expect("a list").iter().map(|hour| hour["dead"].as_u64().expect("a number"));
    assert_eq!(dead.sum::<u64>(), 1, "{hours}");
    let read = calls(&outbox, &["zcount", "exists"]).await - before;
    assert!(read <= 5 * PARTITIONS as usize + 48, "{read} calls");
}

/// A healthy system must not alarm, and each problem must come with its cause and its remedy.
#[tokio::test]
async fn the_overview_names_each_problem_with_its_cause_and_its_command() {
    let outbox = Outbox::start();
    let empty = quotabell(["status"]).redis(&outbox.server.url()).run();
    assert_eq!(empty.code, 3, "{}", empty.told());
    assert!(empty.stdout.starts_with("1 thing needs attention. Counting has stopped (lag 0). 0 daemons, 1 partition."));
    assert!(
        empty.stdout.contains("No daemon runs") && empty.stdout.contains("\n  quotabell run\n"),
        "{}",
        empty.stdout
    );
    let mut daemon = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let healthy = eventually("the daemon is listed", || async {
        Some(get(&api, "/v1/overview").await).filter(|overview| overview["problems"] == json!([]))
    });
    let healthy = healthy.await;
    assert_eq!(healthy["verdict"], "Nothing needs attention. Counting is up to date (lag 0). 1 daemon, 1 partition.");
    let printed = quotabell(["status"]).redis(&outbox.server.url()).run().expect_done();
    assert!(printed.starts_with("Nothing needs attention."), "{printed}");
    daemon.drain().await;

    let raised = raise(&outbox.client, "it's", 80, 4500, 3000).await;
    outbox.set_contacts(&subject("it's"), &stored(&[webhook("a")])).await;
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    end_all(&outbox, &Settlement::Dead(outcome(OutcomeClass::Permanent))).await;
    // A refusal may be one for a moment; the third needs attention.
    let error = Some("HTTP 400".to_owned());
    let refused = Outcome { status: Some(400), error, ..outcome(OutcomeClass::Rejected) };
    for (name, waits) in [("c", &[0, 3600][..]), ("d", &[0, 0, 3600])] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook(name)]).await;
        for (attempt, wait) in waits.iter().enumerate() {
            let leased = outbox.lease_one(&format!("{name}{attempt}"), LONG).await;
            let retry = Settlement::Retry(refused.clone(), Duration::from_secs(*wait));
            settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &retry).await.expect("settles");
        }
    }
    // So may a failure; the third in a row needs attention before the circuit opens.
    for name in ["e", "f"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook(name)]).await;
    }
    end_all(&outbox, &Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600))).await;
    for (name, failures) in [("e", "2"), ("f", "3")] {
        let state = format!("{}https://{name}.test", outbox.keys.destination_prefix());
        let () = outbox.run("HSET", &[state.as_str(), "failures", failures]).await;
    }
    outbox.fan_out_new(&raise(&outbox.client, "alone", 100, 5100, 2000).await, &[]).await;
    let failing = raise(&outbox.client, "slow", 90, 4600, 1000).await;
    let gone = json!({"reason": "gone", "detail": "HTTP 410", "at": "2026-11-21T08:37:00Z"});
    let mut disabled: Value = serde_json::to_value(email("gone")).expect("JSON");
    disabled["disabled"] = gone;
    let contacts = json!([serde_json::to_value(webhook("b")).expect("JSON"), disabled]);
    outbox.set_contacts(&subject("slow"), &contacts.to_string()).await;
    outbox.fan_out_new(&failing, &[webhook("b")]).await;
    let now = server_time(&outbox.client).await;
    let (since, far) = (now.plus(-3_600_000), now.plus(600_000).0.to_string());
    let (opened, away) = (since.0.to_string(), "60000");
    let open = format!("{}https://b.test", outbox.keys.destination_prefix());
    let state = ["failures", "5", "probe_at_ms", &far, "opened_at_ms", &opened, "away_ms", away];
    let () = outbox.run("HSET", &[&[open.as_str()][..], &state].concat()).await;
    let () = outbox.run("ZADD", &[outbox.keys.circuits().as_str(), &far, "https://b.test"]).await;
    let refused = outbox.keys.refused();
    let () = outbox.run("XADD", &[refused.as_str(), "*", "entry", "1-1", "reason", "bad_units", "detail", "no"]).await;

    let (daemon, api) = idle(&outbox).await;
    let overview = eventually("the daemon is listed", || async {
        let overview = get(&api, "/v1/overview").await;
        (overview["counting"]["state"] == "up_to_date" && overview["counting"]["daemons"] == 1).then_some(overview)
    });
    let overview = overview.await;
    // Three days, and the minute without a daemon.
    let until = since.plus(3 * 86_400_000 + 60_000);
    let next: UnixMs = UnixMs(far.parse().expect("a time"));
    let failing_cause = format!(
        "https://b.test fails: 1 delivery waits. Its circuit opened at {since}. The next attempt is at {next}. Deliveries \
         not attempted yet are kept until {until}."
    );
    let expected = [
        ("sending_off", "--no-send", "quotabell run"),
        ("receiver_failing", failing_cause.as_str(), "retry --destination https://b.test"),
        (
            "receiver_failing",
            "https://d.test refuses deliveries: 1 delivery waits, HTTP 400. Refused deliveries are retried",
            "retry --destination https://d.test",
        ),
        (
            "receiver_failing",
            "https://f.test fails: 1 delivery waits, receiver answered 503. 3 attempts in a row have failed",
            "retry --destination https://f.test",
        ),
        (
            "deliveries_dead",
            "1 delivery is dead: 1 to https://a.test: receiver answered 503.",
            "deliveries replay --all",
        ),
        (
            "no_contact",
            "1 alert waits because the subject has no contact that gets them: alone.",
            "contact add alone --email",
        ),
        (
            "nobody_notified",
            "1 alert has reached nobody (it's). Examined: the newest 3 alerts.",
            r"explain --subject 'it'\''s'",
        ),
        ("contacts_disabled", "of slow (its receiver is gone)", "contact enable slow c_"),
        ("events_refused", "1 event was refused in the last 24 hours", "refused list"),
    ];
    let problems = overview["problems"].as_array().expect("a list");
    assert_eq!(column(&overview["problems"], "kind"), expected.map(|(kind, ..)| kind), "{overview:#}");
    for (problem, (_, cause, command)) in problems.iter().zip(expected) {
        assert!(problem["cause"].as_str().is_some_and(|text| text.contains(cause)), "{cause} is not in {problem}");
        assert!(
            problem["command"].as_str().is_some_and(|text| text.contains(command)),
            "{command} is not in {problem}"
        );
    }
    assert!(
        overview["verdict"].as_str().is_some_and(|text| text.starts_with("9 things need attention.")),
        "{overview}"
    );
    let near =
        json!({"above_80": 2, "reached": 1, "examined": 3, "is_complete": true, "ranked_at": overview["read_at"]});
    assert_eq!(overview["near"], near);
    assert_eq!(column(&overview["newest_alerts"], "subject"), ["slow", "alone", "it's"]);
    let printed = quotabell(["status", "--json"]).redis(&outbox.server.url()).run();
    assert_eq!(printed.code, 3, "{}", printed.told());
    let printed: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!((&printed["problems"], &printed["verdict"]), (&overview["problems"], &overview["verdict"]));

    let destinations = get(&api, "/v1/destinations").await;
    for one in destinations["destinations"].as_array().expect("a list") {
        let is_slow = one["destination"] == "https://b.test";
        let times = is_slow.then(|| (since.to_string(), until.to_string())).unzip();
        assert_eq!((&one["failing_since"], &one["retried_until"]), (&json!(times.0), &json!(times.1)), "{one}");
        let error = match one["destination"].as_str().expect("text") {
            "https://e.test" | "https://f.test" => Some("receiver answered 503"),
            "https://c.test" | "https://d.test" => Some("HTTP 400"),
            _ => None,
        };
        assert_eq!(one["last_error"], json!(error), "{one}");
    }
    let listed = quotabell(["deliveries", "destinations", "--json"]).redis(&outbox.server.url()).run().expect_done();
    assert!(listed.contains(&format!("\"retried_until\":\"{until}\"")), "{listed}");

    let system = get(&api, "/v1/system").await;
    assert_eq!((&system["daemons"][0]["sends"], &system["daemons"][0]["reads"]), (&json!(false), &json!([0])));
    assert_eq!(system["partitions"][0]["reader"], system["daemons"][0]["name"]);
    daemon.drain().await;
}

/// An alarm about what somebody has muted on purpose teaches operators to ignore alarms.
#[tokio::test]
async fn an_alert_that_a_mute_held_back_needs_no_attention() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "alice", 100, 5100, 1000).await;
    outbox.set_contacts(&subject("alice"), &stored(&[webhook("a")])).await;
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    let () = outbox.run("HSET", &[outbox.keys.subject(&subject("alice")).as_str(), "muted", "true"]).await;
    let mut daemon = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let overview = eventually("the delivery has ended", || async {
        Some(get(&api, "/v1/overview").await).filter(|overview| overview["muted_alerts"] == 1)
    });
    let overview = overview.await;
    assert_eq!((&overview["problems"], &overview["newest_alerts"][0]["outcome"]), (&json!([]), &json!("muted")));
    let printed = quotabell(["status"]).redis(&outbox.server.url()).run().expect_done();
    assert!(printed.contains("1 alert was not sent because of a mute"), "{printed}");
    daemon.drain().await;
}

/// An operator who looks for a broken receiver, a lost event or a forgotten mute must find it.
#[tokio::test]
async fn failures_and_mutes_are_grouped_and_listed_in_slices() {
    let outbox = Outbox::start();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let to = if n == 2 { webhook("y") } else { webhook("x") };
        outbox.fan_out_new(&alert(&subject(name), 80), &[to]).await;
    }
    end_all(&outbox, &Settlement::Dead(outcome(OutcomeClass::Permanent))).await;
    let waiting: [&[Contact]; 3] = [&[webhook("x")], &[webhook("x")], &[webhook("y")]];
    for (name, contacts) in ["d", "e", "f"].into_iter().zip(waiting) {
        outbox.fan_out_new(&alert(&subject(name), 80), contacts).await;
    }
    for (reason, detail) in [("bad_units", "one"), ("bad_units", "two"), ("bad_time", "three")] {
        let refused = outbox.keys.refused();
        let () = outbox.run("XADD", &[refused.as_str(), "*", "entry", "1-1", "reason", reason, "detail", detail]).await;
    }
    let mute = Mute { until: Some(UnixMs(4_102_444_800_000)), reason: Some("moving".to_owned()) };
    outbox.set_contacts(&subject("m"), &stored(&[Contact { mute: Some(mute), ..email("m") }])).await;
    let of = |name: &str| outbox.keys.subject(&subject(name));
    let () = outbox.run("HSET", &[of("q").as_str(), "muted", "true"]).await;
    let () = outbox.run("HSET", &[of("n").as_str(), "muted:tokens", "2099-01-01T00:00:00Z"]).await;
    let (daemon, api) = idle(&outbox).await;

    let dead = get(&api, "/v1/deliveries/dead").await;
    assert_eq!(column(&dead["causes"], "destination"), ["https://x.test", "https://y.test"]);
    assert_eq!((&dead["causes"][0]["count"], &dead["examined"], &dead["next"]), (&json!(2), &json!(3), &Value::Null));
    assert_eq!(dead["causes"][0]["cause"], "receiver answered 503");

    for (cause, number) in [("receiver+answered+503", 3), ("receiver", 0)] {
        let of_cause = get(&api, &format!("/v1/deliveries?state=dead&cause={cause}")).await;
        assert_eq!(column(&of_cause["deliveries"], "subject").len(), number, "{cause}");
    }

    let destinations = get(&api, "/v1/destinations").await;
    assert_eq!(column(&destinations["destinations"], "destination"), ["https://x.test", "https://y.test"]);
    assert_eq!((&destinations["destinations"][0]["waiting"], &destinations["next"]), (&json!(2), &Value::Null));
    let first = get(&api, "/v1/destinations?limit=1").await;
    let next = first["next"].as_str().expect("more");
    let second = get(&api, &format!("/v1/destinations?limit=1&after={next}")).await;
    let names: BTreeSet<&str> =
        [&first, &second].into_iter().flat_map(|part| column(&part["destinations"], "destination")).collect();
    assert_eq!(names, ["https://x.test", "https://y.test"].into());

    let refused = get(&api, "/v1/refused").await;
    assert_eq!(column(&refused["reasons"], "reason"), ["bad_units", "bad_time"]);
    assert_eq!(column(&refused["reasons"][0]["samples"], "detail"), ["two", "one"]);

    let mutes = get(&api, "/v1/mutes").await;
    assert_eq!(column(&mutes["mutes"], "subject"), ["n", "m", "q"], "the earliest end first");
    assert_eq!((&mutes["mutes"][0]["metric"], &mutes["mutes"][1]["reason"]), (&json!("tokens"), &json!("moving")));
    assert_eq!(mutes["mutes"][1]["contact_id"], json!(email("m").id));
    assert_eq!((&mutes["examined"], &mutes["next"]), (&json!(3), &Value::Null));
    for path in ["deliveries/dead", "destinations", "refused", "mutes"] {
        api.get(&format!("/v1/{path}?after=x")).await.expect_problem(400, "after: is not the `next` of a list");
    }
    for path in ["overview", "near", "alerts", "deliveries/dead", "destinations", "refused", "mutes", "system"] {
        api.without_token().get(&format!("/v1/{path}")).await.expect_problem(401, "");
    }
    daemon.drain().await;
}
