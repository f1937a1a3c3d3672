//! What an admin does in the console: settings, contacts, mutes, sending, erasure. And who may not.

use crate::support::console::{ADMIN, Answer, READ, SAME_ORIGIN, Visitor, decoded, forms, found, judge, with_tokens};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, alert, email, json as stored, subject};
use crate::support::redis_server::RedisServer;
use quotabell::types::UnixMs;

/// Every form, and a page that has it.
const FORMS: [(&str, &str); 10] = [
    ("settings", "/settings?id=alice"),
    ("settings", "/settings"),
    ("contacts", "/subject?id=alice"),
    ("contact", "/subject?id=alice"),
    ("mute", "/subject?id=alice"),
    ("portal", "/subject?id=alice"),
    ("erase", "/erase?id=alice"),
    ("act", "/act?do=cancel&all=true"),
    ("sending", "/"),
    ("reload", "/system"),
];

async fn with_alice() -> Outbox {
    let outbox = Outbox::start();
    outbox.set_contacts(&subject("alice"), &stored(&[email("a")])).await;
    outbox
}

/// A page that refuses a form must show the same form, the fault, and the way to every other page.
fn judge_form(page: &str, refused: &Answer, action: &str) {
    let controls = |html: &str| {
        let all = found(html, "(?s)(<form [^>]*method=\"post\".*?</form>)").into_iter();
        let of_action = all.filter(|form| form.contains(&format!(" action=\"{action}\"")));
        let names = |form: &str| {
            let named = found(form, "<((?:input|select)[^>]* name=\"[^\"]*\")").into_iter();
            let shown = named.filter(|tag| !tag.contains("type=\"hidden\""));
            let shown =
                shown.map(|tag| (tag.split(' ').next().map(str::to_owned), found(tag, "name=\"(.*)\"").concat()));
            let labels = found(form, "<label for=\"[^\"]*\">([^<]*)<").into_iter().map(str::to_owned);
            (shown.collect::<Vec<_>>(), labels.collect::<Vec<_>>())
        };
        of_action.map(names).collect::<Vec<_>>()
    };
    let [shown] = &controls(&refused.text)[..] else { panic!("one form {action} is not in {}", refused.text) };
    assert!(controls(page).contains(shown), "{shown:?} is not in {page}");
    assert!(
        refused.text.contains("role=\"alert\"") && refused.text.contains("aria-label=\"Pages\""),
        "{}",
        refused.text
    );
    assert!(!refused.text.contains("data-refresh"), "a refresh would lose it: {}", refused.text);
}

/// What the log says: who, what, to whom and to what, the newest first.
async fn logged(visitor: &Visitor) -> Vec<String> {
    let page = visitor.get("/log").await;
    judge("/log", &page);
    let rows = found(&page.text, "(?s)<tr><td>\\s*<time.*?</td>(.*?)</tr>");
    let cell =
        |cell: &str| found(cell, ">([^<>]+)<").first().map_or_else(|| cell.trim().to_owned(), |text| decoded(text));
    let cells = |row: &str| found(row, "(?s)<td[^>]*>(.*?)</td>").into_iter().map(cell).collect::<Vec<_>>().join(" ");
    rows.into_iter().map(cells).collect()
}

/// The page of a subject, as links name it.
fn href(name: &str) -> String {
    format!("subject?id={}", url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>())
}

async fn field(outbox: &Outbox, name: &str, field: &str) -> Option<String> {
    outbox.run("HGET", &[outbox.keys.subject(&subject(name)).as_str(), field]).await
}

