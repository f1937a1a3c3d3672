//! Email through the configured SMTP server.
//!
//! Owns the rules for addresses, the templates, the email, the conversation with the server, and the class of its
//! outcome. Read next: [`templates`], then [`mailer`].

use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};

use super::channel::{
    AlertPurpose, ChannelDefinition, CodeAndLink, ConsentMethod, ConsentProof, ConsentQuestion, Content,
    InvalidSetting, Message, PreviewMessage, PreviewRequest, ProbeResult, check_timeout, part, setting,
};
use super::error::ChannelError;
use super::grant_text;
use super::labels::Labels;
use super::notice_text;
use super::resolved_text;
use super::resolver::DnsConfig;
use super::set_text;
use super::usage_text;
use crate::contacts::Contact;
use crate::types::duration::HumanDuration;
use crate::types::{
    Channel, DISABLES_AFTER_MAX, DisabledNotice, Locale, Outcome, OutcomeClass, Rate, Secret, UnixMs, meters,
};

pub mod address;
pub mod config;
mod dkim;
pub mod mailer;
mod message;
mod outcomes;
mod refusal;
mod smtp;
mod smtp_connection;
mod smtp_url;
mod template_files;
pub mod templates;

pub use config::{DkimSettings, EmailConfig};
pub use mailer::Mailer;
pub use message::Mail;

use message::parse_author;
pub(super) use outcomes::hint;
use templates::{Rendered, SAMPLE_VERIFICATION, Templates, VerifyVariables};

/// Maximum deadline of an attempt. RFC 5321 4.5.3.2 demands 10 minutes just for the final dot.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The window of `email.per_minute`.
const MINUTE: Duration = Duration::from_secs(60);

