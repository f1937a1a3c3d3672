//! `listen`: a mail server and a webhook receiver on this machine, which print what they receive.
//!
//! For trying out alerts without a real receiver. It verifies signatures with the public crate, as a receiver would. It
//! sends nothing, and does not use Redis. Read next: [`crate::demo::receivers`], the two servers.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use axum::http::StatusCode;
use chrono::{DateTime, Local, SecondsFormat};
use clap::Args;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use standardwebhooks::{Webhook, WebhookError};

use super::context::CliContext;
use crate::channels::webhook;
use crate::contacts::Contact;
use crate::demo::mail;
use crate::demo::receivers::{CaughtMail, CaughtRequest, HttpCatcher, SmtpCatcher};
use crate::terminal::hint::{self, with_hint};
use crate::terminal::output::{self, FormatArgs, Output, printable, say};
use crate::types::Secret;

#[derive(Debug, Args)]
#[command(
    after_help = "For trying alerts out on this machine: email.smtp_url and a contact's URL point here. Prints every mail and every \
    webhook until Ctrl-C. Accepts all of them, and echoes the challenge that verifies a contact.
Signatures are checked with each --secret and with the secrets of the configuration's fallback contacts.

Examples:
  quotabell listen
  quotabell listen --config config/quickstart.toml
  quotabell listen --secret whsec_... --json
  quotabell listen --status 500"
)]
pub struct ListenArgs {
    /// Address for email: a port of 127.0.0.1, or address and port
    #[arg(long, value_name = "PORT", default_value = "1025", value_parser = listen_address)]
    pub smtp: SocketAddr,
    /// Address for webhooks: a port of 127.0.0.1, or address and port
    #[arg(long, value_name = "PORT", default_value = "8025", value_parser = listen_address)]
    pub http: SocketAddr,
    /// A webhook secret to check signatures with; may be given several times
    #[arg(long = "secret", value_name = "SECRET")]
    pub secrets: Vec<String>,
    /// The HTTP status of every answer to a webhook; 500 provokes retries [default: 200]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: Option<u16>,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Parses `8025` or `0.0.0.0:8025`.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => {
            text.parse().map_err(|_| "write a port as 8025, or an address with its port as 0.0.0.0:8025".to_owned())
        }
    }
}

pub async fn run(args: ListenArgs, context: &CliContext) -> anyhow::Result<()> {
    let verifier = SignatureVerifier::new(&args.secrets, &context.config()?.fallback.contacts)?;
    let smtp = SmtpCatcher::start_on(args.smtp).await;
    let smtp = smtp.with_context(|| format!("listen for mails on {}", args.smtp));
    let mut smtp = with_hint(smtp, "--smtp names another port")?;
    let status = args.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    let http = HttpCatcher::start_on(args.http, move |body| (status, answer(body))).await;
    let http = http.with_context(|| format!("listen for webhooks on {}", args.http));
    let mut http = with_hint(http, "--http names another port")?;
    say(format_args!("mails: {}", smtp.url()));
    say(format_args!("webhooks: {}", http.url("/")));
    if verifier.secrets.is_empty() {
        say("signatures are not checked: --secret names a webhook's secret");
    }
    loop {
        tokio::select! {
            stopped = tokio::signal::ctrl_c() => return stopped.context("wait for Ctrl-C"),
            mail = smtp.next() => {
                let mail = ReceivedMail::from_caught(&mail, Local::now());
                output::print(&args.format, &mail, |output| mail.print(output))?;
            }
            request = http.next() => {
                let webhook = ReceivedWebhook::from_caught(&request, &verifier, Local::now());
                output::print(&args.format, &webhook, |output| webhook.print(output))?;
            }
        }
    }
}

/// The body of the response to a webhook: the challenge of the request, so that the contact becomes verified.
fn answer(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let challenge = body["data"]["challenge"].as_str();
    challenge.map(|challenge| json!({"challenge": challenge}).to_string()).unwrap_or_default()
}

/// The signature may still be right: its secret may be unknown here.
const NO_SECRET_FITS: &str = "no secret known here fits; --secret names one";

/// Checks signatures with every known secret.
struct SignatureVerifier {
    secrets: Vec<Webhook>,
}

/// The result of checking a webhook's signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SignatureCheck {
    /// No secret is known.
    NotChecked,
    /// One of the secrets fits.
    Verified,
    /// None of the secrets fits; holds the reason.
    Refused(String),
}