/// The second of two editors must not overwrite what the first has saved, nor lose what they have typed.
#[tokio::test]
async fn two_editors_of_one_subject_see_both_versions() {
    let outbox = with_alice().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let hostile = "<b>{{ 7*7 }}</b> 'x' \"y\" &amp;";
    let new = admin.form("/settings", "settings", &[]).await;
    let said = admin.does(&new, &[("subject", hostile), ("plan", "free")]).await;
    assert_eq!(said, "The settings are saved.");
    // A new subject must not look like a conflict with somebody else if its id exists. A contact is enough.
    for (name, page) in [("alice", "subject?id=alice".to_owned()), (hostile, href(hostile))] {
        let new = admin.form("/settings", "settings", &[]).await;
        let exists = admin.post(&new, &[("subject", name), ("locale", "vi")]).await;
        judge("/settings", &exists);
        let text = decoded(&exists.text);
        assert!(exists.status == 409 && text.contains(" exists already"), "{text}");
        assert!(text.contains(&format!("<a href=\"{page}\">")) && text.contains("value=\"vi\""), "{text}");
        assert!(!text.contains("Somebody else") && !text.contains("Save mine"), "{text}");
        assert_eq!(field(&outbox, name, "locale").await, None, "nothing is written");
    }
    let settings = href(hostile).replacen("subject", "/settings", 1);
    let (first, second) = (admin.form(&settings, "settings", &[]).await, admin.form(&settings, "settings", &[]).await);
    assert_eq!(admin.does(&first, &[("limits", "requests = 600/hour\nrequests=5000\n")]).await, said);
    assert_eq!(field(&outbox, hostile, "limit:requests").await.as_deref(), Some("600/hour 5000/day"));

    let mine = [("limits", "requests = 7"), ("timezone", "Asia/Tokyo")];
    let conflict = admin.post(&second, &mine).await;
    assert_eq!(conflict.status, 412, "{}", conflict.text);
    judge("/settings", &conflict);
    for text in ["requests = 600&#x2f;hour 5,000&#x2f;day", "requests = 7<", "Asia&#x2f;Tokyo"] {
        assert!(conflict.text.contains(text), "{text}: {}", conflict.text);
    }
    assert_eq!(field(&outbox, hostile, "timezone").await, None, "nothing is written");
    // The page has the form with what was typed.
    let again = forms(&conflict.text).into_iter().find(|form| form.action == "settings");
    let again = again.expect("the form");
    // Contacts and mutes that change meanwhile are no conflict.
    let key = outbox.keys.subject(&subject(hostile));
    let () = outbox.run("HSET", &[key.as_str(), "muted", "true"]).await;
    assert_eq!(admin.does(&again, &[]).await, "The settings are saved.");
    assert_eq!(field(&outbox, hostile, "limit:requests").await.as_deref(), Some("7"));
    assert_eq!(field(&outbox, hostile, "timezone").await.as_deref(), Some("Asia/Tokyo"));

    let new = admin.form("/settings", "settings", &[]).await;
    let wrong = admin.post(&new, &[("subject", "new one"), ("timezone", "Mars")]).await;
    assert!(wrong.status == 400 && wrong.text.contains("value=\"new one\""), "{}", wrong.text);
    // It is saved, whatever becomes of the warnings.
    let grants = outbox.keys.grants(&subject("eve"));
    let () = outbox.run("SET", &[grants.as_str(), "x"]).await;
    let said = admin.does(&new, &[("subject", "eve"), ("locale", "vi")]).await;
    assert!(
        said.starts_with("The settings are saved. Warning: could not check whether its grants still raise a limit"),
        "{said}"
    );
    // The page shows the fault beside the input.
    let form = admin.form("/settings?id=alice", "settings", &[("subject", "alice")]).await;
    assert!(admin.get("/settings?id=alice").await.text.contains("<option value=\"\">default (free)</option>"));
    for (name, wrong, said) in [
        ("timezone", "Mars/Olympus", "Time zone: &quot;Mars&#x2f;Olympus&quot; is not an IANA time zone"),
        ("limits", "requests 5", "Limits: &quot;requests 5&quot; is not METRIC = LIMITS"),
        ("limits", "requests = lots", "Limits of requests: &quot;lots&quot; is not a limit"),
        ("thresholds", "0", "Thresholds: "),
        ("billing_day", "40", "Months begin on day: "),
        ("plan", "gold", "Plan: there is no plan &quot;gold&quot;"),
    ] {
        let answer = admin.post(&form, &[(name, wrong), ("locale", "pt-BR")]).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        judge("/settings", &answer);
        assert!(answer.text.contains(said) && answer.text.contains("value=\"pt-BR\""), "{wrong}: {}", answer.text);
    }
    assert_eq!(admin.does(&form, &[("thresholds", "100, 50")]).await, "The settings are saved.");
    assert_eq!(field(&outbox, "alice", "thresholds").await.as_deref(), Some("50,100"));
    assert!(field(&outbox, "alice", "contacts").await.is_some(), "contacts stay");
    let log = logged(&admin).await;
    assert_eq!((log.len(), log[0].as_str()), (5, "ops replaceSubject alice - 1"));
    daemon.drain().await;
}

