//! The console while Redis is away: who sees which page again, and that nobody can act on it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::binary::quotabell;
use crate::support::books::raise;
use crate::support::console::{ADMIN, Answer, READ, SAME_ORIGIN, Visitor, forms, judge, with_tokens};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, json as stored, subject, webhook};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

const PAGES: [&str; 9] = [
    "/",
    "/near?percent=80",
    "/subject?id=alice",
    "/alerts",
    "/deliveries?state=pending",
    "/destinations",
    "/mutes",
    "/system",
    "/log",
];

/// A subject with an alert that waits to be sent.
async fn filled() -> Outbox {
    let outbox = Outbox::on(RedisServer::start_durable());
    let raised = raise(&outbox.client, "alice", 80, 4200, 1000).await;
    outbox.set_contacts(&subject("alice"), &stored(&[webhook("b")])).await;
    outbox.fan_out_new(&raised, &[webhook("b")]).await;
    outbox
}

fn is_last(answer: &Answer) -> bool {
    assert_eq!(answer.status, 503, "{}", answer.text);
    answer.text.contains("<fieldset class=\"stale\" disabled>")
}

/// An operator who looks while Redis is away must find more than an error, and nothing that only seems to work.
#[tokio::test]
async fn without_redis_a_session_sees_its_pages_again_without_controls() {
    let mut outbox = filled().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let (admin, read) = (Visitor::new(address).log_in(ADMIN).await, Visitor::new(address).log_in(READ).await);
    for page in PAGES.into_iter().chain(["/settings?id=alice", "/nothing"]) {
        admin.get(page).await;
    }
    assert_eq!(read.get("/near").await.status, 200);
    outbox.server.kill();
    for page in PAGES {
        let last = admin.get(page).await;
        judge(page, &last);
        assert!(is_last(&last) && last.text.contains("it is the state as of 20"), "{page}: {}", last.text);
        assert!(last.text.contains("ops (admin)"), "{page}: {}", last.text);
        // What is left is disabled by the fieldset or by itself, except what works without Redis.
        let (_, after) = last.text.split_once("<fieldset").expect("a fieldset");
        let (inside, _) = after.split_once("</fieldset>").expect("its end");
        let acts = |html: &str| forms(html).into_iter().filter(|form| form.is_post).map(|form| form.action);
        assert_eq!(acts(inside).count(), 0, "{page}: {inside}");
        assert_eq!(acts(&last.text).collect::<Vec<_>>(), ["logout"], "{page}");
        assert!(!inside.contains("href=\"act?"), "{page}: {inside}");
        assert!(last.text.contains("autocomplete=\"off\" disabled>"), "the search: {}", last.text);
    }
    assert!(admin.get("/subject?id=alice").await.text.contains("4,200 of 5,000"));
    // What this session has not read, what is only a form, and what another session has read.
    for (visitor, page) in [
        (&admin, "/near"),
        (&admin, "/settings?id=alice"),
        (&admin, "/nothing"),
        (&read, "/"),
        (&read, "/near?percent=80"),
    ] {
        let answer = visitor.get(page).await;
        judge(page, &answer);
        assert!(!is_last(&answer) && answer.text.contains("Redis does not answer: try again"), "{}", answer.text);
        assert!(answer.text.contains("<a href=\"\">Try again</a>"), "{page}: {}", answer.text);
    }
    let seen = read.get("/near").await;
    assert!(is_last(&seen) && seen.text.contains("viewer (read)"), "{}", seen.text);
    assert_eq!(Visitor::new(address).get("/").await.header("location"), "login");
    let cookie = read.cookie.clone().expect("a session");
    for forged in [format!("{cookie}A"), cookie.replace("=read.", "=admin.")] {
        let visitor = Visitor { cookie: Some(forged.clone()), ..Visitor::new(address) };
        for page in ["/", "/near"] {
            assert!(!is_last(&visitor.get(page).await), "{forged} {page}");
        }
    }
    // Logging out needs no Redis, and takes the pages along.
    let out = read.send("POST", "/logout", &SAME_ORIGIN, "").await;
    assert!(out.status == 303 && out.header("set-cookie").contains("Max-Age=0"), "{}", out.text);
    assert!(!is_last(&read.get("/near").await));
    outbox.server.restart();
    let page = eventually("the console is back", || async {
        let page = admin.get("/deliveries?state=pending").await;
        (page.status == 200).then_some(page)
    })
    .await;
    assert!(!page.text.contains("stale") && !forms(&page.text).is_empty(), "{}", page.text);
    daemon.drain().await;
}

