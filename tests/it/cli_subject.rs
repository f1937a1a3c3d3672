//! `subject set / show / list / remove` on a real server: the stored hash and the output.

use std::collections::BTreeMap;

use crate::support::binary::{Finished, quotabell};
use crate::support::redis_server::RedisServer;
use quotabell::actions::contact_spec::{ContactColumns, GeneratedSecret};
use quotabell::actions::contacts::ContactActionError;
use quotabell::actions::subject_change::{self, ContactsChange, SubjectChange};
use quotabell::actions::subject_patch::SubjectPatch;
use quotabell::contacts::merge::UnlistedPolicy;
use quotabell::contacts::store::edit_subject;
use quotabell::redis_client::Partition;
use quotabell::subjects::record::SubjectField;
use quotabell::types::Keys;
use serde_json::{Value, json};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

fn subject(server: &RedisServer, arguments: &[&str]) -> Finished {
    quotabell(["subject"].iter().chain(arguments).copied()).redis(&server.url()).run()
}

/// `subject set` with these options, separated by spaces.
fn set(server: &RedisServer, name: &str, options: &str) -> Finished {
    subject(server, &["set", name].into_iter().chain(options.split_whitespace()).collect::<Vec<_>>())
}

fn hash(server: &RedisServer, subject: &str) -> BTreeMap<String, String> {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    redis::cmd("HGETALL").arg(format!("quota_subject:{subject}")).query(&mut connection).expect("a hash")
}

fn hset(server: &RedisServer, subject: &str, fields: &[(&str, &[u8])]) {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut command = redis::cmd("HSET");
    command.arg(format!("quota_subject:{subject}"));
    for (name, value) in fields {
        command.arg(*name).arg(*value);
    }
    let _: u64 = command.query(&mut connection).expect("written");
}

fn contacts(hash: &BTreeMap<String, String>) -> Vec<Value> {
    serde_json::from_str(&hash["contacts"]).expect("a JSON array")
}

/// The contact of this address or URL.
fn by_address(hash: &BTreeMap<String, String>, address: &str) -> Value {
    let of_address = |contact: &Value| contact["address"] == address || contact["url"] == address;
    contacts(hash).into_iter().find(of_address).unwrap_or_else(|| panic!("{address} is not in {hash:?}"))
}

/// The hash is a contract: platforms read and write it too.
#[test]
fn set_writes_the_documented_fields() {
    let server = RedisServer::start();
    let options = "--plan free --timezone Asia/Ho_Chi_Minh --limit requests=5000 --limit tokens=7 --threshold 90 --threshold 50 \
        --email a@b.test --webhook https://x.test/h --webhook-secret";
    set(&server, "a:{b}", &format!("{options} {SECRET}")).expect_done();
    let hash = hash(&server, "a:{b}");
    assert_eq!(hash["plan"], "free");
    assert_eq!(hash["timezone"], "Asia/Ho_Chi_Minh");
    assert_eq!((hash["limit:requests"].as_str(), hash["limit:tokens"].as_str()), ("5000", "7"));
    assert_eq!(hash["thresholds"], "50,90");
    let contacts = contacts(&hash);
    assert_eq!((&contacts[0]["channel"], &contacts[0]["address"]), (&json!("email"), &json!("a@b.test")));
    assert_eq!(
        (&contacts[1]["channel"], &contacts[1]["url"], &contacts[1]["secret"]),
        (&json!("webhook"), &json!("https://x.test/h"), &json!(SECRET))
    );
    assert!(contacts.iter().all(|contact| contact["id"].as_str().is_some_and(|id| id.starts_with("c_"))));
    assert_eq!(hash.len(), 6);
}

