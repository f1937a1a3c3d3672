//! The formats of webhooks: what each receiver gets on real connections, and that names from outside do no harm.

use std::path::Path;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use super::channels_webhook::inside;
use crate::support::grant_notices::grant_notice;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::table::Table;
use crate::support::webhook_receiver::{secret, verify_as};
use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::webhook::{WebhookBody, WebhookConfig, WebhookTemplates, payload};
use quotabell::channels::{
    AlertPurpose, ChannelSettings, Channels, ConsentProof, ConsentQuestion, Content, DnsConfig, Labels, MessageSet,
    Sample, SetItem, TestKind, check_contact,
};
use quotabell::config::Config;
use quotabell::contacts::{Contact, ContactOptions, ExtraHeaders, MessageFormat, masked_contact};
use quotabell::types::alert::LargestChild;
use quotabell::types::{
    Alert, Channel, ContactId, DailyDigest, DeadDelivery, DeliveryId, DisableReason, DisabledNotice, DisabledState,
    OutcomeClass, Percent, Secret, Subject, Threshold, UnixMs, Window,
};

const ROUTING_KEY: &str = "R0123456789abcdefghijklmnopqrstu";

fn subject(name: &str) -> Subject {
    Subject::parse(name.as_bytes()).expect("legal")
}

fn alert(name: &str, percent: u16) -> Alert {
    let sample = Sample::for_subject(subject(name));
    sample.alert(Percent::new(percent).expect("legal"), SAMPLE_AT)
}

/// The fields that a contact of this format needs.
fn options(format: MessageFormat) -> ContactOptions {
    let secret = match format {
        MessageFormat::Standard | MessageFormat::CloudEvents => Some(secret(7)),
        MessageFormat::PagerDuty => Some(ROUTING_KEY.to_owned()),
        _ => None,
    };
    ContactOptions { secret: secret.map(Secret::new), format, headers: ExtraHeaders::default() }
}

fn written(options: &ContactOptions, content: Content<'_>) -> WebhookBody {
    let templates = WebhookTemplates::load(None).expect("they are shipped");
    templates.body(options, content, &Labels::default(), SAMPLE_AT).expect("it is built in")
}

fn body(format: &MessageFormat, alert: &Alert, purpose: AlertPurpose) -> Value {
    let written = written(&options(format.clone()), Content::Alert(alert, purpose));
    serde_json::from_str(&written.json).expect("JSON")
}

fn channels(webhook: &WebhookConfig) -> Channels {
    let email = Config::defaults().expect("valid").email;
    let dns = DnsConfig::default();
    Channels::new(ChannelSettings { email: &email, webhook, dns: &dns }).expect("legal settings")
}

/// A folder with one template.
fn folder(name: &str, template: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), template).expect("written");
    folder
}

/// The bodies are a contract with foreign programs: every change must be visible.
#[test]
fn every_format_is_the_documented_one() {
    let mut bodies = Table::default();
    for format in MessageFormat::BUILT_IN {
        let of = |alert: &Alert, purpose| body(&format, alert, purpose).to_string();
        bodies.add(format!("{format}: a warning"), of(&alert("alice", 80), AlertPurpose::Alert));
        bodies.add(format!("{format}: a test, beyond the limit"), of(&alert("alice", 120), AlertPurpose::Test));
    }
    insta::assert_snapshot!("bodies", bodies);
}

/// A set of these alerts.
fn set_of<'a>(alerts: &'a [Alert], labels: &Labels) -> MessageSet<'a> {
    let item = |alert| SetItem { content: Content::Alert(alert, AlertPurpose::Alert), labels: labels.clone() };
    MessageSet { id: "digest_0123456789abcdef0123456789abcdef", items: alerts.iter().map(item).collect() }
}

/// A receiver of digests must find in each item what it knows, and a chat every alert in one message.
#[test]
fn several_alerts_are_one_body_of_each_format() {
    let alerts = [alert("alice", 80), alert("alice", 100)];
    let mut bodies = Table::default();
    for format in MessageFormat::BUILT_IN {
        let several = set_of(&alerts, &Labels::default());
        let WebhookBody { content_type, json } = written(&options(format.clone()), Content::Set(&several));
        bodies.add(format!("{format}: several"), format!("{content_type}\n{json}"));
        // The only one of a digest is what it always was to people, and a digest to programs.
        let one = set_of(&alerts[..1], &Labels::default());
        let only = written(&options(format.clone()), Content::Set(&one)).json;
        let alone = written(&options(format.clone()), Content::Alert(&alerts[0], AlertPurpose::Alert)).json;
        assert_eq!(only == alone, !format.has_challenge(), "{format}: {only}");
    }
    insta::assert_snapshot!("several", bodies);
}

