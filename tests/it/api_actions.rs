//! The log of actions: who changed what, over HTTP and by commands.

use serde_json::{Value, json};

use crate::support::api::Caller;
use crate::support::books::{raise, run};
use crate::support::daemon::DaemonSetup;
use crate::support::outbox::{Outbox, email};
use quotabell::types::DeliveryId;

const TOKENS: [(&str, &str); 2] = [("platform", "subjects:write"), ("viewer", "read")];

/// Somebody must be able to say who muted a customer, and an erased customer must not be named any more.
#[tokio::test]
async fn whoever_changes_something_is_named_until_the_subject_is_erased() {
    let (outbox, folder) = (Outbox::start(), tempfile::tempdir().expect("a folder"));
    let tokens = TOKENS.map(|(name, scope)| {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("token-of-{name}-0123456789")).expect("written");
        json!({"name": name, "file": file, "scopes": [scope]})
    });
    let setup = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__HTTP__TOKEN", "a-token-that-may-do-everything")
        .env("QUOTABELL__HTTP__TOKENS", &json!(tokens).to_string());
    let mut daemon = setup.start().await;
    daemon.becomes_ready().await;
    let all = Caller::of(&mut daemon).await.with_token("a-token-that-may-do-everything");
    let [platform, viewer] = TOKENS.map(|(name, _)| all.with_token(&format!("token-of-{name}-0123456789")));

    let plan = json!({"limits": {"requests": "10/day"}});
    assert_eq!(platform.put("/v1/subjects/alice", &plan).await.status, 200);
    assert_eq!(platform.put("/v1/subjects/bob/mute", &json!({"for": "1h"})).await.status, 200);
    // What is read, refused or wrong changes nothing.
    assert_eq!(viewer.get("/v1/subjects/alice").await.status, 200);
    assert_eq!(viewer.put("/v1/subjects/alice", &plan).await.status, 403);
    assert_eq!(platform.put("/v1/subjects/alice", &json!({"plan": 7})).await.status, 400);
    run(&outbox.server, "contact add alice --email a@b.test").expect_done();
    run(&outbox.server, "deliveries pause --reason maintenance").expect_done();

    let listed = async || viewer.get("/v1/actions").await.json();
    let actions = listed().await["actions"].as_array().expect("a list").clone();
    let told = |action: &Value| {
        let text = |name: &str| action[name].as_str().unwrap_or("-").to_owned();
        let by = if text("by").starts_with("cli:") { "cli".to_owned() } else { text("by") };
        assert!(text("at").ends_with('Z') && action["count"] == 1, "{action}");
        [by, text("action"), text("subject")].join(" ")
    };
    let newest_first: Vec<String> = actions.iter().map(told).collect();
    let expected =
        ["cli pauseDeliveries -", "cli addContact alice", "platform muteSubject bob", "platform replaceSubject alice"];
    assert_eq!(newest_first, expected);
    assert!(actions[1]["target"].as_str().is_some_and(|contact| contact.starts_with("c_")), "{}", actions[1]);

    let page = viewer.get("/v1/actions?limit=3").await.json();
    let next = page["next"].as_str().expect("more follow");
    let rest = viewer.get(&format!("/v1/actions?after={next}")).await.json();
    assert_eq!((&page["actions"][2], &rest["actions"][0]), (&actions[2], &actions[3]));
    assert_eq!(rest["next"], Value::Null);
    viewer.get("/v1/actions?after=x").await.expect_problem(400, "is not the `next` of a list");

    assert_eq!(all.delete("/v1/subjects/alice").await.json()["removed"]["actions"], 2);
    let left: Vec<String> = listed().await["actions"].as_array().expect("a list").iter().map(told).collect();
    assert_eq!(left, ["http.token eraseSubject -", "cli pauseDeliveries -", "platform muteSubject bob"]);
    let shown = run(&outbox.server, "actions --limit 1 --json").expect_json();
    assert_eq!(shown[0]["action"], "eraseSubject");

    // The path of this action does not name the subject.
    let raised = raise(&outbox.client, "carol", 80, 4200, 1000).await;
    outbox.fan_out_new(&raised, &[email("a")]).await;
    let id = DeliveryId::derive(&raised.id, &email("a").id);
    let cancelled = all.post(&format!("/v1/deliveries/{id}/cancel"), &json!(null)).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    assert_eq!(told(&listed().await["actions"][0]), "http.token cancelDelivery carol");
}
