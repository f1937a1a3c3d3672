//! What single pages of the console show.

use crate::support::binary::quotabell;
use crate::support::books::{raise, record};
use crate::support::console::{Visitor, found, judge};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, delivery, in_period, json as stored, outcome, settle, subject, webhook};
use quotabell::outbox::Settlement;
use quotabell::types::{Alert, Day, Metric, Outcome, OutcomeClass, keys};

/// A console for this machine, of a daemon that sends nothing, with these settings.
async fn console(outbox: &Outbox, settings: &str) -> (crate::support::daemon::Daemon, Visitor, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("quotabell.toml");
    std::fs::write(&config, settings).expect("writable");
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL_CONFIG", &config.display().to_string());
    let mut daemon = setup.env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").argument("--no-send").start().await;
    let visitor = Visitor::new(daemon.console().await);
    (daemon, visitor, folder)
}

/// An operator who reads 1,250 for 12.50 USD tells the customer a wrong number.
#[tokio::test]
async fn rows_show_the_names_of_metrics_and_amounts_in_their_unit() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "alice", 80, 4200, 1000).await;
    outbox.set_contacts(&subject("alice"), &stored(&[webhook("b")])).await;
    let key = outbox.keys.subject(&subject("alice"));
    let () = outbox.run("HSET", &[key.as_str(), "name", "Acme Inc."]).await;
    outbox.fan_out_new(&raised, &[webhook("b")]).await;
    let () = outbox.run("HSET", &[key.as_str(), "muted:requests", "2100-01-01T00:00:00Z"]).await;
    let settings =
        "[metrics.requests]\nname = \"API spend\"\nunit = \"USD\"\nscale = 2\n[metrics.calls]\nunit = \"call\"\n";
    let (daemon, visitor, _folder) = console(&outbox, settings).await;
    for page in ["/", "/near", "/alerts", "/subject?id=alice", "/top?by=used", "/deliveries"] {
        let answer = visitor.get(page).await;
        judge(page, &answer);
        assert!(answer.status == 200 && answer.text.contains("API spend"), "{page}: {}", answer.text);
        if page == "/top?by=used" {
            assert!(answer.text.contains(">42.00 USD<") && answer.text.contains(">50.00 USD<"), "{}", answer.text);
        } else if page != "/deliveries" {
            assert!(answer.text.contains("42.00 USD of 50.00 USD"), "{page}: {}", answer.text);
        }
        assert!(!answer.text.contains("4,200"), "{page}: {}", answer.text);
        let has_mute = ["/", "/near", "/alerts"].contains(&page);
        assert!(!has_mute || answer.text.contains("– now muted</span>"), "{page}: {}", answer.text);
        let has_name = !["/alerts", "/deliveries"].contains(&page);
        assert!(!has_name || answer.text.contains("Acme Inc."), "{page}: {}", answer.text);
    }
    for (page, name) in [
        ("/subject?id=alice", "<td>Limits of API spend (requests)</td>"),
        ("/subject?id=alice", "<td>Mute of API spend</td>"),
        ("/system", "API spend (requests) "),
        ("/near", "<a href=\"near?metric=calls\">calls</a>"),
        ("/near", "no forecast"),
        ("/alerts?subject=alice", "<th>Notified</th>"),
        ("/alerts?nobody=true", "Nobody was notified, or it waits for a contact"),
        ("/top?by=used", "<h2>API spend / day 2"),
        ("/top?by=used&metric=nosuch", "Nothing is counted under this metric in this period."),
    ] {
        assert!(visitor.get(page).await.text.contains(name), "{page} without {name}");
    }
    eventually("the mute is listed", || async {
        visitor.get("/mutes").await.text.contains("metric API spend<").then_some(())
    })
    .await;
    let csv = visitor.get("/near.csv").await;
    assert!(csv.text.contains(",notified,forecast,expected_at\r\n") && csv.text.contains(",on_the_way,unknown,\r\n"));
    assert!(csv.text.contains("alice,free,requests,") && csv.text.contains(",4200,5000,"), "{}", csv.text);
    daemon.drain().await;
}