/// A reload or a second click must not do a thing twice.
#[tokio::test]
async fn a_form_takes_effect_once() {
    let outbox = with_alice().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let form = admin.form("/", "sending", &[]).await;
    let fields = [("do", "pause"), ("reason", "moving <b>")];
    let (one, other) = tokio::join!(admin.post(&form, &fields), admin.post(&form, &fields));
    assert_eq!((one.status, one.header("location")), (303, other.header("location")));
    let page = admin.after(&one).await;
    let said = "Sending is paused for all daemons; 0 attempts are still under way.";
    assert!(page.text.contains(said), "{}", page.text);
    assert_eq!(admin.does(&form, &fields).await, said, "the same once more");
    assert_eq!(logged(&admin).await, ["ops pauseDeliveries - - 1"]);
    let paused = async || admin.get("/deliveries").await.text.contains("</time>: moving &lt;b&gt;. Deliveries wait");
    assert!(paused().await, "the list says why nothing is sent");
    let resume = admin.form("/", "sending", &[]).await;
    assert_eq!(resume.actions, ["resume"]);
    assert_eq!(admin.does(&resume, &[("do", "resume")]).await, "Sending continues.");
    assert!(!paused().await);
    // The old form of the page before would pause again, but was sent already.
    assert_eq!(admin.does(&form, &fields).await, said);
    assert_eq!(admin.form("/", "sending", &[]).await.actions, ["pause"], "nothing is paused");
    // Only an admin reads what a form did.
    let viewer = Visitor::new(address).log_in(READ).await;
    assert!(!viewer.get(&format!("/{}", one.header("location").trim_start_matches("./"))).await.text.contains(said));
    daemon.drain().await;
}