/// The limits of a metric are one field: limits given together replace the stored ones.
#[test]
fn set_writes_the_limits_of_every_window() {
    let server = RedisServer::start();
    let options = ["--limit", "requests=5000/day", "--limit", "requests=600/hour", "--limit", "tokens=9/year"];
    let billing = ["set", "alice", "--billing-day", "15", "--billing-month", "4"];
    subject(&server, &[&billing, &options[..]].concat()).expect_done();
    let fields = hash(&server, "alice");
    assert_eq!((fields["limit:requests"].as_str(), fields["limit:tokens"].as_str()), ("600/hour 5000/day", "9/year"));
    assert_eq!((fields["billing_day"].as_str(), fields["billing_month"].as_str(), fields.len()), ("15", "4", 4));
    let shown = subject(&server, &["show", "alice", "--json"]).expect_json().remove(0);
    assert_eq!(shown["limits"], json!({"requests": ["600/hour", "5000/day"], "tokens": ["9/year"]}));
    assert_eq!((&shown["billing_day"], &shown["billing_month"]), (&json!(15), &json!(4)));
    let shown = subject(&server, &["show", "alice"]).expect_done();
    assert!(shown.contains("billing day    15\nbilling month  4\n"), "{shown}");
    assert!(shown.contains("requests=600/hour requests=5,000/day tokens=9/year\n"), "{shown}");

    let both = subject(&server, &["set", "alice", "--limit", "tokens=none", "--limit", "tokens=7"]);
    assert!(both.code == 2 && both.stderr.contains("none cannot be combined with another limit"), "{}", both.told());
    let clear =
        ["--clear", "billing-day,billing-month", "--limit", "requests=100/week 7/month", "--limit", "tokens=none"];
    let clear = [&clear[..], &["--limit", "tokens=none"]].concat();
    let warned = subject(&server, &[&["set", "alice"], &clear[..]].concat());
    let warning =
        "warning: the limits of requests: 100/week is above 7/month: the limit of the month is reached first\n";
    assert!(warned.stderr.contains(warning), "{}", warned.stderr);
    let shown = subject(&server, &["show", "alice"]);
    let told = warning.replace("warning: ", "warning: subject \"alice\": ");
    assert!(shown.stderr.contains(&told), "{}", shown.stderr);
    assert_eq!(hash(&server, "alice"), [("limit:requests".to_owned(), "100/week 7/month".to_owned())].into());
}

/// An invalid locale must be refused; a valid one without templates is allowed, and the output must say which language
/// is used.
#[test]
fn set_takes_a_locale() {
    let server = RedisServer::start();
    let done = set(&server, "alice", "--locale vi-vn");
    assert!(!done.stderr.contains("warning"), "{}", done.stderr);
    assert_eq!(hash(&server, "alice"), [("locale".to_owned(), "vi-VN".to_owned())].into());
    let shown = subject(&server, &["show", "alice"]).expect_done();
    assert!(shown.contains("locale         vi-VN\n"), "{shown}");
    assert_eq!(subject(&server, &["show", "alice", "--json"]).expect_json().remove(0)["locale"], "vi-VN");
    let warned = set(&server, "alice", "--locale ja");
    assert!(
        warned.stderr.contains("warning: locale ja has no templates: emails are written in en\n"),
        "{}",
        warned.stderr
    );
    assert_eq!(hash(&server, "alice")["locale"], "ja");
    let refused = set(&server, "alice", "--locale vi_VN");
    let why = "\"vi_VN\" is not a language tag (BCP 47), such as \"en\", \"vi\" or \"pt-BR\"";
    assert!(refused.code == 2 && refused.stderr.contains(why), "{}", refused.stderr);
    assert_eq!(hash(&server, "alice")["locale"], "ja");
    set(&server, "alice", "--clear locale").expect_done();
    assert!(hash(&server, "alice").is_empty());
    hset(&server, "alice", &[("locale", b"vi_VN")]);
    let shown = subject(&server, &["show", "alice"]);
    assert!(
        shown.stderr.contains("field \"locale\"") && shown.stderr.contains("is not a language tag"),
        "{}",
        shown.stderr
    );
}

