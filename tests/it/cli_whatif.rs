//! `whatif`: alerts that another plan would have raised. `views_history` has archived days.

use crate::support::binary::{Finished, quotabell};
use crate::support::recorded_usage::RecordedUsage;
use quotabell::types::Day;
use serde_json::{Value, json};

const CONTACTS: &str = r#"[{"id":"c_1","channel":"email","address":"alice@a.test","thresholds":[100]},
    {"id":"c_2","channel":"email","address":"boss@a.test"}]"#;

fn whatif(usage: &RecordedUsage, words: &[&str]) -> Finished {
    let plans = r#"{"free":{"limits":{"requests":"1000/day"}},"pro":{"limits":{"requests":"90/day"}}}"#;
    quotabell(["whatif"].iter().chain(words).copied()).redis(&usage.server.url()).env("QUOTABELL__PLANS", plans).run()
}

/// Days with counters and their usage: three for alice of plan free, two for bob of plan pro.
async fn recorded() -> (RecordedUsage, [String; 3]) {
    let usage = RecordedUsage::start();
    usage.set("alice", &[("contacts", CONTACTS)]).await;
    usage.set("bob", &[("plan", "pro")]).await;
    let [_, today, ..] = usage.periods("UTC", 1).await;
    let today = today.period.day().expect("a day");
    let days = [3, 2, 1].map(|back| today.before(back).expect("a day"));
    for (day, [alice, bob]) in days.into_iter().zip([[79, 100], [80, 0], [100, 50]]) {
        usage.count("alice", "requests", day, alice).await;
        usage.count("bob", "requests", day, bob).await;
    }
    (usage, days.map(|day: Day| day.to_string()))
}

#[tokio::test]
async fn a_lower_limit_shows_who_would_have_been_told_and_when() {
    let (usage, [first, second, third]) = recorded().await;
    let view: Value = whatif(&usage, &["--limit", "requests=100/day", "--json"]).expect_json().remove(0);
    let alerts: Vec<Value> = view["alerts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|alert| json!([alert["day"], alert["subject"], alert["threshold"], alert["used"], alert["to"]]))
        .collect();
    let both = json!([{"address": "alice@a.test"}, {"address": "boss@a.test"}]);
    let expected = [
        json!([first, "bob", 80, 100, []]),
        json!([first, "bob", 100, 100, []]),
        json!([second, "alice", 80, 80, [both[1]]]),
        json!([third, "alice", 80, 100, [both[1]]]),
        json!([third, "alice", 100, 100, both]),
    ];
    assert_eq!(alerts, expected);
    // Under 90 a day bob reached 80 % and 100 % on the first day.
    assert_eq!((&view["messages"], &view["subjects"], &view["alerts_now"]), (&json!(4), &json!(2), &json!(2)));
    let shown = whatif(&usage, &["--limit", "requests=100/day", "--subject", "alice", "--threshold", "100"]).told();
    assert!(
        shown.contains("1 alert and 2 messages for 1 subject; under the present limits of these metrics 0 alerts"),
        "{shown}"
    );
    let nosuch = whatif(&usage, &["--limit", "nosuch=5/day", "--limit", "requests=100/day"]).told();
    assert!(
        nosuch.contains("warning: no usage of nosuch is kept\n") && !nosuch.contains("no usage of requests"),
        "{nosuch}"
    );
}

/// Without digests a plan would look as if it sent more messages than it does.
#[tokio::test]
async fn what_a_digest_gathers_is_one_message_and_a_quiet_time_is_named() {
    let (usage, [_, second, third]) = recorded().await;
    let digest = r#"[{"id":"c_1","channel":"email","address":"alice@a.test","digest":"2d","quiet":"22:00-07:00"},
        {"id":"c_2","channel":"email","address":"boss@a.test"}]"#;
    usage.set("alice", &[("contacts", digest)]).await;
    let boss = json!({"address": "boss@a.test"});
    let words = ["--limit", "requests=100/day", "--threshold", "50,60,100", "--subject", "alice"];
    let view: Value = whatif(&usage, &[&words[..], &["--json"]].concat()).expect_json().remove(0);
    // Alice is told of 50 % and 60 % on each day: of the first two in one message. 100 % is sent at once.
    assert_eq!((&view["messages_without_digests"], &view["messages"]), (&json!(14), &json!(10)));
    let alerts = view["alerts"].as_array().expect("a list");
    let told = |day: &str, threshold: u64| {
        let found = alerts.iter().find(|alert| alert["day"] == day && alert["threshold"] == threshold);
        found.expect("an alert")["to"].clone()
    };
    let waits = json!({"address": "alice@a.test", "digest": "2d", "quiet": "22:00-07:00"});
    assert_eq!(told(&second, 50), json!([waits, boss]));
    assert_eq!(told(&third, 100), json!([{"address": "alice@a.test"}, boss]));
    let shown = whatif(&usage, &words).told();
    assert!(shown.contains("alice@a.test (digest 2d, quiet 22:00-07:00) boss@a.test"), "{shown}");
    assert!(shown.contains("7 alerts and 10 messages (14 without digests) for 1 subject"), "{shown}");
}