/// Contacts and mutes are the everyday work; each action must be recorded with who did it.
#[tokio::test]
async fn contacts_and_mutes_are_changed_and_recorded() {
    let outbox = with_alice().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let page = "/subject?id=alice";
    let add = admin.form(page, "contacts", &[]).await;
    let said = admin.does(&add, &[("channel", "webhook"), ("address", "http://127.0.0.1:1/hook")]).await;
    assert!(said.contains(" is added. Its secret is whsec_"), "{said}");
    let id = said.split(' ').nth(1).expect("an id").to_owned();
    for (fields, wrong) in [
        (vec![("address", "")], "Address: is missing"),
        (vec![("channel", "email"), ("address", "a@b.test"), ("format", "slack")], "Format: contacts of the channel"),
        (
            vec![("channel", "email"), ("address", "nobody")],
            "role=\"alert\">&quot;nobody&quot; is not an email address",
        ),
    ] {
        let answer = admin.post(&add, &fields).await;
        assert!(answer.status == 400 && answer.text.contains(wrong), "{wrong}: {}", answer.text);
        judge("/contacts", &answer);
        let again = forms(&answer.text).into_iter().find(|form| form.action == "contacts").expect("what was sent");
        assert_eq!(again.body(&[]).len(), add.body(&fields).len(), "all of it");
        judge_form(&admin.get(page).await.text, &answer, "contacts");
        assert!(answer.text.contains("<a href=\"subject?id=alice\">Back to the page</a>"), "{}", answer.text);
    }
    let of_contact = admin.form(page, "contact", &[("contact", &id)]).await;
    let said = admin.does(&of_contact, &[("do", "test")]).await;
    assert!(said.starts_with(&format!("The test message to {id} was not delivered")), "{said}");
    let mute = admin.form(page, "mute", &[("contact", &id)]).await;
    let said = admin.does(&mute, &[("do", "mute"), ("for", "2h"), ("reason", "new office")]).await;
    assert!(
        said.starts_with(&format!("Contact {id} of alice is muted until ")) && said.ends_with(": new office."),
        "{said}"
    );
    let ends = async || -> UnixMs {
        let contacts = field(&outbox, "alice", "contacts").await.expect("contacts");
        found(&contacts, "\"muted_until\":\"([^\"]*)\"")[0].parse().expect("a time")
    };
    let before = ends().await;
    let mute = admin.form("/mutes", "mute", &[("contact", &id), ("reason", "new office")]).await;
    let wrong = admin.post(&mute, &[("do", "extend"), ("for", "soon")]).await;
    assert!(wrong.status == 400 && wrong.text.contains("For: must be a number and a unit"), "{}", wrong.text);
    judge("/mute", &wrong);
    judge_form(&admin.get("/mutes").await.text, &wrong, "mute");
    let wrong_end = admin.post(&mute, &[("do", "extend"), ("for", "")]).await;
    assert!(wrong_end.status == 400 && wrong_end.text.contains("For: is missing"), "{}", wrong_end.text);
    let again = forms(&wrong.text).into_iter().find(|form| form.action == "mute").expect("what was sent");
    assert!(admin.does(&again, &[("for", "3d")]).await.ends_with(": new office."));
    assert_eq!(ends().await, before.plus(3 * 86_400_000), "it ends later than before by that time");
    let _ = admin.post(&mute, &[("do", "extend"), ("for", "3d")]).await;
    assert_eq!(ends().await, before.plus(3 * 86_400_000), "a page that shows the end before adds nothing to it");
    let of_contact_again = admin.form(page, "mute", &[("contact", &id)]).await;
    let wrong =
        admin.post(&of_contact_again, &[("do", "mute"), ("for", "1h"), ("until", "2100-01-01T00:00:00Z")]).await;
    assert!(wrong.status == 400 && wrong.text.contains("Until: can&#x27;t be combined with for"), "{}", wrong.text);
    judge_form(&admin.get(page).await.text, &wrong, "mute");
    // The list does not say elsewhere whose mute has ended.
    assert_eq!(admin.does(&mute, &[("do", "end")]).await, format!("Contact {id} of alice is not muted any more."));
    let subject_mute = admin.form(page, "mute", &[("metric", "")]).await;
    let said = admin.does(&subject_mute, &[("do", "mute"), ("for", ""), ("reason", "x")]).await;
    assert_eq!(said, "The subject alice is muted until somebody ends it: x.");
    assert!(!admin.get("/mutes").await.text.contains("Extend"), "a mute without an end can't be longer");
    let said = admin.does(&subject_mute, &[("do", "mute"), ("for", "1h"), ("metric", "nosuch")]).await;
    assert!(said.starts_with("Metric nosuch of alice is muted until 20"), "{said}");
    assert!(said.ends_with(". Warning: no plan and no limit of the subject names the metric nosuch."), "{said}");
    let said = admin.does(&subject_mute, &[("do", "mute"), ("for", ""), ("metric", "requests")]).await;
    assert_eq!(said, "Metric requests of alice is muted until somebody ends it.");
    assert_eq!(admin.does(&subject_mute, &[("do", "end")]).await, "The subject alice is not muted any more.");
    let disabled = r#"[{"id":"d","channel":"email","address":"a@b.test","disabled":{"reason":"gone","detail":"x","at":"2026-11-21T08:00:00Z"}}]"#;
    let before = field(&outbox, "alice", "contacts").await.expect("contacts");
    outbox.set_contacts(&subject("alice"), disabled).await;
    let form = admin.get(page).await;
    assert!(form.text.contains("Enable"), "{}", form.text);
    let form = admin.form(page, "contact", &[("contact", "d")]).await;
    assert_eq!(admin.does(&form, &[("do", "enable")]).await, "Contact d is enabled.");
    outbox.set_contacts(&subject("alice"), &before).await;
    let said = admin.does(&of_contact, &[("do", "remove")]).await;
    assert_eq!(said, format!("Contact {id} (webhook http://127.0.0.1:1/hook) is removed."));
    let again = admin.form(page, "contact", &[]).await;
    let gone = admin.post(&again, &[("contact", &id), ("do", "remove")]).await;
    assert_eq!(gone.status, 404, "{}", gone.text);
    let expected = [
        format!("ops removeContact alice {id} 1"),
        "ops enableContact alice d 1".to_owned(),
        "ops unmuteSubject alice - 1".to_owned(),
        "ops muteSubject alice requests 1".to_owned(),
        "ops muteSubject alice nosuch 1".to_owned(),
        "ops muteSubject alice - 1".to_owned(),
        format!("ops unmuteContact alice {id} 1"),
        format!("ops muteContact alice {id} 1"),
        format!("ops muteContact alice {id} 1"),
        format!("ops sendTest alice {id} 1"),
        format!("ops addContact alice {id} 1"),
    ];
    assert_eq!(logged(&admin).await, expected);
    daemon.drain().await;
}