/// A chat cuts or refuses what is too long, so thirty alerts with the longest names must fit.
#[test]
fn the_longest_digest_fits_into_a_chat() {
    let alerts: Vec<Alert> = (1..=30).map(|percent| alert(&"*".repeat(128), percent)).collect();
    let several = set_of(&alerts, &Labels::default());
    let body = |format| {
        let json = written(&options(format), Content::Set(&several)).json;
        (json.len(), serde_json::from_str::<Value>(&json).expect("JSON"))
    };
    let (_, discord) = body(MessageFormat::Discord);
    let length = |text: &Value| text.as_str().expect("text").chars().count();
    let embeds = discord["embeds"].as_array().expect("a list");
    assert!(length(&discord["content"]) <= 2_000 && embeds.iter().all(|embed| length(&embed["description"]) <= 4_096));
    assert!(embeds.iter().map(|embed| length(&embed["description"])).sum::<usize>() <= 6_000);
    let shown: String = std::iter::once(&discord["content"])
        .chain(embeds.iter().map(|embed| &embed["description"]))
        .map(|text| text.as_str().expect("text"))
        .collect();
    assert_eq!(shown.matches("of the requests quota").count(), 30, "{shown}");
    assert!(body(MessageFormat::Teams).0 < 28 * 1024 && body(MessageFormat::Slack).0 < 40_000);
}

/// Alerts that read differently: every window, below, at and above the limit, and a time of day that occurs twice.
fn varied_alerts() -> Vec<(String, Alert)> {
    let mut alerts = Vec::new();
    for limit in ["600/hour", "5000/day", "100/week", "1/month"] {
        for percent in [80, 100, 120] {
            let sample = Sample { limit: limit.parse().expect("a limit"), ..Sample::example() };
            let alert = sample.alert(Percent::new(percent).expect("legal"), SAMPLE_AT);
            alerts.push((format!("{percent}% of {limit}"), alert));
        }
    }
    // 2026-10-25T00:29Z, when clocks in Berlin show 02:29 twice.
    let limit = "600/hour".parse().expect("a limit");
    let autumn =
        Sample { limit, ..Sample::example() }.alert(Percent::new(80).expect("legal"), UnixMs(1_792_888_140_000));
    alerts.push(("in autumn".to_owned(), autumn));
    let (limit, used) = (9_007_199_254_740_991, 7_777_777_777_777_777);
    alerts.push(("large numbers".to_owned(), Alert { limit, used, ..alert("alice", 80) }));
    let unknown = Alert { timezone: "Mars/<Olympus>\u{202e}".to_owned(), ..alert("alice", 80) };
    alerts.push(("an unknown zone".to_owned(), unknown));
    alerts
}

