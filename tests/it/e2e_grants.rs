//! Prepaid units on the real binary: what the API and the commands say, what a check decides, what bad input gets, and
//! what an erasure does with grants. `e2e_migrate` moves some.

use crate::support::api::{Answer, Caller};
use crate::support::binary::{Finished, quotabell};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use crate::support::redis_server::RedisServer;
use quotabell::types::UnixMs;
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-enough-bytes";
const PLANS: &str = r#"{"free":{"limits":{"requests":["100/day","0/total"]}}}"#;

struct Provider {
    outbox: Outbox,
    daemon: Daemon,
    api: Caller,
}

impl Provider {
    async fn start() -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let setup = Self::variables()
            .into_iter()
            .fold(DaemonSetup::on(&outbox.server.url()), |setup, (name, value)| setup.env(name, value));
        let mut daemon = setup.start().await;
        daemon.becomes_ready().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        Self { outbox, daemon, api }
    }

    fn variables() -> [(&'static str, &'static str); 2] {
        [("QUOTABELL__PLANS", PLANS), ("QUOTABELL__HTTP__TOKEN", TOKEN)]
    }

    fn run(&self, line: &str) -> Finished {
        let command = quotabell(line.split_whitespace()).redis(&self.outbox.server.url());
        Self::variables().into_iter().fold(command, |command, (name, value)| command.env(name, value)).run()
    }

    async fn grant(&self, subject: &str, grant: Value) -> Answer {
        self.api.post(&format!("/v1/subjects/{subject}/grants"), &grant).await
    }

    async fn use_units(&self, subject: &str, units: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", subject, "units", &units.to_string()]).await;
    }

    /// Waits until this number of units is used in total; returns what is shown of the total.
    async fn used(&self, subject: &str, used: u64) -> Value {
        eventually("the units are counted", || async {
            let usage = self.api.get(&format!("/v1/subjects/{subject}/usage")).await.json();
            let total = usage["metrics"][0]["windows"].as_array()?.iter().find(|of| of["window"] == "total")?.clone();
            (total["used"] == used).then_some(total)
        })
        .await
    }

    async fn check(&self, subject: &str, units: u64, expected: u16) -> Value {
        eventually("the limit is known", || async {
            let answer = self.api.post("/v1/check", &json!({"subject": subject, "units": units})).await;
            (answer.status == expected).then(|| answer.json())
        })
        .await
    }
}

/// A story of a prepaid customer: nothing works before the first grant, a top-up helps, what is revoked is gone.
#[tokio::test]
async fn a_prepaid_balance_is_topped_up_checked_and_revoked() {
    let provider = Provider::start().await;
    let refused = provider.check("acme", 1, 429).await;
    assert_eq!(refused["violated-policies"], json!(["total"]));
    let shown = provider.run("explain acme").expect_done();
    assert!(shown.contains("the limit is 0 until units are granted"), "{shown}");

    let added = provider.grant("acme", json!({"units": 50, "id": "invoice/1", "note": "first"})).await;
    assert_eq!(added.status, 201);
    let expected = json!({"id": "invoice/1", "metric": "requests", "window": "total", "period": "all",
        "status": "active", "units": 50, "spent": 0, "remaining": 50, "expires_at": null, "note": "first",
        "added_at": added.json()["added_at"], "ended_at": null});
    assert_eq!(added.json(), expected);
    let again = provider.grant("acme", json!({"units": 50, "id": "invoice/1", "note": "first"})).await;
    assert_eq!((again.status, again.json()), (200, expected));
    provider.grant("acme", json!({"units": 51, "id": "invoice/1"})).await.expect_problem(409, "with other content");

    let allowed = provider.check("acme", 50, 200).await;
    assert_eq!(allowed["limits"][1]["limit"], 50);
    provider.use_units("acme", 30).await;
    let total = provider.used("acme", 30).await;
    assert_eq!((&total["limit"], &total["granted"], &total["used_percent"]), (&json!(50), &json!(50), &json!(60.0)));
    assert_eq!(provider.check("acme", 21, 429).await["violated-policies"], json!(["total"]));

    let told = provider.run("grant add acme 20 --id two --expires 2100-01-01T00:00:00Z").told();
    assert!(told.contains("granted acme 20 units of requests as two"), "{told}");
    provider.check("acme", 40, 200).await;
    let listed = provider.run("grant list acme").expect_done();
    assert!(listed.contains("invoice/1") && listed.contains("2100-01-01"), "{listed}");
    provider.use_units("acme", 25).await;
    provider.used("acme", 55).await;
    // The second one expires, so it pays first from its beginning on.
    let grants = provider.api.get("/v1/subjects/acme/grants").await.json()["grants"].clone();
    let spent: Vec<_> = grants.as_array().expect("a list").iter().map(|one| (&one["spent"], &one["status"])).collect();
    assert_eq!(spent, [(&json!(35), &json!("active")), (&json!(20), &json!("spent"))]);

    let revoked = provider.api.delete("/v1/subjects/acme/grants/invoice%2F1").await;
    assert_eq!(
        (revoked.status, &revoked.json()["spent"], &revoked.json()["status"]),
        (200, &json!(35), &json!("revoked"))
    );
    assert_eq!(provider.api.delete("/v1/subjects/acme/grants/two").await.json()["status"], "spent");
    provider.api.delete("/v1/subjects/acme/grants/three").await.expect_problem(404, "acme has no grant three");
    let none = provider.run("grant revoke acme three");
    assert!(none.code == 1 && none.stderr.contains("quotabell grant list SUBJECT"), "{}", none.told());
    provider.check("acme", 1, 429).await;
    assert_eq!(provider.used("acme", 55).await["limit"], 55);

    let explained = provider.run("explain acme").expect_done();
    assert!(explained.contains("55 units of that limit are granted"), "{explained}");
    let erased = provider.run("subject remove --everything acme").told();
    assert!(erased.contains("2 grants"), "{erased}");
    let left: Vec<String> = provider.outbox.run("KEYS", "*grants*").await;
    assert_eq!(left, [""; 0]);
    drop(provider.daemon);
}

