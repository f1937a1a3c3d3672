//! Mutes on the real daemon: set over HTTP, recorded in the delivery that they ended, and ended in time.

use crate::support::contacts_api::ContactsApi;
use crate::support::outbox::{alert, delivery, email, json as stored, subject, until};
use quotabell::types::{Alert, UnixMs};
use serde_json::json;

/// Raises bob's alert, waits for the end of its delivery, and returns the state and the reason.
async fn told(api: &ContactsApi, alert: &Alert) -> (String, Option<String>) {
    api.outbox.raise(alert).await;
    let id = delivery(alert, &email("bob"));
    until("it ends", || async { !matches!(api.outbox.field(&id, "state").await.as_deref(), None | Some("pending")) })
        .await;
    (api.outbox.state(&id).await, api.outbox.field(&id, "last_error").await)
}

/// A muted contact must get nothing, others must, and the delivery must tell the operator who muted it.
#[tokio::test]
async fn alerts_of_what_is_muted_end_muted_and_say_why() {
    let api = ContactsApi::start().await;
    let bob = subject("bob");
    api.outbox.set_contacts(&bob, &stored(&[email("bob")])).await;
    let mut percents = 1..;
    let mut next = || alert(&bob, percents.next().expect("endless"));
    let delivered = ("delivered".to_owned(), None);
    let muted = |why: String| ("muted".to_owned(), Some(why));

    let path = "/v1/subjects/bob/mute";
    let put = async |path: &str, body: serde_json::Value| {
        api.caller.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    };
    let delete = async |path: &str| assert_eq!(api.caller.send("DELETE", path, &[], "").await.status, 204, "{path}");
    let answer = put(path, json!({"for": "2h", "reason": "load test"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mute = answer.json()["mute"].clone();
    let until = mute["until"].as_str().expect("a time").to_owned();
    assert_eq!(told(&api, &next()).await, muted(format!("the subject is muted until {until}: load test")));
    assert_eq!(api.caller.get("/v1/subjects/bob").await.json()["mute"], mute);
    delete(path).await;
    assert_eq!(told(&api, &next()).await, delivered);

    let metric = format!("{path}?metric=requests");
    assert_eq!(put(&metric, json!({})).await.json()["mute"], json!({"until": null, "reason": null}));
    assert_eq!(told(&api, &next()).await, muted("metric requests of the subject is muted".to_owned()));
    let other = Alert { metric: "tokens".parse().expect("legal"), ..next() };
    assert_eq!(told(&api, &other).await, delivered);
    delete(&metric).await;

    let contact = format!("/v1/subjects/bob/contacts/{}/mute", email("bob").id);
    let end = json!({"until": "2100-01-01T00:00:00Z", "reason": "new office"});
    assert_eq!(put(&contact, end).await.status, 200);
    let shown = &api.list("bob").await[0];
    assert_eq!((&shown["muted"], &shown["muted_reason"]), (&json!(true), &json!("new office")));
    let why = "the contact is muted until 2100-01-01T00:00:00.000Z: new office";
    assert_eq!(told(&api, &next()).await, muted(why.to_owned()));
    delete(&contact).await;
    assert_eq!(told(&api, &next()).await, delivered);
    api.daemon.drain().await;
}

/// A forgotten mute must end by itself, and an unreadable mute must cost no alert.
#[tokio::test]
async fn a_mute_ends_by_the_servers_clock_and_a_broken_one_mutes_nothing() {
    let api = ContactsApi::start().await;
    let bob = subject("bob");
    let key = api.outbox.keys.subject(&bob);
    let over: UnixMs = "2026-01-01T00:00:00Z".parse().expect("a time");
    let contact =
        json!([{"channel": "email", "address": "bob@b.test", "muted": true, "muted_until": over.to_string()}]);
    api.outbox.set_contacts(&bob, &contact.to_string()).await;
    let () = api.outbox.run("HSET", &[key.as_str(), "muted", &over.to_string(), "muted:requests", "for ever"]).await;
    assert_eq!(told(&api, &alert(&bob, 1)).await.0, "delivered");
    let shown = api.caller.get("/v1/subjects/bob").await.json();
    assert_eq!((shown.get("mute"), &shown["unreadable"][0]["field"]), (None, &json!("muted:requests")));
    assert_eq!(api.list("bob").await[0]["muted"], false);
    api.daemon.drain().await;
}

/// An invalid mute must be refused with the allowed values, and mute nothing.
#[tokio::test]
async fn what_is_no_mute_is_refused_and_changes_nothing() {
    let api = ContactsApi::start().await;
    api.outbox.set_contacts(&subject("bob"), &stored(&[email("bob")])).await;
    let put = async |path: &str, body: &str| {
        api.caller.send("PUT", path, &[("content-type", "application/json")], body.to_owned()).await
    };
    for (body, said) in [
        (r#"{"until":"tomorrow"}"#, "until: must be a time in RFC 3339"),
        (r#"{"until":"2020-01-01T00:00:00Z"}"#, "a mute must end in the future"),
        (r#"{"for":"2"}"#, "for: must be a number and a unit"),
        (r#"{"for":"2h","until":"2100-01-01T00:00:00Z"}"#, "can't be combined"),
        (r#"{"reason":"a\u0007b"}"#, "no control characters"),
        (r#"{"minutes":5}"#, "unknown field `minutes`"),
    ] {
        for path in ["/v1/subjects/bob/mute", "/v1/subjects/bob/contacts/c_1/mute"] {
            put(path, body).await.expect_problem(400, said);
        }
    }
    put("/v1/subjects/bob/mute?metric=a:b", "{}").await.expect_problem(400, "metric: ");
    put("/v1/subjects/bob/contacts/c_1/mute", "{}").await.expect_problem(404, "no such contact");
    let none = api.caller.send("DELETE", "/v1/subjects/bob/contacts/c_1/mute", &[], "").await;
    none.expect_problem(404, "no such contact");
    assert_eq!(api.caller.get("/v1/subjects/bob").await.json().get("mute"), None);
    api.daemon.drain().await;
}
