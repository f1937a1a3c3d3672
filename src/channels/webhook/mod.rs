//! Webhooks: a POST to a URL that a subject chose, signed (Standard Webhooks 1.0) or in the form of a chat.
//!
//! Owns the rules for URLs, secrets and headers, the networks that may not be called, the formats, the request, and the
//! class of its outcome. Read next: [`payload`] and [`formats`], then [`client`].

use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};

use super::channel::{
    AlertPurpose, ChannelDefinition, ConsentMethod, ConsentProof, Content, InvalidSetting, Message, PreviewMessage,
    PreviewRequest, ProbeResult, SecretDefinition, check_timeout, part, setting,
};
use super::error::ChannelError;
use super::grant_text;
use super::invalid_contact::InvalidContact;
use super::resolved_text;
use super::resolver::DnsConfig;
use super::set_text;
use super::tls;
use super::usage_text;
use crate::contacts::{Contact, ContactOptions, MessageFormat, SecretUse, masked_contact};
use crate::types::{Channel, ONCE_A_MINUTE, Outcome, OutcomeClass, Rate, Secret, UnixMs, meters};
use quotabell_throttle::MEMBERS_MAX;

pub mod blocked_networks;
pub mod client;
mod closing_receivers;
pub mod config;
mod connector;
mod extra_headers;
pub mod formats;
mod outcomes;
pub mod payload;
mod proxy;
mod retry_after;
pub mod secret;
pub mod url;

pub use client::{WebhookClient, WebhookRequest};
pub use config::WebhookConfig;
pub use formats::{WebhookBody, WebhookTemplates};
pub(super) use outcomes::hint;

/// Maximum deadline of an attempt. A lease lasts as long, and the deliveries of a dead worker wait until it ends.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// The length of a routing key of PagerDuty.
const ROUTING_KEY_BYTES: usize = 32;

/// Maximum difference between the clocks of Redis and of this machine without a warning. Receivers accept at most five
/// minutes.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(30);