#[tokio::test]
async fn a_file_has_a_plan_and_only_its_subjects_are_replayed() {
    let (usage, [first, ..]) = recorded().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "limits = { requests = \"120/year 7/hour\" }\nthresholds = [50]\n").expect("written");
    let path = file.path().to_str().expect("text");
    let told = whatif(&usage, &["--plan", path, "--plan-name", "pro"]).told();
    assert!(told.contains(&first) && told.contains("bob") && !told.contains("alice"), "{told}");
    assert!(told.contains("warning: requests=7/hour is left out"), "{told}");
    assert!(!told.contains("under the present limits"), "alerts of hours would be compared with none: {told}");
    let none = whatif(&usage, &["--limit", "requests=100/day", "--since", "1s", "--subject", "carol"]).told();
    assert!(none.contains("0 alerts and 0 messages for 0 subjects"), "{none}");
}

/// What a subject has itself wins over a plan, and a subject that is not judged is not replayed.
#[tokio::test]
async fn own_limits_stay_and_unreadable_subjects_are_left_out() {
    let (usage, _) = recorded().await;
    usage.set("alice", &[("limit:requests", "1000000/day")]).await;
    usage.set("bob", &[("timezone", "Mars/X")]).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "limits = { requests = \"50/day\" }\n").expect("written");
    let told = whatif(&usage, &["--plan", file.path().to_str().expect("text")]).told();
    assert!(told.contains("0 alerts and 0 messages for 1 subject;"), "{told}");
    assert!(told.contains("warning: 1 subject is left out"), "{told}");
    let told = whatif(&usage, &["--limit", "requests=50/day", "--subject", "alice"]).told();
    assert!(told.contains("6 alerts"), "{told}");
}

#[tokio::test]
async fn what_cannot_be_tried_is_explained() {
    let (usage, _) = recorded().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "limits = { requests = \"many\" }\n").expect("written");
    for (words, code, why) in [
        (&["--limit", "requests"][..], 2, "write METRIC=UNITS/WINDOW"),
        (&["--limit", "requests=0/day"], 2, "only a total may be 0"),
        (&["--limit", "requests=5", "--limit", "requests=6"], 2, "two limits for the same window"),
        (&["--limit", "requests=5", "--plan-name", "gold"], 2, "the plans are free, pro"),
        (&["--plan", "/missing.toml"], 1, "/missing.toml: No such file"),
        (&["--limit", "requests=5", "--threshold", "80,80"], 2, "thresholds: "),
        (&["--limit", "requests=5", "--since", "2999-01-01T00:00:00Z"], 2, "in the future"),
        (&["--plan", file.path().to_str().expect("text")], 1, "\"many\" is not a limit"),
        (&[], 2, "--plan"),
    ] {
        let finished = whatif(&usage, words);
        let told = finished.told();
        assert!(finished.code == code && told.contains(why), "{words:?}: {} {told}", finished.code);
    }
}