/// Receivers know these bytes: names in any script, every purpose and window, notices, digests and questions.
#[test]
fn every_body_is_written_as_before() {
    let mut bodies = Table::default();
    let languages = ["Ngọc Trần", "株式会社", "شركة", "Ünïcødé ẞ"].map(str::to_owned);
    let names: Vec<String> = hostile_names().into_iter().filter(|name| name.len() < 128).chain(languages).collect();
    for format in MessageFormat::BUILT_IN {
        let options = options(format.clone());
        let mut add = |case: String, content: Content<'_>| {
            let WebhookBody { content_type, json } = written(&options, content);
            bodies.add(format!("{format}: {case}"), format!("{content_type}\n{json}"));
        };
        for (case, alert) in varied_alerts() {
            for purpose in [AlertPurpose::Alert, AlertPurpose::Copy, AlertPurpose::Test] {
                let is_telling = purpose == AlertPurpose::Alert || case == "80% of 5000/day";
                if is_telling {
                    add(format!("{case}, {purpose:?}"), Content::Alert(&alert, purpose));
                }
            }
        }
        // The others are written by serde alone.
        let is_chat = !format.has_challenge();
        for name in names.iter().filter(|_| is_chat) {
            let named = Alert { plan: format!("{name}{name}{name}"), ..alert(name, 100) };
            add(format!("{name:?}"), Content::Alert(&named, AlertPurpose::Alert));
        }
        let name = names.concat();
        if format.has_challenge() {
            let (asked, proof) =
                (subject("a \u{202e}<b>"), ConsentProof::Challenge(Secret::new("\"x\"<&>".to_owned())));
            let question = ConsentQuestion { id: "verification_1", subject: &asked, proof: &proof };
            add("a question".to_owned(), Content::Verification(question));
        }
        let mut notice = grant_notice(&subject("<@all> & *bob*"), SAMPLE_AT.plus(7 * 86_400_000));
        add("units that expire".to_owned(), Content::GrantExpires(&notice, AlertPurpose::Alert));
        (notice.note, notice.window) = (None, Window::Month);
        add("units that expire, a copy".to_owned(), Content::GrantExpires(&notice, AlertPurpose::Copy));
        for reason in DisableReason::ALL {
            let state = DisabledState { reason, detail: "HTTP <410> & *more* \u{202e}".to_owned(), at: SAMPLE_AT };
            let to = (Channel::Webhook, "https://x.test/a_b?c=<d>".to_owned());
            let notice = DisabledNotice::new(&subject("<@all>"), &ContactId::from_stored("main"), to, state);
            add(format!("{reason:?}"), Content::ContactDisabled(&notice));
        }
        let dead = |number: u64| DeadDelivery {
            id: DeliveryId::from_stored(&format!("delivery_{number}")),
            subject: if number == 0 { String::new() } else { name.clone() },
            channel: Channel::Email,
            error: "SMTP 550 <no> & *nobody*".to_owned(),
            at_ms: SAMPLE_AT.plus(1),
        };
        for first in [0, 1, 30] {
            let digest = DailyDigest {
                id: "digest_1".to_owned(),
                from_ms: SAMPLE_AT,
                until_ms: SAMPLE_AT.plus(86_400_000),
                dead: first * 2,
                dead_first: (0..first).map(dead).collect(),
                waiting: first,
                waiting_first: (0..first.min(2)).map(|_| subject("<bob>")).collect(),
            };
            if first < 30 || format == MessageFormat::Discord {
                add(format!("a digest of {first}"), Content::Digest(&digest));
            }
        }
    }
    insta::assert_snapshot!("every_body", bodies);
}

/// A channel that hears of an organization asks which team it was: every format names the largest ones, as names only.
#[test]
fn chats_name_the_largest_children() {
    let mut bodies = Table::default();
    let child = |name: &str, used| LargestChild::new(subject(name), used, 4_000);
    let largest = vec![child("acme/search", 2_000), child("acme/<@all> & *chat*", 1_500), child("acme/Ngọc", 499)];
    for format in MessageFormat::BUILT_IN {
        let named = Alert { largest: largest.clone(), ..alert("acme", 80) };
        bodies.add(&format, body(&format, &named, AlertPurpose::Alert));
    }
    insta::assert_snapshot!("children", bodies);
}

/// "of 600 requests" would be read as a daily limit.
#[test]
fn sentences_name_the_window() {
    let mut read = Table::default();
    for limit in ["600/hour", "5000/day", "100/week", "100000/month", "300000/quarter", "1000000/year"] {
        let sample = Sample { limit: limit.parse().expect("a limit"), ..Sample::example() };
        for percent in [80, 100, 120] {
            let alert = sample.alert(Percent::new(percent).expect("legal"), SAMPLE_AT);
            let card = body(&MessageFormat::Teams, &alert, AlertPurpose::Alert);
            let shown = &card["attachments"][0]["content"]["fallbackText"];
            read.add(format!("{percent}% of {limit}"), shown.as_str().expect("text"));
        }
    }
    for threshold in ["used:100", "remaining:50", "used:5000"] {
        for limit in ["5000/day", "300000/quarter", "1000000/year", "100000/total"] {
            let sample = Sample { limit: limit.parse().expect("a limit"), ..Sample::example() };
            let threshold: Threshold = threshold.parse().expect("legal");
            let card = body(&MessageFormat::Teams, &sample.alert(threshold, SAMPLE_AT), AlertPurpose::Alert);
            let shown = &card["attachments"][0]["content"]["fallbackText"];
            read.add(format!("{threshold} of {limit}"), shown.as_str().expect("text"));
        }
    }
    insta::assert_snapshot!("sentences", read);
}

