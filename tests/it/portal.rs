//! The portal on the real daemon: who may see what, and that every link and form leads to a page.

use std::collections::BTreeSet;

use crate::support::binary::quotabell;
use crate::support::books::{raise, record};
use crate::support::console::{Answer, Visitor, decoded, forms, found, judge_html};
use crate::support::contacts_api::ContactsApi;
use crate::support::outbox::{in_period, subject};
use crate::support::redis_server::RedisServer;
use quotabell::contacts::Contact;
use quotabell::redis_client::Partitions;
use quotabell::signing::{PortalClaims, PortalRight, PortalUrls};
use quotabell::types::{BillingStart, Keys, Locale, PeriodSpan, UnixMs, Window};
use quotabell::zones::Zone;
use serde_json::{Value, json};
use url::Url;

const PUBLIC: &str = "https://quota.example.com/base";
/// Names that are HTML, templates, paths, marks that turn text around, and a long one.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "{{ 7*7 }}{% raw %}",
    "a%2fb/../c?d=e&f#g",
    "\u{202e}evil",
    "'\"><b>",
    "\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}\u{1d54f}",
];
const FALLBACK: &str = r#"[{"channel":"email","address":"fallback@operator.test"}]"#;
const OPERATOR: &str = r#"[{"channel":"email","address":"copies@operator.test"}]"#;

async fn start() -> ContactsApi {
    ContactsApi::start_with(|setup| setup.env("QUOTABELL__FALLBACK__CONTACTS", FALLBACK)).await
}

async fn visitor(api: &mut ContactsApi) -> Visitor {
    Visitor::new(api.daemon.http().await)
}

/// The path of a new link to the portal of a subject.
async fn link_to(api: &ContactsApi, of: &str, body: &Value) -> String {
    let of: String = url::form_urlencoded::byte_serialize(of.as_bytes()).collect();
    let answer = api.caller.post(&format!("/v1/subjects/{}/portal", of.replace('+', "%20")), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let link = answer.json()["url"].as_str().expect("a URL").to_owned();
    link.strip_prefix(PUBLIC).expect("below the public URL").to_owned()
}

fn may_all() -> Value {
    json!({"may": ["view", "contacts"]})
}

/// A link with these claims, as the daemon signs it.
async fn signed(api: &ContactsApi, change: impl FnOnce(&mut PortalClaims)) -> String {
    let now = api.outbox.client.server_time().await.expect("TIME works");
    let mut claims = PortalClaims {
        subject: subject("alice"),
        id: "x".to_owned(),
        issued_at: now,
        expires_at: now.plus(60_000),
        right: PortalRight::View,
        metrics: None,
        locale: None,
        return_url: None,
    };
    change(&mut claims);
    let first = Partitions::new(&api.outbox.client, &Keys::new("usage")).first().clone();
    let urls = PortalUrls {
        first,
        public_url: Url::parse("http://x.test").expect("a URL"),
        link_lifetime: std::time::Duration::ZERO,
    };
    urls.url_of(&claims).await.expect("redis answers").replace("http://x.test", "")
}

/// The own contacts of a subject, as its settings have them.
async fn set_contacts(api: &ContactsApi, of: &str, contacts: &Value) {
    api.outbox.set_contacts(&subject(of), &contacts.to_string()).await;
}

fn says<'a>(answer: &'a Answer, class: &str) -> &'a str {
    found(&answer.text, &format!("<p [^>]*class=\"{class}\"[^>]*>([^<]*)<")).first().copied().unwrap_or_default()
}

