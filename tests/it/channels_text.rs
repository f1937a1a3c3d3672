//! Texts for people and receivers: emails and webhook bodies, as snapshots.

use crate::support::grant_notices::grant_notice;
use crate::support::table::Table;
use quotabell::channels::email::EmailConfig;
use quotabell::channels::email::templates::{Rendered, SAMPLE_VERIFICATION, Templates, VerifyVariables};
use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::webhook::payload;
use quotabell::channels::{AlertPurpose, ChannelSettings, Content, DnsConfig, Labels, PreviewRequest, Sample, preview};
use quotabell::config::Config;
use quotabell::contacts::MessageFormat;
use quotabell::types::alert::LargestChild;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{
    Alert, BillingDay, GrantNotice, Locale, Metric, Percent, Subject, Threshold, UnixMs, UsageNoticeKind, Window,
    WindowLimit,
};

/// The alert of design.md's example: 2026-11-21T08:37:00.123Z.
fn alert() -> Alert {
    let alice = Sample::for_subject(Subject::parse(b"alice").expect("legal"));
    Sample { zone: quotabell::zones::Zone::UTC, ..alice }.alert(Percent::new(80).expect("legal"), SAMPLE_AT)
}

/// A subject in Vietnam above its limit, whose name needs escaping in HTML.
fn exceeded() -> Alert {
    Alert {
        subject: Subject::parse("Ngọc & <Sons>".as_bytes()).expect("legal"),
        metric: Metric::parse(b"tokens.input").expect("legal"),
        threshold: "100".parse().expect("legal"),
        limit: 1_000_000,
        used: 1_234_567,
        plan: "pro".to_owned(),
        timezone: "Asia/Ho_Chi_Minh".to_owned(),
        resets_at: Some(Rfc3339(UnixMs(1_795_280_400_000))),
        ..alert()
    }
}

fn render(alert: &Alert, purpose: AlertPurpose) -> Rendered {
    render_with(&Templates::embedded(), alert, purpose, None)
}

fn render_with(templates: &Templates, alert: &Alert, purpose: AlertPurpose, locale: Option<&Locale>) -> Rendered {
    templates.render(Content::Alert(alert, purpose), &Labels::default(), SAMPLE_AT, locale).expect("renders")
}

fn standard_body(alert: &Alert, purpose: AlertPurpose) -> String {
    payload::standard(Content::Alert(alert, purpose), &Labels::default(), SAMPLE_AT)
}

/// The parts of an email as one text.
fn parts(mail: &Rendered) -> Table {
    Table::from_iter([("subject", &mail.subject_line), ("text", &mail.text), ("html", &mail.html)])
}

/// The body is a contract with every receiver: names, order, and the forms of times and numbers.
#[test]
fn the_webhook_body_is_the_documented_one() {
    let json = standard_body(&alert(), AlertPurpose::Alert);
    let documented = r#"{"type":"quota.threshold_reached","timestamp":"2026-11-21T08:37:00.123Z",
 "data":{"subject":"alice","metric":"requests","window":"day","period":"2026-11-21","threshold_percent":80,
         "threshold":{"kind":"percent","percent":80},"used":4000,"limit":5000,"used_percent":80.0,"plan":"free",
         "timezone":"UTC","resets_at":"2026-11-22T00:00:00Z"}}"#;
    assert_eq!(json, documented.split('\n').map(str::trim).collect::<String>());
    let bodies = [
        ("exceeded", standard_body(&exceeded(), AlertPurpose::Alert)),
        ("test", standard_body(&alert(), AlertPurpose::Test)),
    ];
    insta::assert_snapshot!("webhook", Table::from_iter(bodies));
    assert!(json.len() < 20_000, "Standard Webhooks asks for less than 20 kB");
}