/// A receiver gets exactly the body of its format, with the right media type, the contact's headers, the same id on
/// every attempt, and a signature if there is a secret.
#[tokio::test]
async fn each_format_arrives_as_it_is_written() {
    let channels = channels(&inside());
    for format in MessageFormat::BUILT_IN {
        let mut receiver = HttpCatcher::start([Answer::status(500), Answer::status(202)]).await.expect("a receiver");
        let headers = [("Authorization".to_owned(), Secret::new("Bearer t".to_owned()))].into_iter().collect();
        let options = ContactOptions { headers, ..options(format.clone()) };
        let contact = Contact::webhook_with(&receiver.url("/hook"), options);
        assert_eq!(check_contact(&contact), Ok(()), "{format}");
        let mut ids = Vec::new();
        for class in [OutcomeClass::Transient, OutcomeClass::Delivered] {
            let outcome = channels
                .send_test(&contact, TestKind::Alert, (&Sample::example(), &Labels::default()), SAMPLE_AT)
                .await;
            assert_eq!(outcome.class, class, "{format}: {outcome:?}");
            let caught = receiver.next().await;
            let media_type = match format {
                MessageFormat::CloudEvents => "application/cloudevents+json",
                _ => "application/json",
            };
            let header = |name: &str| caught.headers.get(name).map(|value| value.to_str().expect("text").to_owned());
            assert_eq!(header("content-type").as_deref(), Some(media_type), "{format}");
            assert_eq!(header("authorization").as_deref(), Some("Bearer t"), "{format}");
            ids.push(header("webhook-id").expect("an id"));
            match format {
                MessageFormat::Standard | MessageFormat::CloudEvents => {
                    verify_as(&caught, &secret(7), media_type);
                }
                _ => assert_eq!(header("webhook-signature"), None, "{format}: nothing signs it"),
            }
            let example = Sample::example().alert(Percent::new(80).expect("legal"), SAMPLE_AT);
            let id = quotabell::types::AlertId::from_stored(ids.last().expect("just added"));
            let expected = body(&format, &Alert { id, ..example }, AlertPurpose::Test);
            assert_eq!(serde_json::from_slice::<Value>(&caught.body).expect("JSON"), expected, "{format}");
        }
        assert_eq!(ids[0], ids[1], "{format}");
    }
}

/// A chat behind the operator's proxy may require a signature too.
#[tokio::test]
async fn a_secret_signs_a_chat_message_too() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let signed = ContactOptions { secret: Some(Secret::new(secret(9))), ..options(MessageFormat::Slack) };
    let contact = Contact::webhook_with(&receiver.url("/"), signed);
    channels(&inside()).send_test(&contact, TestKind::Alert, (&Sample::example(), &Labels::default()), SAMPLE_AT).await;
    verify_as(&receiver.next().await, &secret(9), "application/json");
}

/// Names with a meaning for chats, JSON, HTML or terminals, and the longest possible names.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "<!channel>",
        "<!here|x> & <@U024BE7LH>",
        "@everyone @here <@&1234567890>",
        "<@1234567890> <#1> <t:0:R> :smile:",
        "\"quoted\" 'single' \\back\\slash",
        "**bold** _it_ ~~gone~~ ||spoiler|| `code` ```block",
        "[click](https://evil.example) https://evil.example/x www.evil.example",
        "# heading > quote - list 1. one",
        "<at>Bob</at> {{ subject }} {% if %} ${title}",
        "<script>alert(1)</script>",
        "\u{202e}txt.exe \u{2028}line\u{2029} \u{2066}isolate\u{2069} \u{200f}",
        "Ngọc 🎉 \u{feff}",
        "\",\"routing_key\":\"x",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["*", "<", "&", "\"", "\\", "@"].map(|letter| letter.repeat(256)));
    names.extend(["é".repeat(128), "\u{2028}".repeat(85)]);
    names
}

/// Every text in a JSON value.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, into)),
        _ => {}
    }
}

