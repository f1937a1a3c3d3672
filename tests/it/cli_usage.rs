//! `usage` on a real server: a subject's usage in each window, now and on a past day.

use std::fmt::Display;

use crate::support::binary::{Finished, quotabell};
use crate::support::outbox::{alert, in_period, subject};
use crate::support::recorded_usage::RecordedUsage;
use quotabell::types::{Alert, AlertEnd, Day, DaySpan, Period, PeriodSpan, UnixMs, Window, keys};
use serde_json::{Value, json};

fn run(usage: &RecordedUsage, line: &str) -> Finished {
    quotabell(line.split_whitespace()).redis(&usage.server.url()).run()
}

fn shown(usage: &RecordedUsage, line: &str) -> Value {
    run(usage, &format!("usage {line} --json")).expect_json().remove(0)
}

/// The windows of the only metric, or of the first.
fn windows(shown: &Value) -> &Vec<Value> {
    shown["metrics"][0]["windows"].as_array().expect("windows")
}

/// An alert of alice in this period.
fn raised(period: Period, percent: u16, limit: u64, raised_at_ms: UnixMs) -> Alert {
    in_period(Alert { limit, raised_at_ms, ..alert(&subject("alice"), percent) }, period)
}

/// The parts that vary between runs.
fn snapshot(name: &str, text: impl Display) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\dZ", "YYYY-MM-DDTHHZ");
    settings.add_filter(r"\d{4}-\d\d-\d\d([MQY])", "YYYY-MM-DD$1");
    settings.add_filter(r"\d{4}-\d\d-\d\d", "YYYY-MM-DD");
    settings.add_filter(r"\d{4}-W\d\d", "YYYY-Www");
    settings.add_filter(r"\d{4}-\d\d\b", "YYYY-MM");
    settings.add_filter(r"in \d+[smhd] *", "in N    ");
    // The widths depend on how far away the end of the year is.
    settings.add_filter(r"RESETS +", "RESETS  ");
    settings.add_filter(r"(all .*%) +- +-", "$1  -  -");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Platforms and scripts read this form: each window with its period, bounds and alerts.
#[tokio::test]
async fn each_window_with_a_limit_is_shown() {
    let usage = RecordedUsage::start();
    let limits = "600/hour 5000/day 20000/week 100000/month 300000/quarter 500000/year 900000/total";
    let settings =
        [("timezone", "Asia/Tokyo"), ("billing_day", "15"), ("billing_month", "3"), ("limit:requests", limits)];
    usage.set("alice", &settings).await;
    // Nothing is known of what is usual for her.
    let expected_of = |span: &PeriodSpan, used: u64, limit: u64, percent: f64, alerts: &[&Alert]| {
        json!({
            "window": span.period.window(), "period": span.period,
            "starts_at": span.resets_at().map(|_| span.start.to_string()),
            "resets_at": span.resets_at().map(|end| end.to_string()),
            "used": used, "limit": limit, "used_percent": percent, "forecast": {"state": "unknown"},
            "alerts": alerts,
        })
    };
    // An hour may end meanwhile.
    loop {
        let periods = usage.billed_periods("Asia/Tokyo", 3, 15).await;
        let [hour, day, week, month, quarter, year, total] = &periods;
        for (span, used) in periods.iter().zip([480, 4999, 7, 0, 8, 9, 10]) {
            usage.count("alice", "requests", span.period, used).await;
            // Another subject whose name ends with hers: its counts and alerts must not be shown.
            usage.count("x:alice", "requests", span.period, 99).await;
        }
        usage.count("bob", "others", day.period, 1).await;
        let now = usage.now().await;
        let (first, second) = (raised(hour.period, 80, 600, now), raised(hour.period, 100, 600, now.plus(1)));
        for alert in [&first, &second] {
            usage.raise(alert, &[]).await;
        }
        let (shown, told) = (shown(&usage, "alice"), run(&usage, "usage alice").told());
        let on_terminal = quotabell(["usage", "alice"]).redis(&usage.server.url()).print_on_terminal();
        if usage.billed_periods("Asia/Tokyo", 3, 15).await != periods {
            continue;
        }
        let expected = json!({
            "subject": "alice", "plan": "free", "timezone": "Asia/Tokyo",
            "metrics": [{"metric": "requests", "windows": [
                expected_of(hour, 480, 600, 80.0, &[&stated(&first, None), &stated(&second, None)]),
                expected_of(day, 4999, 5000, 99.9, &[]),
                expected_of(week, 7, 20_000, 0.0, &[]),
                expected_of(month, 0, 100_000, 0.0, &[]),
                expected_of(quarter, 8, 300_000, 0.0, &[]),
                expected_of(year, 9, 500_000, 0.0, &[]),
                expected_of(total, 10, 900_000, 0.0, &[]),
            ]}],
        });
        assert_eq!(shown, expected);
        snapshot("windows", told);
        let bold = ["\u{1b}[1m", "\u{1b}[0m"];
        let shown = bold.into_iter().fold(on_terminal.clone(), |text, code| text.replace(code, ""));
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{on_terminal}");
        break;
    }
}

