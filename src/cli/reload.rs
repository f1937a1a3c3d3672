//! `reload`: tells the daemon on this machine to read its plans again.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use url::Url;

use super::context::CliContext;
use crate::api::scope::Scope;
use crate::api::state::ReloadedPlans;
use crate::terminal::hint::failed;
use crate::terminal::output::{self, FormatArgs};

/// The daemon reads some files, and all subjects if a plan is dropped.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(
    after_help = "Sends POST /v1/reload to the daemon at http.listen, with http.token. If the daemon's configuration \
        has a mistake, the daemon refuses all of it and keeps the old plans. Without --force it also refuses a file \
        that is empty, removes http.token or drops a plan that a subject names. New plans apply from the next batch, \
        a new token at once; other settings need a restart. SIGHUP does the same without --force; the daemon logs \
        the result.

Exit codes: 0 the plans are in effect, 1 the daemon refused them or did not answer

Examples:
  quotabell reload
  quotabell reload --url http://10.0.0.7:9464
  quotabell reload --json | jq .changed
  quotabell reload --force    # drop a plan that subjects still name
  systemctl reload quotabell"
)]
pub struct ReloadArgs {
    /// The address of the daemon [default: http.listen]
    #[arg(long)]
    pub url: Option<Url>,
    /// Also accept a file that is empty, removes http.token or drops a plan that subjects name
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: ReloadArgs, context: &CliContext) -> anyhow::Result<()> {
    // The daemon judges its own files and limits, which may differ from those of this command.
    let config = context.config()?;
    let token = config.token_with(Scope::Admin)?.ok_or_else(|| {
        failed(
            "a reload over HTTP needs a token that may do everything",
            "set http.token, http.token_file or one of http.tokens with the scope admin, or send the daemon SIGHUP",
        )
    })?;
    let listen = &config.http.listen;
    let base = match args.url {
        Some(url) => url,
        // The system connects to this machine for 0.0.0.0.
        None => Url::parse(&format!("http://{listen}/"))
            .with_context(|| format!("http.listen = {listen:?} is no address to connect to"))?,
    };
    let mut url = base.join("v1/reload").context("put the URL of the route together")?;
    if args.force {
        url.set_query(Some("force=true"));
    }
    let mut client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy();
    if url.scheme() == "http" {
        // A machine may have no certificate authorities, and none are needed without TLS.
        client = client.tls_certs_only([]);
    }
    let client = client.build().context("build an HTTP client")?;
    let sent = client.post(url.clone()).bearer_auth(token.reveal()).send().await;
    let answer = sent.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        failed(format_args!("{url} does not answer: {cause}"), "is the daemon running? --url names another one")
    })?;
    let status = answer.status();
    let body = answer.text().await.context("read the answer")?;
    if !status.is_success() {
        let problem: Value = serde_json::from_str(&body).unwrap_or_default();
        let reason = problem["detail"].as_str().unwrap_or("no reason was given");
        let hint = if status.as_u16() == 422 {
            "the plans before stay in effect: mend the file and try again"
        } else {
            "is it the daemon of this configuration?"
        };
        return Err(failed(format_args!("the daemon answered {status}: {reason}"), hint));
    }
    let reloaded: ReloadedPlans = serde_json::from_str(&body).context("read the answer of the daemon")?;
    output::print(&args.format, &reloaded, |output| {
        let ReloadedPlans { fingerprint, changed, tokens_changed, rules_changed } = &reloaded;
        let plans = if *changed { "new plans are in effect" } else { "the plans are as before" };
        let tokens = if *tokens_changed { ", new tokens are in effect" } else { "" };
        let rules = if *rules_changed { ", new rules of events.types are in effect" } else { "" };
        output.line(format_args!("reloaded: {plans}, fingerprint {fingerprint}{tokens}{rules}"))
    })
}