/// Under a proxy's path, with names that are HTML, no link may lead nowhere and no page may break, in any language.
#[tokio::test]
async fn every_link_and_form_below_a_prefix_leads_to_a_page_that_is_well_formed() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    for (name, locale) in HOSTILE.into_iter().chain(["alice"]).zip(["en", "vi"].into_iter().cycle()) {
        let contacts = json!([{"id": "<b>id", "channel": "email", "address": "own@b.test"},
            {"channel": "email", "address": "new@b.test", "verified": false},
            {"channel": "webhook", "url": "http://127.0.0.1:9/secret-path", "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}]);
        set_contacts(&api, name, &contacts).await;
        api.use_units(name, 90).await;
        let mut body = may_all();
        body["locale"] = locale.into();
        let path = link_to(&api, name, &body).await;
        let base = Url::parse("http://proxy.test/a/prefix").expect("a URL");
        let base = base.join(&format!("/a/prefix{path}")).expect("a URL");
        let (mut open, mut seen, mut sent) = (vec![base.clone()], BTreeSet::new(), 0);
        while let Some(url) = open.pop() {
            if !seen.insert(url.clone()) {
                continue;
            }
            let path =
                url.path().strip_prefix("/a/prefix").unwrap_or_else(|| panic!("{url} leaves the prefix")).to_owned();
            let answer =
                visitor.get(&url.query().map_or_else(|| path.clone(), |query| format!("{path}?{query}"))).await;
            assert_eq!(answer.status, 200, "{url}: {}", answer.text);
            if path.starts_with("/portal/assets/") {
                assert!(answer.header("cache-control").contains("immutable"), "{url}");
                continue;
            }
            judge_html(&path, &answer);
            assert!(answer.text.contains(&format!("<html lang=\"{locale}\" dir=\"ltr\">")), "{}", answer.text);
            assert!(!answer.text.contains("secret-path") && answer.header("set-cookie").is_empty());
            for link in found(&answer.text, "href=\"([^\"]*)\"").into_iter().map(decoded) {
                let mut target = url.join(&link).expect("a URL");
                target.set_fragment(None);
                open.push(target);
            }
            if seen.len() > 1 {
                continue;
            }
            for form in forms(&answer.text) {
                let target = url.join(&form.action).expect("a URL");
                let path = target.path().strip_prefix("/a/prefix").expect("below the prefix");
                let buttons = form.actions.iter().map(|action| vec![("do", action.as_str())]).collect::<Vec<_>>();
                for button in if buttons.is_empty() { vec![vec![]] } else { buttons } {
                    let answer = visitor.send("POST", path, &[], &format!("{}&", form.body(&button))).await;
                    sent += 1;
                    match answer.status {
                        303 => open.push(target.join(answer.header("location")).expect("a URL")),
                        400 | 403 | 404 | 409 | 429 => {
                            judge_html(path, &answer);
                            assert!(!says(&answer, "fault").is_empty(), "{}", answer.text);
                        }
                        other => panic!("{path} {button:?}: {other} {}", answer.text),
                    }
                }
            }
        }
        assert!(seen.len() > 3 && sent >= 8, "{name}: {} pages, {sent} forms", seen.len());
    }
    api.daemon.drain().await;
}

/// A wrong link must open nothing, say why and how to get another one, and change nothing.
#[tokio::test]
async fn a_route_answers_by_the_token_alone() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    let contacts = json!([{"id": "main", "channel": "email", "address": "own@alice.test"},
        {"id": "hers", "channel": "email", "address": "hers@alice.test", "verified": true}]);
    set_contacts(&api, "alice", &contacts).await;
    set_contacts(&api, "bob", &json!([{"id": "his", "channel": "email", "address": "own@bob.test"}])).await;
    let whole = link_to(&api, "alice", &may_all()).await;
    let token = whole.trim_start_matches("/portal/").trim_end_matches('/');
    let (text, signature) = token.split_once('.').expect("two parts");
    let bobs = link_to(&api, "bob", &may_all()).await;
    let forged = format!("{text}.{}", bobs.trim_end_matches('/').split_once('.').expect("two parts").1);
    let expired = signed(&api, |claims| claims.expires_at = UnixMs(claims.issued_at.0)).await;
    let view = link_to(&api, "alice", &json!({})).await;
    let posts = [
        "do=mute&for=1d&contact=main",
        "do=remove&contact=hers",
        "do=test&contact=main",
        "do=thresholds&thresholds=80&contact=main",
        "do=ask&contact=main",
        "do=confirm&code=000000&contact=main",
    ];
    let before = api.contacts("alice").await;
    for (path, status, failure) in [
        (format!("/portal/{}/", &token[..token.len() - 1]), 404, "It is not complete"),
        (format!("/portal/{text}/"), 404, "It is not complete"),
        (format!("/portal/x{text}.{signature}/"), 404, "It is not complete"),
        (format!("/portal/{forged}/"), 404, "It is not complete"),
        ("/portal/%ff/".to_owned(), 404, "It is not complete"),
        (expired, 410, "in the next alert"),
    ] {
        let page = visitor.get(&path).await;
        judge_html(&path, &page);
        assert!(page.status == status && page.text.contains(failure), "{path}: {} {}", page.status, page.text);
        assert!(!page.text.contains("alice") && !page.text.contains("b.test"), "{}", page.text);
        for (below, body) in
            posts.iter().map(|body| ("contact", *body)).chain([("contacts", "channel=email&address=x@b.test")])
        {
            let answer = visitor.send("POST", &format!("{path}{below}"), &[], body).await;
            assert_eq!(answer.status, status, "{path}{below}: {}", answer.text);
        }
    }
    let cut = visitor.get("/portal/").await;
    judge_html("/portal/", &cut);
    assert!(cut.status == 404 && cut.text.contains("It is not complete"), "{} {}", cut.status, cut.text);
    assert_eq!(visitor.get("/portal").await.status, 303);
    // The menu of a contact promises nothing that it lacks: the customer did not add the first.
    let cards = visitor.get(&whole).await.text;
    let cards = found(&cards, "(?s)<section class=\"card\" id=\"c[0-9]+\">(.*?)</section>");
    assert_eq!(cards.iter().map(|card| card.contains("value=\"remove\"")).collect::<Vec<_>>(), [false, true]);
    let menus = cards.iter().map(|card| found(card, "<summary>([^<]*)</summary>")[0]);
    assert_eq!(menus.collect::<Vec<_>>(), ["Change this contact"; 2]);
    // With the link for viewing, the same for every form.
    let page = visitor.get(&view).await;
    assert!(
        page.status == 200 && page.text.contains(">o…@alice.test<") && forms(&page.text).is_empty(),
        "{}",
        page.text
    );
    assert!(!page.text.contains("own@"), "{}", page.text);
    for (below, body) in
        posts.iter().map(|body| ("contact", *body)).chain([("contacts", "channel=email&address=x@b.test")])
    {
        let answer = visitor.send("POST", &format!("{view}{below}"), &[], body).await;
        judge_html(below, &answer);
        assert!(answer.status == 403 && answer.text.contains("for viewing only"), "{}", answer.text);
    }
    // Bob's link, which may everything, with the ids of Alice's contacts.
    for body in posts {
        let body = format!("{body}&subject=alice&id=alice");
        let answer = visitor.send("POST", &format!("{bobs}contact?subject=alice"), &[], &body).await;
        assert_eq!((answer.status, says(&answer, "fault")), (404, "This contact is gone."), "{body}");
    }
    assert_eq!(api.contacts("alice").await, before);
    // Below a link, its page is the way on, in the language of the link.
    let vi = link_to(&api, "alice", &json!({"locale": "vi"})).await;
    for (path, status, way_on) in [
        ("/portal/x/y/z".to_owned(), 404, None),
        ("/portal/assets/x.css".to_owned(), 404, None),
        (format!("{whole}x/y"), 404, Some("<a href=\".././\">To your usage</a>")),
        (format!("{vi}x"), 404, Some("<a href=\"./\">Đến mức sử dụng của bạn</a>")),
    ] {
        let answer = visitor.get(&path).await;
        judge_html(&path, &answer);
        assert_eq!(answer.status, status, "{path}");
        let text = decoded(&answer.text);
        assert_eq!(found(&text, "<p>(<a .*</a>)</p>"), way_on.into_iter().collect::<Vec<_>>(), "{path}: {text}");
    }
    // An expired link leads back to where it came from, if that was signed.
    let back = signed(&api, |claims| {
        claims.expires_at = UnixMs(claims.issued_at.0);
        (claims.locale, claims.return_url) = (Locale::parse("vi").ok(), Some("https://app.test/a".to_owned()));
    })
    .await;
    let page = visitor.get(&back).await;
    assert!(page.status == 410 && page.text.contains("Liên kết này đã hết hạn"), "{}", page.text);
    let way_back = found(&page.text, "<a href=\"([^\"]*)\" target=\"_top\"");
    assert_eq!(decoded(&way_back.concat()), "https://app.test/a", "{}", page.text);
    let (text, _) = back.split_once('.').expect("two parts");
    let page = visitor.get(&format!("{text}.{signature}/")).await;
    assert!(page.status == 404 && !page.text.contains("app.test"), "{}", page.text);
    // Somebody opens the address of a form that was refused.
    for form in ["contacts", "contact"] {
        let opened = visitor.get(&format!("{whole}{form}")).await;
        assert_eq!((opened.status, opened.header("location")), (303, "./"), "{form}");
    }
    for query in ["", "?told=added"] {
        let cut = visitor.get(&format!("{}{query}", whole.trim_end_matches('/'))).await;
        assert_eq!((cut.status, cut.header("location")), (303, format!("./{token}/{query}").as_str()));
    }
    api.daemon.drain().await;
}

/// A customer that sees a number or an address of another one will never trust the service again.
#[tokio::test]
async fn nothing_of_others_and_nothing_of_the_operator_is_shown() {
    let mut api = ContactsApi::start_with(|setup| {
        let setup = setup.env("QUOTABELL__FALLBACK__CONTACTS", FALLBACK).env("QUOTABELL__OPERATOR__CONTACTS", OPERATOR);
        setup.env("QUOTABELL__SUBJECTS__SEPARATOR", "/").env("QUOTABELL__SUBJECTS__DEFAULT_PLANS", r#"["free","free"]"#)
    })
    .await;
    let visitor = visitor(&mut api).await;
    set_contacts(&api, "acme", &json!([{"channel": "email", "address": "all@acme.test", "subtree": true}])).await;
    let disabled =
        json!({"reason": "no_mailbox", "detail": "SMTP 550 the receiver said this", "at": "2026-11-21T08:37:00Z"});
    let own = json!([{"channel": "email", "address": "own@x.test", "muted": true, "muted_reason": "they do not pay"},
        {"channel": "email", "address": "gone@x.test", "disabled": disabled}]);
    set_contacts(&api, "acme/x", &own).await;
    set_contacts(&api, "bob", &json!([{"channel": "email", "address": "own@bob.test"}])).await;
    for (name, units) in [("bob", 97), ("acme/y", 1), ("free", 83), ("acme/x", 85)] {
        api.use_units(name, units).await;
    }
    // Alerts of bob, acme, acme/x and free; copies of each for the operator.
    api.ended("muted", 1).await;
    for (name, shown) in [("acme/x", "85 of 100"), ("free", "83 of 100"), ("bob", "97 of 100")] {
        let path = link_to(&api, name, &may_all()).await;
        for target in [path.clone(), format!("{path}?subject=bob&id=bob&told=x")] {
            let page = visitor.get(&target).await;
            judge_html(&target, &page);
            let all =
                ["own@bob.test", "97 of 100", "all@acme.test", "86 of 100", "own@x.test", "85 of 100", "83 of 100"];
            let expected: &[&str] = match name {
                "bob" => &["own@bob.test", "97 of 100"],
                "free" => &["83 of 100"],
                _ => &["own@x.test", "85 of 100"],
            };
            assert!(page.text.contains(shown), "{name}: {}", page.text);
            for text in all {
                assert_eq!(page.text.contains(text), expected.contains(&text), "{name} and {text}: {}", page.text);
            }
            for text in ["operator.test", "SMTP 550", "they do not pay", "acme/y", "copy_", "fallback"] {
                assert!(!page.text.contains(text), "{name} and {text}: {}", page.text);
            }
        }
    }
    // An alert that reached only the operator reached nobody, as far as the customer can know.
    let page = visitor.get(&link_to(&api, "free", &json!({})).await).await;
    assert!(
        page.text.contains("None of your present contacts was notified.")
            && page.text.contains("You have no contacts here")
    );
    api.daemon.drain().await;
}

/// A customer hears of its hour and its month too, so it must find these alerts here.
#[tokio::test]
async fn alerts_of_every_window_are_shown() {
    let upgrade = "https://example.com/more?for={{ subject }}&what={{ metric }}";
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__PLANS__FREE__UPGRADE_URL", upgrade)).await;
    let raised = raise(&api.outbox.client, "alice", 80, 4200, 1000).await;
    let set = [
        api.outbox.keys.subject(&subject("alice")),
        "limit:requests".to_owned(),
        "5000/hour 5000/day 5000/month 5000/total".to_owned(),
    ];
    let () = api.outbox.run("HSET", &set).await;
    for window in [Window::Hour, Window::Month, Window::Total] {
        let span = PeriodSpan::containing(window, Zone::UTC, BillingStart::default(), raised.raised_at_ms);
        let period = span.expect("in the calendar").period;
        record(&api.outbox.client, &in_period(raised.clone(), period)).await;
    }
    let link = link_to(&api, "alice", &json!({})).await;
    let page = visitor(&mut api).await.get(&link).await.text;
    assert_eq!(found(&page, "<strong><bdi>(requests)</bdi>: ").len(), 4, "{page}");
    let links: Vec<String> = found(&page, "href=\"([^\"]*)\" target=\"_top\"").into_iter().map(decoded).collect();
    assert_eq!(links, ["https://example.com/more?for=alice&what=requests"; 4], "one for each window");
    api.daemon.drain().await;
}

/// A link for one product must not show another one.
#[tokio::test]
async fn a_link_may_be_limited_to_metrics_and_leads_back() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    let _: String =
        api.outbox.run("XADD", &["usage", "*", "subject", "alice", "metric", "tokens", "units", "77"]).await;
    api.use_units("alice", 81).await;
    let _: u64 =
        api.outbox.run("HSET", &["quota_subject:alice", "limit:tokens", "80/day 0/total", "locale", "vi-VN"]).await;
    crate::support::eventually::eventually("both are counted", || async {
        let usage = api.caller.get("/v1/subjects/alice/usage").await.json();
        (usage["metrics"].as_array()?.len() == 2).then_some(())
    })
    .await;
    let body = json!({"metrics": ["tokens"], "return_url": "https://app.example.com/a?b=c"});
    let page = visitor.get(&link_to(&api, "alice", &body).await).await;
    assert!(page.text.contains("77 trên 80") && !page.text.contains("requests"), "{}", page.text);
    assert!(page.text.contains("<p>Chưa có đơn vị nào được cấp.</p>"), "{}", page.text);
    let usage = api.caller.get("/v1/subjects/alice/usage").await.json();
    let of_tokens = usage["metrics"].as_array().expect("a list").iter().find(|metric| metric["metric"] == "tokens");
    let total = of_tokens.and_then(|metric| metric["windows"].as_array()?.last()).expect("a window");
    assert_eq!((&total["limit"], &total["forecast"]), (&json!(0), &json!({"state": "unknown"})), "{usage}");
    let back = found(&page.text, "<a href=\"([^\"]*)\" target=\"_top\"");
    assert_eq!(decoded(back[0]), "https://app.example.com/a?b=c", "{}", page.text);
    let both = visitor.get(&link_to(&api, "alice", &json!({"locale": "en"})).await).await;
    assert!(both.text.contains("77 of 80") && both.text.contains("81 of 100"), "{}", both.text);
    assert!(both.text.contains("80 % reached"), "{}", both.text);
    assert!(both.text.contains("<p>No units are granted yet.</p>"), "{}", both.text);
    assert!(!both.text.contains("The limit is reached."), "{}", both.text);
    // Neither a bar of nothing, nor a pace after the limit.
    let nothing = visitor.get(&link_to(&api, "carol", &json!({"locale": "en"})).await).await.text;
    assert!(nothing.contains("0 of 100") && !nothing.contains("class=\"share"), "{nothing}");
    api.use_units("carol", 105).await;
    let reached = crate::support::eventually::eventually("it is counted", || async {
        let page = visitor.get(&link_to(&api, "carol", &json!({"locale": "en"})).await).await.text;
        // In the card: the list of alerts is read after it.
        page.contains("<span>105 of 100</span>").then_some(page)
    })
    .await;
    assert!(reached.contains("class=\"share over\"") && !reached.contains("At this pace"), "{reached}");
    api.daemon.drain().await;
}

/// A value that is wrong must be told, and a link that was withdrawn must not come back with the next one.
#[tokio::test]
async fn links_are_made_with_care_and_end_when_they_are_revoked_or_their_subject_is_erased() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    for (body, problem) in [
        (json!({"for": "25h"}), "for: 25h is not above 0 and at most 24h"),
        (json!({"locale": "xx-nope"}), "locale: no page is in xx-Nope, only in en and vi"),
        (json!({"for": "0s"}), "is not above 0"),
        (json!({"for": "soon"}), "for: \"soon\" is not a duration"),
        (json!({"may": []}), "may: must be [\"view\"] or"),
        (json!({"may": ["contacts"]}), "may: must be [\"view\"] or"),
        (json!({"may": ["view", "view"]}), "may: must be [\"view\"] or"),
        (json!({"may": ["all"]}), "may[0]: unknown variant `all`, expected `view` or `contacts`"),
        (json!({"metrics": []}), "metrics: must be 1 to 32"),
        (json!({"metrics": ["a", "a"]}), "each once"),
        (json!({"metrics": ["A B"]}), "metrics[0]: metric must match"),
        (json!({"locale": "vi_VN"}), "locale: \"vi_VN\" is not a language tag"),
        (
            json!({"return_url": "javascript:alert(1)"}),
            "return_url: \"javascript:alert(1)\" is not an https or http URL",
        ),
        (json!({"return_url": "https://u:p@a.test/"}), "without a user"),
        (json!({"subject": "bob"}), "subject: unknown field"),
    ] {
        api.caller.post("/v1/subjects/alice/portal", &body).await.expect_problem(400, problem);
    }
    assert_eq!(api.caller.without_token().post("/v1/subjects/alice/portal", &json!({})).await.status, 401);
    let (alice, bob) = (link_to(&api, "alice", &json!({})).await, link_to(&api, "bob", &json!({})).await);
    assert_eq!(api.caller.delete("/v1/subjects/alice/portal").await.status, 204);
    let page = visitor.send("GET", &alice, &[("accept-language", "vi")], "").await;
    assert!(page.status == 410 && page.text.contains("Liên kết này đã bị thu hồi"), "{}", page.text);
    let newer = link_to(&api, "alice", &json!({})).await;
    for path in [&newer, &bob] {
        assert_eq!(visitor.get(path).await.status, 200, "{path}");
    }
    let actions = api.caller.get("/v1/actions").await.json().to_string();
    assert!(actions.contains("createPortalLink") && actions.contains("revokePortalLinks"), "{actions}");

    api.use_units("alice", 3).await;
    assert_eq!(api.caller.delete("/v1/subjects/alice").await.status, 200);
    assert_eq!(visitor.get(&newer).await.status, 410);
    let kept = api.texts("quota_portal_revoked*").await.concat();
    assert!(!kept.contains("alice"), "{kept}");
    let ttl: i64 = api.outbox.run("TTL", &revocations(&api).await[0]).await;
    assert!((690_000..=691_200).contains(&ttl), "{ttl}");
    assert_eq!(visitor.get(&link_to(&api, "alice", &json!({})).await).await.status, 200);

    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| {
        let command = quotabell([&["portal"], arguments].concat().into_iter()).redis(&url);
        command.env("QUOTABELL__HTTP__PUBLIC_URL", PUBLIC).run()
    };
    let printed = run(&["bob", "--contacts", "--for", "2h"]).expect_done();
    let path = printed.trim().strip_prefix(PUBLIC).expect("a link").to_owned();
    assert!(!forms(&visitor.get(&path).await.text).is_empty());
    run(&["bob", "--revoke"]).expect_done();
    assert_eq!(visitor.get(&path).await.status, 410);
    let wrong = run(&["bob", "--for", "2d"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("at most 24h"), "{}", wrong.told());
    let unknown = run(&["nosuch", "--locale", "vi-VN"]);
    assert!(
        unknown.code == 0 && unknown.stderr.contains("warning: nothing is known of nosuch yet"),
        "{}",
        unknown.told()
    );
    let wrong = run(&["bob", "--locale", "xx-nope"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("no page is in xx-Nope, only in en and vi"), "{}", wrong.told());
    assert!(!wrong.stderr.contains("nothing is known") && wrong.stdout.is_empty(), "{}", wrong.told());
    let unset = quotabell(["portal", "bob"]).redis(&url).run();
    assert!(unset.code == 1 && unset.stderr.contains("http.public_url is not set"), "{}", unset.told());
    // The key ends all links.
    let _: u64 = api.outbox.run("DEL", "quota_portal_key:{usage}").await;
    assert_eq!(visitor.get(&bob).await.status, 404);
    api.daemon.drain().await;
}

async fn revocations(api: &ContactsApi) -> Vec<String> {
    api.outbox.run("KEYS", "quota_portal_revoked:*").await
}

/// A link that was withdrawn must stay so, and none may live for more than a day, whatever the clock does.
#[tokio::test]
async fn a_clock_that_was_set_back_neither_keeps_nor_lengthens_links() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    let old = link_to(&api, "alice", &json!({})).await;
    assert_eq!(api.caller.delete("/v1/subjects/alice/portal").await.status, 204);
    // The clock was a day ahead when they were revoked.
    let ahead = api.outbox.client.server_time().await.expect("TIME works").plus(86_400_000);
    let key = revocations(&api).await.remove(0);
    let _: String = api.outbox.run("SET", &[key.as_str(), &ahead.0.to_string()]).await;
    let made = api.caller.post("/v1/subjects/alice/portal", &json!({"for": "24h"})).await.json();
    let ends: UnixMs = made["expires_at"].as_str().expect("a time").parse().expect("a time");
    let now = api.outbox.client.server_time().await.expect("TIME works");
    assert!(ends <= now.plus(86_400_000), "{ends:?} is more than a day after {now:?}");
    let newer = link_to(&api, "alice", &json!({})).await;
    assert_eq!((visitor.get(&old).await.status, visitor.get(&newer).await.status), (410, 200));
    assert_eq!(api.caller.delete("/v1/subjects/alice/portal").await.status, 204);
    let newest = link_to(&api, "alice", &json!({})).await;
    for (path, status) in [(&old, 410), (&newer, 410), (&newest, 200)] {
        assert_eq!(visitor.get(path).await.status, status, "{path}");
    }
    api.daemon.drain().await;
}

/// The page must not say that a customer's contact received what only the operator did.
#[tokio::test]
async fn a_delivery_to_the_fallback_is_not_shown_under_an_equal_id() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    api.use_units("alice", 85).await;
    api.ended("delivered", 1).await;
    let id = Contact::email("fallback@operator.test").id;
    let own = |address: &str| json!([{"id": id.as_str(), "channel": "email", "address": address}]);
    for (address, said) in
        [("own@b.test", "None of your present contacts was notified."), ("fallback@operator.test", "</bdi>: received")]
    {
        set_contacts(&api, "alice", &own(address)).await;
        let page = visitor.get(&link_to(&api, "alice", &may_all()).await).await;
        assert!(page.text.contains("85 of 100") && page.text.contains(said), "{address}: {}", page.text);
    }
    api.daemon.drain().await;
}