/// Units are lost unless the reader understands how many, until when, and in the reader's language.
#[test]
fn emails_say_which_units_expire_and_when() {
    let subject = Subject::parse("Ngọc & <Sons>".as_bytes()).expect("legal");
    // 2026-12-05 00:00 in Berlin.
    let notice = grant_notice(&subject, UnixMs(1_796_425_200_000));
    let last = GrantNotice { remaining: 1, note: None, window: Window::Month, ..notice.clone() };
    let expires = notice.expires_at.0;
    let (week, hours, soon) = (expires.plus(-7 * 86_400_000), expires.plus(-5 * 3_600_000), expires.plus(-60_000));
    let mut mails = Table::default();
    for (locale, zone) in [("en", "Europe/Berlin"), ("vi", "Asia/Ho_Chi_Minh")] {
        let of_locale = Locale::parse(locale).expect("a tag");
        for (case, notice, purpose, now) in [
            ("a week before", &notice, AlertPurpose::Alert, week),
            ("hours before, one unit of a month, a copy", &last, AlertPurpose::Copy, hours),
            ("a minute before", &notice, AlertPurpose::Alert, soon),
        ] {
            let notice = GrantNotice { timezone: zone.to_owned(), ..notice.clone() };
            let content = Content::GrantExpires(&notice, purpose);
            let mail = Templates::embedded().render(content, &Labels::default(), now, Some(&of_locale));
            let Rendered { subject_line, text, html } = mail.expect("renders");
            mails.add(format!("{locale}, {case}: subject"), subject_line);
            mails.add(format!("{locale}, {case}: text"), text);
            if case == "a week before" {
                mails.add(format!("{locale}, {case}: html"), html);
            }
        }
    }
    insta::assert_snapshot!("grant_expires", mails);
}

/// A day whose end is not a whole second (none is known, but zones are data) keeps its fraction.
#[test]
fn a_fraction_in_resets_at_is_kept() {
    let odd = Alert { resets_at: Some(Rfc3339(UnixMs(1_795_305_600_500))), ..alert() };
    assert!(standard_body(&odd, AlertPurpose::Alert).contains("\"resets_at\":\"2026-11-22T00:00:00.500Z\""));
}

/// Customers read emails: every change must be visible.
#[test]
fn a_warning_reads_well() {
    let mail = render(&alert(), AlertPurpose::Alert);
    insta::assert_snapshot!("warning", parts(&mail));
}

/// The same, past the limit, in another zone, with a name that must be escaped.
#[test]
fn an_exceeded_quota_reads_well() {
    let mail = render(&exceeded(), AlertPurpose::Alert);
    insta::assert_snapshot!("exceeded", parts(&mail));
}

/// "of 600 requests" would be read as a daily limit: every part names the window, and hours as local clocks show them.
#[test]
fn every_window_reads_well() {
    let mut read = Table::default();
    for limit in ["600/hour", "5000/day", "100/week", "100000/month", "300000/quarter", "1000000/year", "5000000/total"]
    {
        let limit: WindowLimit = limit.parse().expect("a limit");
        let billing_day = BillingDay::new(15).expect("in range");
        let sample = Sample {
            limit,
            billing: billing_day.into(),
            zone: "Asia/Kolkata".parse().expect("a zone"),
            ..Sample::example()
        };
        let alert = sample.alert(Percent::new(80).expect("legal"), SAMPLE_AT);
        let mail = render(&alert, AlertPurpose::Alert);
        read.add(format!("{limit}: subject"), &mail.subject_line);
        read.add(format!("{limit}: text"), &mail.text);
        let html = mail.html.lines().filter(|line| line.contains("Kolkata</p>") || line.contains("</strong>"));
        read.add(format!("{limit}: html, in part"), html.map(str::trim).collect::<Vec<_>>().join("\n"));
        read.add(format!("{limit}: webhook"), standard_body(&alert, AlertPurpose::Alert));
    }
    insta::assert_snapshot!("windows", read);
}

/// "Exceeded" would be wrong at exactly the limit.
#[test]
fn a_quota_used_up_exactly_is_not_called_exceeded() {
    let full = Alert { used: 5000, threshold: "100".parse().expect("legal"), ..alert() };
    let mail = render(&full, AlertPurpose::Alert);
    insta::assert_snapshot!("used_up", Table::from_iter([("subject", &mail.subject_line), ("text", &mail.text)]));
    assert!(!mail.text.contains("exceeded") && !mail.html.contains("xceeded"));
}

/// An alert at a threshold in units, of a limit of 20,000.
fn in_units(threshold: &str, window: &str) -> Alert {
    let limit: WindowLimit = format!("20000/{window}").parse().expect("a limit");
    let threshold: Threshold = threshold.parse().expect("legal");
    let zone = "Asia/Ho_Chi_Minh".parse().expect("a zone");
    Sample { limit, zone, ..Sample::for_subject(Subject::parse(b"alice").expect("legal")) }.alert(threshold, SAMPLE_AT)
}