/// A daily counter always exists; a window without a limit is not shown, except for its alerts.
#[tokio::test]
async fn windows_without_a_limit_are_shown_where_they_say_something() {
    let usage = RecordedUsage::start();
    usage.set("alice", &[("limit:requests", "100/month")]).await;
    loop {
        let periods = usage.periods("UTC", 1).await;
        let [hour, day, week, month, ..] = &periods;
        for span in [hour, day, week] {
            usage.count("alice", "requests", span.period, 5).await;
        }
        usage.raise(&raised(week.period, 80, 6, UnixMs(1)), &[]).await;
        let shown = shown(&usage, "alice");
        if usage.periods("UTC", 1).await != periods {
            continue;
        }
        let told: Vec<(&Value, &Value, &Value)> =
            windows(&shown).iter().map(|window| (&window["period"], &window["used"], &window["limit"])).collect();
        assert_eq!(
            told,
            [
                (&json!(day.period), &json!(5), &Value::Null),
                (&json!(week.period), &json!(5), &Value::Null),
                (&json!(month.period), &json!(0), &json!(100)),
            ]
        );
        break;
    }
}

/// The alert with its state, as it is shown.
fn stated(alert: &Alert, end: Option<AlertEnd>) -> Alert {
    Alert { status: Some(end.into()), ..alert.clone() }
}

/// A customer who upgraded at noon got two alerts at 80 %: both are shown.
#[tokio::test]
async fn alerts_that_a_higher_limit_followed_are_shown() {
    let usage = RecordedUsage::start();
    let day: Period = Day::in_utc(usage.now().await).expect("a day").into();
    let at = |ms| raised(day, 80, 5000 * ms as u64, UnixMs(ms));
    let (first, second, third) = (at(1), at(2), at(3));
    usage.raise(&third, &[&first, &second]).await;
    let shown = shown(&usage, &format!("alice --day {day}"));
    let ended = |alert, by: &Alert| stated(alert, Some(by.end_of_earlier()));
    let expected = json!([ended(&first, &second), ended(&second, &third), stated(&third, None)]);
    assert_eq!(windows(&shown)[0]["alerts"], expected);
}

/// A subject without settings and usage still has a plan, and 0 is an answer.
#[tokio::test]
async fn an_unknown_subject_has_the_default_plan_and_0() {
    let usage = RecordedUsage::start();
    snapshot("of_nobody", run(&usage, "usage nobody").told());
    let today = Day::in_utc(usage.now().await).expect("a day");
    let printed = shown(&usage, &format!("nobody --day {today}"));
    assert_eq!(
        (&printed["subject"], &printed["plan"], &printed["timezone"]),
        (&json!("nobody"), &json!("free"), &json!("UTC"))
    );
    let window = &windows(&printed)[0];
    assert_eq!((&window["used"], &window["limit"], &window["used_percent"]), (&json!(0), &json!(5000), &json!(0.0)));
    assert_eq!((windows(&printed).len(), &window["alerts"]), (1, &json!([])));
}

/// A customer in Tokyo asks in the morning and must see the current day.
#[tokio::test]
async fn today_is_the_subjects_own() {
    let usage = RecordedUsage::start();
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12"] {
        usage.set("alice", &[("timezone", zone)]).await;
        let day = |now: UnixMs| DaySpan::containing(zone.parse().expect("a zone"), now).expect("a day").day;
        let before = day(usage.now().await);
        let shown = shown(&usage, "alice");
        let after = day(usage.now().await);
        assert_eq!(shown["timezone"], zone);
        assert!([json!(before), json!(after)].contains(&windows(&shown)[0]["period"]), "{zone}: {shown}");
    }
}

/// Unreadable settings of the platform must be reported, without another value in their place.
#[tokio::test]
async fn unreadable_fields_are_named_and_not_replaced() {
    let usage = RecordedUsage::start();
    let fields = [
        ("plan", "gold"),
        ("timezone", "Mars/Olympus"),
        ("billing_day", "0"),
        ("limit:requests", "lots"),
        ("limit:tokens", "7"),
    ];
    usage.set("alice", &fields).await;
    snapshot("unreadable", run(&usage, "usage alice").told());
    let shown = shown(&usage, "alice");
    assert_eq!((&shown["plan"], &shown["metrics"][0]["metric"]), (&json!("gold"), &json!("tokens")));
    assert_eq!((windows(&shown).len(), &windows(&shown)[0]["limit"]), (1, &json!(7)));
    let unreadable = shown["unreadable"].as_array().expect("a list");
    let named: Vec<&str> = unreadable.iter().filter_map(|error| error["field"].as_str()).collect();
    assert_eq!(named, ["timezone", "billing_day", "limit:requests", "plan"]);
    let history = run(&usage, "history alice");
    assert!(history.stderr.contains("are shown as those of UTC"), "{}", history.told());
}