/// Why has it not arrived? A page without the order and the time of what happened does not say.
#[tokio::test]
async fn the_attempts_of_a_delivery_are_a_timeline() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "alice", 80, 4200, 1000).await;
    outbox.fan_out_new(&raised, &[webhook("a"), webhook("b")]).await;
    let [one, other] = &outbox.lease("t", LONG).await.leased[..] else { panic!("two are due") };
    let failed = outcome(OutcomeClass::Transient);
    for (leased, end) in [
        (one, Settlement::Dead(outcome(OutcomeClass::Permanent))),
        (other, Settlement::Retry(failed, std::time::Duration::ZERO)),
    ] {
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
    }
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    for (leased, expected) in [
        (one, ["made", "failed for good", "<span class=\"state dead\">"]),
        (other, ["made", "</span> failed</strong>", "next attempt"]),
    ] {
        let page = visitor.get(&format!("/delivery?id={}", leased.id)).await;
        judge("/delivery", &page);
        let lists = found(&page.text, "(?s)<ol class=\"timeline\" role=\"list\">(.*?)</ol>");
        let items = found(lists[0], "(?s)<li[^>]*>(.*?)</li>");
        assert_eq!(items.len(), expected.len(), "{}", lists[0]);
        for (item, part) in items.iter().zip(expected) {
            assert!(item.contains(part) && item.contains("<time datetime=\""), "{part} is not in {item}");
        }
        assert!(items[1].contains(" ms") && items[1].contains("status 503"), "{}", items[1]);
    }
    // A receiver that fails now is no healthy one, although its circuit is closed.
    let page = visitor.get("/destinations").await;
    judge("/destinations", &page);
    for text in ["✗</span> fails, not open yet</span>", "<td class=\"number\">1</td><td>receiver answered 503</td>"] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
    // The attempt that is in progress has not failed, and nobody can act until it has ended.
    let again = outbox.lease_one("again", LONG).await;
    let page = visitor.get(&format!("/delivery?id={}", again.id)).await;
    judge("/delivery", &page);
    for text in [
        ": attempt 2 is in progress</p>",
        "It was attempted once; the last attempt failed",
        "Attempt 2 is in progress. If",
    ] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
    assert!(!page.text.contains("2 times") && !page.text.contains("To send it now"), "{}", page.text);
    daemon.drain().await;
}

/// An operator would look for a fault in a delivery that arrived at the second attempt, or ask which limit it is about.
#[tokio::test]
async fn a_row_says_which_limit_a_delivery_is_about_and_that_it_arrived_in_the_end() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "alice", 80, 4200, 1000).await;
    outbox.set_contacts(&subject("alice"), &stored(&[webhook("a")])).await;
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    let retry = Settlement::Retry(outcome(OutcomeClass::Transient), std::time::Duration::ZERO);
    for (token, end) in [("first", retry), ("second", Settlement::Delivered(Outcome::delivered()))] {
        let leased = outbox.lease_one(token, LONG).await;
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
    }
    let id = delivery(&raised, &webhook("a"));
    let () = outbox.run("HSET", &[outbox.keys.delivery(&id).as_str(), "sent_in", "digest_1"]).await;
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    for page in ["/deliveries", "/subject?id=alice"] {
        let answer = visitor.get(page).await;
        judge(page, &answer);
        let parts = ["alert: requests / day", "in a digest", "<td>before: receiver answered 503</td>"];
        for part in parts {
            assert!(answer.text.contains(part), "{part} is not in {page}: {}", answer.text);
        }
        assert!(!answer.text.contains("delivered ("), "{page}: {}", answer.text);
        assert!(page == "/deliveries" || answer.text.contains("(webhook): delivered"), "{}", answer.text);
    }
    daemon.drain().await;
}