/// Each contact gets the filter in its position; unnamed filters are kept, and mistakes are reported before anything is
/// written.
#[test]
fn set_says_which_alerts_each_contact_hears() {
    let server = RedisServer::start();
    let options = "--email a@b.test --email-threshold all --email cto@b.test --email-threshold 100 --email-metric all \
        --email-metric requests,tokens --webhook https://x.test/h --webhook-threshold 100,80 --webhook-secret";
    set(&server, "alice", &format!("{options} {SECRET}")).expect_done();
    let heard = || {
        let contacts = contacts(&hash(&server, "alice"));
        contacts.iter().map(|contact| (contact["thresholds"].clone(), contact["metrics"].clone())).collect::<Vec<_>>()
    };
    let all = (Value::Null, Value::Null);
    assert_eq!(heard(), [all.clone(), (json!([100]), json!(["requests", "tokens"])), (json!([80, 100]), Value::Null)]);
    set(&server, "alice", "--email a@b.test --email-threshold 50 --email cto@b.test --webhook https://x.test/h")
        .expect_done();
    assert_eq!(heard()[..2], [(json!([50]), Value::Null), (json!([100]), json!(["requests", "tokens"]))]);
    set(&server, "alice", "--email a@b.test --email-threshold all").expect_done();
    assert_eq!(heard(), std::slice::from_ref(&all));
    for (options, why) in [
        ("--email a@b.test --email-threshold 0", "email 1: \"0\": a threshold must be"),
        ("--email a@b.test --email-threshold 80,all", "email 1: threshold all can't be combined with others"),
        ("--email a@b.test --email-threshold 80,80", "email 1: thresholds names 80 twice"),
        ("--email a@b.test --email-metric a..b,A", "email 1: \"A\": "),
        ("--email-threshold 80", "email thresholds 1 has no email 1: the nth thresholds belongs to the nth email"),
    ] {
        let refused = set(&server, "alice", options);
        assert!(refused.code == 2 && refused.stderr.contains(why), "{options}: {}", refused.stderr);
    }
    assert_eq!(heard(), [all]);
}

/// A change of one setting must not undo another.
#[test]
fn set_changes_only_what_is_named() {
    let server = RedisServer::start();
    subject(
        &server,
        &["set", "alice", "--plan", "free", "--limit", "requests=1", "--limit", "tokens=2", "--email", "a@b.test"],
    )
    .expect_done();
    hset(&server, "alice", &[("note", b"the platform's own")]);
    let before = hash(&server, "alice");
    subject(&server, &["set", "alice", "--limit", "tokens=none", "--timezone", "UTC"]).expect_done();
    let mut expected = before;
    expected.remove("limit:tokens");
    expected.insert("timezone".to_owned(), "UTC".to_owned());
    assert_eq!(hash(&server, "alice"), expected);
}

/// A replaced address must get no more email.
#[test]
fn naming_any_contact_replaces_the_list() {
    let server = RedisServer::start();
    subject(
        &server,
        &["set", "alice", "--email", "old@b.test", "--webhook", "https://x.test", "--webhook-secret", SECRET],
    )
    .expect_done();
    subject(&server, &["set", "alice", "--email", "new@b.test"]).expect_done();
    let contacts = contacts(&hash(&server, "alice"));
    assert_eq!(contacts.len(), 1);
    assert_eq!(contacts[0]["address"], "new@b.test");
}