/// A customer chooses its name: it must neither notify a whole channel, nor become a link, nor affect its surroundings.
#[test]
fn no_name_is_more_than_a_name() {
    for name in hostile_names() {
        let alert = Alert { plan: format!("{name}{name}{name}"), ..alert(&name, 100) };
        for format in MessageFormat::BUILT_IN {
            let body = body(&format, &alert, AlertPurpose::Alert);
            let mut all = Vec::new();
            texts(&body, &mut all);
            let is_inert = |text: &String| !text.contains(['\u{202e}', '\u{2028}', '\u{2066}', '\u{200f}']);
            let chars = |text: &Value| text.as_str().expect("text").chars().count();
            match format {
                MessageFormat::Standard => assert_eq!(body["data"]["subject"], name),
                MessageFormat::CloudEvents => {
                    assert_eq!(body["data"]["subject"], name);
                    assert!(is_inert(&body["subject"].as_str().expect("text").to_owned()));
                }
                MessageFormat::Slack => {
                    assert!(all.iter().all(|text| is_inert(text) && !text.contains(['<', '>'])), "{body:#}");
                    let entities = ["&amp;", "&lt;", "&gt;"];
                    let rest = |text: &String| entities.iter().fold(text.clone(), |text, one| text.replace(one, ""));
                    assert!(all.iter().all(|text| !rest(text).contains('&')), "{body:#}");
                    assert!(!all.iter().any(|text| text == "mrkdwn"), "{body:#}");
                    assert_eq!(body["mrkdwn"], false);
                    assert!(chars(&body["text"]) <= 3000 && chars(&body["blocks"][1]["text"]["text"]) <= 3000);
                    let fields = body["blocks"][2]["fields"].as_array().expect("fields");
                    assert!(fields.len() <= 10 && fields.iter().all(|field| chars(&field["text"]) <= 2000));
                }
                MessageFormat::Discord => {
                    assert_eq!(body["allowed_mentions"], json!({"parse": []}));
                    let content = body["content"].as_str().expect("text");
                    let unescaped = content.replace("\\\\", "");
                    let marks = unescaped.match_indices(['*', '_', '~', '`', '|', '>', '<', '[', ']', '@', ':']);
                    for (at, _) in marks {
                        assert!(unescaped[..at].ends_with('\\'), "{content}");
                    }
                    let embed = &body["embeds"][0];
                    let fields = embed["fields"].as_array().expect("fields");
                    assert!(is_inert(&content.to_owned()) && chars(&body["content"]) <= 2000);
                    assert!(fields.iter().all(|field| chars(&field["name"]) <= 256 && chars(&field["value"]) <= 1024));
                    assert!(chars(&embed["title"]) <= 256 && chars(&embed["footer"]["text"]) <= 2048);
                    let sum: usize = fields.iter().map(|field| chars(&field["name"]) + chars(&field["value"])).sum();
                    assert!(sum + chars(&embed["title"]) + chars(&embed["footer"]["text"]) <= 6000);
                }
                MessageFormat::Teams => {
                    let card = &body["attachments"][0]["content"];
                    assert!(all.iter().all(is_inert), "{body:#}");
                    assert!(!all.iter().any(|text| text == "TextBlock"), "that one reads Markdown");
                    assert!(card["msteams"].is_null() && body.to_string().len() < 28 * 1024, "{body:#}");
                }
                MessageFormat::PagerDuty => {
                    assert_eq!((&body["routing_key"], &body["dedup_key"]), (&json!(ROUTING_KEY), &json!(alert.id)));
                    assert!(chars(&body["payload"]["summary"]) <= 1024 && chars(&body["dedup_key"]) <= 255);
                    assert_eq!(body["payload"]["custom_details"]["subject"], name);
                }
                MessageFormat::Template(_) => unreachable!("it is not built in"),
            }
        }
    }
}

