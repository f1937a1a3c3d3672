//! Webhooks: a signed POST (Standard Webhooks 1.0) to a URL that a subject chose.
//!
//! Owns the rules for URLs and secrets, the networks that may not be called, the payload, the request, and the class of its outcome.
//! Read next: [`payload`], then [`client`].

use std::time::{Duration, Instant};

use super::channel::{
    AlertPurpose, BoxFuture, CapKind, ChannelDefinition, ChannelSettings, ConsentMethod, ConsentProof, Content,
    InvalidSetting, Message, NotificationChannel, PreviewPart, Question, SecretDefinition, ServerProbe, SettingText,
    check_timeout,
};
use crate::contacts::Contact;
use crate::throttle::MEMBERS_MAX;
use crate::types::{Channel, Class, LOG_INTERVAL, LogLimiter, Outcome, Rate, UnixMs};

pub mod blocked_networks;
pub mod client;
pub mod config;
mod outcomes;
pub mod payload;
mod retry_after;
pub mod secret;
pub mod url;

pub use client::{WebhookClient, WebhookRequest};
pub use config::WebhookConfig;

/// The longest deadline of an attempt: a lease is as long, and a dead worker's deliveries wait for it.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// How far the clock of Redis may be from this machine's before somebody is told. Receivers take five minutes at most.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(30);

/// The line of this channel in the registry.
pub const DEFINITION: ChannelDefinition = ChannelDefinition {
    channel: Channel::Webhook,
    address_field: "url",
    placeholder: "URL",
    flag_help: "Webhook to this receiver",
    example: r#"{ channel = "webhook", url = "https://...", secret = "whsec_..." }"#,
    secret: Some(SecretDefinition {
        flag: "webhook-secret",
        flag_help: "The webhook's secret: whsec_ and base64 of 24 to 64 bytes",
        text: "whsec_ and base64 of 24 to 64 bytes (`printf whsec_; openssl rand -base64 32`)",
        check: secret::check,
        generate: secret::generate,
    }),
    consent: ConsentMethod::Challenge,
    check_address: url::check,
    check_public_address: url::check_public,
    warning: |url, settings| {
        let refused = url.starts_with("http://") && !settings.section::<WebhookConfig>().allow_http;
        refused.then(|| format!("{url} is plain http, which webhook.allow_http = false refuses"))
    },
    check_settings,
    settings: &[
        SettingText { key: "timeout", allowed: r#"a duration above 0 and up to 10m, as "15s""# },
        SettingText { key: "allow_http", allowed: "true or false" },
        SettingText { key: "allow_private_networks", allowed: "true or false" },
        SettingText {
            key: "allowed_networks",
            allowed: r#"parts of loopback, private and link-local networks, as ["10.1.0.0/16", "fd00:1::/32"]"#,
        },
        SettingText { key: "ca_file", allowed: "the path of a PEM file of certificates" },
        SettingText {
            key: "per_destination",
            allowed: r#"attempts and a window, as "30/1m": 1 to 100000 attempts, 1ms to 31d"#,
        },
    ],
    file_settings: &[],
    server: None,
    cap: CapKind::SlidingByDestination(url::origin),
    origin: url::origin,
    build: |settings| {
        let WebhookConfig { timeout, per_destination, .. } = *settings.section::<WebhookConfig>();
        let client = WebhookClient::new(settings.section(), settings.section())?;
        Ok(Box::new(WebhookChannel { client, timeout, per_destination, log_limiter: LogLimiter::new(LOG_INTERVAL) }))
    },
    preview_parts: &[PreviewPart { name: "webhook", about: "The webhook's JSON body" }],
    preview: |_, alert| Ok(vec![payload::alert(alert, AlertPurpose::Alert)]),
    permanent_hint: "trying again can't help: check the URL, and webhook.allow_http and webhook.allowed_networks; an alert would \
                    be dead at once",
    transient_hint: "check the receiver, its certificate and its secret; an alert would be tried again",
};

/// Webhooks, set up.
#[derive(Debug)]
struct WebhookChannel {
    client: WebhookClient,
    timeout: Duration,
    per_destination: Option<Rate>,
    log_limiter: LogLimiter<()>,
}

impl WebhookChannel {
    /// Says when this machine's clock and that of Redis are so far apart that somebody has to set one. Alerts and signatures bear
    /// different times then.
    fn compare_clocks(&self, redis: UnixMs, own: UnixMs) {
        let apart_ms = own.0.abs_diff(redis.0);
        if Duration::from_millis(apart_ms) > CLOCKS_APART_MAX && self.log_limiter.admit((), Instant::now()).is_some() {
            tracing::warn!(
                apart_s = apart_ms / 1000,
                "the clocks of this machine and of redis differ: webhooks are signed by this machine's, set both by NTP"
            );
        }
    }
}

/// This machine's clock. A receiver compares the time of a signature with its own clock, which is right for everybody who uses NTP,
/// while Redis may run on a machine whose clock is wrong.
#[expect(clippy::disallowed_methods, reason = "a signature is judged by the receiver's clock, not by that of Redis")]
fn own_time() -> UnixMs {
    UnixMs(chrono::Utc::now().timestamp_millis())
}

impl NotificationChannel for WebhookChannel {
    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn send<'a>(&'a self, message: Message<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Message { contact, content, now, .. } = message;
            let Some(secret) = contact.secret() else {
                return Outcome::failed(Class::Permanent, "the contact has no secret");
            };
            let (body, challenge) = match content {
                Content::Alert(alert, purpose) => (payload::alert(alert, purpose), None),
                Content::Verification(Question { subject, proof: ConsentProof::Challenge(challenge), .. }) => {
                    (payload::challenge(subject, challenge.reveal(), now), Some(challenge.reveal()))
                }
                Content::Verification(Question { proof: ConsentProof::CodeAndLink(_), .. }) => {
                    return Outcome::failed(Class::Permanent, "a webhook asks for a challenge, not for a code");
                }
                Content::ContactDisabled(notice) => (payload::contact_disabled(notice), None),
                Content::Digest(digest) => (payload::digest(digest), None),
            };
            let own = own_time();
            self.compare_clocks(now, own);
            let (id, url, now_s) = (content.id(), contact.address(), own.0.div_euclid(1000));
            self.client.send(WebhookRequest { id, now_s, url, secret, body: &body, challenge }).await
        })
    }

    fn cap(&self) -> Option<Rate> {
        self.per_destination
    }

    fn probe<'a>(&'a self, contact: Option<&'a Contact>) -> BoxFuture<'a, Option<ServerProbe>> {
        Box::pin(async move {
            let url = contact?.address();
            Some(ServerProbe {
                server: "webhook",
                location: url::origin(url).unwrap_or_else(|| "a URL without a host".to_owned()),
                outcome: self.client.check(url).await,
                works: "may be called",
                hint: "webhook.allow_http permits http://, webhook.allowed_networks addresses inside; else write another URL",
            })
        })
    }
}

fn check_settings(settings: &ChannelSettings<'_>) -> Result<(), InvalidSetting> {
    let WebhookConfig { timeout, per_destination, allowed_networks, .. } = settings.section::<WebhookConfig>();
    check_timeout(*timeout, TIMEOUT_MAX)?;
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