/// A cleared setting comes from the plan again; settings given together are set.
#[test]
fn clear_removes_and_what_is_named_beside_stays() {
    let server = RedisServer::start();
    let all = [
        "set",
        "alice",
        "--plan",
        "free",
        "--timezone",
        "UTC",
        "--limit",
        "requests=1",
        "--limit",
        "tokens=2",
        "--threshold",
        "50",
        "--email",
        "a@b.test",
    ];
    subject(&server, &all).expect_done();
    subject(&server, &["set", "alice", "--clear", "contacts"]).expect_done();
    assert!(!hash(&server, "alice").contains_key("contacts"));
    subject(&server, &["set", "alice", "--clear", "limits", "--limit", "calls=3"]).expect_done();
    let limits: Vec<String> = hash(&server, "alice").into_keys().filter(|field| field.starts_with("limit:")).collect();
    assert_eq!(limits, ["limit:calls"]);
    subject(&server, &["set", "alice", "--clear", "plan,timezone,thresholds,limits"]).expect_done();
    assert!(hash(&server, "alice").is_empty());
    // Nothing to clear is no error: the goal is reached.
    subject(&server, &["set", "alice", "--clear", "limits"]).expect_done();
}

/// A secret that was never shown is useless.
#[test]
fn a_missing_secret_is_generated_and_printed() {
    let server = RedisServer::start();
    let urls = ["--webhook", "https://a.test", "--webhook", "https://b.test", "--webhook-secret", SECRET];
    let printed = subject(&server, &[&["set", "alice"], &urls[..]].concat()).expect_done();
    let contacts = contacts(&hash(&server, "alice"));
    // The first secret belongs to the first webhook; the second one is generated.
    assert_eq!(contacts[0]["secret"], SECRET);
    let made = contacts[1]["secret"].as_str().expect("text");
    assert!(made.starts_with("whsec_") && made.len() == 50, "{made}");
    assert_eq!(printed, format!("{made}  https://b.test\n"));
    let printed = subject(&server, &["set", "bob", "--webhook", "https://b.test", "--json"]).expect_json().remove(0);
    assert_eq!(printed["webhook_secrets"][0]["url"], "https://b.test");
}

/// A new secret would break a receiver that verifies with the stored one.
#[test]
fn a_webhook_that_is_stored_keeps_its_secret() {
    let server = RedisServer::start();
    let first = subject(&server, &["set", "alice", "--webhook", "https://a.test"]).expect_done();
    let secret = first.split_whitespace().next().expect("a secret").to_owned();
    let again = ["set", "alice", "--email", "a@b.test", "--webhook", "https://a.test", "--webhook", "https://b.test"];
    let printed = subject(&server, &again).expect_done();
    let now = hash(&server, "alice");
    assert_eq!(by_address(&now, "a@b.test")["channel"], "email");
    assert_eq!(by_address(&now, "https://a.test")["secret"], json!(secret));
    // A receiver can only be unaware of a new secret.
    let made = by_address(&now, "https://b.test")["secret"].clone();
    assert_eq!(printed, format!("{}  https://b.test\n", made.as_str().expect("text")));
    // A given secret replaces the stored one.
    subject(&server, &["set", "alice", "--webhook", "https://a.test", "--webhook-secret", SECRET]).expect_done();
    assert_eq!(contacts(&hash(&server, "alice"))[0]["secret"], SECRET);
    // `--clear` removes first, so the webhook is new.
    let printed =
        subject(&server, &["set", "alice", "--clear", "contacts", "--webhook", "https://a.test"]).expect_done();
    assert!(printed.starts_with("whsec_") && !printed.contains(SECRET), "{printed}");
}

/// A change that adds a webhook without a secret, and the secret that it generates.
fn webhook_of_alice() -> (Vec<GeneratedSecret>, SubjectChange) {
    let columns = ContactColumns::default().with("webhook", vec!["https://a.test".to_owned()]);
    let named = columns.into_specs().expect("legal");
    let generated = named.iter().filter_map(GeneratedSecret::of).collect();
    let contacts = ContactsChange::merge(named, UnlistedPolicy::RemoveOperators);
    (generated, SubjectChange { subject: "alice".parse().expect("legal"), settings: SubjectPatch::default(), contacts })
}