/// The entry of this channel in the registry.
pub const DEFINITION: ChannelDefinition = ChannelDefinition {
    channel: Channel::Webhook,
    example: r#"{ channel = "webhook", url = "https://...", secret = "whsec_..." }"#,
    secret: Some(SecretDefinition {
        text: "whsec_ and base64 of 24 to 64 bytes (`printf whsec_; openssl rand -base64 32`)",
        pattern: secret::PATTERN,
        prefix: secret::PREFIX,
    }),
    consent: ConsentMethod::Challenge,
    settings: &[
        setting("timeout", r#"a duration above 0 and up to 10m, such as "15s""#),
        setting("allow_http", "true or false"),
        setting("allow_private_networks", "true or false"),
        setting(
            "allowed_networks",
            r#"parts of loopback, private and link-local networks, such as ["10.1.0.0/16", "fd00:1::/32"]"#,
        ),
        setting("templates", "the path of a directory with files NAME.json"),
        setting("ca_file", "the path of a PEM file of certificates"),
        setting("per_destination", r#"attempts and a window, such as "30/1m": 1 to 100000 attempts, 1ms to 31d"#),
        setting("proxy", r#""http://host:port" or "http://user:password@host:port""#),
    ],
    file_settings: &[],
    server_absence: None,
    preview_parts: &[
        part("webhook", "The webhook's JSON body"),
        part("webhook-resolved", "The webhook's JSON body about the end of alerts"),
        part("webhook-digest", "The webhook's JSON body with several alerts").of(PreviewMessage::Set),
        part(
            "webhook-usage-notice",
            "The webhook's JSON body about a limit that will be reached, or what --kind names",
        )
        .of(PreviewMessage::UsageNotice),
        part("webhook-grant-expires", "The webhook's JSON body before units of a grant expire"),
    ],
};

/// A JSON Schema for addresses.
pub(super) fn address_schema() -> Value {
    let description = "`https`, or `http` if the operator allows it; no user or password.";
    json!({"type": "string", "format": "uri", "maxLength": url::BYTES_MAX, "description": description})
}

/// Generates a secret, if messages of this format are signed.
pub(super) fn generate_secret(format: &MessageFormat) -> Option<Secret> {
    (format.secret_use() == SecretUse::Signs).then(secret::generate)
}

/// The warning about a contact that these settings do not allow to be called.
pub(super) fn warning(contact: &Contact, config: &WebhookConfig) -> Option<String> {
    let refused = config.egress_policy().check_url(contact.address()).err()?;
    let is_plain = contact.address().starts_with("http://") && !config.allow_http;
    let why = if is_plain { "webhook.allow_http = false refuses plain http" } else { &refused };
    Some(format!("{} will not be called: {why}", masked_contact(contact).address()))
}

/// The webhook channel.
#[derive(Debug)]
pub(super) struct WebhookChannel {
    client: WebhookClient,
    templates: WebhookTemplates,
    pub(super) timeout: Duration,
    pub(super) per_destination: Option<Rate>,
    pub(super) warnings: Vec<String>,
}

impl WebhookChannel {
    pub(super) fn new(config: &WebhookConfig, dns: &DnsConfig) -> Result<Self, ChannelError> {
        // Other programs use the proxy of the environment, so an operator may expect it here too.
        let is_set = |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let ignored = if config.proxy.is_none() { proxy::warning(is_set) } else { None };
        let warnings = [tls::warning("webhook.ca_file", config.ca_file.as_deref()), ignored];
        Ok(Self {
            client: WebhookClient::new(config, dns)?,
            templates: WebhookTemplates::load(config.templates.as_deref())?,
            timeout: config.timeout,
            per_destination: config.per_destination,
            warnings: warnings.into_iter().flatten().collect(),
        })
    }

    pub(super) async fn send(&self, message: Message<'_>) -> Outcome {
        let Message { contact, content, labels, now, more_follows, .. } = message;
        let refused = |error| Outcome::failed(OutcomeClass::Permanent, error);
        let Some(options) = contact.options() else { return refused("the contact is no webhook") };
        let challenge = match content {
            Content::Verification(question) => match question.proof {
                ConsentProof::CodeAndLink(_) => return refused("a webhook asks for a challenge, not for a code"),
                ConsentProof::Challenge(_) if !options.format.has_challenge() => {
                    return refused("a receiver of this format can't answer a challenge");
                }
                ConsentProof::Challenge(challenge) => Some(challenge.reveal()),
            },
            _ => None,
        };
        let body = self.templates.body(options, content, labels, now).unwrap_or_else(|error| {
            counter!(meters::TEMPLATE_FAILURES, "channel" => Channel::Webhook.as_str()).increment(1);
            tracing::error!(alert = content.id(), %error, "template failed, the standard body is sent instead");
            WebhookBody::json(payload::standard(content, labels, now))
        });
        let own = own_time();
        if let Some(apart_s) = seconds_too_far_apart(now, own) {
            tracing::warn!(
                name: ONCE_A_MINUTE,
                apart_s,
                "the clocks of this machine and of redis differ: signatures of webhooks use this machine's clock, set both by NTP"
            );
        }
        let (id, url, now_s) = (content.id(), contact.address(), own.0.div_euclid(1000));
        let signs = options.format.secret_use() != SecretUse::RoutingKey;
        let (secret, headers) = (options.secret.as_ref().filter(|_| signs), &options.headers);
        let (body, keeps_connection, traceparent) = (&body, more_follows, content.traceparent());
        let request =
            WebhookRequest { id, now_s, url, secret, body, headers, traceparent, challenge, keeps_connection };
        self.client.send(request).await
    }

    /// Checks that the template of a contact exists.
    pub(super) fn check(&self, contact: &Contact) -> Result<(), InvalidContact> {
        let template = contact.options().and_then(|options| options.format.template());
        let known = template.map_or(Ok(()), |name| self.templates.expect(name));
        known.map_err(|problem| InvalidContact { field: "format", problem })
    }

    pub(super) async fn probe(&self, contact: &Contact) -> ProbeResult {
        probed(contact.address(), self.client.check(contact.address()).await)
    }

    pub(super) fn refusal(&self, contact: &Contact) -> Option<ProbeResult> {
        Some(probed(contact.address(), self.client.refusal(contact.address())?))
    }
}

/// The difference of two clocks, if it is too large.
fn seconds_too_far_apart(redis: UnixMs, own: UnixMs) -> Option<u64> {
    let apart = Duration::from_millis(own.0.abs_diff(redis.0));
    (apart > CLOCKS_APART_MAX).then_some(apart.as_secs())
}

/// This machine's clock. A receiver compares the time of a signature with its own clock. Both are right if they use
/// NTP, while Redis may run on a machine with a wrong clock.
#[expect(clippy::disallowed_methods, reason = "a signature is judged by the receiver's clock, not by that of Redis")]
fn own_time() -> UnixMs {
    UnixMs(chrono::Utc::now().timestamp_millis())
}

/// The result of probing a receiver.
fn probed(url: &str, outcome: Outcome) -> ProbeResult {
    ProbeResult {
        server: "webhook",
        location: url::origin(url).unwrap_or_else(|| "a URL without a host".to_owned()),
        outcome,
        works: "may be called",
        hint: "webhook.allow_http permits http://, webhook.allowed_networks permits private addresses; otherwise use another URL",
    }
}

pub(super) fn preview(config: &WebhookConfig, request: PreviewRequest<'_>) -> Result<Vec<String>, ChannelError> {
    let PreviewRequest { alert, labels, format, kind, .. } = request;
    let templates = WebhookTemplates::load(config.templates.as_deref())?;
    let secret = (format.secret_use() == SecretUse::RoutingKey).then(|| Secret::new("ROUTING_KEY".to_owned()));
    let options = ContactOptions { secret, format: format.clone(), ..ContactOptions::default() };
    let notice = usage_text::of_kind(kind, usage_text::sample_for(alert));
    let several = set_text::sample(alert, &notice, labels);
    let resolved = resolved_text::sample_for(alert);
    let purpose = AlertPurpose::Alert;
    let grant = grant_text::sample_for(alert);
    let contents = [
        Content::Alert(alert, purpose),
        Content::Resolved(&resolved, purpose),
        Content::Set(&several),
        Content::Usage(&notice, purpose),
        Content::GrantExpires(&grant, purpose),
    ];
    let body = |content| Ok(templates.body(&options, content, labels, alert.raised_at_ms)?.json);
    contents.into_iter().map(body).collect()
}

/// Judges secret and headers of a contact by its format.
pub(super) fn check_options(options: &ContactOptions) -> Result<(), InvalidContact> {
    let invalid = |field, problem| Err(InvalidContact { field, problem });
    match (options.format.secret_use(), options.secret.as_ref().map(Secret::reveal)) {
        (SecretUse::Signs, None) => return invalid("secret", "webhook contact has no secret".to_owned()),
        (SecretUse::Signs | SecretUse::MaySign, Some(secret)) => secret::check(secret)?,
        (SecretUse::MaySign, None) => {}
        (SecretUse::RoutingKey, secret) => {
            let is_key =
                |key: &str| key.len() == ROUTING_KEY_BYTES && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !secret.is_some_and(is_key) {
                let problem = format!(
                    "the secret of a {} contact must be its routing key: {ROUTING_KEY_BYTES} letters and digits",
                    options.format
                );
                return invalid("secret", problem);
            }
        }
    }
    extra_headers::parse(&options.headers).map(drop).or_else(|problem| invalid("headers", problem))
}

pub(super) fn check_settings(config: &WebhookConfig) -> Result<(), InvalidSetting> {
    let WebhookConfig { timeout, per_destination, allowed_networks, .. } = config;
    check_timeout(*timeout, TIMEOUT_MAX)?;
    config.proxy().map_err(|problem| InvalidSetting { key: "proxy", problem })?;
    let judged = allowed_networks.iter().try_for_each(blocked_networks::check_allowed);
    judged.map_err(|problem| InvalidSetting { key: "allowed_networks", problem })?;
    // The sliding window holds a member for each attempt, so it is bounded.
    match per_destination.filter(|rate| rate.limit().get() > MEMBERS_MAX) {
        Some(rate) => {
            let problem = format!("{rate} is more than {MEMBERS_MAX} attempts in a window");
            Err(InvalidSetting { key: "per_destination", problem })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver refuses a signature with a wrong time, whichever of the clocks is wrong.
    #[test]
    fn clocks_half_a_minute_apart_are_told() {
        let now = UnixMs(1_790_000_000_000);
        for (apart_ms, told) in [(0, None), (30_000, None), (30_001, Some(30)), (3_600_000, Some(3600))] {
            assert_eq!(seconds_too_far_apart(now, now.plus(apart_ms)), told, "{apart_ms} ms");
            assert_eq!(seconds_too_far_apart(now.plus(apart_ms), now), told, "-{apart_ms} ms");
        }
    }
}