/// A customer who reloads while Redis is away must find more than an error, and nothing of anybody else.
#[tokio::test]
async fn without_redis_the_page_that_was_read_last_is_shown_without_forms() {
    let mut api = start().await;
    let visitor = visitor(&mut api).await;
    api.use_units("alice", 85).await;
    let (seen, unseen) = (link_to(&api, "alice", &may_all()).await, link_to(&api, "alice", &json!({})).await);
    let vi = link_to(&api, "alice", &json!({"may": ["view", "contacts"], "locale": "vi"})).await;
    let (expired, ends) = (link_to(&api, "bob", &json!({})).await, link_to(&api, "bob", &json!({"for": "1s"})).await);
    for path in [&seen, &expired, &ends] {
        assert_eq!(visitor.get(path).await.status, 200);
    }
    assert_eq!(api.caller.delete("/v1/subjects/bob/portal").await.status, 204);
    crate::support::eventually::eventually("it has expired", || async {
        (visitor.get(&ends).await.status == 410).then_some(())
    })
    .await;
    assert_eq!(visitor.get(&expired).await.status, 410, "revoked");
    api.outbox.server.kill();
    let page = visitor.get(&seen).await;
    judge_html(&seen, &page);
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("85 of 100") && page.text.contains("class=\"stale\""), "{}", page.text);
    assert!(says(&page, "fault").contains("This is the state as of"), "{}", page.text);
    assert!(forms(&page.text).is_empty(), "{}", page.text);
    let form = visitor.send("POST", &format!("{seen}contacts"), &[], "channel=email&address=a@b.test").await;
    judge_html("contacts", &form);
    assert!(form.status == 503 && form.text.contains("This could not be done at the moment."), "{}", form.text);
    // Nobody has seen these, or they open nothing any more.
    for path in [unseen.as_str(), &expired, &ends, &format!("{}x/", seen.trim_end_matches('/'))] {
        let page = visitor.get(path).await;
        judge_html(path, &page);
        assert!(
            page.status == 503 && decoded(&page.text).contains("<a href=\"./\">Try again</a>"),
            "{path}: {}",
            page.text
        );
        assert!(!page.text.contains("of 100"), "{path}: {}", page.text);
    }
    let form = visitor.send("POST", &format!("{vi}contacts"), &[], "channel=email&address=a@b.test").await;
    judge_html("contacts", &form);
    assert!(form.status == 503 && decoded(&form.text).contains("<a href=\"./\">Thử lại</a>"), "{}", form.text);
}

