//! How much of Redis each page of the console and the portal needs, with more of everything than a page shows.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::api::Caller;
use crate::support::books::{raise_many, server_time};
use crate::support::console::{ADMIN, Visitor, found, with_tokens};
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, outcome, settle, subject, webhook};
use quotabell::outbox::Settlement;
use quotabell::types::{DeliveryId, OutcomeClass};

/// Number of alerts, dead deliveries, mutes and refused events.
const MANY: usize = 12_000;
/// Maximum number of commands for each page, with some for what the daemon does meanwhile: a third more than measured.
/// Those with thousands read slices of records, forecasts of the rows, or a bounded part of the deliveries.
const COMMANDS_MAX: [(&str, usize); 23] = [
    ("/", 60_000),
    ("/near", 60_000),
    ("/near.csv", 140_000),
    ("/top?by=used", 16_000),
    ("/subjects", 300),
    ("/subject?id=s7", 300),
    ("/alerts", 3_000),
    ("/deliveries", 500),
    ("/deliveries?state=dead", 4_000),
    ("/deliveries?state=dead&error=nothing+of+this", 16_000),
    ("/delivery?id=DEAD", 200),
    ("/destinations", 200),
    ("/mutes", 300),
    ("/refused", 200),
    ("/system", 200),
    ("/log", 200),
    ("/settings?id=s7", 200),
    ("/erase?id=s7", 200),
    ("/act?do=replay&state=dead", 1_400),
    ("/act?do=replay&state=dead&channel=webhook", 9_500),
    ("/login", 200),
    ("/assets/x.css", 200),
    ("PORTAL", 300),
];

/// Number of commands that the server has run, with those of scripts.
async fn commands(outbox: &Outbox) -> usize {
    let stats: String = outbox.run("INFO", "commandstats").await;
    found(&stats, ":calls=([0-9]+)").into_iter().map(|calls| calls.parse::<usize>().expect("a number")).sum()
}

/// Makes a dead delivery, and copies of it. Returns the first.
async fn die(outbox: &Outbox) -> DeliveryId {
    let Outbox { client, keys, .. } = outbox;
    outbox.fan_out_new(&alert(&subject("s7"), 80), &[webhook("a")]).await;
    let leased = outbox.lease_one("t", LONG).await;
    let end = Settlement::Dead(outcome(OutcomeClass::Permanent));
    settle(client, keys, &leased.id, &leased.token, &end).await.expect("settles");
    let fields: BTreeMap<String, String> = outbox.run("HGETALL", &[keys.delivery(&leased.id).as_str()]).await;
    let (fields, now): (Vec<_>, _) = (fields.into_iter().collect(), server_time(client).await);
    for numbers in (0..MANY).collect::<Vec<_>>().chunks(2000) {
        let mut pipeline = redis::pipe();
        for number in numbers {
            let id = DeliveryId::from_stored(&format!("delivery_{number:032x}"));
            pipeline.hset_multiple(keys.delivery(&id), &fields).ignore();
            for list in [keys.deliveries(), keys.dead()] {
                pipeline.zadd(list, id.as_str(), now.0 - *number as i64).ignore();
            }
        }
        let () = client.pipe(&pipeline).await.expect("written");
    }
    leased.id
}

/// A page that needs more of Redis with each subject, delivery or event would slow counting down.
#[tokio::test]
async fn each_page_needs_a_bounded_number_of_commands() {
    let outbox = Outbox::start();
    raise_many(&outbox, MANY, |n| 4000 + n as u64 % 900).await;
    let dead = die(&outbox).await;
    let mut pipeline = redis::pipe();
    for number in 0..MANY {
        let settings = outbox.keys.subject(&subject(&format!("s{number}")));
        pipeline.hset(settings, "muted", "true").ignore();
        let event = [("entry", "1-1"), ("reason", "bad_units"), ("detail", "no")];
        pipeline.xadd(outbox.keys.refused(), "*", &event).ignore();
    }
    let () = outbox.client.pipe(&pipeline).await.expect("written");
    // Another daemon reads the stream.
    let lease = outbox.keys.lease();
    let _: String = outbox.run("SET", &[lease.as_str(), "another/10.0.0.1:1/1", "PX", "9000000"]).await;
    let (mut daemon, address, _folder) = with_tokens(&outbox).await;
    let console = Visitor::new(address).log_in(ADMIN).await;
    let api = Caller::of(&mut daemon).await.with_token(ADMIN);
    let link = api.post("/v1/subjects/s7/portal", &json!({})).await.json()["url"].as_str().expect("a link").to_owned();
    let portal = Visitor::new(daemon.http().await);
    // The names of all subjects are read once.
    eventually("every name is read", || async {
        (!console.get("/mutes").await.text.contains("still being read")).then_some(())
    })
    .await;
    let mut needed = Vec::new();
    for (page, commands_max) in COMMANDS_MAX {
        // On a busy machine Redis may answer too late once.
        let (status, count) = eventually("Redis answers in time", || async {
            let before = commands(&outbox).await;
            let answer = match page {
                "PORTAL" => portal.get(link.trim_start_matches("https://quota.example.com")).await,
                page => console.get(&page.replace("DEAD", dead.as_str())).await,
            };
            let count = commands(&outbox).await - before;
            (answer.status != 503).then_some((answer.status, count))
        })
        .await;
        assert_eq!(status, if page.starts_with("/assets") { 404 } else { 200 }, "{page}");
        if count > commands_max {
            needed.push(format!("{page}: {count} commands, at most {commands_max} are expected"));
        }
    }
    assert!(needed.is_empty(), "{}", needed.join("\n"));
    // It takes several requests to read all of them, so the page says when it read what it lists.
    let near = console.get("/near").await.text;
    assert!(near.contains("12,000, all of them. This list was read at <time"), "{near}");
    daemon.drain().await;
}