impl SignatureVerifier {
    fn new(named: &[String], fallback: &[Contact]) -> anyhow::Result<Self> {
        let of_fallback = fallback.iter().filter_map(Contact::secret).map(Secret::reveal);
        let mut secrets = Vec::new();
        for text in named.iter().map(String::as_str).chain(of_fallback) {
            // The text of a refused secret is not shown: it may be a mistyped real one.
            let bad = |error: String| hint::usage(error, "`quotabell subject set` prints the secret of a new webhook");
            webhook::secret::check(text).map_err(|error| bad(error.to_string()))?;
            for secret in text.split_whitespace() {
                secrets.push(Webhook::new(secret).map_err(|error| bad(error.to_string()))?);
            }
        }
        Ok(Self { secrets })
    }

    fn check(&self, request: &CaughtRequest) -> SignatureCheck {
        let mut refused = SignatureCheck::NotChecked;
        for secret in &self.secrets {
            match secret.verify(&request.body, &request.headers) {
                Ok(()) => return SignatureCheck::Verified,
                Err(WebhookError::InvalidSignature) => refused = SignatureCheck::Refused(NO_SECRET_FITS.to_owned()),
                Err(error) => refused = SignatureCheck::Refused(error.to_string()),
            }
        }
        refused
    }
}

/// An email in the output.
#[derive(Debug, Serialize)]
struct ReceivedMail {
    channel: &'static str,
    received_at: String,
    from: String,
    to: Vec<String>,
    subject_line: String,
    text: String,
}

impl ReceivedMail {
    fn from_caught(caught: &CaughtMail, at: DateTime<Local>) -> Self {
        let raw = &caught.text;
        Self {
            channel: "email",
            received_at: rfc3339(at),
            from: caught.from.clone(),
            to: caught.to.clone(),
            subject_line: mail::header(raw, "Subject").unwrap_or_default(),
            text: mail::text(raw),
        }
    }

    fn print(&self, output: &mut Output) -> anyhow::Result<()> {
        output.line(format_args!("--- mail, {}", self.received_at))?;
        let pairs = [("from", self.from.clone()), ("to", self.to.join(", ")), ("subject", self.subject_line.clone())];
        output.pairs(&pairs)?;
        print_indented(output, &self.text)
    }
}

/// A webhook in the output.
#[derive(Debug, Serialize)]
struct ReceivedWebhook {
    channel: &'static str,
    received_at: String,
    method: String,
    path: String,
    webhook_id: Option<String>,
    signature: SignatureCheck,
    /// The status of the response.
    status: u16,
    /// The JSON as it was sent, or a string if it is not JSON.
    body: Box<RawValue>,
}

impl ReceivedWebhook {
    fn from_caught(caught: &CaughtRequest, verifier: &SignatureVerifier, at: DateTime<Local>) -> Self {
        let text = String::from_utf8_lossy(&caught.body).into_owned();
        let as_string = |_| to_raw_value(&text).expect("text is JSON");
        let webhook_id = caught.headers.get("webhook-id").and_then(|id| id.to_str().ok());
        Self {
            channel: "webhook",
            received_at: rfc3339(at),
            method: caught.method.to_string(),
            path: caught.uri.to_string(),
            webhook_id: webhook_id.map(str::to_owned),
            signature: verifier.check(caught),
            status: caught.status,
            body: serde_json::from_slice(&caught.body).unwrap_or_else(as_string),
        }
    }

    fn print(&self, output: &mut Output) -> anyhow::Result<()> {
        output.line(format_args!("--- webhook, {}", self.received_at))?;
        let signature = match &self.signature {
            SignatureCheck::Verified => "verified".to_owned(),
            SignatureCheck::NotChecked => "not checked, because no secret is known".to_owned(),
            SignatureCheck::Refused(why) => format!("NOT VERIFIED: {why}"),
        };
        output.pairs(&[
            ("request", format!("{} {}", self.method, self.path)),
            ("webhook-id", self.webhook_id.clone().unwrap_or_else(|| "none".to_owned())),
            ("signature", signature),
            ("answered", self.status.to_string()),
        ])?;
        print_indented(output, self.body.get())
    }
}

/// Prints text below its heading, with an empty line before and after it.
fn print_indented(output: &mut Output, text: &str) -> anyhow::Result<()> {
    output.line("")?;
    for line in text.trim_end().lines() {
        output.line(format_args!("  {}", printable(line)).to_string().trim_end())?;
    }
    output.line("")
}

fn rfc3339(at: DateTime<Local>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, false)
}
