//! Actions on one, some or all deliveries in the console: the preview, and what becomes of it.

use crate::support::books::{server_time, with_dead};
use crate::support::console::{ADMIN, Answer, HtmlForm, Visitor, decoded, forms, found, judge, with_tokens};
use crate::support::outbox::{LONG, Outbox, alert, delivery, email, outcome, settle, subject, until, webhook};
use quotabell::outbox::Settlement;
use quotabell::types::{DeliveryId, Outcome, OutcomeClass};

/// Lets a delivery about this subject die with this error, and returns its id.
async fn die(outbox: &Outbox, name: &str, error: &str) -> DeliveryId {
    outbox.fan_out_new(&alert(&subject(name), 80), &[webhook("a")]).await;
    let leased = outbox.lease_one("t", LONG).await;
    let failed = Outcome { error: Some(error.to_owned()), ..outcome(OutcomeClass::Permanent) };
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Dead(failed)).await.expect("settles");
    leased.id
}

async fn states(outbox: &Outbox, ids: &[DeliveryId]) -> Vec<String> {
    let mut states = Vec::new();
    for id in ids {
        states.push(outbox.state(id).await);
    }
    states
}

/// The preview of an action, without sending it.
async fn preview(admin: &Visitor, query: &str) -> Answer {
    let answer = admin.get(&format!("/act?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    judge("/act", &answer);
    answer
}

/// What dies or changes after the preview must not be touched, and must be told.
#[tokio::test]
async fn a_replay_by_cause_keeps_to_what_the_preview_showed() {
    let (outbox, _) = with_dead(&[]).await;
    let mut dead = Vec::new();
    for name in ["ann", "bob", "cid"] {
        dead.push(die(&outbox, name, &format!("550 <{name}@b.test> unknown mailbox")).await);
    }
    let other = die(&outbox, "dan", "TLS failed").await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    // The counts by cause are those of the list below them.
    for (filter, counts) in [
        ("", &["3", "1"][..]),
        ("&cause=TLS+failed", &["1"]),
        ("&channel=webhook&destination=https://a.test", &["3", "1"]),
        ("&destination=https://b.test", &[]),
        ("&channel=email", &[]),
        ("&subject=ann", &[]),
    ] {
        let page = admin.get(&format!("/deliveries?state=dead{filter}")).await;
        judge("/deliveries", &page);
        let causes = found(&page.text, "(?s)<h2>Dead by cause</h2>(.*?)</table>").concat();
        assert_eq!(found(&causes, "<td class=\"number\">([0-9]+)</td>"), counts, "{filter}: {}", page.text);
    }
    let page = admin.get("/deliveries?state=dead").await;
    let link = found(&page.text, "href=\"(act\\?do=replay&amp;state=dead[^\"]*mailbox[^\"]*)\"");
    let query = decoded(link.first().expect("a link by cause"));
    let shown = preview(&admin, query.trim_start_matches("act?")).await;
    assert!(shown.text.contains("Replay 3 deliveries that died up to "), "{}", shown.text);
    // Whose they are, and where they go.
    for name in ["ann", "bob", "cid"] {
        assert!(shown.text.contains(&format!("<bdi>{name}</bdi>")), "{name}: {}", shown.text);
    }
    assert!(shown.text.contains("<td>https:&#x2f;&#x2f;") && !shown.text.contains("<bdi>dan"), "{}", shown.text);
    let form = forms(&shown.text).into_iter().find(|form| form.is_post && form.action == "act").expect("a form");
    // Somebody else discards one, and another one dies of the same cause later.
    let discarded = outbox.run::<i64>("ZREM", &[outbox.keys.dead().as_str(), dead[1].as_str()]).await;
    assert_eq!(discarded, 1);
    let pinned = server_time(&outbox.client).await;
    until("the clock goes on", async || server_time(&outbox.client).await > pinned).await;
    let later = die(&outbox, "eve", "550 <eve@b.test> unknown mailbox").await;
    let all = preview(&admin, &format!("do=replay&state=dead&until={pinned}")).await;
    assert!(all.text.contains("Replay 3 deliveries that died up to "), "{}", all.text);
    let said = admin.does(&form, &[]).await;
    assert_eq!(said, "2 deliveries replayed. 1 delivery skipped: changed meanwhile.");
    assert_eq!(
        states(&outbox, &[dead[0].clone(), dead[2].clone(), other, later]).await,
        ["pending", "pending", "dead", "dead"]
    );
    let page = admin.get("/subject?id=dan").await;
    assert!(page.text.contains("TLS failed") && !page.text.contains("None is kept."), "{}", page.text);
    let log = admin.get("/log").await;
    assert!(
        log.text.contains("replayDelivery")
            && log.text.contains(" dead</td>")
            && log.text.contains("<td class=\"number\">2</td>"),
        "{}",
        log.text
    );
    daemon.drain().await;
}

/// The log must say which deliveries somebody has selected.
#[tokio::test]
async fn the_log_names_the_selected_deliveries() {
    let (outbox, dead) = with_dead(&["ann", "bob"]).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let offered = forms(&admin.get("/deliveries").await.text).into_iter().find(|form| form.action == "act");
    assert_eq!(offered.expect("a form").actions, ["replay", "discard"], "nothing is pending");
    let query = format!("do=discard&id={}&id={}", dead[0], dead[1]);
    let discard = forms(&preview(&admin, &query).await.text).pop().expect("a form");
    assert_eq!(admin.does(&discard, &[]).await, "2 deliveries discarded.");
    let log = admin.get("/log").await;
    judge("/log", &log);
    for id in dead {
        assert!(log.text.contains(&format!("<a href=\"delivery?id={id}\">")), "{id}: {}", log.text);
    }
    daemon.drain().await;
}

/// A cancelled delivery can't be brought back, so one that became pending after the preview must not be cancelled.
#[tokio::test]
async fn a_delivery_that_is_replayed_after_the_preview_is_not_cancelled() {
    let (outbox, dead) = with_dead(&["ann"]).await;
    let waits = alert(&subject("bob"), 80);
    outbox.fan_out_new(&waits, &[email("a")]).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let cancel = forms(&preview(&admin, "do=cancel&state=pending").await.text).pop().expect("a form");
    let pinned = server_time(&outbox.client).await;
    until("the clock goes on", async || server_time(&outbox.client).await > pinned).await;
    let replay = forms(&preview(&admin, &format!("do=replay&id={}", dead[0])).await.text).pop().expect("a form");
    assert_eq!(admin.does(&replay, &[]).await, "1 delivery replayed.");
    assert_eq!(admin.does(&cancel, &[]).await, "1 delivery cancelled.");
    assert_eq!(states(&outbox, &[dead[0].clone(), delivery(&waits, &email("a"))]).await, ["pending", "cancelled"]);
    daemon.drain().await;
}

/// One click must not change thousands: above a hundred, the number is typed.
#[tokio::test]
async fn more_than_a_hundred_need_their_number() {
    let outbox = Outbox::start();
    let mut dead = Vec::new();
    for number in 0..101 {
        outbox.fan_out_new(&alert(&subject(&format!("s{number}")), 80), &[webhook("a")]).await;
        dead.push(delivery(&alert(&subject(&format!("s{number}")), 80), &webhook("a")));
    }
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    // More than the 16 digits.
    let begins = dead.iter().map(|id| &id.as_str()[.."delivery_".len() + 1]);
    let shared = begins.clone().find(|start| begins.clone().filter(|other| other == start).count() > 1);
    let shared = shared.expect("two begin with the same digit");
    let ambiguous = admin.get(&format!("/subjects?q={shared}")).await;
    judge("/subjects", &ambiguous);
    let told = format!(" deliveries begin with {shared}: give more digits");
    assert!(ambiguous.status == 409 && ambiguous.text.contains(&told), "{}", ambiguous.text);
    let form = forms(&preview(&admin, "do=cancel&state=pending").await.text).pop().expect("a form");
    for typed in ["", "100", "all"] {
        let answer = admin.post(&form, &[("typed", typed)]).await;
        assert!(answer.status == 400 && answer.text.contains("type the number of deliveries: "), "{}", answer.text);
        judge("/act", &answer);
        assert!(answer.text.contains("The first 5 of them:"), "{}", answer.text);
        let again = forms(&answer.text).pop().expect("the form");
        let typed = |form: &HtmlForm| form.fields.iter().any(|(name, _)| name == "typed");
        assert!(typed(&again) && answer.text.contains("aria-label=\"Pages\""), "{}", answer.text);
    }
    // A number that is too low doesn't get around it.
    let said = admin.does(&form, &[("count", "1"), ("is_cut", "true")]).await;
    assert_eq!(said, "100 deliveries cancelled. There are more: do it again.");
    let form = forms(&preview(&admin, "do=cancel&state=pending").await.text).pop().expect("a form");
    assert!(!form.fields.iter().any(|(name, _)| name == "typed"));
    assert_eq!(admin.does(&form, &[]).await, "1 delivery cancelled.");
    assert!(states(&outbox, &dead).await.iter().all(|state| state == "cancelled"));
    let none = preview(&admin, "do=cancel&state=pending").await;
    assert!(none.text.contains("There is nothing to do."), "{}", none.text);
    daemon.drain().await;
}

/// What is being attempted stays, and is counted apart.
#[tokio::test]
async fn selected_ones_and_those_of_a_destination_are_changed_and_attempts_stay() {
    let (outbox, dead) = with_dead(&["ann"]).await;
    let attempted = alert(&subject("bob"), 80);
    outbox.fan_out_new(&attempted, &[email("a"), webhook("a")]).await;
    let leased = outbox.lease("t", LONG).await.leased;
    let waits = alert(&subject("cid"), 80);
    outbox.fan_out_new(&waits, &[email("a"), webhook("a")]).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let ids = [delivery(&waits, &email("a")), leased[0].id.clone(), dead[0].clone()];
    let query = format!("do=cancel&id={}&id={}&id={}&id=delivery_{}", ids[0], ids[1], ids[2], "0".repeat(32));
    let shown = preview(&admin, &query).await;
    for text in
        ["Cancel 1 delivery?", "1 other is being attempted now", "2 selected deliveries are in another state or gone"]
    {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    let form = forms(&shown.text).into_iter().find(|form| form.is_post && form.action == "act").expect("a form");
    assert_eq!(form.fields.iter().filter(|(name, _)| name == "id").count(), 4);
    let said = admin.does(&form, &[]).await;
    assert_eq!(said, "1 delivery cancelled. 1 delivery skipped: being attempted.", "the preview told of the others");
    assert_eq!(states(&outbox, &ids).await, ["cancelled", "pending", "dead"]);
    let ended = admin.get("/deliveries?state=cancelled").await.text;
    assert!(ended.contains("delivery?id=") && !ended.contains("Selected:"), "nothing can be done with them: {ended}");
    // All of a destination.
    let running = admin.get(&format!("/delivery?id={}", leased[0].id)).await;
    judge("/delivery", &running);
    assert!(running.text.contains(": attempt 1 is in progress</p>"), "{}", running.text);
    assert!(running.text.contains("Attempt 1 is in progress. If its outcome is not recorded by "), "{}", running.text);
    assert!(!running.text.contains("act?do="), "nothing can be done now: {}", running.text);
    let destination = destination_of(&outbox, &delivery(&waits, &webhook("a"))).await;
    let page = admin.get("/destinations").await;
    assert!(page.text.contains("Retry all…"), "{}", page.text);
    let shown = preview(&admin, &format!("do=retry&destination={destination}")).await;
    assert!(
        shown.text.contains("Retry 1 delivery made up to ") && shown.text.contains("1 other is being"),
        "{}",
        shown.text
    );
    // With the other filters of the API, not all that wait there are meant.
    for narrower in ["before=2026-01-01", "alert=0123456789abcdef"] {
        let shown = preview(&admin, &format!("do=retry&destination={destination}&{narrower}")).await;
        assert!(shown.text.contains("Retry 0 deliveries made up to "), "{narrower}: {}", shown.text);
        let listed = admin.get(&format!("/deliveries?{narrower}")).await;
        judge("/deliveries", &listed);
        assert!(listed.status == 200 && listed.text.contains("No such delivery"), "{narrower}: {}", listed.text);
    }
    let form = forms(&shown.text).into_iter().find(|form| form.is_post && form.action == "act").expect("a form");
    assert_eq!(admin.does(&form, &[]).await, "1 delivery is due now. 1 delivery skipped: being attempted.");
    // One, which its id finds, or the beginning that pages show.
    for id in [dead[0].as_str(), &dead[0].as_str()[..17]] {
        let found = admin.get(&format!("/subjects?q={id}")).await;
        assert_eq!((found.status, found.header("location")), (303, format!("delivery?id={}", dead[0]).as_str()));
    }
    let page = admin.get(&format!("/delivery?id={}", dead[0])).await;
    assert!(
        page.text.contains("Send it again: replay…") && !page.text.contains("quotabell deliveries retry"),
        "{}",
        page.text
    );
    let form = forms(&preview(&admin, &format!("do=discard&id={}", dead[0])).await.text).pop().expect("a form");
    let answer = admin.post(&form, &[]).await;
    assert!(
        answer.header("location").starts_with(&format!("delivery?id={}&sent=", dead[0])),
        "{}",
        answer.header("location")
    );
    assert_eq!(outbox.totals().await.dead_kept, 0);
    // Somebody who looks at it later must learn who left it dead, and the log whose it is.
    let page = admin.get(&format!("/delivery?id={}", dead[0])).await;
    assert!(page.text.contains("<p>Discarded by ops at <time "), "{}", page.text);
    let log = admin.get("/log").await;
    assert!(log.text.contains("<td>discardDelivery</td>\n<td><a href=\"subject?id=ann\">"), "{}", log.text);
    for (query, said) in [
        ("do=cancel", "No delivery is selected"),
        ("do=melt&all=true", "Do: must be replay, retry, cancel or discard"),
        ("do=replay&state=pending", "only dead ones"),
        ("do=replay&id=delivery_x", "Id: must be delivery_ and 32 hex digits"),
    ] {
        let answer = admin.get(&format!("/act?{query}")).await;
        assert!(answer.status == 400 && answer.text.contains(said), "{query}: {}", answer.text);
        judge("/act", &answer);
        assert!(!answer.text.contains("Bad Request"), "{query}: {}", answer.text);
    }
    for (action, list) in [("replay", "deliveries?state=dead"), ("retry", "deliveries?state=pending")] {
        let page = admin.get(&format!("/act?do={action}")).await;
        let way_back = decoded(&page.text).contains(&format!("<a href=\"{list}\">Back to the page</a>"));
        assert!(way_back, "{action}: {}", page.text);
    }
    daemon.drain().await;
}

/// The name of a delivery's destination, as the value of a query.
async fn destination_of(outbox: &Outbox, id: &DeliveryId) -> String {
    let name: String = outbox.run("HGET", &[outbox.keys.delivery(id).as_str(), "destination"]).await;
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect()
}