/// A customer who buys units thinks in units: a percentage would have to be translated.
#[test]
fn thresholds_in_units_read_well_in_both_languages() {
    let (templates, locale) = (Templates::embedded(), Locale::parse("vi").expect("a tag"));
    let mut read = Table::default();
    for (name, alert) in [
        ("used", Alert { used: 5_003, ..in_units("used:5000", "day") }),
        ("remaining of a week", in_units("remaining:1000", "week")),
        ("remaining of a total", Alert { used: 19_040, ..in_units("remaining:1000", "total") }),
        ("used up", in_units("used:20000", "day")),
        ("more than allowed", in_units("used:25000", "day")),
    ] {
        for (language, locale) in [("en", None), ("vi", Some(&locale))] {
            let mail = render_with(&templates, &alert, AlertPurpose::Alert, locale);
            read.add(format!("{name}, {language}: subject"), &mail.subject_line);
            read.add(format!("{name}, {language}: text"), &mail.text);
            let html = mail.html.lines().filter(|line| line.contains("<title>") || line.contains("<h1"));
            let rows = mail.html.lines().filter(|line| line.contains("<td align") || line.contains("<th scope"));
            let shown = html.chain(rows).map(|line| {
                let text = line.split('>').nth(1).unwrap_or_default();
                text.split('<').next().unwrap_or_default().trim().to_owned()
            });
            read.add(format!("{name}, {language}: html, in part"), shown.collect::<Vec<_>>().join("\n"));
        }
        read.add(format!("{name}: webhook"), standard_body(&alert, AlertPurpose::Alert));
    }
    insta::assert_snapshot!("units", read);
}

/// An organization that runs low looks for the team that used most: mails name it in both languages, and a name from
/// outside is only a name.
#[test]
fn mails_name_the_largest_children() {
    let (templates, locale) = (Templates::embedded(), Locale::parse("vi").expect("a tag"));
    let child = |name: &str, used| LargestChild::new(Subject::parse(name.as_bytes()).expect("legal"), used, 19_040);
    let largest = vec![child("acme/search", 9_000), child("acme/<b>chat</b>", 7_000), child("acme/đội-3", 3_039)];
    let acme = Subject::parse(b"acme").expect("legal");
    let alert = Alert { subject: acme, used: 19_040, largest, ..in_units("remaining:1000", "total") };
    let mut read = Table::default();
    for (language, locale) in [("en", None), ("vi", Some(&locale))] {
        let mail = render_with(&templates, &alert, AlertPurpose::Alert, locale);
        read.add(format!("{language}: subject"), &mail.subject_line);
        read.add(format!("{language}: text"), &mail.text);
        let rows = mail.html.lines().filter(|line| line.contains("search (47%)"));
        read.add(format!("{language}: html, in part"), rows.map(str::trim).collect::<Vec<_>>().join("\n"));
        assert!(mail.html.contains("&lt;b&gt;chat") && !mail.html.contains("<b>chat"), "{}", mail.html);
        let none = Alert { largest: Vec::new(), ..alert.clone() };
        let without = render_with(&templates, &none, AlertPurpose::Alert, locale);
        assert!(!without.text.contains("Most by") && !without.text.contains("Lớn nhất"), "{}", without.text);
    }
    read.add("webhook", standard_body(&alert, AlertPurpose::Alert));
    insta::assert_snapshot!("children", read);
}

/// A customer in Vietnam reads numbers, dates and states in the local form; and an email must not describe one alert
/// both as a warning and as exceeded.
#[test]
fn mails_in_vietnamese_read_well() {
    let (templates, locale) = (Templates::embedded(), Locale::parse("vi-VN").expect("a tag"));
    let render = |alert: &Alert, purpose| render_with(&templates, alert, purpose, Some(&locale));
    let in_vietnam = Sample {
        zone: "Asia/Ho_Chi_Minh".parse().expect("a zone"),
        ..Sample::for_subject(Subject::parse(b"alice").expect("legal"))
    };
    let of = |limit: &str, percent| {
        let limit: WindowLimit = limit.parse().expect("a limit");
        let sample = Sample { limit, billing: BillingDay::new(15).expect("in range").into(), ..in_vietnam.clone() };
        sample.alert(Percent::new(percent).expect("legal"), SAMPLE_AT)
    };
    let mut read = parts(&render(&of("5000/day", 80), AlertPurpose::Alert));
    for (name, alert, purpose) in [
        ("used up in an hour", of("600/hour", 100), AlertPurpose::Alert),
        ("exceeded in a week", of("1000000/week", 120), AlertPurpose::Alert),
        ("a warning of a jump over the limit", Alert { used: 6000, ..of("5000/day", 80) }, AlertPurpose::Alert),
        ("a copy of a month", of("100000/month", 80), AlertPurpose::Copy),
        ("a quarter", of("300000/quarter", 80), AlertPurpose::Alert),
        ("a year", of("1000000/year", 100), AlertPurpose::Alert),
        ("a total", of("5000000/total", 80), AlertPurpose::Alert),
        ("all of a total", of("5000000/total", 100), AlertPurpose::Copy),
        ("a test", of("5000/day", 80), AlertPurpose::Test),
    ] {
        let mail = render(&alert, purpose);
        read.add(format!("{name}: subject"), &mail.subject_line);
        read.add(format!("{name}: text"), &mail.text);
    }
    let asking = VerifyVariables { subject: "Ngọc & <Sons>", ..SAMPLE_VERIFICATION };
    let verification = templates.render_verification(asking, Some(&locale)).expect("renders");
    read.add("verification: subject", &verification.subject_line);
    read.add("verification: text", &verification.text);
    insta::assert_snapshot!("vietnamese", read);
    assert!(verification.html.contains("Ngọc &amp; &lt;Sons&gt;") && verification.html.contains("Mở trang xác nhận"));
}

