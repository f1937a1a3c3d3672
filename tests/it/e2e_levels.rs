//! An organization with teams and keys, on the real binary: who is told what, what a check says, what people see, and
//! what an erasure removes.

use std::collections::BTreeMap;

use crate::support::api::Caller;
use crate::support::binary::{Finished, quotabell};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::Outbox;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{secret, verify};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-enough-bytes";
const PLANS: &str = r#"{"org":{"limits":{"requests":1000}},"team":{"limits":{"requests":100}}}"#;

struct Tree {
    outbox: Outbox,
    receiver: HttpCatcher,
    setup: DaemonSetup,
}

impl Tree {
    async fn plant() -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let receiver = HttpCatcher::start(std::iter::empty::<Answer>()).await.expect("a receiver");
        let setup = Self::variables()
            .into_iter()
            .fold(DaemonSetup::on(&outbox.server.url()), |setup, (name, value)| setup.env(name, value));
        Self { outbox, receiver, setup }
    }

    /// The settings of the daemon, and of each command.
    fn variables() -> [(&'static str, &'static str); 5] {
        [
            ("QUOTABELL__SUBJECTS__SEPARATOR", "/"),
            ("QUOTABELL__SUBJECTS__DEFAULT_PLANS", r#"["org", "team"]"#),
            ("QUOTABELL__DEFAULT_PLAN", "org"),
            ("QUOTABELL__PLANS", PLANS),
            ("QUOTABELL__HTTP__TOKEN", TOKEN),
        ]
    }

    fn run(&self, line: &str) -> Finished {
        let command = quotabell(line.split_whitespace()).redis(&self.outbox.server.url());
        let command = command.env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true");
        let command = command.env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true");
        Self::variables().into_iter().fold(command, |command, (name, value)| command.env(name, value)).run()
    }

    /// Adds a webhook to a subject, whose path is its name.
    fn add_webhook(&self, subject: &str, name: &str, options: &str) {
        let url = self.receiver.url(&format!("/{name}"));
        self.run(&format!("contact add {subject} --webhook {url} --webhook-secret {} {options}", secret(7)))
            .expect_done();
    }

    async fn add(&self, subject: &str, units: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", subject, "units", &units.to_string()]).await;
    }

    /// The path and the data of this number of webhooks.
    async fn received(&mut self, count: usize) -> Vec<(String, Value)> {
        let mut received = Vec::new();
        for _ in 0..count {
            let request = tokio::time::timeout(WAIT_MAX, self.receiver.next()).await.expect("a request in time");
            received.push((request.uri.path().to_owned(), verify(&request, &secret(7)).body["data"].clone()));
        }
        received
    }
}

/// Path, subject and percentage of each webhook.
fn told(received: &[(String, Value)]) -> BTreeMap<(String, String), u64> {
    let of = |(path, data): &(String, Value)| {
        let subject = data["subject"].as_str().expect("text").to_owned();
        ((path.clone(), subject), data["threshold_percent"].as_u64().expect("a percentage"))
    };
    received.iter().map(of).collect()
}

/// The issue's story: one event for a key is heard by the key's owner, the team's channel and the organization's
/// billing contact, each at its own limit, with who used most.
#[tokio::test]
async fn each_level_tells_its_own_contacts() {
    let mut tree = Tree::plant().await;
    tree.run("subject set acme/search/key-7 --limit requests=10").expect_done();
    tree.add_webhook("acme", "billing", "");
    tree.add_webhook("acme", "audit", "--subtree");
    tree.add_webhook("acme/search", "team", "");
    let mut daemon = tree.setup.start().await;
    daemon.becomes_ready().await;
    tree.add("acme/chat", 711).await;
    tree.add("acme/search/key-8", 81).await;
    tree.add("acme/search/key-7", 8).await;
    // `acme/chat` is above its limit: twice, to the nearest contacts, those of the organization. The key has none of
    // its own: its team is told. The audit hears everything once.
    let received = tree.received(10).await;
    let by_path = told(&received);
    let told = |path: &str, subject: &str| by_path.get(&(path.to_owned(), subject.to_owned())).copied();
    assert_eq!(told("/billing", "acme"), Some(80));
    assert!(told("/billing", "acme/chat").is_some() && told("/audit", "acme/chat").is_some());
    assert_eq!((told("/team", "acme/search"), told("/audit", "acme/search")), (Some(80), Some(80)));
    assert_eq!((told("/team", "acme/search/key-7"), told("/billing", "acme/search/key-7")), (Some(80), None));
    assert_eq!(told("/audit", "acme/search/key-7"), Some(80));
    let of_acme = received.iter().find(|(path, data)| path == "/billing" && data["subject"] == "acme").expect("told");
    let largest = json!([
        {"subject": "acme/chat", "used": 711, "percent": 88.8},
        {"subject": "acme/search", "used": 89, "percent": 11.1},
    ]);
    assert_eq!(of_acme.1["largest"], largest);
    daemon.drain().await;
}