/// The entry of this channel in the registry.
pub const DEFINITION: ChannelDefinition = ChannelDefinition {
    channel: Channel::Email,
    example: r#"{ channel = "email", address = "a@b.test" }"#,
    secret: None,
    consent: ConsentMethod::CodeAndLink,
    settings: &[
        setting("smtp_url", "a URL: smtps://user:password@host:465, smtp://host:587?tls=required or smtp://host:25"),
        setting("smtp_url_file", "the path of a file whose first line is the URL"),
        setting("from", r#"a mailbox such as "Example API <quota@example.com>""#),
        setting(
            "helo_name",
            r#"a host name such as "quota.example.com", or an address in brackets such as "[192.0.2.1]""#,
        ),
        setting("timeout", r#"a duration above 0 and up to 1h, such as "60s""#),
        setting(
            "unknown_mailbox_after",
            r#"a duration up to 7d, such as "24h"; "0s" disables a contact at the first report"#,
        ),
        setting("locale", r#"a language tag (BCP 47), such as "en", "vi" or "pt-BR""#),
        setting(
            "templates",
            "the path of a directory with one or more of subject.txt, alert.txt, alert.html, verify_subject.txt, verify.txt, \
             verify.html, disabled_subject.txt, disabled.txt, grant_expires_subject.txt, grant_expires.txt, \
             grant_expires.html, usage_notice_subject.txt, usage_notice.txt, resolved_subject.txt, resolved.txt, \
             notice.html, alerts_subject.txt, alerts.txt, alerts.html and prefix.txt, also in folders named by a locale such as vi",
        ),
        setting("ca_file", "the path of a PEM file of certificates"),
        setting(
            "dkim",
            r#"domain, selector and key_file, such as { domain = "example.com", selector = "q1", key_file = "/etc/quotabell/dkim.pem" }"#,
        ),
        setting("per_minute", "a whole number, 1 or more"),
    ],
    file_settings: &[("smtp_url", "smtp_url_file")],
    server_absence: Some("email contacts get nothing until email.smtp_url names one"),
    preview_parts: &[
        part("subject", "The email's subject line"),
        part("text", "The email's text part"),
        part("html", "The email's HTML part"),
        part("verify-subject", "The subject line of the email that asks to confirm an address"),
        part("verify-text", "Its text part"),
        part("verify-html", "Its HTML part"),
        part("disabled-subject", "The subject line of the email about a disabled contact"),
        part("disabled-text", "Its text part"),
        part("grant-expires-subject", "The subject line of the email before units of a grant expire"),
        part("grant-expires-text", "Its text part"),
        part("grant-expires-html", "Its HTML part"),
        part(
            "usage-notice-subject",
            "The subject line of the email about a limit that will be reached, or what --kind names",
        )
        .of(PreviewMessage::UsageNotice),
        part("usage-notice-text", "Its text part").of(PreviewMessage::UsageNotice),
        part("usage-notice-html", "Its HTML part").of(PreviewMessage::UsageNotice),
        part("resolved-subject", "The subject line of the email about the end of alerts"),
        part("resolved-text", "Its text part"),
        part("resolved-html", "Its HTML part"),
        part("alerts-subject", "The subject line of the email about several alerts").of(PreviewMessage::Set),
        part("alerts-text", "Its text part").of(PreviewMessage::Set),
        part("alerts-html", "Its HTML part").of(PreviewMessage::Set),
    ],
};

/// A JSON Schema for addresses.
pub(super) fn address_schema() -> Value {
    json!({
        "type": "string", "format": "email", "maxLength": 254, "description": "Before the `@` ASCII without quotes. The \
            domain is stored in lower case and in its ASCII form (IDNA).",
    })
}

/// Whether the mail server was configured.
pub(super) fn has_own_server(own: &EmailConfig, default: &EmailConfig) -> bool {
    own.smtp_url_file.is_some() || own.smtp_url != default.smtp_url
}

/// The warning about emails to other machines with an example address as the sender.
pub(super) fn default_warning(own: &EmailConfig, default: &EmailConfig) -> Option<String> {
    let advice = "many servers refuse it or take it for spam; write an address of yours";
    (has_same_domain(&own.from, &default.from) && !mailer::is_local(own))
        .then(|| format!("email.from is still an example, {}: {advice}", own.from))
}

/// The email channel.
#[derive(Debug)]
pub(super) struct EmailChannel {
    pub(super) mailer: Mailer,
    pub(super) templates: Templates,
    /// Used if the operator's templates fail on an alert that no sample resembled: a plain email is better than none.
    embedded: Templates,
    pub(super) per_minute: Option<Rate>,
    pub(super) warnings: Vec<String>,
    /// The location of the mail server, and the file that names it, if there is one.
    location: String,
}

impl EmailChannel {
    pub(super) fn new(config: &EmailConfig, dns: &DnsConfig) -> Result<Self, ChannelError> {
        let mailer = Mailer::new(config, dns)?;
        let templates = Templates::load(config.templates.as_deref(), &config.locale)?;
        let file = config.smtp_url_file.as_ref().map(|path| format!(", named in {}", path.display()));
        let unknown = templates.substitute(&config.locale).map(|used| {
            let locale = &config.locale;
            format!("email.locale is {locale}, which has no templates: emails are written in {used}")
        });
        Ok(Self {
            warnings: mailer.warnings().iter().cloned().chain(unknown).chain(templates.files.warnings()).collect(),
            templates,
            embedded: Templates::embedded(),
            per_minute: config.per_minute.map(|units| Rate::new(units, MINUTE).expect("a minute is a legal window")),
            location: format!("{}{}", mailer.location, file.unwrap_or_default()),
            mailer,
        })
    }

    /// Renders with the operator's templates, or with the embedded ones if those fail. `None` for a challenge, which an
    /// email can't ask for.
    fn render(&self, message: &Message<'_>) -> Option<Rendered> {
        let Message { content, labels, now, .. } = *message;
        let locale = message.contact.locale.as_ref();
        let rendered = render_with(&self.templates, content, labels, now, locale)?;
        Some(rendered.unwrap_or_else(|error| {
            let id = content.id();
            counter!(meters::TEMPLATE_FAILURES, "channel" => Channel::Email.as_str()).increment(1);
            tracing::error!(notification = id, error = %error, "template failed, the embedded one is used instead");
            let locale = self.templates.files.used_for(locale);
            let embedded = render_with(&self.embedded, content, labels, now, Some(locale)).and_then(Result::ok);
            embedded.expect("the embedded templates render every notification")
        }))
    }

    pub(super) async fn send(&self, message: Message<'_>) -> Outcome {
        let Message { delivery, contact, content, unsubscribe, now, .. } = message;
        let Some(Rendered { subject_line, text, html }) = self.render(&message) else {
            return Outcome::failed(OutcomeClass::Permanent, "a mail asks for a code, not for a challenge");
        };
        let message_id = match content {
            Content::Verification(_) | Content::Set(_) => content.id(),
            _ => delivery.as_str(),
        };
        let alert_id = match content {
            Content::Set(set) => set.only().and_then(|item| alert_id(item.content)),
            content => alert_id(content),
        };
        let thread_ids = thread_ids(content);
        let mail = Mail {
            to: contact.address(),
            message_id,
            thread_ids: &thread_ids,
            alert_id,
            unsubscribe,
            subject_line: &subject_line,
            text: &text,
            html: &html,
            now_s: now.0.div_euclid(1000),
        };
        self.mailer.send(mail).await
    }

    pub(super) async fn probe(&self, contact: Option<&Contact>) -> ProbeResult {
        let outcome = self.mailer.check(contact.map(Contact::address)).await;
        let hint = match outcome.status {
            Some(_) => "the mail server's answer says why it accepts no mail",
            None => {
                "check email.smtp_url: is this the port of a mail server, with smtps:// where it speaks TLS at once, and \
                 tls=required where it wants STARTTLS?"
            }
        };
        ProbeResult { server: "mail server", location: self.location.clone(), outcome, works: "takes mail", hint }
    }
}

fn alert_id(content: Content<'_>) -> Option<&str> {
    match content {
        Content::Alert(alert, _) => Some(alert.id.as_str()),
        _ => None,
    }
}

/// The threads of an email: the periods that it is about, each once.
fn thread_ids(content: Content<'_>) -> Vec<String> {
    match content {
        Content::Alert(alert, AlertPurpose::Alert | AlertPurpose::Copy) => vec![alert.period_id()],
        Content::Usage(notice, AlertPurpose::Alert | AlertPurpose::Copy) => vec![notice.period_id()],
        Content::Resolved(notice, AlertPurpose::Alert | AlertPurpose::Copy) => vec![notice.period_id()],
        Content::Set(set) => {
            let mut threads: Vec<String> = Vec::new();
            for thread in set.items.iter().flat_map(|item| thread_ids(item.content)) {
                if !threads.contains(&thread) {
                    threads.push(thread);
                }
            }
            threads
        }
        _ => Vec::new(),
    }
}

/// Renders an email that is sent at `now`; `None` for a challenge.
fn render_with(
    templates: &Templates,
    content: Content<'_>,
    labels: &Labels,
    now: UnixMs,
    locale: Option<&Locale>,
) -> Option<Result<Rendered, ChannelError>> {
    match content {
        Content::Set(set) => Some(templates.render_set(set, now, locale)),
        Content::Verification(ConsentQuestion { subject, proof: ConsentProof::CodeAndLink(secrets), .. }) => {
            let CodeAndLink { code, link, lifetime } = secrets;
            let minutes = (lifetime.as_secs() / 60).max(1);
            let (code, link) = (code.reveal(), link.as_ref().map(Secret::reveal));
            let variables = VerifyVariables { subject: subject.as_str(), code, link, minutes };
            Some(templates.render_verification(variables, locale))
        }
        Content::Verification(ConsentQuestion { proof: ConsentProof::Challenge(_), .. }) => None,
        // The operator reads English.
        Content::Digest(_) => Some(Ok(notice_text::render(content, labels, now).into())),
        _ => Some(templates.render(content, labels, now, locale)),
    }
}

/// Whether two mailboxes have the same domain.
fn has_same_domain(one: &str, other: &str) -> bool {
    let domain = |from: &str| parse_author(from).map(|author| author.email.domain().to_lowercase());
    domain(one).is_some() && domain(one) == domain(other)
}

pub(super) fn check_settings(config: &EmailConfig) -> Result<(), InvalidSetting> {
    let EmailConfig { timeout, from, helo_name, unknown_mailbox_after, .. } = config;
    check_timeout(*timeout, TIMEOUT_MAX)?;
    if *unknown_mailbox_after > DISABLES_AFTER_MAX {
        let (after, max) = (HumanDuration(*unknown_mailbox_after), HumanDuration(DISABLES_AFTER_MAX));
        return Err(InvalidSetting { key: "unknown_mailbox_after", problem: format!("{after} is longer than {max}") });
    }
    if let Some(name) = helo_name.as_deref().filter(|name| !smtp::is_helo_name(name)) {
        return Err(InvalidSetting { key: "helo_name", problem: format!("{name:?} is no host name") });
    }
    let no_mailbox = || InvalidSetting { key: "from", problem: format!("{from:?} is not a mailbox") };
    parse_author(from).map(drop).ok_or_else(no_mailbox)
}

pub(super) fn preview(config: &EmailConfig, request: PreviewRequest<'_>) -> Result<Vec<String>, ChannelError> {
    let PreviewRequest { alert, labels, locale, kind, .. } = request;
    let templates = Templates::load(config.templates.as_deref(), &config.locale)?;
    let usage = usage_text::of_kind(kind, usage_text::sample_for(alert));
    let grant = grant_text::sample_for(alert);
    let question = VerifyVariables { subject: alert.subject.as_str(), ..SAMPLE_VERIFICATION };
    let disabled = DisabledNotice { subject: alert.subject.clone(), ..notice_text::disabled_sample() };
    let (purpose, now) = (AlertPurpose::Alert, alert.raised_at_ms);
    let render = |content| templates.render(content, labels, now, locale);
    let emails = [
        (render(Content::Alert(alert, purpose))?, true),
        (templates.render_verification(question, locale)?, true),
        (render(Content::ContactDisabled(&disabled))?, false),
        (render(Content::GrantExpires(&grant, purpose))?, true),
        (render(Content::Usage(&usage, purpose))?, true),
        (render(Content::Resolved(&resolved_text::sample_for(alert), purpose))?, true),
        (templates.render_set(&set_text::sample(alert, &usage, labels), now, locale)?, true),
    ];
    let parts = |(email, has_html): (Rendered, bool)| {
        [email.subject_line, email.text].into_iter().chain(has_html.then_some(email.html))
    };
    Ok(emails.into_iter().flat_map(parts).collect())
}