/// A warning must not say that nothing is refused if the same event has reached the limit.
#[test]
fn a_warning_beyond_the_limit_is_no_mere_warning() {
    let mail = render(&Alert { used: 6000, ..alert() }, AlertPurpose::Alert);
    for part in [&mail.text, &mail.html] {
        assert!(part.contains("exceeded") && part.contains("may be refused") && !part.contains("nothing is refused"));
    }
}

/// A test message must not alarm anybody.
#[test]
fn a_test_message_says_so() {
    let mail = render(&alert(), AlertPurpose::Test);
    insta::assert_snapshot!(mail.subject_line, @"[test] alice: 80.0% of the requests quota for 2026-11-21 used (4,000 of 5,000)");
    assert!(mail.text.starts_with("This is a test message"));
    assert!(mail.html.contains("This is a test message"));
}

/// `preview` shows exactly the message that would be sent.
#[test]
fn preview_shows_mail_and_webhook() {
    let email = EmailConfig {
        smtp_url: "smtp://localhost".into(),
        smtp_url_file: None,
        from: "a@b.test".to_owned(),
        helo_name: None,
        timeout: std::time::Duration::from_secs(1),
        unknown_mailbox_after: std::time::Duration::ZERO,
        locale: Locale::english(),
        templates: None,
        ca_file: None,
        dkim: None,
        per_minute: None,
    };
    let sample = Sample::example().alert(Percent::new(80).expect("legal"), UnixMs(1_795_250_220_123));
    let webhook = Config::defaults().expect("valid").webhook;
    let previews = preview(
        ChannelSettings { email: &email, webhook: &webhook, dns: &DnsConfig::default() },
        PreviewRequest {
            alert: &sample,
            labels: &Labels::default(),
            format: &MessageFormat::Standard,
            kind: UsageNoticeKind::Forecast,
            locale: None,
        },
    )
    .expect("renders");
    let shown = |part: &str| {
        let preview = previews.iter().find(|preview| preview.part.name == part);
        preview.expect("it can be previewed").text.clone()
    };
    let mail = Rendered { subject_line: shown("subject"), text: shown("text"), html: shown("html") };
    assert_eq!(mail, render(&sample, AlertPurpose::Alert));
    insta::assert_snapshot!("preview_webhook", shown("webhook"));
}

/// The text for a stranger who is asked for consent: for whom, what to do, and what happens otherwise.
#[test]
fn the_mail_that_asks_for_consent_says_what_it_is_for() {
    let templates = Templates::embedded();
    let asking = VerifyVariables { subject: "Ngọc & <Sons>", ..SAMPLE_VERIFICATION };
    let rendered = templates.render_verification(asking, None).expect("renders");
    let mut mail = parts(&rendered);
    let without_link = templates.render_verification(VerifyVariables { link: None, ..asking }, None).expect("renders");
    mail.add("text without a link", &without_link.text);
    insta::assert_snapshot!("verify", mail);
    assert!(!without_link.html.contains("href"));
}