/// The whole promise to a provider: one event for a key, three people who hear of their own limits, a balance that is
/// topped up and runs low again, and a check that says whose limit it was. Nobody hears anything else.
#[tokio::test]
async fn an_organization_with_a_balance_hears_when_it_runs_low_and_again_after_a_top_up() {
    let mut tree = Tree::plant().await;
    for line in [
        "subject set acme --limit requests=0/total --threshold remaining:20",
        "subject set acme/search --limit requests=300 --threshold 80",
        "subject set acme/search/key-7 --limit requests=250 --threshold 80",
    ] {
        tree.run(line).expect_done();
    }
    tree.add_webhook("acme", "billing", "");
    tree.add_webhook("acme/search", "team", "");
    tree.add_webhook("acme/search/key-7", "owner", "");
    let mut daemon = tree.setup.start().await;
    daemon.becomes_ready().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let check = async |units: u64| {
        let question = json!({"subject": "acme/search/key-7", "units": units});
        eventually("the counts are committed", || async {
            let answer = api.post("/v1/check", &question).await;
            (answer.json()["limits"][2]["subject"] == "acme").then_some(answer)
        })
        .await
    };
    let top_up = async |units: u64, id: &str| {
        let granted = api.post("/v1/subjects/acme/grants", &json!({"units": units, "id": id})).await;
        assert_eq!(granted.status, 201, "{}", granted.text);
    };
    top_up(325, "invoice-1").await;
    eventually("the balance admits", || async { (check(1).await.status == 200).then_some(()) }).await;
    let key = "acme/search/key-7";
    tree.add("acme/search/key-8", 20).await;
    tree.add(key, 199).await;
    tree.add(key, 1).await;
    let [(path, data)] = <[_; 1]>::try_from(tree.received(1).await).expect("one");
    assert_eq!((path.as_str(), &data["subject"], &data["used"]), ("/owner", &json!(key), &json!(200)));
    assert_eq!(data["threshold"], json!({"kind": "percent", "percent": 80}));

    tree.add(key, 20).await;
    let [(path, data)] = <[_; 1]>::try_from(tree.received(1).await).expect("one");
    assert_eq!((path.as_str(), &data["subject"], &data["used"]), ("/team", &json!("acme/search"), &json!(240)));
    let largest = json!([
        {"subject": key, "used": 220, "percent": 91.6},
        {"subject": "acme/search/key-8", "used": 20, "percent": 8.3},
    ]);
    assert_eq!(data["largest"], largest);

    tree.add("acme/chat", 60).await;
    tree.add(key, 5).await;
    let [(path, data)] = <[_; 1]>::try_from(tree.received(1).await).expect("one");
    assert_eq!((path.as_str(), &data["subject"], &data["window"]), ("/billing", &json!("acme"), &json!("total")));
    assert_eq!(data["threshold"], json!({"kind": "remaining", "units": 20}));
    assert_eq!((&data["used"], &data["limit"], &data["resets_at"]), (&json!(305), &json!(325), &json!(null)));
    let largest = json!([
        {"subject": "acme/search", "used": 245, "percent": 80.3},
        {"subject": "acme/chat", "used": 60, "percent": 19.6},
    ]);
    assert_eq!(data["largest"], largest);

    // The key and the team have room for both requests, the organization for one of them.
    assert_eq!(check(20).await.status, 200);
    let refused = check(21).await;
    refused.expect_problem(429, "by the limit of acme (1/total)");
    assert_eq!(refused.json()["violated-policies"], json!(["1/total"]));

    top_up(30, "invoice-2").await;
    eventually("the top-up admits it", || async { (check(21).await.status == 200).then_some(()) }).await;
    tree.add(key, 20).await;
    // The worker hears of the top-up within a second; events of another key go on meanwhile.
    let request = eventually("the balance runs low again", || {
        let again = tree.receiver.try_next();
        let outbox = &tree.outbox;
        async move {
            if again.is_none() {
                let event = ["usage", "*", "subject", "acme/search/key-8"];
                let _: String = outbox.run("XADD", &event).await;
            }
            again
        }
    })
    .await;
    let data = verify(&request, &secret(7)).body["data"].clone();
    assert_eq!((request.uri.path(), &data["subject"]), ("/billing", &json!("acme")));
    assert_eq!((&data["threshold"]["units"], &data["limit"]), (&json!(20), &json!(355)));
    assert!(data["used"].as_u64().is_some_and(|used| used >= 335), "{data}");

    eventually("all is settled", || async {
        let totals = tree.outbox.totals().await;
        (totals.pending == 0 && totals.outbox == 0).then_some(())
    })
    .await;
    daemon.drain().await;
    assert!(tree.receiver.try_next().is_none(), "nobody hears anything else");
    assert_eq!(tree.outbox.totals().await.delivered, 4);
}