/// The error for a wrong template must come before an alert is due, with the file and the allowed names.
#[test]
fn a_wrong_template_is_explained_when_it_is_loaded() {
    let mut told = Table::default();
    for (template, name) in [
        (r#"{"text": {{ subjct }}}"#, "unknown.json"),
        (r#"{"text": "{{ subject }}"}"#, "quoted.json"),
        (r#"{"text": {{ subject }}, }"#, "comma.json"),
        (r#"{"text": {% if test %}{{ plan }}{% endif %}}"#, "only_tests.json"),
        (r#"{"text": "{{ subject|safe }}"}"#, "only_plain_names.json"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}1{% endfor %}{% endfor %}", "endless.json"),
        ("{}", "no name.json"),
        ("{}", "readme.txt"),
    ] {
        let folder = folder(name, template);
        let error = WebhookTemplates::load(Some(folder.path())).expect_err(name).to_string();
        told.add(template, error.replace(&folder.path().display().to_string(), "FOLDER"));
    }
    let absent = WebhookTemplates::load(Some(Path::new("/absent"))).expect_err("absent").to_string();
    told.add("no folder", absent);
    insta::assert_snapshot!("wrong_templates", told);
}

/// A part of a template that the check at start does not reach fails at the first alert instead.
#[test]
fn the_check_reaches_each_severity_of_each_kind_of_threshold_and_the_children() {
    for (condition, wrong) in [
        (r#"severity == "exceeded" and threshold.kind == "used""#, "threshold.percent"),
        (r#"used == limit and threshold.kind == "used""#, "threshold.percent"),
        (r#"used == limit and threshold.kind == "remaining""#, "threshold.percent"),
        (r#"used > limit and threshold.kind == "used""#, "threshold.percent"),
        (r#"used > limit and threshold.kind == "remaining""#, "threshold.percent"),
        (r#"severity == "warning" and used == limit and threshold.kind == "percent""#, "threshold.units"),
        ("largest", "largest[0].name"),
        ("not largest", "largest[0].name"),
    ] {
        let template = format!(r#"{{"text": {{% if {condition} %}}{{{{ {wrong} }}}}{{% else %}}1{{% endif %}}}}"#);
        let folder = folder("branches.json", &template);
        assert!(WebhookTemplates::load(Some(folder.path())).is_err(), "{template}");
    }
}

/// A template from before thresholds in units must not fail at the first alert of one.
#[test]
fn the_data_of_a_template_have_a_percentage_for_each_kind_of_threshold() {
    let folder = folder("share.json", r#"{"share": {{ data.threshold_percent }}}"#);
    let templates = WebhookTemplates::load(Some(folder.path())).expect("a legal template");
    for (threshold, share) in [("80", 80), ("used:2500", 50), ("remaining:1000", 80)] {
        let alert = Sample::example().alert(threshold.parse::<Threshold>().expect("legal"), SAMPLE_AT);
        let options = options("template:share".parse().expect("a format"));
        let body = templates
            .body(&options, Content::Alert(&alert, AlertPurpose::Alert), &Labels::default(), SAMPLE_AT)
            .expect("it renders");
        assert_eq!(serde_json::from_str::<Value>(&body.json).expect("JSON"), json!({"share": share}));
    }
}

/// A template is for unknown receivers: it can show everything that emails show, and values can't break it.
#[tokio::test]
async fn a_template_makes_the_body() {
    let template = r#"{"id": {{ id }}, "text": {{ subject ~ ": " ~ used|thousands ~ " of " ~ limit|thousands }}, "at": {{ resets_at|clock }}, "share": {{ used_percent }}}"#;
    let folder = folder("ops.json", template);
    let channels = channels(&WebhookConfig { templates: Some(folder.path().to_path_buf()), ..inside() });
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let url = receiver.url("/");
    let of = |name: &str| {
        let format = format!("template:{name}").parse().expect("a format");
        Contact::webhook_with(&url, options(format))
    };
    let sample = Sample::for_subject(Subject::parse("\"a\" </b> \\".as_bytes()).expect("legal"));
    let outcome = channels.send_test(&of("ops"), TestKind::Alert, (&sample, &Labels::default()), SAMPLE_AT).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered);
    let body: Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    let id = format!("test_{}", SAMPLE_AT.0);
    let text = "\"a\" </b> \\: 4,000 of 5,000";
    assert_eq!(body, json!({"id": id, "text": text, "at": "2026-11-22 00:00", "share": 80.0}));
    assert!(channels.check(&of("ops")).is_ok());
    let fault = channels.check(&of("pos")).expect_err("there is none");
    assert!(fault.field == "format" && fault.problem.ends_with("only ops"), "{fault}");
}

/// A copy that an operator is about to change must say the same as the shipped format, and be checked as any template.
#[test]
fn a_copy_of_a_shipped_format_is_a_template() {
    for format in [MessageFormat::Slack, MessageFormat::Discord, MessageFormat::Teams] {
        let shipped = format!("{}/templates/webhook/{format}.json", env!("CARGO_MANIFEST_DIR"));
        let folder = folder("copy.json", &std::fs::read_to_string(shipped).expect("it is shipped"));
        let templates = WebhookTemplates::load(Some(folder.path())).expect("a copy is legal");
        let (alert, copy) = (alert("<@all> *\"a\"*", 100), options("template:copy".parse().expect("a format")));
        let copied = templates
            .body(&copy, Content::Alert(&alert, AlertPurpose::Alert), &Labels::default(), SAMPLE_AT)
            .expect("it renders");
        let copied: Value = serde_json::from_str(&copied.json).expect("JSON");
        assert_eq!(copied, body(&format, &alert, AlertPurpose::Alert), "{format}");
    }
}

/// If a template fails for an unusual alert, or was removed, the alert must be sent in the built-in form, and the log
/// must say so.
#[test]
fn a_template_that_fails_at_an_attempt_costs_no_alert() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            // No sample has this subject, so the check at start can't find the mistake.
            let folder = folder("ops.json", r#"{"text": {% if subject == "odd" %}{% else %}1{% endif %}}"#);
            let channels = channels(&WebhookConfig { templates: Some(folder.path().to_path_buf()), ..inside() });
            let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
            for template in ["template:ops", "template:gone"] {
                let contact = Contact::webhook_with(&receiver.url("/"), options(template.parse().expect("a format")));
                let sample = Sample::for_subject(Subject::parse(b"odd").expect("legal"));
                let outcome =
                    channels.send_test(&contact, TestKind::Alert, (&sample, &Labels::default()), SAMPLE_AT).await;
                assert_eq!(outcome.class, OutcomeClass::Delivered, "{template}");
                let alert = sample.alert(Percent::new(80).expect("legal"), SAMPLE_AT);
                let id = quotabell::types::AlertId::from_stored(&format!("test_{}", SAMPLE_AT.0));
                let standard = payload::standard(
                    Content::Alert(&Alert { id, ..alert }, AlertPurpose::Test),
                    &Labels::default(),
                    SAMPLE_AT,
                );
                assert_eq!(receiver.next().await.body, standard, "{template}");
            }
        });
    });
    let shown = metrics.render();
    assert!(shown.contains(r#"quotabell_template_failures_total{channel="webhook"} 2"#), "{shown}");
}

/// A forbidden header is a mistake of the contact that somebody may fix: the alert is retried.
#[tokio::test]
async fn a_header_that_may_not_be_set_is_told_and_nothing_is_sent() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let headers = [("Host".to_owned(), Secret::new("inside".to_owned()))].into_iter().collect();
    let contact =
        Contact::webhook_with(&receiver.url("/"), ContactOptions { headers, ..options(MessageFormat::Slack) });
    assert_eq!(check_contact(&contact).expect_err("it is denied").field, "headers");
    let outcome = channels(&inside())
        .send_test(&contact, TestKind::Alert, (&Sample::example(), &Labels::default()), SAMPLE_AT)
        .await;
    assert_eq!(outcome.class, OutcomeClass::Transient);
    assert!(outcome.error.is_some_and(|error| error.contains("header \"Host\" is set by quotabell")));
    assert!(receiver.try_next().is_none());
}

/// A user who may read contacts need not be able to post into a chat.
#[test]
fn what_is_as_good_as_a_secret_is_not_shown() {
    let url = "https://hooks.test:8443/services/T0/B0/topsecret?x=topsecret";
    let headers: ExtraHeaders =
        [("Authorization".to_owned(), Secret::new("topsecret".to_owned()))].into_iter().collect();
    for format in MessageFormat::BUILT_IN {
        let is_known =
            matches!(format, MessageFormat::Standard | MessageFormat::CloudEvents | MessageFormat::PagerDuty);
        let options = ContactOptions { headers: headers.clone(), ..options(format.clone()) };
        let contact = masked_contact(&Contact::webhook_with(url, options));
        let json = serde_json::to_value(&contact).expect("JSON");
        assert_eq!(json["headers"], json!({"Authorization": "***"}), "{format}");
        assert_eq!(json["url"], if is_known { url } else { "https://hooks.test:8443/***" }, "{format}");
        let secret = if is_known { json!("***") } else { Value::Null };
        assert_eq!(json["secret"], secret, "{format}");
    }
}
