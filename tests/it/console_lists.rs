//! The console's lists of subjects and of mutes, with more subjects than a page shows.

use crate::support::console::{READ, Visitor, decoded, found, with_tokens};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};

/// Subjects with settings: more than two pages.
const SUBJECTS: usize = 250;

fn name(number: usize) -> String {
    format!("s-{number:03}")
}

async fn with_settings() -> Outbox {
    let outbox = Outbox::start();
    let mut pipeline = redis::pipe();
    for number in 0..SUBJECTS {
        let key = outbox.keys.subject(&subject(&name(number)));
        pipeline.cmd("HSET").arg(key).arg("timezone").arg("UTC").ignore();
    }
    let () = outbox.client.pipe(&pipeline).await.expect("redis answers");
    outbox
}

/// The subjects of a page, once all names are read.
async fn listed(visitor: &Visitor, page: &str) -> (Vec<String>, Option<String>) {
    eventually("every name is read", || async {
        let html = visitor.get(page).await.text;
        let names = found(&html, "<tr><td><a [^>]*><bdi>([^<]*)</bdi>").into_iter().map(str::to_owned).collect();
        let next = found(&html, "<a href=\"([^\"]*)\" rel=\"next\">").first().map(|link| format!("/{}", decoded(link)));
        (!html.contains("still being read")).then_some((names, next))
    })
    .await
}

/// Operators look for a customer by the beginning of its name, and must find it whatever the number of others.
#[tokio::test]
async fn every_subject_is_listed_once_in_order_and_found_by_the_beginning_of_its_name() {
    let outbox = with_settings().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(READ).await;
    let (mut all, mut page) = (Vec::new(), Some("/subjects".to_owned()));
    while let Some(link) = page {
        let (names, next) = listed(&visitor, &link).await;
        all.extend(names);
        page = next;
    }
    assert_eq!(all, (0..SUBJECTS).map(name).collect::<Vec<_>>());
    let (found, next) = listed(&visitor, "/subjects?q=s-24").await;
    assert_eq!((found, next), ((240..250).map(name).collect(), None));
    // A change from elsewhere needs no new search of all keys.
    let () = outbox.run("CONFIG", &["RESETSTAT"]).await;
    let () = outbox.run("HSET", &[outbox.keys.subject(&subject("s-24x")).as_str(), "timezone", "UTC"]).await;
    let () = outbox.run("DEL", &[outbox.keys.subject(&subject("s-240")).as_str()]).await;
    let changed: Vec<String> = (241..250).map(name).chain(["s-24x".to_owned()]).collect();
    eventually("the changes are listed", || async {
        (listed(&visitor, "/subjects?q=s-24").await.0 == changed).then_some(())
    })
    .await;
    let stats: String = outbox.run("INFO", "commandstats").await;
    assert!(!stats.contains("cmdstat_scan:"), "{stats}");
    daemon.drain().await;
}

/// A mute that is forgotten hides alerts, so the list of mutes must not hide it among subjects without one.
#[tokio::test]
async fn mutes_are_listed_by_their_ends_without_the_other_subjects() {
    let outbox = with_settings().await;
    let mute = async |number: usize, end: &str| {
        let () = outbox.run("HSET", &[outbox.keys.subject(&subject(&name(number))).as_str(), "muted", end]).await;
    };
    mute(7, "2100-01-02T00:00:00Z moving").await;
    mute(200, "2100-01-01T00:00:00Z testing").await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(READ).await;
    assert_eq!(listed(&visitor, "/mutes").await, (vec![name(200), name(7)], None));
    mute(90, "2100-01-03T00:00:00Z").await;
    let () = outbox.run("HDEL", &[outbox.keys.subject(&subject(&name(7))).as_str(), "muted"]).await;
    eventually("the changes are listed", || async {
        (listed(&visitor, "/mutes").await.0 == [name(200), name(90)]).then_some(())
    })
    .await;
    daemon.drain().await;
}