/// Another site that frames the page, or a header that nobody can read, would be the operator's embarrassment.
#[tokio::test]
async fn the_operator_may_brand_embed_and_translate_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let logo = folder.path().join("logo.svg");
    std::fs::write(&logo, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").expect("written");
    let templates = folder.path().join("templates");
    std::fs::create_dir_all(templates.join("ar")).expect("made");
    let english = include_str!("../../templates/portal.html");
    let write = |path: &str, text: &str| std::fs::write(templates.join(path), text).expect("written");
    write("ar/portal.html", &english.replace("Your usage", "استخدامك"));
    let set = |setup: crate::support::daemon::DaemonSetup| {
        setup
            .env("QUOTABELL__PORTAL__ORIGINS", r#"["https://app.example.com"]"#)
            .env("QUOTABELL__PORTAL__NAME", "Example & Co")
            .env("QUOTABELL__PORTAL__COLOR", "#ffee00")
            .env("QUOTABELL__PORTAL__LOGO_FILE", &logo.display().to_string())
            .env("QUOTABELL__PORTAL__TEMPLATES", &templates.display().to_string())
    };
    let mut api = ContactsApi::start_on(RedisServer::start(), set).await;
    let visitor = visitor(&mut api).await;
    let page = visitor.get(&link_to(&api, "alice", &json!({"locale": "ar-EG"})).await).await;
    judge_html("/", &page);
    assert!(page.header("content-security-policy").ends_with("frame-ancestors https://app.example.com"));
    assert!(page.text.contains("<html lang=\"ar\" dir=\"rtl\">") && page.text.contains("استخدامك"), "{}", page.text);
    let assets: Vec<String> = found(&page.text, "(?:href|src)=\"\\.\\.([^\"]*)\"").into_iter().map(decoded).collect();
    assert_eq!(assets.len(), 5, "{}", page.text);
    let mut texts = String::new();
    for asset in &assets {
        let answer = visitor.get(&format!("/portal{asset}")).await;
        assert_eq!(answer.status, 200, "{asset}");
        texts += &format!("{} {}", answer.header("content-type"), answer.text);
    }
    assert!(
        texts.contains("--brand: #ffee00; --on-brand: #000000;") && texts.contains("image/svg+xml <svg"),
        "{texts}"
    );
    api.daemon.drain().await;
    let check = |key: &str, value: &str| quotabell(["check-config", "--offline"]).env(key, value).run();
    write("portal.html", &english.replace("t.title", "t.titel").replace("\"title\"", "\"other\""));
    let broken = templates.display().to_string();
    for (key, value, told) in [
        ("ORIGINS", r#"["https://a.test/x"]"#, "is not the origin of a site"),
        ("COLOR", "blue", "is not a color such as \"#0b5fff\""),
        ("LOGO_FILE", "/nonexistent/logo.svg", "portal.logo_file: read"),
        ("TEMPLATES", &broken, "portal.templates: portal_layout.html, line"),
        ("LINK_LIFETIME", "8d", "8d is longer than 7d"),
    ] {
        let run = check(&format!("QUOTABELL__PORTAL__{key}"), value);
        assert!(run.code == 78 && run.stderr.contains(told), "{key}: {}", run.told());
    }
}