/// An operator would take a forecast for a spike, and wait for a limit that is reached sooner.
#[tokio::test]
async fn a_notice_of_usage_names_its_kind_and_the_expected_time() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "judy", 80, 4200, 1000).await;
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    let notice = serde_json::json!({
        "id": "forecast_1", "kind": "forecast", "subject": "judy", "metric": "requests", "window": "day",
        "period": raised.period, "used": 4200, "limit": 5000, "plan": "free", "timezone": "UTC",
        "resets_at": "2100-01-02T00:00:00Z", "raised_at": "2100-01-01T11:00:00Z", "probability_percent": 93,
        "expected_at": "2100-01-01T14:30:00Z", "usual_by_now": 2000,
    });
    let (id, notice) = (delivery(&raised, &webhook("a")), notice.to_string());
    let key = outbox.keys.delivery(&id);
    let () = outbox.run("HSET", &[key.as_str(), "type", "usage_notice", "usage_notice", &notice]).await;
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let page = format!("/delivery?id={id}");
    for (page, text) in
        [("/deliveries", "notice of a forecast: requests / day"), (&page, "reached (93%, at about <time")]
    {
        let answer = visitor.get(page).await;
        judge(page, &answer);
        assert!(answer.text.contains(text), "{text} is not in {page}: {}", answer.text);
    }
    let shown =
        quotabell(["deliveries", "show", id.as_str(), "--json"]).redis(&outbox.server.url()).run().expect_done();
    assert!(shown.contains("\"usage_notice_kind\":\"forecast\""), "{shown}");
    daemon.drain().await;
}

/// Two numbers for one question make both of them doubtful.
#[tokio::test]
async fn the_overview_and_the_list_count_the_same_subjects_near_a_limit() {
    let outbox = Outbox::start();
    for (name, percent, used) in [("alice", 80, 4200), ("bob", 80, 5100), ("bob", 100, 5100), ("carol", 50, 2600)] {
        raise(&outbox.client, name, percent, used, 1000).await;
    }
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let overview = visitor.get("/").await;
    for (percent, subjects, list) in [(100, 1, "1 subject with 1 limit"), (80, 2, "2 subjects with 2 limits")] {
        let link = format!("<a href=\"near?percent={percent}\">{subjects}</a>");
        assert!(overview.text.contains(&link), "{link} is not in {}", overview.text);
        let near = visitor.get(&format!("/near?percent={percent}")).await;
        judge("/near", &near);
        assert!(near.text.contains(&format!("{list}. First those that run out next")), "{}", near.text);
    }
    assert!(!overview.text.contains("Not listed here") && overview.text.contains("<a href=\"near\">all</a>"));
    // Those that have run out already come last.
    for page in ["/", "/near"] {
        let text = visitor.get(page).await.text;
        let rows = found(&text, "<bdi>([a-z]+)</bdi></a></td><td>free</td>");
        assert_eq!(rows, ["alice", "carol", "bob"], "{text}");
        assert!(text.contains("</span> used up</span> since <time"), "{text}");
    }
    daemon.drain().await;
}

/// An operator would take the rows of the overview for all.
#[tokio::test]
async fn the_overview_says_how_many_subjects_near_a_limit_it_omits() {
    let outbox = Outbox::start();
    for name in ["ann", "bob", "cid", "dan", "eve", "fay", "gus"] {
        raise(&outbox.client, name, 100, 5100, 1000).await;
    }
    // Only a subject names this metric.
    let credits =
        Alert { metric: "credits".parse().expect("a metric"), ..raise(&outbox.client, "ann", 80, 5100, 1000).await };
    record(&outbox.client, &credits).await;
    let () = outbox.run("HSET", &[&outbox.keys.subject(&credits.subject), "limit:credits", "5000"]).await;
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let overview = visitor.get("/").await;
    judge("/", &overview);
    assert!(overview.text.contains("<p>Not listed here: 2 subjects at 80 % or above."), "{}", overview.text);
    // A filter that is wrong, or lists nothing, does not take the way to the metric away.
    for (query, link) in [("percent=no", "near?metric=credits&amp;percent=no"), ("metric=x", "near?metric=credits")] {
        let text = visitor.get(&format!("/near?{query}")).await.text;
        assert!(text.contains(&format!("<a href=\"{link}\">credits</a>")), "{query}: {text}");
    }
    daemon.drain().await;
}