/// A gateway must not let through for long what nobody has paid for any more: a check sees an expiry within a second,
/// although no event wakes the daemon, and never before it.
#[tokio::test]
async fn a_check_sees_an_expiry_within_a_second() {
    let provider = Provider::start().await;
    let now = async || {
        let (s, us): (i64, i64) = provider.outbox.run("TIME", &[] as &[&str]).await;
        s * 1000 + us / 1000
    };
    let expires = now().await + 2_000;
    let expires_at = UnixMs(expires).to_string();
    let added = provider.grant("acme", json!({"units": 10, "id": "short", "expires_at": expires_at})).await;
    assert_eq!(added.status, 201, "{}", added.text);
    provider.check("acme", 10, 200).await;
    let refused = provider.check("acme", 10, 429).await;
    let seen = now().await;
    assert_eq!(refused["violated-policies"], json!(["total"]));
    // A second, and what a busy machine needs.
    assert!((expires..expires + 4_000).contains(&seen), "seen {} ms after the expiry", seen - expires);
    let listed = provider.api.get("/v1/subjects/acme/grants").await.json()["grants"][0].clone();
    assert_eq!((&listed["status"], &listed["remaining"]), (&json!("expired"), &json!(0)));
}

/// A call whose answer was lost is repeated, perhaps by another node at the same moment.
#[tokio::test]
async fn two_sides_that_add_one_grant_give_it_once() {
    let provider = Provider::start().await;
    let one = || provider.grant("acme", json!({"units": 10, "id": "one"}));
    let other = || async {
        let _ = provider.outbox.run::<String>("XADD", &["usage", "*", "subject", "acme"]).await;
        provider.grant("acme", json!({"units": 5, "id": "other"})).await
    };
    let (a, b, c, d, e) = tokio::join!(one(), one(), one(), other(), other());
    let new = [a, b, c, d, e].iter().filter(|answer| answer.status == 201).count();
    assert_eq!(new, 2);
    assert_eq!(provider.used("acme", 2).await["granted"], 15);
}