/// A subject with such a name used to reverse the rest of a Subject line, end a line of a chat, or be shown decoded.
#[test]
fn names_are_inert_in_all_that_people_read() {
    let name = "ali\u{202e}ce\u{2028}\u{200b} =?utf-8?q?=41?=";
    let odd = Alert {
        subject: Subject::parse(name.as_bytes()).expect("legal"),
        metric: Metric::parse("req\u{202e}s".as_bytes()).unwrap_or_else(|_| Metric::parse(b"requests").expect("legal")),
        plan: name.to_owned(),
        timezone: "UTC\u{202e}".to_owned(),
        ..alert()
    };
    let config = Config::defaults().expect("valid");
    let settings = ChannelSettings { email: &config.email, webhook: &config.webhook, dns: &config.dns };
    let mut read = 0;
    for format in [MessageFormat::Slack, MessageFormat::Discord, MessageFormat::Teams, MessageFormat::PagerDuty] {
        let previews = preview(
            settings,
            PreviewRequest {
                alert: &odd,
                labels: &Labels::default(),
                format: &format,
                kind: UsageNoticeKind::Forecast,
                locale: None,
            },
        );
        for part in previews.expect("renders") {
            let mut text = part.text;
            if format == MessageFormat::PagerDuty && part.part.name == "webhook" {
                // The evidence, for programs.
                let mut body: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                body["payload"]["custom_details"].take();
                text = body.to_string();
            }
            let shown = text.matches("202e").count() + text.matches("verify").count();
            let acting = |letter: char| matches!(letter, '\u{202e}' | '\u{2028}' | '\u{200b}');
            assert!(!text.contains(acting) && !text.contains("=?utf-8?q?"), "{format:?} {}: {text}", part.part.name);
            read += usize::from(shown > 0);
        }
    }
    assert!(read >= 4 * 6, "the name is shown: {read}");
}

/// In autumn an email said "the hour from 02:00", "resets 02:00" and "measured 02:29" for three different moments.
#[test]
fn a_time_of_day_that_occurs_twice_shows_its_offset() {
    let limit: WindowLimit = "600/hour".parse().expect("a limit");
    let sample = Sample {
        limit,
        zone: "Europe/Berlin".parse().expect("known"),
        ..Sample::for_subject(Subject::parse(b"alice").expect("legal"))
    };
    // 2026-10-25T00:29Z.
    let autumn = sample.alert(Percent::new(80).expect("legal"), UnixMs(1_792_888_140_000));
    let config = Config::defaults().expect("valid");
    let settings = ChannelSettings { email: &config.email, webhook: &config.webhook, dns: &config.dns };
    let request = PreviewRequest {
        alert: &autumn,
        labels: &Labels::default(),
        format: &MessageFormat::Slack,
        kind: UsageNoticeKind::Forecast,
        locale: None,
    };
    let chat: String = preview(settings, request).expect("renders").into_iter().map(|part| part.text).collect();
    let mail = render(&autumn, AlertPurpose::Alert);
    for text in [&mail.text, &chat] {
        for moment in ["the hour from 2026-10-25 02:00 +02:00", "2026-10-25 02:00 +01:00", "2026-10-25 02:29 +02:00"] {
            assert!(text.contains(moment), "{moment}: {text}");
        }
    }
    let vi = Locale::parse("vi").ok();
    let vietnamese = render_with(&Templates::embedded(), &autumn, AlertPurpose::Alert, vi.as_ref()).text;
    assert!(vietnamese.contains("02:29 ngày 25/10/2026 +02:00"), "{vietnamese}");
    let later = sample.alert(Percent::new(80).expect("legal"), UnixMs(1_792_888_140_000 + 2 * 3_600_000));
    assert!(!render(&later, AlertPurpose::Alert).text.contains("+01:00"), "03:29 occurs once");
}

/// The end of alerts, as people read it in both languages and as each receiver gets it.
#[test]
fn the_end_of_alerts_is_told_in_each_language_and_format() {
    let config = Config::defaults().expect("valid");
    let settings = ChannelSettings { email: &config.email, webhook: &config.webhook, dns: &config.dns };
    let mut texts = Table::default();
    let languages = ["en", "vi"].map(|locale| (MessageFormat::Standard, Some(Locale::parse(locale).expect("legal"))));
    for (format, locale) in languages.into_iter().chain(MessageFormat::BUILT_IN.map(|format| (format, None))) {
        let (alert, labels) = (exceeded(), &Labels::default());
        let request = PreviewRequest {
            alert: &alert,
            labels,
            format: &format,
            kind: UsageNoticeKind::Forecast,
            locale: locale.as_ref(),
        };
        let of_mails = |name: &str| locale.is_some() && name.starts_with("resolved-");
        for part in preview(settings, request).expect("renders") {
            let name = part.part.name;
            if of_mails(name) || locale.is_none() && name == "webhook-resolved" {
                let of = locale.as_ref().map_or(format.to_string(), ToString::to_string);
                texts.add(format!("{of}: {name}"), part.text);
            }
        }
    }
    insta::assert_snapshot!("resolved", texts);
}
