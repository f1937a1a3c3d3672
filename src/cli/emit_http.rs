//! `emit --http`: sends usage events to a daemon's `POST /v1/events`, as a producer without Redis does.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use super::context::CliContext;
use super::emit::{DueEvents, EmitArgs, check_id, event_fields};
use crate::api::scope::Scope;
use crate::terminal::hint::failed;
use crate::terminal::output;

/// Longer than the daemon takes to answer while Redis hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
const ROUTE: &str = "v1/events";

#[derive(Debug, Serialize)]
struct SentSummary {
    url: String,
    count: u64,
}

/// A daemon that takes events.
struct EventsRoute {
    client: Client,
    url: Url,
    token: String,
}

/// Sends the events and prints their number. An error says which of them the daemon has not confirmed.
pub(super) async fn run(args: EmitArgs, base: &Url, context: &CliContext) -> anyhow::Result<()> {
    check_id(&args)?;
    let route = EventsRoute::new(base, context)?;
    let mut due = DueEvents::new(&args);
    let mut count = 0;
    while let Some((from, to)) = due.next(count).await.map(RangeInclusive::into_inner) {
        let lines: String = (from..=to).map(|number| line(&args, number)).collect();
        let what = format!("events {from} to {to} of {} were not confirmed", args.count);
        route.send(lines, to - from + 1).await.map_err(|error| error.context(what))?;
        count = to;
    }
    due.finish();
    let sent = SentSummary { url: route.url.to_string(), count };
    output::print(&args.format, &sent, |output| output.line(sent.count))
}

fn line(args: &EmitArgs, number: u64) -> String {
    let event: serde_json::Map<String, Value> =
        event_fields(args, number).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    Value::from(event).to_string() + "\n"
}

impl EventsRoute {
    fn new(base: &Url, context: &CliContext) -> anyhow::Result<Self> {
        let config = context.config()?;
        let token = config.token_with(Scope::EventsWrite)?.ok_or_else(|| {
            failed(
                "events over HTTP need a token",
                "set http.token, http.token_file or one of http.tokens with the scope events:write",
            )
        })?;
        let mut base = base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let url = base.join(ROUTE).with_context(|| format!("put the route {ROUTE} behind {base}"))?;
        let mut client = Client::builder().timeout(TIMEOUT).no_proxy().redirect(Policy::none());
        if url.scheme() == "http" {
            // A machine may have no certificate authorities, and none are needed without TLS.
            client = client.tls_certs_only([]);
        }
        let client = client.build().context("build an HTTP client")?;
        Ok(Self { client, url, token: token.reveal().to_owned() })
    }

    /// Sends `count` events.
    async fn send(&self, lines: String, count: u64) -> anyhow::Result<()> {
        let request = self.client.post(self.url.clone()).bearer_auth(&self.token);
        let sent = request.header("content-type", "application/x-ndjson").body(lines).send().await;
        let answer: Response = sent.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            failed(format_args!("{} does not answer: {cause}", self.url), "is the daemon running?")
        })?;
        let status = answer.status();
        let body: Value = serde_json::from_str(&answer.text().await.context("read the answer")?).unwrap_or_default();
        let refused = body["refused"].as_array().and_then(|refused| refused.first());
        if status == StatusCode::ACCEPTED && body["accepted"] == count {
            return Ok(());
        }
        if let Some(accepted) = body["accepted"].as_u64() {
            let why = refused.and_then(|refused| refused["detail"].as_str()).unwrap_or("no reason was given");
            let hint = "do not repeat the command: quotabell refused list shows the others";
            return Err(failed(format_args!("{accepted} of these events were accepted: {why}"), hint));
        }
        let detail = body["detail"].as_str().or_else(|| refused?["detail"].as_str()).unwrap_or("no reason was given");
        let hint = match status.as_u16() {
            503 => "repeat the command: events with an --id count once",
            401 | 403 => "is it the token of this daemon, and does it have the scope events:write?",
            404 | 405 => "--http takes the address of the daemon without a path, such as http://127.0.0.1:9464",
            _ => "quotabell refused list shows refused events",
        };
        Err(failed(format_args!("the daemon answered {status}: {detail}"), hint))
    }
}