/// What is wrong is said, and nothing is given.
#[tokio::test]
async fn bad_grants_are_refused() {
    let provider = Provider::start().await;
    for (grant, status, why) in [
        (json!({}), 400, "missing field `units`"),
        (json!({"units": 0}), 400, "1 to 9007199254740991"),
        (json!({"units": 9_007_199_254_740_992_u64}), 400, "1 to 9007199254740991"),
        (json!({"units": 1, "metric": "no metric"}), 400, "metric"),
        (json!({"units": 1, "metric": "tokens"}), 409, "acme has no limit of tokens for the window total"),
        (json!({"units": 1, "window": "month"}), 409, "acme has no limit of requests for the window month"),
        (json!({"units": 1, "window": "fortnight"}), 400, "window"),
        (
            json!({"units": 1, "expires_at": "2020-01-01T00:00:00Z"}),
            400,
            "expires_at 2020-01-01T00:00:00.000Z has passed",
        ),
        (json!({"units": 1, "expires_at": "soon"}), 400, "RFC 3339"),
        (json!({"units": 1, "window": "day", "expires_at": "2100-01-01T00:00:00Z"}), 400, "after the end of the day"),
        (json!({"units": 1, "id": "two words"}), 400, "visible ASCII"),
        (json!({"units": 1, "note": ""}), 400, "a note has 1 to 256 bytes"),
        (json!({"units": 1, "unit": "euro"}), 400, "unknown field `unit`"),
    ] {
        provider.grant("acme", grant).await.expect_problem(status, why);
    }
    for n in 0..32 {
        assert_eq!(provider.grant("acme", json!({"units": 1, "id": format!("g{n}")})).await.status, 201);
    }
    provider.grant("acme", json!({"units": 1})).await.expect_problem(409, "33 active grants are too many, at most 32");
    provider.grant("bob", json!({"units": 1, "id": "a"})).await;
    provider.grant("bob", json!({"units": 9_007_199_254_740_991_u64})).await.expect_problem(409, "would exceed");
    let key = "quota_grants:{usage}:bob";
    let _: u64 = provider.outbox.run("HSET", &[key, "grant:a", "{}"]).await;
    provider.grant("bob", json!({"units": 1})).await.expect_problem(503, "the operator has to repair it");
    let told = provider.run("grant list bob");
    assert!(told.code == 1 && told.stderr.contains("no grant in field grant:a"), "{}", told.told());
    let none = provider.run("grant add acme 1 --metric tokens");
    assert!(none.code == 1 && none.stderr.contains("0/total"), "{}", none.told());
}

/// A day's grant raises the limit of today, and ends with it.
#[tokio::test]
async fn a_grant_for_a_day_raises_the_limit_of_that_day() {
    let provider = Provider::start().await;
    let added = provider.grant("acme", json!({"units": 50, "window": "day"})).await.json();
    assert_eq!((&added["window"], &added["expires_at"]), (&json!("day"), &json!(null)));
    let usage = eventually("the limit is shown", || async {
        let usage = provider.api.get("/v1/subjects/acme/usage").await.json();
        usage["metrics"][0]["windows"].as_array()?.iter().find(|of| of["window"] == "day").cloned()
    })
    .await;
    assert_eq!((&usage["period"], &usage["limit"], &usage["granted"]), (&added["period"], &json!(150), &json!(50)));
}

/// A price list is imported as often as one likes.
#[tokio::test]
async fn an_import_gives_grants_once() {
    let provider = Provider::start().await;
    let file = std::env::temp_dir().join(format!("grants-{}.jsonl", rand::random::<u64>()));
    let lines = [
        r#"{"subject":"acme","timezone":"Asia/Tokyo","grants":[{"units":5,"id":"a"},{"units":7,"id":"b"}]}"#,
        r#"{"subject":"bob","grants":[{"units":5}]}"#,
        r#"{"subject":"carol","grants":[{"units":5,"id":"a","metric":"tokens"}]}"#,
        r#"{"subject":"dave","grants":7}"#,
    ];
    std::fs::write(&file, lines.join("\n")).expect("written");
    for _ in 0..2 {
        let told = provider.run(&format!("subject import {}", file.display()));
        assert!(told.code == 1 && told.stderr.contains("imported 1 line"), "{}", told.told());
        for why in [
            "line 2: grants: each needs an id",
            "line 3: subject carol: grants: carol has no limit of tokens",
            "line 4: grants must be a list of grants",
        ] {
            assert!(told.stderr.contains(why), "{why}: {}", told.told());
        }
    }
    std::fs::remove_file(&file).expect("removed");
    let listed = provider.run("grant list acme --json").expect_done();
    let units: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(units.iter().map(|grant| &grant["units"]).collect::<Vec<_>>(), [&json!(5), &json!(7)]);
}

/// Limits are replaced as a whole, so `0/total` is easily forgotten: the balance would end without a word.
#[tokio::test]
async fn whoever_takes_the_limit_away_that_grants_raise_is_warned() {
    let mut provider = Provider::start().await;
    provider.grant("acme", json!({"units": 50})).await;
    let kept = provider.run("subject set acme --limit requests=200/day --limit requests=0/total");
    assert!(kept.code == 0 && !kept.stderr.contains("no limit that they raise"), "{}", kept.told());
    let lost = provider.run("subject set acme --limit requests=200/day");
    let warning = "acme has grants of requests for the window total and no limit that they raise: 0/total lets only \
                   grants count";
    assert!(lost.code == 0 && lost.stderr.contains(warning), "{}", lost.told());
    assert_eq!(provider.api.put("/v1/subjects/acme", &json!({"limits": {"requests": "5/day"}})).await.status, 200);
    provider.daemon.says(warning).await;
}