/// A token is taken from somebody for a reason: what it opened must not stay open while Redis is away.
#[tokio::test]
async fn a_page_that_was_read_ends_with_its_session() {
    let mut outbox = filled().await;
    let (mut daemon, address, folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    assert_eq!(admin.get("/near").await.status, 200);
    std::fs::write(folder.path().join("admin"), "another-0123456789abcdef").expect("writable");
    daemon.signal(Signal::SIGHUP);
    daemon.says("reload").await;
    let new = eventually("the new token is in effect", || async {
        let same = Visitor::new(address);
        let answer = same.send("POST", "/login", &SAME_ORIGIN, "token=another-0123456789abcdef").await;
        (answer.status == 303).then_some(())
    });
    new.await;
    // The key of these sessions is gone, and the next visit of anybody learns that.
    let viewer = Visitor::new(address).log_in(READ).await;
    assert_eq!(viewer.get("/near").await.status, 200);
    let () = outbox.run("DEL", &[outbox.keys.console_key().as_str()]).await;
    let later = Visitor::new(address).log_in(READ).await;
    assert_eq!(later.get("/near").await.status, 200);
    outbox.server.kill();
    for (visitor, may_see) in [(&admin, false), (&viewer, false), (&later, true)] {
        assert_eq!(is_last(&visitor.get("/near").await), may_see);
    }
}

/// What was erased elsewhere must not come back while Redis is away.
#[tokio::test]
async fn a_page_from_before_an_erasure_is_not_shown_again() {
    let mut outbox = filled().await;
    let (_daemon, address, _folder) = with_tokens(&outbox).await;
    let (admin, viewer) = (Visitor::new(address).log_in(ADMIN).await, Visitor::new(address).log_in(READ).await);
    assert!(admin.get("/subject?id=alice").await.text.contains("4,200 of 5,000"));
    let erased = quotabell(["subject", "remove", "alice", "--everything"]).redis(&outbox.server.url()).run();
    assert!(erased.stderr.contains("1 alerts"), "{}", erased.stderr);
    for _ in 0..2 {
        // The first visit learns of the erasure.
        assert_eq!(viewer.get("/near").await.status, 200);
    }
    outbox.server.kill();
    assert!(!is_last(&admin.get("/subject?id=alice").await));
    assert!(is_last(&viewer.get("/near").await));
}

/// A ranking of a million subjects takes longer than a page should.
#[tokio::test]
async fn a_page_does_not_wait_for_a_long_ranking() {
    let outbox = filled().await;
    let proxy = Proxy::to(outbox.server.port()).await;
    let setup = DaemonSetup::on(&proxy.url()).argument("--no-send");
    let mut daemon = setup.env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").start().await;
    let visitor = Visitor::new(daemon.console().await);
    let page = "/top?by=used&metric=requests";
    // The counters are read with 16 calls.
    proxy.set(Fault::Delay(Duration::from_millis(30)));
    let soon = visitor.get(page).await;
    judge(page, &soon);
    assert!(soon.text.contains("The ranking is being made"), "{}", soon.text);
    assert!(soon.text.contains("<a href=\"top?metric=requests&amp;by=used") && soon.text.contains("data-refresh"));
    proxy.set(Fault::None);
    let made = eventually("the ranking is made", || async {
        let made = visitor.get(page).await;
        made.text.contains("Counters examined: 1.").then_some(made)
    })
    .await;
    assert!(made.text.contains("alice") && !made.text.contains("data-refresh"), "{}", made.text);
    daemon.drain().await;
}

/// Without a token everybody on this machine may look, also while Redis is away.
#[tokio::test]
async fn without_a_token_this_machine_sees_the_pages_again() {
    let mut outbox = filled().await;
    let setup = DaemonSetup::on(&outbox.server.url()).argument("--no-send");
    let mut daemon = setup.env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").start().await;
    let visitor = Visitor::new(daemon.console().await);
    assert_eq!(visitor.get("/near").await.status, 200);
    outbox.server.kill();
    let last = visitor.get("/near").await;
    judge("/near", &last);
    assert!(is_last(&last) && last.text.contains("4,200 of 5,000"), "{}", last.text);
    assert!(!is_last(&visitor.get("/alerts").await));
}
