//! Tokens with scopes: what each caller may do, and how a token is replaced without downtime.

use std::path::PathBuf;

use quotabell::api::routes::{Access, ROUTES, Route};
use quotabell::api::scope::{Scope, Scopes};
use serde_json::json;

use crate::support::api::{Answer, Caller};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::outbox::Outbox;

const ALL: &str = "a-token-that-may-do-everything";

struct Guarded {
    daemon: Daemon,
    api: Caller,
    folder: tempfile::TempDir,
    _outbox: Outbox,
}

impl Guarded {
    /// A daemon with a token for each scope, which is named after it.
    async fn start() -> Self {
        let (outbox, folder) = (Outbox::start(), tempfile::tempdir().expect("a folder"));
        let tokens: Vec<_> = Scope::ALL
            .into_iter()
            .map(|scope| {
                let name = name_of(scope);
                let file = folder.path().join(&name);
                std::fs::write(&file, token_of(scope)).expect("written");
                json!({"name": name, "file": file, "scopes": [scope]})
            })
            .collect();
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__HTTP__TOKEN", ALL)
            .env("QUOTABELL__HTTP__TOKENS", &json!(tokens).to_string());
        let mut daemon = setup.start().await;
        daemon.becomes_ready().await;
        let api = Caller::of(&mut daemon).await;
        Self { daemon, api, folder, _outbox: outbox }
    }

    fn file(&self, scope: Scope) -> PathBuf {
        self.folder.path().join(name_of(scope))
    }

    async fn call(&self, token: &str, Route { method, path, .. }: &Route) -> Answer {
        let path = path.replace("{id}", "alice").replace("{contact}", "c").replace("{grant}", "g");
        let json = [("content-type", "application/json")];
        self.api.with_token(token).send(method, &path, if *method == "GET" { &[] } else { &json }, "{}").await
    }
}

fn name_of(scope: Scope) -> String {
    scope.as_str().replace(':', "-")
}

fn token_of(scope: Scope) -> String {
    format!("token-of-{scope}-0123456789")
}

/// A leaked token of a gateway must not read addresses, and one of a dashboard must not change anything.
#[tokio::test]
async fn a_token_opens_the_routes_of_its_scope_alone() {
    let guarded = Guarded::start().await;
    for route in ROUTES {
        let (Access::IfSet(needed) | Access::Needs(needed)) = route.access else { continue };
        for scope in Scope::ALL {
            let answer = guarded.call(&token_of(scope), route).await;
            let told = format!("{} {} with {scope}: {} {}", route.method, route.path, answer.status, answer.text);
            if [scope].into_iter().collect::<Scopes>().contains(needed) {
                assert!(answer.status != 401 && answer.status != 403, "{told}");
            } else {
                let why = format!("the token of {} lacks the scope {needed}", name_of(scope));
                assert!(answer.status == 403 && answer.text.contains(&why), "{told}");
            }
        }
        let answer = guarded.call(ALL, route).await;
        assert!(answer.status != 401 && answer.status != 403, "{} {}", route.method, route.path);
    }
    let check = async |scope: Scope, record: bool| {
        let body = json!({"subject": "alice", "record": record});
        guarded.api.with_token(&token_of(scope)).post("/v1/check", &body).await
    };
    assert_eq!(check(Scope::Check, false).await.status, 200);
    check(Scope::Check, true).await.expect_problem(403, "the token of check lacks the scope events:write");
    assert_eq!(check(Scope::Admin, true).await.status, 200);
    guarded.api.with_token("another").get("/v1/subjects").await.expect_problem(401, "none of those");
}

/// Callers are told apart in the log and in the metrics, and nobody sees a token there.
#[tokio::test]
async fn the_log_and_the_metrics_name_the_caller() {
    let mut guarded = Guarded::start().await;
    let mute = json!({"for": "1h"});
    let api = guarded.api.with_token(&token_of(Scope::SubjectsWrite));
    let grant = json!({"units": 5, "id": "one"});
    assert_eq!(api.put("/v1/subjects/alice", &json!({"limits": {"requests": ["0/total"]}})).await.status, 200);
    assert_eq!(api.post("/v1/subjects/alice/grants", &grant).await.status, 201);
    assert_eq!(api.put("/v1/subjects/alice/mute", &mute).await.status, 200);
    api.get("/v1/subjects").await.expect_problem(403, "lacks the scope read");
    let line = guarded.daemon.says("a grant is added").await;
    assert!(line.contains("caller=\"subjects-write\""), "{line}");
    assert!(!guarded.daemon.lines_after(0).join("\n").contains("token-of-"));
    let shown = guarded.daemon.get("/metrics").await.body;
    for (answer, count) in [("allowed", 3), ("forbidden", 1)] {
        let counter = format!("quotabell_api_requests_total{{caller=\"subjects-write\",answer=\"{answer}\"}} {count}");
        assert!(shown.contains(&counter), "{counter}");
    }
}

/// A caller changes over to its new token while both are valid.
#[tokio::test]
async fn a_token_is_replaced_without_downtime() {
    let guarded = Guarded::start().await;
    let (old, new) = (token_of(Scope::Read), "the-new-token-0123456789");
    let is_valid = async |token: &str| guarded.api.with_token(token).get("/v1/subjects").await.status == 200;
    let reload = async || {
        let answer = guarded.api.with_token(&token_of(Scope::Admin)).post("/v1/reload", &json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    assert!(is_valid(&old).await && !is_valid(new).await);
    std::fs::write(guarded.file(Scope::Read), format!("{old}\n{new}\n")).expect("written");
    reload().await;
    assert!(is_valid(&old).await && is_valid(new).await);
    std::fs::write(guarded.file(Scope::Read), format!("{new}\n")).expect("written");
    reload().await;
    assert!(!is_valid(&old).await && is_valid(new).await);
    let refuses = async |why: &str| {
        let refused = guarded.api.with_token(&token_of(Scope::Admin)).post("/v1/reload", &json!({})).await;
        refused.expect_problem(422, "http.tokens[2].file");
        refused.expect_problem(422, why);
        assert!(is_valid(new).await, "the tokens before stay in effect");
    };
    let three = "one-0123456789abcdef\ntwo-0123456789abcdef\nthree-0123456789abcdef\n";
    for (broken, why) in [
        ("two words\n", "line 1 of http.tokens[2].file"),
        ("", "is not a token"),
        ("\n\n", "is not a token"),
        ("one-0123456789abcdef\n\n", "line 2 of http.tokens[2].file"),
        ("one-0123456789abcdef\none-0123456789abcdef\n", "has the same token as line 1 of http.tokens[2].file"),
        (three, "has 3 lines"),
    ] {
        std::fs::write(guarded.file(Scope::Read), broken).expect("written");
        refuses(why).await;
    }
    std::fs::remove_file(guarded.file(Scope::Read)).expect("it is there");
    refuses("read http.tokens[2].file").await;
}