/// A page that no navigation names is found by nobody, and one that is not marked tells nobody where they are.
#[tokio::test]
async fn the_navigation_has_every_list_and_marks_the_present_one() {
    let outbox = Outbox::start();
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    for (page, summary) in [("near", "More"), ("system", "More"), ("mutes", "More: Mutes"), ("log", "More: Log")] {
        let answer = visitor.get(&format!("/{page}")).await;
        assert_eq!(found(&answer.text, "(?s)<summary>(More.*?)</summary>"), [summary], "{page}");
        let nav = found(&answer.text, "(?s)<nav aria-label=\"Pages\">(.*?)</nav>")[0];
        assert_eq!(found(nav, "href=\"([a-z]+)\" aria-current=\"page\""), [page]);
        assert_eq!(found(nav, "<a href=\"([^\"]*)\"").len(), 11, "{nav}");
    }
    // An empty list says what fills it.
    for (page, command) in [("alerts", "emit"), ("near", "emit"), ("deliveries", "contact add")] {
        let text = visitor.get(&format!("/{page}")).await.text;
        let hints = found(&text, "<code>quotabell ([a-z ]+) [^<]*</code></p>");
        assert_eq!(hints.len(), 1, "{page}: {text}");
        assert!(hints[0].starts_with(command), "{page}: {hints:?}");
    }
    daemon.drain().await;
}

/// An operator who reads "gets alerts" of a muted subject looks for the missing alert elsewhere.
#[tokio::test]
async fn contacts_that_a_mute_silences_get_no_alerts() {
    let outbox = Outbox::start();
    let contacts = r#"[{"id":"of-all","channel":"email","address":"a@b.test"},
        {"id":"of-tokens","channel":"email","address":"t@b.test","metrics":["tokens"],"thresholds":[50]},
        {"id":"of-both","channel":"email","address":"b@b.test","metrics":["tokens","requests"]},
        {"id":"muted","channel":"email","address":"m@b.test","muted":true,"muted_until":"2100-01-03T00:00:00Z"}]"#;
    outbox.set_contacts(&subject("alice"), contacts).await;
    let key = outbox.keys.subject(&subject("alice"));
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let states = async || {
        let page = visitor.get("/subject?id=alice").await;
        judge("/subject", &page);
        let contacts = found(&page.text, "(?s)<h2 id=\"contacts\">(.*?)</table>")[0];
        let rows = found(contacts, "(?s)<tr><td>[a-z-]+</td><td>[^<]*</td>\\s*<td>(.*?)</td>");
        let text = |row: &str| {
            let parts = row.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
            parts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        rows.into_iter().map(text).collect::<Vec<_>>()
    };
    let itself = "– muted until 2100-01-03 00:00:00 UTC";
    assert_eq!(states().await, ["✓ gets alerts", "✓ gets alerts", "✓ gets alerts", itself]);
    let () = outbox.run("HSET", &[key.as_str(), "muted:tokens", "2100-01-01T00:00:00Z"]).await;
    assert!(visitor.get("/subject?id=alice").await.text.contains("<td>50 of tokens</td>"), "which alerts it gets");
    eventually("the muted metric is listed", || async {
        visitor.get("/subjects").await.text.contains("<td>tokens</td>").then_some(())
    })
    .await;
    let of_tokens = "– tokens is muted until 2100-01-01 00:00:00 UTC";
    let partly = format!("✓ gets alerts {of_tokens}");
    assert_eq!(states().await, [&partly, &format!("– gets nothing {of_tokens}"), &partly, itself]);
    let () = outbox.run("HSET", &[key.as_str(), "muted", "true moving"]).await;
    let all = "– gets nothing: the subject is muted until somebody ends it";
    assert_eq!(states().await, [all, all, all, itself]);
    daemon.drain().await;
}

/// A limit of 0 looks like a mistake if nobody says that grants raise it.
#[tokio::test]
async fn a_subject_shows_its_grants() {
    let outbox = Outbox::start();
    let key = outbox.keys.subject(&subject("alice"));
    let () = outbox.run("HSET", &[key.as_str(), "limit:credits", "0/total"]).await;
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    assert!(!visitor.get("/subject?id=alice").await.text.contains("<h2>Grants</h2>"));
    let grant = ["grant", "add", "alice", "12345", "--metric", "credits", "--id", "invoice-17", "--note", "<b>paid"];
    quotabell(grant).redis(&outbox.server.url()).run().expect_done();
    let page = visitor.get("/subject?id=alice").await;
    judge("/subject", &page);
    for text in [
        "<tr><td>invoice-17</td><td class=\"short\">credits / total</td><td>active</td>",
        "0 of 12,345<br>12,345 of them granted",
        "0/total, plus 12,345/total of grants",
        "&lt;b&gt;paid",
    ] {
        assert!(page.text.replace("&#x2f;", "/").contains(text), "{text}: {}", page.text);
    }
    daemon.drain().await;
}