/// Counting stops because of such a key, so the output must name it.
#[tokio::test]
async fn a_counter_that_is_no_number_is_named() {
    let usage = RecordedUsage::start();
    let day = Day::in_utc(usage.now().await).expect("a day");
    usage.count("alice", "requests", day, 1).await;
    let key = usage.keys.usage(&"requests".parse().expect("legal"), day, keys::bucket("alice"));
    let () = usage.client.query(redis::cmd("HSET").arg(&key).arg("alice").arg("many")).await.expect("written");
    let told = run(&usage, "usage alice").told();
    assert!(told.contains(&format!("{key} holds no count in field alice")), "{told}");
}

/// An expired period must not look like one without usage.
#[tokio::test]
async fn a_day_that_is_gone_is_not_a_day_without_usage() {
    let usage = RecordedUsage::start();
    let today = Day::in_utc(usage.now().await).expect("a day");
    // A day ends in every zone 12 h after its end in UTC; then follow 5 h of lateness and 48 h.
    let gone = today.before(4).expect("a day");
    let unknown = shown(&usage, &format!("alice --day {gone}"));
    let window = &windows(&unknown)[0];
    assert_eq!((&window["used"], &window["used_percent"]), (&Value::Null, &Value::Null));
    snapshot("gone", run(&usage, &format!("usage alice --day {gone}")).told());
    // The day before yesterday may still be closing: that nothing was used is known.
    let kept = today.before(2).expect("a day");
    assert_eq!(windows(&shown(&usage, &format!("alice --day {kept}")))[0]["used"], json!(0));
    // If the daemon was down, the counters live longer.
    usage.count("alice", "requests", gone, 7).await;
    assert_eq!(windows(&shown(&usage, &format!("alice --day {gone}")))[0]["used"], json!(7));
}

/// After today's upgrade, yesterday's 100 % must not be shown as 25 %.
#[tokio::test]
async fn a_past_day_is_judged_by_its_own_limit_where_an_alert_recorded_it() {
    let usage = RecordedUsage::start();
    let today = Day::in_utc(usage.now().await).expect("a day");
    let yesterday = today.before(1).expect("a day");
    usage.set("alice", &[("limit:requests", "20000"), ("limit:tokens", "9")]).await;
    for day in [yesterday, today] {
        for (n, (percent, limit)) in [(80, 4000), (100, 5000)].into_iter().enumerate() {
            usage.raise(&raised(day.into(), percent, limit, UnixMs(n as i64)), &[]).await;
        }
        usage.count("alice", "requests", day, 5000).await;
    }
    let past = shown(&usage, &format!("alice --day {yesterday}"));
    let requests = &windows(&past)[0];
    assert_eq!((&requests["limit"], &requests["limit_from"]), (&json!(5000), &json!("alert")), "the newest alert's");
    assert_eq!(requests["used_percent"], json!(100.0));
    assert_eq!(past["metrics"][1]["windows"][0]["limit_from"], json!("settings"));
    snapshot("yesterday", run(&usage, &format!("usage alice --day {yesterday}")).told());
    let current = shown(&usage, &format!("alice --day {today}"));
    let requests = &windows(&current)[0];
    assert_eq!((&requests["limit"], requests.get("limit_from")), (&json!(20_000), None), "today's limit holds");
}

/// A past day is in one period of each longer window of its subject, and in no single hour.
#[tokio::test]
async fn a_past_day_is_shown_with_the_periods_that_contain_it() {
    let usage = RecordedUsage::start();
    usage
        .set(
            "alice",
            &[
                ("billing_day", "31"),
                ("limit:requests", "6/hour 50/day 200/week 1000/month 3000/quarter 9000/year 99/total"),
            ],
        )
        .await;
    let day = |text: &str| Day::parse(text).expect("a day");
    for (day, periods) in [
        (day("2024-03-30"), ["2024-03-30", "2024-W13", "2024-02-29M", "2024-01-31Q", "2024-01-31Y", "all"]),
        (day("2024-04-30"), ["2024-04-30", "2024-W18", "2024-04-30M", "2024-04-30Q", "2024-01-31Y", "all"]),
        (day("2025-01-30"), ["2025-01-30", "2025-W05", "2024-12-31M", "2024-10-31Q", "2024-01-31Y", "all"]),
    ] {
        usage.count("alice", "requests", Period::parse(periods[2]).expect("a period"), 40).await;
        let shown = shown(&usage, &format!("alice --day {day}"));
        let told = |name| windows(&shown).iter().map(|window| window[name].clone()).collect::<Vec<Value>>();
        assert_eq!(told("period"), periods);
        let [null, forty] = [Value::Null, json!(40)];
        assert_eq!(told("used"), [null.clone(), null.clone(), forty, null.clone(), null, json!(0)]);
        let lengths: Vec<Window> = windows(&shown)
            .iter()
            .map(|window| serde_json::from_value(window["window"].clone()).expect("a window"))
            .collect();
        assert_eq!(lengths, Window::ALL[1..]);
    }
}