/// Between the read of the stored secret and the write another client may store one: it must not be overwritten.
#[tokio::test]
async fn contacts_that_change_meanwhile_are_read_again() {
    let server = RedisServer::start();
    let (client, keys) = (server.client(), Keys::new("usage"));
    let (named, change) = webhook_of_alice();
    let stored = json!([{"channel": "webhook", "url": "https://a.test", "secret": SECRET}]).to_string();
    let mut looks = 0;
    let merge = |read: &[SubjectField]| {
        looks += 1;
        let merged = change.merged(read, 16)?;
        if looks == 1 {
            hset(&server, "alice", &[("contacts", stored.as_bytes())]);
        }
        Ok::<_, ContactActionError>((merged.fields.clone(), merged))
    };
    let written = edit_subject(&client, &keys, &change.subject, merge).await.expect("written");
    // The second look finds it and keeps it.
    assert_eq!((looks, written.generated.len(), named.len()), (2, 0, 1));
    assert_eq!(contacts(&hash(&server, "alice"))[0]["secret"], SECRET);
}

/// If the reply is lost, the write is repeated: its secret is stored, but nobody has seen it.
#[tokio::test]
async fn a_secret_of_a_write_whose_answer_was_lost_is_still_printed() {
    let server = RedisServer::start();
    let partition = Partition { client: server.client().into(), keys: Keys::new("usage") };
    let (named, change) = webhook_of_alice();
    for _ in 0..2 {
        let written = subject_change::write(&partition, 16, &change).await.expect("written");
        assert_eq!(written.generated, named);
    }
}

/// The platform writes contacts too: with its own ids, beside unreadable ones, with lists of secrets.
#[test]
fn secrets_that_the_platform_wrote_are_kept_unless_they_cannot_sign() {
    let server = RedisServer::start();
    let list = format!("{SECRET} {SECRET}");
    let stored = json!([
        {"channel": "sms"},
        {"id": "mine", "channel": "webhook", "url": "https://a.test", "secret": list},
        {"channel": "webhook", "url": "https://b.test", "secret": "whsec_AAAA"},
    ]);
    hset(&server, "alice", &[("contacts", stored.to_string().as_bytes())]);
    let options = ["set", "alice", "--webhook", "https://a.test", "--webhook", "https://b.test", "--plan", "free"];
    let printed = subject(&server, &options).expect_done();
    let hash = hash(&server, "alice");
    assert_eq!((&by_address(&hash, "https://a.test")["secret"], hash["plan"].as_str()), (&json!(list), "free"));
    let made = by_address(&hash, "https://b.test")["secret"].clone();
    assert_eq!(printed, format!("{}  https://b.test\n", made.as_str().expect("text")));
}

/// The output of `subject set`, and the stored contacts afterwards.
fn set_contacts(server: &RedisServer, options: &[&str]) -> (Finished, String) {
    let finished = subject(server, &[&["set", "alice"], options].concat());
    let stored = hash(server, "alice").remove("contacts").unwrap_or_default();
    (finished, stored)
}

/// A nightly `subject set` or import must neither unmute a contact nor remove a customer's consent.
#[test]
fn contacts_that_are_named_again_keep_what_is_known_of_them() {
    let server = RedisServer::start();
    let main = r#"{"id":"main","channel":"email","address":"a@B.test","muted":true,"note":1e999}"#;
    let old = r#"{"channel":"email","address":"old@b.test"}"#;
    let confirmed = r#"{"id":"c_9","channel":"email","address":"own@b.test","verified":true,"nonce":"n"}"#;
    let pending = r#"{"channel":"email","address":"new@b.test","verified":false}"#;
    let odd = r#"{"channel":"sms","to":"+1"}"#;
    hset(&server, "alice", &[("contacts", format!("[{main},{old},{odd},{confirmed},{pending}]").as_bytes())]);
    let (finished, stored) = set_contacts(&server, &["--email", "a@b.test", "--timezone", "UTC"]);
    assert_eq!(stored, format!("[{main},{odd},{confirmed},{pending}]"));
    assert_eq!((finished.code, finished.stdout.as_str()), (0, ""));
    assert_eq!(
        finished.stderr,
        "kept what the subject's side added: own@b.test, new@b.test\n\
         warning: kept contacts that can't be read (1), --replace-all-contacts removes them\n\
         set alice: timezone, contacts\n"
    );
    let (_, stored) = set_contacts(&server, &["--email", "a@b.test", "--replace-all-contacts"]);
    assert_eq!(stored, format!("[{main}]"));
    // Everything that can be named can be cleared.
    let (_, stored) = set_contacts(&server, &["--email", "a@b.test", "--clear", "contacts"]);
    assert!(!stored.contains("main") && stored.contains("a@b.test"), "{stored}");
}