/// A contact that is added above is found by alerts that wait below.
#[tokio::test]
async fn alerts_below_wait_for_a_contact_above() {
    let mut tree = Tree::plant().await;
    let mut daemon = tree.setup.start().await;
    daemon.becomes_ready().await;
    tree.add("acme/search/key-7", 85).await;
    eventually("the alert waits", || async {
        let waiting: u64 = tree.outbox.run("ZCARD", &tree.outbox.keys.waiting()).await;
        (waiting == 1).then_some(())
    })
    .await;
    tree.add_webhook("acme", "billing", "");
    let received = tree.received(1).await;
    assert_eq!(told(&received), [(("/billing".to_owned(), "acme/search".to_owned()), 80)].into());
    daemon.drain().await;
}

/// The gateway's check refuses what the organization may not use, and says whose limit it is; people see the levels;
/// an erasure removes the branch.
#[tokio::test]
async fn a_branch_is_checked_shown_and_erased() {
    let tree = Tree::plant().await;
    let mut daemon = tree.setup.start().await;
    daemon.becomes_ready().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    tree.run("subject set acme/search --limit requests=5000").expect_done();
    tree.run("subject set other/search --limit requests=5000").expect_done();
    for (subject, units) in [("acme/search/key-7", 900), ("acme/chat", 60), ("other/search", 7)] {
        tree.add(subject, units).await;
    }
    let used = async |subject: &str| {
        let usage = api.get(&format!("/v1/subjects/{}/usage", subject.replace('/', "%2F"))).await.json();
        usage["metrics"][0]["windows"][0]["used"].as_u64()
    };
    eventually("everything is counted", || async {
        (used("acme").await == Some(960) && used("other").await == Some(7)).then_some(())
    })
    .await;

    let refused = api.post("/v1/check", &json!({"subject": "acme/search/key-7", "units": 50})).await;
    refused.expect_problem(429, "acme/search/key-7 may not use 50 of requests now, by the limit of acme (1/day)");
    assert_eq!(refused.json()["violated-policies"], json!(["1/day"]));
    let limits = refused.json()["limits"].clone();
    assert_eq!((&limits[0]["subject"], &limits[1]["subject"]), (&json!("acme/search"), &json!("acme")));
    assert!(
        refused.header("ratelimit").expect("a field").starts_with(r#""2/day";r=4100;"#),
        "{:?}",
        refused.header("ratelimit")
    );
    assert_eq!(api.post("/v1/check", &json!({"subject": "acme/search/key-7", "units": 40})).await.status, 200);
    api.post("/v1/check", &json!({"subject": "acme//key"})).await.expect_problem(400, "empty part");
    api.put("/v1/subjects/acme%2F", &json!({})).await.expect_problem(400, "empty part");
    api.put("/v1/subjects/a%2Fb%2Fc%2Fd%2Fe", &json!({})).await.expect_problem(400, "5 levels, at most 4");
    let contact = json!({"channel": "webhook", "url": "https://hooks.example.com/x", "subtree": true});
    api.post("/v1/subjects/a%2Fb%2Fc%2Fd/contacts", &contact).await.expect_problem(400, "has none below it");

    let children = api.get("/v1/subjects/acme/children").await.json();
    assert_eq!(children["used"], 960);
    let expected = json!([
        {"subject": "acme/search", "used": 900, "percent": 93.7},
        {"subject": "acme/chat", "used": 60, "percent": 6.2},
    ]);
    assert_eq!(children["children"], expected);
    let shown = tree.run("usage acme --children").expect_done();
    assert!(shown.contains("acme/search  900   93.7%"), "{shown}");
    let top = tree.run("top --under acme").expect_done();
    assert!(top.contains("acme/search/key-7") && top.contains("acme/chat") && !top.contains("other"), "{top}");
    assert_eq!(api.get("/v1/top?under=acme%2Fsearch").await.json()["subjects"].as_array().map(Vec::len), Some(1));
    api.get("/v1/top?under=acme%2F%2Fx").await.expect_problem(400, "under: subject has an empty part");
    let checked = tree.run("check acme/search/key-7 --units 50");
    assert!(checked.code == 1 && checked.stderr.contains("by the limit of acme"), "{}", checked.told());
    let emitted = tree.run("emit --subject acme//x");
    assert!(emitted.code == 2 && emitted.stderr.contains("empty part"), "{}", emitted.told());

    let checked = tree.run("check acme//x");
    assert!(checked.code == 2 && checked.stderr.contains("empty part"), "{}", checked.told());

    // The organization is not counted in a month, because neither it nor a level above has such a limit.
    tree.run("subject set acme/chat --limit requests=5000/month").expect_done();
    tree.add("acme/chat", 5).await;
    eventually("the month of the team is counted", || async {
        let children = api.get("/v1/subjects/acme/children?window=month").await.json();
        let expected = json!([{"subject": "acme/chat", "used": 5, "percent": null}]);
        (children["used"].is_null() && children["children"] == expected).then_some(())
    })
    .await;
    let shown = tree.run("usage acme --children --window month").expect_done();
    assert!(shown.contains("acme/chat  5     -"), "{shown}");

    let erased = tree.run("subject remove --everything acme").told();
    assert!(erased.contains("acme has 3 subjects below it, which are removed too"), "{erased}");
    assert_eq!((used("acme").await, used("acme/search/key-7").await), (Some(0), None));
    let left: Vec<String> = tree.outbox.run("KEYS", "*acme*").await;
    assert_eq!(left, [""; 0]);
    assert_eq!(used("other").await, Some(7));
    daemon.drain().await;
}

/// A key within its own limit that is refused is a riddle to whoever looks at the key alone.
#[tokio::test]
async fn explain_names_the_level_above_that_has_checks_refused() {
    let tree = Tree::plant().await;
    let mut daemon = tree.setup.start().await;
    daemon.becomes_ready().await;
    tree.add("acme/search/key-7", 1000).await;
    let explained =
        "The level acme above it refuses checks: that level has used 1,000 of 1,000 units of requests in the day";
    eventually("explain says it", || async {
        tree.run("explain --subject acme/search/key-7").expect_done().contains(explained).then_some(())
    })
    .await;
    let own = tree.run("explain --subject acme").expect_done();
    assert!(!own.contains("above it"), "{own}");
}