/// A customer must get exactly the link that the admin asked for, and lose it when the admin ends it.
#[tokio::test]
async fn a_link_to_the_portal_is_shown_once_and_ended() {
    let outbox = with_alice().await;
    let (mut daemon, address, _folder) = with_tokens(&outbox).await;
    let customer = Visitor::new(daemon.http().await);
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let page = "/subject?id=alice";
    let form = admin.form(page, "portal", &[("for", "1h")]).await;
    assert_eq!(form.actions, ["create"]);
    for (fields, wrong) in [
        ([("for", "25h"), ("locale", "")], "For: 25h is not above 0 and at most 24h"),
        ([("for", "soon"), ("locale", "")], "For: &quot;soon&quot; is not a duration"),
        ([("for", "2h"), ("locale", "!")], "Language: "),
        ([("for", "2h"), ("locale", "xx-nope")], "Language: no page is in xx-Nope, only in en and vi"),
    ] {
        let answer = admin.post(&form, &[&fields[..], &[("do", "create")]].concat()).await;
        assert!(answer.status == 400 && answer.text.contains(wrong), "{wrong}: {}", answer.text);
        judge("/portal", &answer);
        judge_form(&admin.get(page).await.text, &answer, "portal");
    }
    let link_of = |said: &str| {
        let path = said.split_once("https://quota.example.com").expect("a link").1.to_owned();
        assert!(said.starts_with("Everybody who has this link may use it until 20"), "{said}");
        assert!(said.contains(", to see its usage and change its contacts. Keep it"), "{said}");
        path
    };
    let said = admin.does(&form, &[("do", "create"), ("for", "2h"), ("locale", "vi"), ("contacts", "true")]).await;
    let link = link_of(&said);
    let changes = customer.get(&link).await;
    assert!(changes.status == 200 && changes.text.contains("<html lang=\"vi\""), "{}", changes.text);
    assert!(changes.text.contains("action=\"contacts#add\""), "it may change contacts");
    let form = admin.form(page, "portal", &[("for", "1h")]).await;
    assert!(!admin.get(page).await.text.contains("/portal/"), "no other page shows the link");
    let told = admin.after(&admin.post(&form, &[("do", "create")]).await).await;
    assert!(told.text.contains("</time>, only to see its usage. Keep it"), "{}", told.text);
    let link_to_view = decoded(found(&told.text, "<a href=\"([^\"]*)\" target=\"_blank\"")[0]);
    let views = customer.get(link_to_view.strip_prefix("https://quota.example.com").expect("a link")).await;
    assert!(views.status == 200 && !views.text.contains("action=\"contacts#add\""), "{}", views.text);
    let unknown = admin.form("/subject?id=nosuch", "portal", &[("for", "1h")]).await;
    let said = admin.does(&unknown, &[("do", "create")]).await;
    assert!(said.contains(" Warning: nothing is known of nosuch yet. "), "{said}");
    // Not beside the other button: a click on the wrong one would end the links of customers.
    let end = admin.form(page, "portal", &[]).await;
    assert_eq!(end.actions, ["revoke"]);
    let said = admin.does(&end, &[("do", "revoke")]).await;
    assert_eq!(said, "All links to its portal have ended, also those in messages.");
    assert_eq!(customer.get(&link).await.status, 410);
    let expected = [
        "ops revokePortalLinks alice - 1",
        "ops createPortalLink nosuch - 1",
        "ops createPortalLink alice - 1",
        "ops createPortalLink alice - 1",
    ];
    assert_eq!(logged(&admin).await, expected);
    daemon.drain().await;
}

/// An erasure can't be taken back, and must not be named in the log.
#[tokio::test]
async fn an_erasure_needs_the_typed_id() {
    let outbox = with_alice().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let form = admin.form("/erase?id=alice", "erase", &[("subject", "alice")]).await;
    for typed in ["", "Alice", "bob"] {
        let answer = admin.post(&form, &[("typed", typed)]).await;
        assert!(answer.status == 400 && answer.text.contains("nothing was erased"), "{typed}: {}", answer.text);
        judge_form(&admin.get("/erase?id=alice").await.text, &answer, "erase");
    }
    assert!(field(&outbox, "alice", "contacts").await.is_some());
    let said = admin.does(&form, &[("typed", "alice")]).await;
    assert_eq!(said, "Everything that was stored of it is removed: 1 settings.");
    assert_eq!(
        (field(&outbox, "alice", "contacts").await, logged(&admin).await),
        (None, vec!["ops eraseSubject - - 1".to_owned()])
    );
    // Nobody can type what the page can't show.
    outbox.set_contacts(&subject("a\u{200b}b"), "[]").await;
    let form = admin.form("/erase?id=a%E2%80%8Bb", "erase", &[]).await;
    let said = admin.does(&form, &[("typed", "a\\u{200b}b")]).await;
    assert!(said.starts_with("Everything that was stored of it is removed"), "{said}");
    // A part is removed when it fails: here, before the log.
    outbox.set_contacts(&subject("bob"), "[]").await;
    let () = outbox.run("SET", &[outbox.keys.actions().as_str(), "x"]).await;
    let form = admin.form("/erase?id=bob", "erase", &[]).await;
    let said = admin.does(&form, &[("typed", "bob")]).await;
    assert!(said.starts_with("The removal failed and may be incomplete: "), "{said}");
    daemon.drain().await;
}