/// Contacts that the operator's own edit broke may be irreplaceable: they are overwritten only on request.
#[test]
fn contacts_that_are_no_array_are_replaced_only_on_request() {
    let server = RedisServer::start();
    hset(&server, "alice", &[("contacts", b"[{]"), ("plan", b"free")]);
    let (refused, stored) = set_contacts(&server, &["--email", "a@b.test", "--plan", "none"]);
    assert_eq!((refused.code, stored.as_str()), (2, "[{]"));
    let (refused, stored) = set_contacts(&server, &["--email", "a@b.test"]);
    assert_eq!((refused.code, stored.as_str()), (1, "[{]"));
    assert!(refused.stderr.contains("is not a JSON array") && refused.stderr.contains("--replace-all-contacts"));
    let (_, stored) = set_contacts(&server, &["--email", "a@b.test", "--replace-all-contacts"]);
    assert!(stored.contains("a@b.test"), "{stored}");
    let (refused, _) = set_contacts(&server, &["--timezone", "UTC", "--replace-all-contacts"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

/// A refused change must change nothing.
#[test]
fn a_bad_value_writes_nothing() {
    let server = RedisServer::start();
    for bad in [
        &["--plan", "gold"][..],
        &["--timezone", "Hanoi"],
        &["--limit", "requests=0"],
        &["--limit", "requests=9007199254740992"],
        &["--limit", "Requests=1"],
        &["--limit", "a=1", "--limit", "a=2"],
        &["--threshold", "1001"],
        &["--webhook", "example.com"],
        &["--webhook", "https://x.test", "--webhook-secret", "whsec_AAAA"],
        &["--email", "a@b.test", "--email", "a@b.test"],
        &["--email", "a@b.test", "--email", "a@B.Test"],
        &["--email", "a@[192.0.2.1]"],
        &["--email", "\"a b\"@b.test"],
        &["--clear", "everything"],
    ] {
        let finished = subject(&server, &[&["set", "alice", "--timezone", "UTC"][..2], bad].concat());
        assert_eq!(finished.code, 2, "{bad:?}: {}", finished.stderr);
        assert!(hash(&server, "alice").is_empty(), "{bad:?}");
    }
}

/// A webhook that the configuration refuses may be stored, but the operator must be warned now and not by a dead
/// delivery.
#[test]
fn a_plain_http_webhook_is_warned_about() {
    let server = RedisServer::start();
    let options = ["set", "alice", "--webhook", "http://x.test", "--webhook-secret", SECRET];
    let warned = subject(&server, &options);
    assert!(warned.code == 0 && warned.stderr.contains("webhook.allow_http"), "{}", warned.stderr);
    let allowed = quotabell(["subject"].iter().chain(&options).copied())
        .redis(&server.url())
        .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
        .run();
    assert!(!allowed.stderr.contains("warning"), "{}", allowed.stderr);
}

/// Most mail servers refuse such an address every time: the operator must be warned before the first alert.
#[test]
fn an_address_that_few_mail_servers_take_is_warned_about() {
    let server = RedisServer::start();
    let set = |address: &str| subject(&server, &["set", "alice", "--email", address]);
    let warned = set("jörg@b.test");
    assert!(warned.code == 0 && warned.stderr.contains("only a mail server with SMTPUTF8"), "{}", warned.stderr);
    assert!(!set("bob@bücher.example").stderr.contains("warning"));
}

/// The output must show why a contact gets nothing; an explicitly named contact becomes the operator's and needs no
/// consent.
#[test]
fn a_contact_that_is_not_verified_is_shown_as_such_until_an_operator_names_it() {
    let server = RedisServer::start();
    let unverified = br#"[{"id":"c_1","channel":"email","address":"a@b.test","verified":false}]"#;
    hset(&server, "alice", &[("contacts", unverified)]);
    let json = subject(&server, &["show", "alice", "--json"]).expect_json().remove(0);
    assert_eq!(json["contacts"][0]["verified"], false);
    for command in [&["show", "alice"][..], &["list"]] {
        let shown = subject(&server, command).expect_done();
        assert!(shown.contains("a@b.test (not confirmed)"), "{shown}");
    }
    subject(&server, &["set", "alice", "--email", "a@b.test"]).expect_done();
    let json = subject(&server, &["show", "alice", "--json"]).expect_json().remove(0);
    assert_eq!((json["contacts"][0].get("verified"), &json["contacts"][0]["address"]), (None, &json!("a@b.test")));
    assert!(!subject(&server, &["list"]).expect_done().contains("unverified"));
}

/// Programs rely on the fields; secrets must not be shown.
#[test]
fn show_prints_the_documented_fields_without_secrets() {
    let server = RedisServer::start();
    let options =
        "--plan free --limit requests=5 --threshold 50 --email a@b.test --webhook https://x.test/h --webhook-secret";
    set(&server, "alice", &format!("{options} {SECRET}")).expect_done();
    let shown = subject(&server, &["show", "alice", "--json"]).expect_json().remove(0);
    let expected = json!({
        "subject": "alice", "plan": "free", "timezone": null, "billing_day": null, "billing_month": null,
        "limits": {"requests": 5}, "thresholds": [50], "locale": null, "name": null,
        "contacts": [
            {"id": shown["contacts"][0]["id"], "channel": "email", "address": "a@b.test"},
            {"id": shown["contacts"][1]["id"], "channel": "webhook", "url": "https://x.test/h", "secret": "***"},
        ],
    });
    assert_eq!(shown, expected);
    insta::assert_snapshot!(subject(&server, &["show", "alice"]).expect_done());
}

/// An invalid field of the platform must be named, and must not hide the others.
#[test]
fn show_names_unreadable_fields_and_shows_the_rest() {
    let server = RedisServer::start();
    hset(
        &server,
        "alice",
        &[
            ("plan", b"free"),
            ("timezone", b"Mars/Olympus"),
            ("limit:requests", b"-5"),
            ("billing_day", b"32"),
            ("contacts", b"[{]"),
        ],
    );
    let finished = subject(&server, &["show", "alice", "--json"]);
    for field in ["timezone", "limit:requests", "billing_day", "contacts"] {
        assert!(finished.stderr.contains(&format!("field {field:?}")), "{}", finished.stderr);
    }
    let shown = finished.expect_json().remove(0);
    assert_eq!((&shown["plan"], &shown["timezone"]), (&json!("free"), &Value::Null));
}

/// Problems that make alerts wait or die must be visible here and not only in the daemon's log. No secret is shown.
#[test]
fn show_and_list_warn_about_what_no_alert_can_use() {
    let server = RedisServer::start();
    let stored = json!([
        {"id": "c_1", "channel": "webhook", "url": "https://x.test", "secret": "hidden"},
        {"id": "c_2", "channel": "webhook", "url": "x.test:80/hook", "secret": SECRET},
        {"id": "c_3", "channel": "email", "address": "nobody"},
        {"id": "c_4", "channel": "email", "address": "a@b.test"},
    ]);
    hset(&server, "alice", &[("plan", b"fere"), ("contacts", stored.to_string().as_bytes())]);
    let shown = subject(&server, &["show", "alice"]);
    insta::assert_snapshot!(shown.told());
    let listed = subject(&server, &["list"]);
    assert_eq!((listed.code, &listed.stderr), (0, &shown.stderr));
}

/// A key of another type stops its subject's alerts, so the list must show it.
#[test]
fn list_names_a_key_of_another_type_and_shows_the_rest() {
    let server = RedisServer::start();
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let () = redis::cmd("SET").arg("quota_subject:bob").arg("x").query(&mut connection).expect("set");
    for name in ["alice", "carol"] {
        hset(&server, name, &[("plan", b"free")]);
    }
    let listed = subject(&server, &["list", "--limit", "2", "--json"]);
    assert_eq!(
        listed.stderr,
        "warning: key \"quota_subject:bob\" is not a hash: nothing of this subject can be read\n"
    );
    let names: Vec<Value> = listed.expect_json().into_iter().map(|subject| subject["subject"].clone()).collect();
    assert_eq!(names, ["alice", "carol"]);
}

/// A misspelled name must not look like a subject without settings.
#[test]
fn show_of_an_unknown_subject_fails() {
    let server = RedisServer::start();
    insta::with_settings!({filters => vec![(r":\d{4,5}", ":PORT")]}, {
        insta::assert_snapshot!(subject(&server, &["show", "nobody"]).told(), @r#"
    error: nothing is set for subject nobody
    hint: it has the default plan "free" and the fallback contacts; `quotabell usage` shows its counts
    exit 1
    "#);
    });
}

/// SCAN may return a key twice: with thousands of keys, each subject must be listed once.
#[test]
fn list_is_complete_and_the_limit_cuts_it() {
    let server = RedisServer::start();
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut pipeline = redis::pipe();
    for number in 0..2500 {
        pipeline.cmd("HSET").arg(format!("quota_subject:s{number:04}")).arg("plan").arg("free").ignore();
        pipeline.cmd("SET").arg(format!("other:{number}")).arg("x").ignore();
    }
    let () = pipeline.query(&mut connection).expect("written");
    let names = |arguments: &[&str]| -> Vec<String> {
        let listed = subject(&server, &[&["list", "--json"], arguments].concat()).expect_json();
        listed.iter().map(|shown| shown["subject"].as_str().expect("text").to_owned()).collect()
    };
    let all: Vec<String> = (0..2500).map(|number| format!("s{number:04}")).collect();
    assert_eq!(names(&[]), all);
    assert_eq!(names(&["--limit", "3"]), all[..3]);
}

/// The table of a small list, as people see it.
#[test]
fn list_prints_a_table() {
    let server = RedisServer::start();
    subject(&server, &["set", "alice", "--plan", "free", "--limit", "requests=5000", "--email", "a@b.test"])
        .expect_done();
    subject(&server, &["set", "a longer name", "--timezone", "Asia/Ho_Chi_Minh", "--threshold", "50,90"]).expect_done();
    insta::assert_snapshot!(subject(&server, &["list"]).expect_done(), @"
    SUBJECT        PLAN  TIMEZONE          LIMITS          THRESHOLDS  CONTACTS
    a longer name  -     Asia/Ho_Chi_Minh  -               50,90       -
    alice          free  -                 requests=5,000  -           a@b.test
    ");
}

/// Removing a missing contact is reported; existing ones are removed anyway.
#[test]
fn remove_removes_and_tells_what_was_not_there() {
    let server = RedisServer::start();
    subject(&server, &["set", "alice", "--plan", "free"]).expect_done();
    let finished = subject(&server, &["remove", "alice", "nobody"]);
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("nothing was set for nobody\nhint:"), "{}", finished.stderr);
    assert!(hash(&server, "alice").is_empty());
}
