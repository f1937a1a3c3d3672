//! The console's lists of subjects and of mutes, and its ranking, with more subjects than a page shows, and with more
//! than are read while a page waits.

use crate::support::books::server_time;
use crate::support::console::{READ, Visitor, decoded, found, judge, with_tokens};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};
use quotabell::types::{Day, Metric, keys};
use quotabell::views::Cursor;

/// Subjects with settings: more than two pages.
const SUBJECTS: usize = 250;
/// Subjects whose names are read in 30 steps, each with a pause of three times its length: longer than a page waits.
const MANY_SUBJECTS: usize = 30_000;

fn name(number: usize) -> String {
    format!("s-{number:03}")
}

async fn with_settings(subjects: usize) -> Outbox {
    let outbox = Outbox::start();
    let mut pipeline = redis::pipe();
    for number in 0..subjects {
        let key = outbox.keys.subject(&subject(&name(number)));
        pipeline.cmd("HSET").arg(key).arg("timezone").arg("UTC").ignore();
    }
    let () = outbox.client.pipe(&pipeline).await.expect("redis answers");
    outbox
}

/// The subjects that a page shows.
fn names_of(html: &str) -> Vec<String> {
    found(html, "<tr>(?:<td class=\"number\">[0-9,]+</td>)?<td><a [^>]*><bdi>([^<]*)</bdi>")
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// The subjects of a page, once all names are read.
async fn listed(visitor: &Visitor, page: &str) -> (Vec<String>, Option<String>) {
    eventually("every name is read", || async {
        let html = visitor.get(page).await.text;
        let names = names_of(&html);
        let next = found(&html, "<a href=\"([^\"]*)\" rel=\"next\">").first().map(|link| format!("/{}", decoded(link)));
        (!html.contains("still being read")).then_some((names, next))
    })
    .await
}

/// Operators look for a customer by the beginning of its name, and must find it whatever the number of others.
#[tokio::test]
async fn every_subject_is_listed_once_in_order_and_found_by_the_beginning_of_its_name() {
    let outbox = with_settings(SUBJECTS).await;
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
    let () = outbox.run("HSET", &[outbox.keys.subject(&subject("s-24x")).as_str(), "timezone", "UTC"]).await;
    let () = outbox.run("DEL", &[outbox.keys.subject(&subject("s-240")).as_str()]).await;
    let changed: Vec<String> = (241..250).map(name).chain(["s-24x".to_owned()]).collect();
    eventually("the changes are listed", || async {
        (listed(&visitor, "/subjects?q=s-24").await.0 == changed).then_some(())
    })
    .await;
    // Nobody reports a removal while the connection that listens is cut.
    let clients: String = outbox.run("CLIENT", "LIST").await;
    let field = |client: &str, name: &str| {
        client.split(' ').find_map(|field| Some(field.strip_prefix(name)?.to_owned())).expect("a field")
    };
    let (mut cut, listens) = (redis::pipe(), clients.lines().filter(|client| field(client, "flags=").contains('B')));
    for client in listens {
        cut.cmd("CLIENT").arg("KILL").arg("ID").arg(field(client, "id=")).ignore();
    }
    cut.cmd("DEL").arg(outbox.keys.subject(&subject("s-24x"))).ignore();
    let () = outbox.client.pipe(&cut).await.expect("redis answers");
    eventually("what was removed meanwhile is not counted any more", || async {
        visitor.get("/subjects").await.text.contains("Subjects with settings in all: 249.").then_some(())
    })
    .await;
    assert_eq!(listed(&visitor, "/subjects?q=s-24").await.0, changed[..9]);
    daemon.drain().await;
}

/// Names are read while pages are shown. What changes meanwhile may have been read before, and would be listed for
/// ever, or never.
#[tokio::test]
async fn what_changes_while_the_names_are_read_is_listed_in_the_end() {
    let outbox = with_settings(MANY_SUBJECTS).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(READ).await;
    let page = visitor.get("/subjects").await.text;
    assert!(page.contains("They are still being read, so some may be missing here"), "{page}");
    let gone = eventually("some names are known", || async {
        names_of(&visitor.get("/subjects").await.text).into_iter().next()
    })
    .await;
    for new in ["t-1", "t-2"] {
        let () = outbox.run("HSET", &[outbox.keys.subject(&subject(new)).as_str(), "timezone", "UTC"]).await;
    }
    let () = outbox.run("DEL", &[outbox.keys.subject(&subject(&gone)).as_str()]).await;
    eventually("one subject less and two more are counted", || async {
        visitor.get("/subjects").await.text.contains("Subjects with settings in all: 30,001.").then_some(())
    })
    .await;
    assert_eq!(listed(&visitor, "/subjects?q=t-").await, (vec!["t-1".to_owned(), "t-2".to_owned()], None));
    assert_eq!(listed(&visitor, "/subjects?q=s-00").await.0.len(), 10 - usize::from(gone.starts_with("s-00")));
    daemon.drain().await;
}

/// Somebody who looks for a customer after the last row must learn that it may still be counted.
#[tokio::test]
async fn a_ranking_says_where_it_ends_and_that_it_is_cut() {
    let outbox = Outbox::start();
    let today = Day::in_utc(server_time(&outbox.client).await).expect("in the calendar");
    let counter = outbox.keys.usage(&Metric::default(), today, keys::bucket("s-000"));
    let mut count = redis::cmd("HSET");
    count.arg(counter);
    for number in 0..1001 {
        count.arg(name(number)).arg(1_000 + number);
    }
    let () = outbox.client.query(&count).await.expect("redis answers");
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(READ).await;
    let part = async |from: usize| {
        let page = visitor.get(&format!("/top?by=used&period={today}&after={}", Cursor(from))).await;
        judge("/top", &page);
        page.text
    };
    let last = part(900).await;
    assert!(names_of(&last).len() == 100 && !last.contains("rel=\"next\""), "{last}");
    assert!(last.contains("a ranking has at most 1,000 subjects"), "{last}");
    let past = part(1_000).await;
    assert!(past.contains("The ranking ends before this part") && !past.contains("Nothing is counted"), "{past}");
    let begin = decoded(found(&past, "<a href=\"(top[^\"]*)\">To its beginning")[0]);
    assert_eq!(names_of(&visitor.get(&format!("/{begin}")).await.text).len(), 100, "{begin}");
    daemon.drain().await;
}

/// A mute that is forgotten hides alerts, so the list of mutes must not hide it among subjects without one.
#[tokio::test]
async fn mutes_are_listed_by_their_ends_without_the_other_subjects() {
    let outbox = with_settings(SUBJECTS).await;
    let mute = async |number: usize, end: &str| {
        let () = outbox.run("HSET", &[outbox.keys.subject(&subject(&name(number))).as_str(), "muted", end]).await;
    };
    mute(7, "2100-01-02T00:00:00Z moving").await;
    mute(200, "2100-01-01T00:00:00Z testing").await;
    // Nobody reports the end of a mute.
    mute(8, &format!("{} short", server_time(&outbox.client).await.plus(1_500))).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(READ).await;
    eventually("the short one has ended", || async {
        (listed(&visitor, "/mutes").await == (vec![name(200), name(7)], None)).then_some(())
    })
    .await;
    let page = visitor.get("/mutes").await.text;
    assert!(page.contains("Subjects with a mute: 2."), "{page}");
    mute(90, "2100-01-03T00:00:00Z").await;
    let () = outbox.run("HDEL", &[outbox.keys.subject(&subject(&name(7))).as_str(), "muted"]).await;
    eventually("the changes are listed", || async {
        (listed(&visitor, "/mutes").await.0 == [name(200), name(90)]).then_some(())
    })
    .await;
    daemon.drain().await;
}