/// A viewer who can act, or another website that can, would make every page dangerous.
#[tokio::test]
async fn only_an_admin_on_a_page_of_the_console_may_act() {
    let outbox = with_alice().await;
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[email("a")]).await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let nobody = Visitor::new(address);
    let (read, admin) = (Visitor::new(address).log_in(READ).await, Visitor::new(address).log_in(ADMIN).await);
    let before = outbox.dump().await.into_keys().collect::<Vec<_>>();
    for (action, page) in FORMS {
        let form = admin.form(page, action, &[]).await;
        let shown = read.get(page).await;
        assert!(!shown.text.contains(&format!("action=\"{action}\"")), "{page} has controls for a viewer");
        let fields = [("do", "none"), ("typed", "x"), ("limits", "x"), ("until", "")];
        let refused = read.post(&form, &fields).await;
        assert!(refused.status == 403 && refused.text.contains("the scope admin"), "{action}: {}", refused.text);
        judge(action, &refused);
        let answer = nobody.post(&form, &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, "login"), "{action}");
        for headers in [vec![], vec![("sec-fetch-site", "cross-site")], vec![("origin", "http://evil.test")]] {
            let forged = admin.send("POST", &format!("/{action}"), &headers, &form.body(&fields)).await;
            assert_eq!(forged.status, 403, "{action} {headers:?}");
        }
        if action != "reload" {
            let wrong = admin.post(&form, &fields).await;
            assert_eq!(wrong.status, 400, "{action}: {}", wrong.text);
            judge(action, &wrong);
            assert!(wrong.text.contains("Overview</a>"), "a way on: {}", wrong.text);
        }
    }
    assert_eq!(outbox.dump().await.into_keys().collect::<Vec<_>>(), before, "nothing was written");
    for page in ["/settings?id=alice", "/erase?id=alice", "/act?do=cancel&all=true"] {
        assert_eq!((nobody.get(page).await.status, read.get(page).await.status), (303, 403), "{page}");
    }
    let said = admin.does(&admin.form("/system", "reload", &[]).await, &[]).await;
    assert!(
        said.starts_with("This daemon has read its configuration again. Limits and thresholds are as before"),
        "{said}"
    );
    daemon.drain().await;
    // Without a token this machine may only look.
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0");
    let mut daemon = setup.argument("--no-send").start().await;
    let visitor = Visitor::new(daemon.console().await);
    assert!(!visitor.get("/").await.text.contains("method=\"post\""));
    let refused = visitor.send("POST", "/sending", &SAME_ORIGIN, "do=pause").await;
    assert!(refused.status == 403 && refused.text.contains("`quotabell console` prints"), "{}", refused.text);
    daemon.drain().await;
}

/// A form that was sent while Redis was away must say so, and work when it is sent again.
#[tokio::test]
async fn a_form_can_be_sent_again_after_redis_was_away() {
    let mut outbox = Outbox::on(RedisServer::start_durable());
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let form = admin.form("/settings", "settings", &[]).await;
    outbox.server.kill();
    let fields = [("subject", "bob"), ("timezone", "Asia/Tokyo")];
    let away = admin.post(&form, &fields).await;
    assert_eq!(away.status, 503, "{}", away.text);
    judge("/settings", &away);
    // The page has kept what was typed.
    let kept = forms(&away.text).pop().expect("the form");
    assert!(fields.iter().all(|(name, value)| kept.fields.contains(&((*name).to_owned(), (*value).to_owned()))));
    outbox.server.restart();
    let said = eventually("it is saved", || async {
        let answer = admin.post(&kept, &[]).await;
        if answer.status == 303 { Some(admin.after(&answer).await.text) } else { None }
    })
    .await;
    assert!(said.contains("The settings are saved."), "{said}");
    assert_eq!(field(&outbox, "bob", "timezone").await.as_deref(), Some("Asia/Tokyo"));
    daemon.drain().await;
}