/// A subject elsewhere that is missing in a ranking must not seem to use nothing.
#[tokio::test]
async fn a_ranking_says_whom_it_omits_and_ranks_another_period() {
    let outbox = Outbox::start();
    let raised = raise(&outbox.client, "alice", 80, 4200, 1000).await;
    let yesterday = Day::in_utc(raised.raised_at_ms).and_then(|today| today.before(1)).expect("a day");
    let elsewhere = in_period(quotabell::types::Alert { subject: subject("bob"), ..raised }, yesterday);
    record(&outbox.client, &elsewhere).await;
    let counter = outbox.keys.usage(&Metric::default(), yesterday, keys::bucket("bob"));
    let () = outbox.run("HSET", &[counter.as_str(), "bob", "7"]).await;
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let ranked = async |query: &str| {
        let page = visitor.get(&format!("/top?by=used{query}")).await;
        judge("/top", &page);
        let names = found(&page.text, "<bdi>([a-z]+)</bdi>").into_iter().map(str::to_owned).collect::<Vec<_>>();
        let note = page.text.contains("may be in another");
        (names, note, page.text.contains("the current one in UTC"))
    };
    assert_eq!(ranked("").await, (vec!["alice".to_owned()], true, true));
    // A third page of so few is empty.
    let next = format!("&after={}", quotabell::views::Cursor(200_usize));
    assert_eq!(ranked(&next).await, (vec![], true, true));
    assert_eq!(ranked(&format!("&period={yesterday}")).await, (vec!["bob".to_owned()], true, false));
    assert_eq!(ranked("&window=total").await, (vec![], false, false));
    assert_eq!(visitor.get("/top?by=used&period=lately").await.status, 400);
    let maybe = visitor.get("/alerts?nobody=maybe").await;
    judge("/alerts", &maybe);
    assert!(maybe.status == 400 && maybe.text.contains("Nobody: must be true or false"), "{}", maybe.text);
    // The same for the alerts of one subject.
    for (query, expected) in [("bob", vec!["bob"]), ("alice", vec!["alice"]), ("bob&metric=tokens", vec![])] {
        let page = visitor.get(&format!("/alerts?subject={query}")).await;
        judge("/alerts", &page);
        assert_eq!(found(&page.text, "<bdi>([a-z]+)</bdi>"), expected, "{query}: {}", page.text);
    }
    daemon.drain().await;
}

/// An operator who counts three rows of four believes that an event is lost.
#[tokio::test]
async fn refused_events_that_are_not_shown_are_counted() {
    let outbox = Outbox::start();
    let refused = outbox.keys.refused();
    for _ in 0..4 {
        let entry = [refused.as_str(), "*", "entry", "1-1", "reason", "bad_units", "detail", "no"];
        let () = outbox.run("XADD", &entry).await;
    }
    let (daemon, visitor, _folder) = console(&outbox, "").await;
    let page = visitor.get("/refused").await;
    judge("/refused", &page);
    let (rows, text) = (found(&page.text, "<tr>(<td>)").len(), &page.text);
    assert!(rows == 3 && text.contains("bad_units: 4") && text.contains("1 more. To list all"), "{text}");
    daemon.drain().await;
}

/// Two words for one plan look like two plans.
#[tokio::test]
async fn every_page_names_the_plan_that_is_in_effect() {
    let outbox = Outbox::start();
    for name in ["acme", "acme/x"] {
        let () = outbox.run("HSET", &[outbox.keys.subject(&subject(name)).as_str(), "timezone", "UTC"]).await;
    }
    let (daemon, visitor, _folder) = console(&outbox, "[subjects]\nseparator = \"/\"\n").await;
    let list = visitor.get("/subjects").await.text;
    assert_eq!(found(&list, "</a></td><td>([^<]*)</td>"), ["free", "none"], "{list}");
    for (name, plan) in [("acme", "free"), ("acme%2fx", "none")] {
        let page = visitor.get(&format!("/subject?id={name}")).await.text;
        assert!(page.contains(&format!("has plan {plan} and")), "{page}");
        assert!(page.contains(&format!("<td>Plan</td><td>{plan}</td><td>default</td>")), "{page}");
    }
    daemon.drain().await;
}
