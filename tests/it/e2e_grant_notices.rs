//! Notices before units of a grant expire, on the real binary: from the entry of the outbox to the receiver and the
//! mailbox.

use quotabell::outbox::forget::forget_outbox_entries;
use quotabell::types::{Branch, GrantNotice, Keys, Separator, UnixMs};
use serde_json::{Value, json};

use crate::e2e_migrate::{counted, migrate};
use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::books::run;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::grant_notices::{grant_notice, notice_delivery};
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::{Outbox, RESETS_AT, alert, subject};
use crate::support::receivers::{Answer, HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{Verified, secret, verify};

const TOKEN: &str = "a-token-for-one-test-0123456789";
const DAY_MS: i64 = 86_400_000;
/// Later than any test runs.
const LATER: UnixMs = RESETS_AT;
/// Before any test runs.
const OVER: UnixMs = UnixMs(1_795_250_220_123);

/// A Redis with a receiver for one test.
struct NoticeSetting {
    outbox: Outbox,
    receiver: HttpCatcher,
    setup: DaemonSetup,
}

impl NoticeSetting {
    async fn found() -> Self {
        let outbox = Outbox::start();
        let receiver = HttpCatcher::start([]).await.expect("a receiver");
        let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__SUBJECTS__SEPARATOR", "/");
        Self { outbox, receiver, setup }
    }

    /// A contact of the receiver; its id is the path of its URL.
    fn hook(&self, id: &str) -> Value {
        let url = self.receiver.url(&format!("/{id}"));
        json!({"id": id, "channel": "webhook", "url": url, "secret": secret(7)})
    }

    async fn hset(&self, of: &str, field: &str, value: &str) {
        let key = Keys::new("usage").subject(&subject(of));
        let _: u64 = self.outbox.run("HSET", &[key.as_str(), field, value]).await;
    }

    async fn set_contacts(&self, of: &str, contacts: Value) {
        self.hset(of, "contacts", &contacts.to_string()).await;
    }

    async fn raised(&self, of: &str, expires_at: UnixMs) -> GrantNotice {
        let notice = grant_notice(&subject(of), expires_at);
        self.outbox.raise_notice(&notice).await;
        notice
    }

    /// Waits until a delivery has this state.
    async fn becomes(&self, notice: &GrantNotice, contact: &str, state: &str) {
        let id = notice_delivery(notice, contact);
        let look = || async { (self.outbox.field(&id, "state").await.as_deref() == Some(state)).then_some(()) };
        eventually(state, look).await;
    }

    /// The paths of all requests so far.
    fn heard(&mut self) -> Vec<String> {
        let mut paths: Vec<String> =
            std::iter::from_fn(|| self.receiver.try_next()).map(|request| request.uri.path().to_owned()).collect();
        paths.sort();
        paths
    }

    /// Waits until nothing is pending and the outbox is empty, and ends the daemon.
    async fn settled(&self, daemon: Daemon) {
        eventually("all is settled", || async {
            let totals = self.outbox.totals().await;
            (totals.pending == 0 && totals.outbox == 0).then_some(())
        })
        .await;
        daemon.drain().await;
        self.outbox.assert_balanced().await;
    }
}

async fn next_request(receiver: &mut HttpCatcher) -> (String, Verified) {
    let request = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    (request.uri.path().to_owned(), verify(&request, &secret(7)))
}

/// A customer who is not told loses units that were paid for. A receiver counts a notice twice without a stable id.
#[tokio::test]
async fn a_notice_reaches_receiver_mailbox_and_operator_once() {
    let mut setting = NoticeSetting::found().await;
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let mail = |address: &str| json!({"id": "m", "channel": "email", "address": address});
    setting.set_contacts("alice", json!([setting.hook("w"), mail("alice@b.test")])).await;
    setting.set_contacts("vy", json!([mail("vy@b.test")])).await;
    setting.hset("vy", "locale", "vi").await;
    let operator = json!([
        {"channel": "email", "address": "ops@b.test", "plans": ["free"]},
        {"channel": "email", "address": "other@b.test", "plans": ["pro"]},
    ]);
    let setup = setting.setup.clone().env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url());
    let setup = setup.env("QUOTABELL__PLANS__PRO__LIMITS", r#"{"requests":100}"#);
    let setup = setup.env("QUOTABELL__HTTP__TOKEN", &"t".repeat(32));
    let setup = setup.env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com");
    let daemon = setup.env("QUOTABELL__OPERATOR__CONTACTS", &operator.to_string()).start().await;

    let now = setting.outbox.totals().await.now;
    let expires = now.plus(7 * DAY_MS);
    let notice = setting.raised("alice", expires).await;
    // The script that raises it may run again after a lost reply.
    setting.raised("alice", expires).await;
    setting.raised("vy", expires).await;

    let (_, Verified { id, body }) = next_request(&mut setting.receiver).await;
    assert_eq!(id, notice.id);
    let expires_at = body["data"]["grant"]["expires_at"].as_str().expect("text");
    assert_eq!(expires_at.parse(), Ok(expires));
    let expected = json!({
        "type": "quota.grant_expires",
        "timestamp": "2026-11-21T08:37:00.123Z",
        "data": {
            "subject": "alice", "metric": "requests", "window": "total",
            "grant": {
                "id": "welcome-2026", "units": 1000, "remaining": 400, "expires_at": expires_at,
                "note": "order <77> & more",
            },
            "used": 4600, "limit": 5000, "used_percent": 92.0, "plan": "free", "timezone": "Europe/Berlin",
        },
    });
    assert_eq!(body, expected);

    let mut mails = std::collections::BTreeMap::new();
    for _ in 0..4 {
        let mail = tokio::time::timeout(WAIT_MAX, mailbox.next()).await.expect("a mail in time");
        let parsed = ParsedMail::parse(&mail.text());
        mails.insert(format!("{} {}", mail.to[0], &parsed.header("Subject")[..8]), parsed);
    }
    let local = expires.to_utc().expect("a time").with_timezone(&berlin());
    let line = format!(
        "alice: 400 of 1,000 prepaid requests expire on {} (Europe/Berlin), in 7 days",
        local.format("%-d %B %Y, %H:%M")
    );
    let vietnamese = format!(
        "vy: 400 trên 1.000 requests trả trước sẽ hết hạn lúc {} (Europe/Berlin), còn 7 ngày",
        local.format("%H:%M ngày %d/%m/%Y")
    );
    let of = |key: &str| mails.get(key).unwrap_or_else(|| panic!("no {key} among {:?}", mails.keys()));
    let own = of("alice@b.test alice: 4");
    assert_eq!(own.header("Subject"), line);
    assert!(own.header("List-Unsubscribe").starts_with("<https://quota.example.com/unsubscribe/"));
    assert_eq!(own.count("X-Quotabell-Alert"), 0);
    for part in &own.parts {
        assert!(part.content.contains("welcome-2026") && part.content.contains("92.0%"), "{}", part.content);
    }
    assert!(own.parts[1].content.contains("order &lt;77&gt; &amp; more"), "{}", own.parts[1].content);
    assert_eq!(of("vy@b.test vy: 400 ").header("Subject"), vietnamese);
    let copy = of("ops@b.test [copy] a");
    assert_eq!((copy.header("Subject"), copy.count("List-Unsubscribe")), (format!("[copy] {line}"), 0));
    assert!(copy.parts[0].content.starts_with("This copy is for the operator. The notice is about alice, plan free."));
    assert!(mails.contains_key("ops@b.test [copy] v"), "{:?}", mails.keys());
    setting.settled(daemon).await;
    assert!(setting.receiver.try_next().is_none() && mailbox.try_next().is_none());
    assert_eq!(setting.outbox.totals().await.delivered, 5);
    let logged =
        run(&setting.outbox.server, "alerts export --since 2026-01-01T00:00:00Z --subject alice").expect_json();
    assert_eq!((logged.len(), &logged[0]["notice"]["id"]), (1, &json!(notice.id)), "{logged:?}");
    let ends = logged[0]["deliveries"].as_array().expect("a list");
    let mut told: Vec<_> = ends.iter().map(|end| (end["address"].as_str(), end["state"].as_str())).collect();
    told.sort_unstable();
    let hook = setting.receiver.url("/w");
    let expected = ["a***@b.test", &hook, "o***@b.test"].map(|address| (Some(address), Some("delivered")));
    assert_eq!(told, expected);
}

/// From the invoice to the mailbox: a plan with `grant_notice`, one call that adds units, and the contact of the level
/// above hears once that they expire. A grant that does not expire tells nobody.
#[tokio::test]
async fn a_grant_that_is_added_by_a_call_is_told_before_it_expires() {
    let mut setting = NoticeSetting::found().await;
    setting.set_contacts("acme", json!([setting.hook("billing")])).await;
    setting.hset("acme/search", "limit:requests", "50/day 0/total").await;
    let plan = r#"{"free":{"limits":{"requests":100},"grant_notice":"7d"}}"#;
    let setup = setting.setup.clone().env("QUOTABELL__PLANS", plan).env("QUOTABELL__HTTP__TOKEN", TOKEN);
    let setup = setup.env("QUOTABELL__SUBJECTS__DEFAULT_PLANS", r#"["free","free"]"#);
    let mut daemon = setup.start().await;
    daemon.becomes_ready().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let expires = setting.outbox.totals().await.now.plus(3 * DAY_MS);
    let expires_at = expires.to_string();
    for (status, grant) in [
        (201, json!({"units": 100, "id": "invoice-17", "expires_at": expires_at, "note": "spring"})),
        (200, json!({"units": 100, "id": "invoice-17", "expires_at": expires_at, "note": "spring"})),
        (201, json!({"units": 10, "id": "for-ever"})),
        (201, json!({"units": 10, "id": "today", "window": "day"})),
    ] {
        let added = api.post("/v1/subjects/acme%2Fsearch/grants", &grant).await;
        assert_eq!(added.status, status, "{}", added.text);
    }
    let event = ["usage", "*", "subject", "acme/search", "units", "30"];
    let _: String = setting.outbox.run("XADD", &event).await;

    let (path, Verified { id, body }) = next_request(&mut setting.receiver).await;
    assert!(path == "/billing" && !id.is_empty(), "{path} {id}");
    assert_eq!(body["type"], "quota.grant_expires");
    let data = &body["data"];
    assert_eq!(
        (&data["subject"], &data["window"], &data["limit"]),
        (&json!("acme/search"), &json!("total"), &json!(110))
    );
    assert_eq!((&data["grant"]["id"], &data["grant"]["note"]), (&json!("invoice-17"), &json!("spring")));
    assert_eq!(data["grant"]["expires_at"].as_str().expect("text").parse(), Ok(expires));
    // A slow machine tells it before the usage is counted.
    let left = data["grant"]["remaining"].as_u64().expect("a number");
    assert_eq!(left + data["used"].as_u64().expect("a number"), 100, "{data}");
    setting.settled(daemon).await;
    assert_eq!(setting.heard(), Vec::<String>::new());
}

fn berlin() -> quotabell::zones::Zone {
    "Europe/Berlin".parse().expect("a zone")
}

/// A notice must not get lost because the contact comes later, and must not claim that units are there after they
/// expired.
#[tokio::test]
async fn a_notice_waits_for_a_contact_and_ends_with_the_grant() {
    let mut setting = NoticeSetting::found().await;
    setting.set_contacts("late", json!([setting.hook("late")])).await;
    let daemon = setting.setup.start().await;
    let waiting = setting.raised("alice", LATER).await;
    let (over, late) = (setting.raised("nobody", OVER).await, setting.raised("late", OVER).await);
    setting.becomes(&over, "none", "expired").await;
    setting.becomes(&late, "late", "expired").await;
    setting.becomes(&waiting, "none", "pending").await;
    let id = notice_delivery(&waiting, "none");
    assert_eq!(setting.outbox.due(&id).await, Some(LATER.0), "nothing happens to it before the grant expires");

    setting.set_contacts("alice", json!([setting.hook("w")])).await;
    assert_eq!(next_request(&mut setting.receiver).await.1.id, waiting.id);
    setting.becomes(&waiting, "w", "delivered").await;
    setting.becomes(&waiting, "none", "cancelled").await;
    setting.settled(daemon).await;
    assert_eq!(setting.heard(), Vec::<String>::new());
}

/// A contact for another metric must not be told, one that only hears of full quotas must: a notice has no threshold.
#[tokio::test]
async fn filters_trees_and_mutes_apply_to_notices() {
    let mut setting = NoticeSetting::found().await;
    let with = |id: &str, field: &str, value: Value| {
        let mut contact = setting.hook(id);
        contact[field] = value;
        contact
    };
    let own = [
        with("full", "thresholds", json!([100])),
        with("tokens", "metrics", json!(["tokens"])),
        with("requests", "metrics", json!(["requests"])),
        with("muted", "muted", json!(true)),
    ];
    let above = [with("branch", "subtree", json!(true)), setting.hook("parent")];
    setting.set_contacts("acme/search", json!(own)).await;
    setting.set_contacts("acme", json!(above)).await;
    let daemon = setting.setup.start().await;
    let notice = setting.raised("acme/search", LATER).await;
    setting.becomes(&notice, "muted", "muted").await;
    for (of, field) in [("quiet", "muted"), ("quiet too", "muted:requests"), ("loud", "muted:tokens")] {
        setting.hset(of, field, "true").await;
        setting.set_contacts(of, json!([setting.hook(of.split(' ').next_back().expect("a word"))])).await;
        setting.raised(of, LATER).await;
    }
    setting.settled(daemon).await;
    assert_eq!(setting.heard(), ["/branch", "/full", "/loud", "/requests"]);
    let totals = setting.outbox.totals().await;
    assert_eq!((totals.delivered, totals.muted), (4, 3));
}

/// The receiver is gone, and the notice would be lost with it.
#[tokio::test]
async fn the_notice_of_a_disabled_contact_goes_to_the_others() {
    let mut setting = NoticeSetting::found().await;
    let gone = HttpCatcher::start([Answer::status(410)]).await.expect("a receiver");
    let contacts = json!([
        {"id": "gone", "channel": "webhook", "url": gone.url("/"), "secret": secret(7)},
        {"id": "other", "channel": "webhook", "url": setting.receiver.url("/other"), "secret": secret(7),
         "metrics": ["tokens"]},
    ]);
    setting.set_contacts("alice", contacts).await;
    let daemon = setting.setup.start().await;
    let notice = setting.raised("alice", LATER).await;
    setting.becomes(&notice, "gone", "cancelled").await;
    setting.becomes(&notice, "other", "delivered").await;
    setting.settled(daemon).await;
    let mut heard = Vec::new();
    while let Some(request) = setting.receiver.try_next() {
        heard.push(verify(&request, &secret(7)).body["type"].as_str().expect("text").to_owned());
    }
    heard.sort();
    assert_eq!(heard, ["contact.disabled", "quota.grant_expires"]);
}

/// An entry of a later version, or a damaged one, must not stop the notices behind it.
#[tokio::test]
async fn an_unreadable_notice_stays_in_the_outbox_and_blocks_nothing() {
    let mut setting = NoticeSetting::found().await;
    setting.set_contacts("alice", json!([setting.hook("w")])).await;
    for (field, json) in [("grant_expires", "{\"id\":1}"), ("verification", "{}"), ("quota_news", "{}")] {
        let _: String = setting.outbox.run("XADD", &[&setting.outbox.keys.outbox(), "*", field, json]).await;
    }
    let mut daemon = setting.setup.start().await;
    let notice = setting.raised("alice", LATER).await;
    assert_eq!(next_request(&mut setting.receiver).await.1.id, notice.id);
    daemon.says("outbox entry holds no readable notification and stays there").await;
    setting.becomes(&notice, "w", "delivered").await;
    daemon.drain().await;
    assert_eq!(setting.outbox.totals().await.outbox, 3);
}

/// An operator who looks for a notice must see what it is about, when it expires, and why it is still there.
#[tokio::test]
async fn commands_show_what_a_notice_is_about() {
    let setting = NoticeSetting::found().await;
    let daemon = setting.setup.start().await;
    let notice = setting.raised("alice", LATER).await;
    setting.becomes(&notice, "none", "pending").await;
    daemon.drain().await;
    let run = |line: &str| quotabell(line.split(' ')).redis(&setting.outbox.server.url()).run();
    let id = notice_delivery(&notice, "none");
    let shown = run(&format!("deliveries show {id}")).expect_done();
    for line in [
        "type         grant_expires",
        &format!("notice       {}", notice.id),
        "metric       requests",
        "grant        welcome-2026: 400 of 1,000 left, total",
        "expires      2100-01-01T00:00:00.000Z",
        "raised       2026-11-21T08:37:00.123Z",
        "next due     once the subject has a contact; expires at 2100-01-01T00:00:00.000Z",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
    let explained = run(&format!("explain {id}")).expect_done();
    let said = format!(
        "It is no alert but a notice: 400 of 1,000 units of grant welcome-2026 of alice (requests, total) were left at \
         2026-11-21T08:37:00.123Z and expire at 2100-01-01T00:00:00.000Z. Its id is {}.\n",
        notice.id
    );
    assert!(explained.starts_with(&said), "{explained}");
    let ends = "It waits for a contact: it goes out once the subject has one, and ends expired at 2100-01-01T00:00:00";
    assert!(explained.contains(ends), "{explained}");
    let listed = run("deliveries list --json").expect_json();
    assert_eq!((&listed[0]["type"], &listed[0]["metric"]), (&json!("grant_expires"), &json!("requests")));
    assert_eq!(listed[0]["alert_id"], Value::Null);
    let detail = run(&format!("deliveries show {id} --json")).expect_json();
    assert_eq!(detail[0]["grant_notice"]["grant"], "welcome-2026");
}

/// A forgotten customer must not be named by a notice that is not fanned out yet.
#[tokio::test]
async fn an_erasure_takes_notices_out_of_the_outbox() {
    let outbox = Outbox::start();
    let (alice, bob) = (subject("alice"), subject("bob"));
    outbox.raise_notice(&grant_notice(&alice, LATER)).await;
    outbox.raise(&alert(&alice, 80)).await;
    let stays = outbox.raise_notice(&grant_notice(&bob, LATER)).await;
    let branch = Branch::new(alice.clone(), Separator::NONE);
    let removed = forget_outbox_entries(&outbox.partition(), &branch).await.expect("redis answers");
    assert_eq!(removed, 2);
    let left: Vec<(String, Vec<String>)> = outbox.run("XRANGE", &[&outbox.keys.outbox(), "-", "+"]).await;
    assert_eq!(left.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&stays]);
}

/// A notice that was raised before a move must be sent after it, by the partition that has its subject.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_in_the_outbox_moves_with_the_deployment() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let source = counted(&old, 1, 1).await;
    // CRC-32 puts it into the second of two partitions.
    let notice = grant_notice(&subject("alice"), LATER);
    let json = serde_json::to_string(&notice).expect("JSON");
    let first = source.partitions.first();
    let raise = redis::cmd("XADD").arg(first.keys.outbox()).arg(&["*", "grant_expires", &json]).to_owned();
    let _: String = first.client.query(&raise).await.expect("added");
    migrate(&old.url(), &new.url(), "2").expect_done();
    let target = source.moved_to(&new.url(), 2).await;
    let partition = target.partitions.partition_of(&notice.subject);
    assert_ne!(partition.keys.partition(), target.partitions.first().keys.partition());
    let read = redis::cmd("XRANGE").arg(partition.keys.outbox()).arg(&["-", "+"]).to_owned();
    let entries: Vec<(String, Vec<String>)> = partition.client.query(&read).await.expect("redis answers");
    let entries: Vec<Vec<String>> = entries.into_iter().map(|(_, fields)| fields).collect();
    assert_eq!(entries, [vec!["grant_expires".to_owned(), json]]);
}
