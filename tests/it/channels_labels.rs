//! Names, units and links in texts for people and in bodies for programs, as snapshots.

use crate::support::grant_notices::grant_notice;
use crate::support::table::Table;
use quotabell::channels::email::templates::{Rendered, Templates};
use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::webhook::WebhookTemplates;
use quotabell::channels::{AlertPurpose, ChannelSettings, Content, Labels, PreviewRequest, Sample, preview};
use quotabell::config::Config;
use quotabell::contacts::{ContactOptions, MessageFormat};
use quotabell::types::{Alert, Locale, MetricFormat, Secret, Subject, UsageNoticeKind};

/// A customer with a name, and a metric whose counts are millionths of a dollar.
fn labels() -> Labels {
    let name = |text: &str| text.parse().ok();
    let format = MetricFormat { name: name("API *spend*"), unit: name("USD"), scale: 6 };
    Labels {
        subject_name: name("Acme <b>& \"Sons\"</b>"),
        format,
        upgrade_url: Some("https://example.com/up?customer=cust_4711&metric=cost".to_owned()),
        usage_url: Some("https://example.com/usage/cust_4711".to_owned()),
    }
}

/// 12.50 of 20 dollars.
fn alert() -> Alert {
    let subject = Subject::parse(b"cust_4711").expect("legal");
    let (metric, limit) = ("cost".parse().expect("legal"), "20000000/day".parse().expect("a limit"));
    let threshold: quotabell::types::Threshold = "used:12500000".parse().expect("legal");
    Sample { metric, limit, ..Sample::for_subject(subject) }.alert(threshold, SAMPLE_AT)
}

fn mail(alert: &Alert, locale: &str) -> Rendered {
    let locale = Locale::parse(locale).expect("a tag");
    Templates::embedded()
        .render(Content::Alert(alert, AlertPurpose::Alert), &labels(), SAMPLE_AT, Some(&locale))
        .expect("renders")
}

fn body(templates: &WebhookTemplates, format: &MessageFormat, content: Content<'_>) -> String {
    let secret = (*format == MessageFormat::PagerDuty).then(|| Secret::new("ROUTING_KEY".to_owned()));
    let options = ContactOptions { secret, format: format.clone(), ..ContactOptions::default() };
    templates.body(&options, content, &labels(), SAMPLE_AT).expect("it renders").json
}

/// A customer thinks in dollars, reads its own name, and presses a button; a program gets whole units. No name may
/// become markup.
#[test]
fn names_units_and_links_are_in_every_message() {
    let templates = WebhookTemplates::load(None).expect("they are shipped");
    let (alert, mut read) = (alert(), Table::default());
    for locale in ["en", "vi"] {
        let mail = mail(&alert, locale);
        read.add(format!("{locale}: subject"), &mail.subject_line);
        read.add(format!("{locale}: text"), &mail.text);
        let shown = mail.html.lines().filter(|line| ["<h1", "<strong", "<a href"].iter().any(|tag| line.contains(tag)));
        read.add(format!("{locale}: html, in part"), shown.map(str::trim).collect::<Vec<_>>().join("\n"));
        assert!(!mail.html.contains("<b>"), "{}", mail.html);
    }
    let (config, labels) = (Config::defaults().expect("valid"), &labels());
    let settings = ChannelSettings { email: &config.email, webhook: &config.webhook, dns: &config.dns };
    for kind in UsageNoticeKind::ALL {
        let format = &MessageFormat::Standard;
        let request = PreviewRequest { alert: &alert, labels, format, kind, locale: None };
        for part in preview(settings, request).expect("renders") {
            if ["usage-notice-html", "resolved-html"].contains(&part.part.name) {
                assert!(part.text.contains(">Upgrade</a>") && part.text.contains(">See your usage</a>"), "{kind}");
                assert_eq!(part.text.matches("example.com").count(), 2, "no URL in the text: {}", part.text);
                assert!(!part.text.contains("<b>"), "{}", part.text);
            }
        }
    }
    let notice = grant_notice(&alert.subject, SAMPLE_AT.plus(86_400_000));
    for format in ["standard", "cloudevents", "slack", "discord", "teams", "pagerduty"] {
        let format: MessageFormat = format.parse().expect("a format");
        read.add(format!("{format}"), body(&templates, &format, Content::Alert(&alert, AlertPurpose::Alert)));
        let notice = Content::GrantExpires(&notice, AlertPurpose::Alert);
        read.add(format!("{format}: expiring units"), body(&templates, &format, notice));
    }
    insta::assert_snapshot!(read);
}

/// A template that an operator copied before there were names must send the same message as ever.
#[test]
fn templates_without_the_new_fields_keep_working() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write(
        "old.json",
        "{%- set subject = subject|printable|entities -%}{%- set metric = metric|printable|entities -%}\
         {%- set plan = plan[:100]|printable|entities -%}{%- set largest_text = largest_text|printable|entities -%}\
         {%- include \"webhook/alert.txt\" -%}{\"text\": {{ sentence ~ used|thousands }}}",
    );
    let templates = WebhookTemplates::load(Some(folder.path())).expect("legal");
    let format = "template:old".parse().expect("a format");
    let text = body(&templates, &format, Content::Alert(&alert(), AlertPurpose::Alert));
    assert_eq!(text, "{\"text\": \"cust_4711 has used 12.50 USD of its 20.00 USD cost for 2026-11-21.12,500,000\"}");
    // The texts of a translation, without those of the buttons.
    let mut card: Vec<&str> = include_str!("../../templates/alert.html").lines().collect();
    card.retain(|line| !line.contains("upgrade_text") && !line.contains("usage_text"));
    std::fs::remove_file(folder.path().join("old.json")).expect("removed");
    write("alert.html", &card.join("\n"));
    write("subject.txt", "{{ subject }}: {{ used|thousands }} {{ metric }}");
    let templates = Templates::load(Some(folder.path()), &Locale::english()).expect("legal");
    let mail =
        templates.render(Content::Alert(&alert(), AlertPurpose::Alert), &labels(), SAMPLE_AT, None).expect("renders");
    assert_eq!(mail.subject_line, "cust_4711: 12,500,000 cost");
    assert!(mail.html.contains(">Upgrade</a>") && mail.html.contains(">See your usage</a>"), "{}", mail.html);
}
