//! E-mail through the configured SMTP server.
//!
//! Owns the rules for addresses, the templates, the mail, the conversation with the server, and the class of its
//! outcome. Read next: [`templates`], then [`mailer`].

use std::time::Duration;

use metrics::counter;
use serde_json::json;

use super::channel::{
    AlertPurpose, BoxFuture, ChannelDefinition, ChannelSettings, CodeAndLink, ConsentMethod, ConsentProof,
    ConsentQuestion, Content, FileSetting, InvalidSetting, Message, NotificationChannel, PreviewPart, PreviewRequest,
    ProbeResult, SettingText, SharedServer, check_timeout,
};
use super::error::{ChannelError, ChannelErrors};
use super::filter_flags::{FilterFlag, FilterFlags};
use super::notice_text;
use super::resolver::DnsConfig;
use crate::contacts::Contact;
use crate::types::duration::HumanDuration;
use crate::types::{Channel, DISABLES_AFTER_MAX, DisabledNotice, Locale, Outcome, OutcomeClass, Rate, Secret, meters};

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

use message::Author;
use templates::{Rendered, SAMPLE_VERIFICATION, Templates, VerifyVariables};

/// The longest deadline of an attempt. RFC 5321 4.5.3.2 wants 10 minutes after the final dot alone.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The window of `email.per_minute`.
const MINUTE: Duration = Duration::from_secs(60);

/// The line of this channel in the registry.
pub const DEFINITION: ChannelDefinition = ChannelDefinition {
    channel: Channel::Email,
    placeholder: "ADDRESS",
    flag_help: "E-mail to this address",
    address_schema: || {
        json!({
            "type": "string", "format": "email", "maxLength": 254, "description": "Before the `@` ASCII without quotes. The \
                domain is stored in lower case and in its ASCII form (IDNA).",
        })
    },
    example: r#"{ channel = "email", address = "a@b.test" }"#,
    secret: None,
    formats: None,
    filter_flags: FilterFlags {
        threshold: FilterFlag {
            name: "email-threshold",
            help: "Percentages whose alerts the nth --email gets, as 80,100, or `all`",
        },
        metric: FilterFlag { name: "email-metric", help: "Metrics whose alerts the nth --email gets, or `all`" },
    },
    consent: ConsentMethod::CodeAndLink,
    check_address: address::check,
    check_public_address: address::check_public,
    check_options: |_| Ok(()),
    warning: |contact, _| address::warning(contact.address()),
    check_settings,
    settings: &[
        SettingText {
            key: "smtp_url",
            allowed: "a URL: smtps://user:password@host:465, smtp://host:587?tls=required or smtp://host:25",
        },
        SettingText { key: "smtp_url_file", allowed: "the path of a file whose first line is the URL" },
        SettingText { key: "from", allowed: r#"a mailbox, as "Example API <quota@example.com>""# },
        SettingText {
            key: "helo_name",
            allowed: r#"a host name, as "quota.example.com", or an address in brackets, as "[192.0.2.1]""#,
        },
        SettingText { key: "timeout", allowed: r#"a duration above 0 and up to 1h, as "60s""# },
        SettingText {
            key: "unknown_mailbox_after",
            allowed: r#"a duration up to 7d, such as "24h"; "0s" for at the first"#,
        },
        SettingText { key: "locale", allowed: r#"a language tag (BCP 47), such as "en", "vi" or "pt-BR""# },
        SettingText {
            key: "templates",
            allowed: "the path of a directory with one or more of subject.txt, alert.txt, alert.html, verify_subject.txt, verify.txt, \
             verify.html, disabled_subject.txt, disabled.txt and prefix.txt, also in folders that locales name, as vi",
        },
        SettingText { key: "ca_file", allowed: "the path of a PEM file of certificates" },
        SettingText {
            key: "dkim",
            allowed: r#"domain, selector and key_file, as { domain = "example.com", selector = "q1", key_file = "/etc/quotabell/dkim.pem" }"#,
        },
        SettingText { key: "per_minute", allowed: "a whole number, 1 or more" },
    ],
    file_settings: &[FileSetting { value: "smtp_url", file: "smtp_url_file" }],
    server: Some(SharedServer {
        is_configured: |settings, defaults| {
            let (own, default): (&EmailConfig, &EmailConfig) = (settings.section(), defaults.section());
            own.smtp_url_file.is_some() || own.smtp_url != default.smtp_url
        },
        warning: |settings, defaults| {
            let (own, default): (&EmailConfig, &EmailConfig) = (settings.section(), defaults.section());
            let advice = "many servers refuse it or take it for spam; write an address of yours";
            (has_same_domain(&own.from, &default.from) && !mailer::is_local(own))
                .then(|| format!("email.from is still an example, {}: {advice}", own.from))
        },
        absence: "e-mail contacts get nothing until email.smtp_url names one",
    }),
    origin: None,
    build: |settings| Ok(Box::new(EmailChannel::new(settings.section(), settings.section())?)),
    preview_parts: &[
        PreviewPart { name: "subject", about: "The e-mail's subject line" },
        PreviewPart { name: "text", about: "The e-mail's text part" },
        PreviewPart { name: "html", about: "The e-mail's HTML part" },
        PreviewPart { name: "verify-subject", about: "The subject line of the e-mail that asks to confirm an address" },
        PreviewPart { name: "verify-text", about: "Its text part" },
        PreviewPart { name: "verify-html", about: "Its HTML part" },
        PreviewPart {
            name: "disabled-subject",
            about: "The subject line of the e-mail that tells of a disabled contact",
        },
        PreviewPart { name: "disabled-text", about: "Its text part" },
    ],
    preview,
    hint: outcomes::hint,
};

/// E-mail, set up.
#[derive(Debug)]
struct EmailChannel {
    mailer: Mailer,
    templates: Templates,
    /// Used where the operator's fail on an alert that no sample resembled: a plain mail beats none.
    embedded: Templates,
    timeout: Duration,
    per_minute: Option<Rate>,
    warnings: Vec<String>,
    /// Where the mail server is, and the file that names it, if one does.
    location: String,
}

impl EmailChannel {
    fn new(config: &EmailConfig, dns: &DnsConfig) -> Result<Self, ChannelErrors> {
        let mut errors = ChannelErrors::default();
        let mailer = errors.note(Mailer::new(config, dns));
        let templates = errors.note(Templates::load(config.templates.as_deref(), &config.locale));
        let (Some(mailer), Some(templates)) = (mailer, templates) else { return Err(errors) };
        let file = config.smtp_url_file.as_ref().map(|path| format!(", named in {}", path.display()));
        let unknown = substitute_locale(&templates, &config.locale).map(|used| {
            let locale = &config.locale;
            format!("email.locale is {locale}, which has no templates: mails are written in {used}")
        });
        Ok(Self {
            warnings: mailer.warnings().iter().cloned().chain(unknown).chain(templates.warnings()).collect(),
            templates,
            embedded: Templates::embedded(),
            timeout: config.timeout,
            per_minute: config.per_minute.map(|units| Rate::new(units, MINUTE).expect("a minute is a legal window")),
            location: format!("{}{}", mailer.location(), file.unwrap_or_default()),
            mailer,
        })
    }

    /// Renders with the operator's templates, or with ours where those fail. `None` for what no mail can ask.
    fn render(&self, content: Content<'_>, locale: Option<&Locale>) -> Option<Rendered> {
        let rendered = render_with(&self.templates, content, locale)?;
        Some(rendered.unwrap_or_else(|error| {
            let id = content.id();
            counter!(meters::TEMPLATE_FAILURES, "channel" => Channel::Email.as_str()).increment(1);
            tracing::error!(notification = id, error = %error, "template failed, the embedded one is used instead");
            let locale = self.templates.used_for(locale);
            let embedded = render_with(&self.embedded, content, Some(locale)).and_then(Result::ok);
            embedded.expect("the embedded templates render every notification")
        }))
    }
}

/// A mail asks for a code, and for no challenge.
fn render_with(
    templates: &Templates,
    content: Content<'_>,
    locale: Option<&Locale>,
) -> Option<Result<Rendered, ChannelError>> {
    match content {
        Content::Alert(alert, purpose) => Some(templates.render(alert, purpose, locale)),
        Content::Verification(ConsentQuestion { subject, proof: ConsentProof::CodeAndLink(secrets), .. }) => {
            let CodeAndLink { code, link, lifetime } = secrets;
            let minutes = (lifetime.as_secs() / 60).max(1);
            let (code, link) = (code.reveal(), link.as_ref().map(Secret::reveal));
            let variables = VerifyVariables { subject: subject.as_str(), code, link, minutes };
            Some(templates.render_verification(variables, locale))
        }
        Content::Verification(ConsentQuestion { proof: ConsentProof::Challenge(_), .. }) => None,
        Content::ContactDisabled(notice) => Some(templates.render_disabled(notice, locale).map(Rendered::from)),
        Content::Digest(digest) => Some(Ok(notice_text::digest(digest).into())),
    }
}

impl NotificationChannel for EmailChannel {
    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn send<'a>(&'a self, message: Message<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Message { delivery, contact, content, unsubscribe, now, .. } = message;
            let Some(Rendered { subject_line, text, html }) = self.render(content, contact.locale.as_ref()) else {
                return Outcome::failed(OutcomeClass::Permanent, "a mail asks for a code, not for a challenge");
            };
            let (message_id, alert_id) = match content {
                Content::Alert(alert, _) => (delivery.as_str(), Some(alert.id.as_str())),
                Content::Verification(question) => (question.id, None),
                Content::ContactDisabled(_) | Content::Digest(_) => (delivery.as_str(), None),
            };
            let mail = Mail {
                to: contact.address(),
                message_id,
                alert_id,
                unsubscribe,
                subject_line: &subject_line,
                text: &text,
                html: &html,
                now_s: now.0.div_euclid(1000),
            };
            self.mailer.send(mail).await
        })
    }

    fn cap(&self) -> Option<Rate> {
        self.per_minute
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn substitute_locale(&self, locale: &Locale) -> Option<Locale> {
        substitute_locale(&self.templates, locale).cloned()
    }

    fn probe<'a>(&'a self, contact: Option<&'a Contact>) -> BoxFuture<'a, Option<ProbeResult>> {
        Box::pin(async move {
            let outcome = self.mailer.check(contact.map(Contact::address)).await;
            let hint = match outcome.status {
                Some(_) => "what the mail server answered says why it takes no mail",
                None => {
                    "check email.smtp_url: is this the port of a mail server, with smtps:// where it speaks TLS at once, and \
                     tls=required where it wants STARTTLS?"
                }
            };
            let location = self.location.clone();
            Some(ProbeResult { server: "mail server", location, outcome, works: "takes mail", hint })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.mailer.close())
    }
}

/// Whether two mailboxes are of one domain, whatever their names.
fn has_same_domain(one: &str, other: &str) -> bool {
    let domain = |from: &str| Author::parse(from).map(|author| author.address().domain().to_lowercase());
    domain(one).is_some() && domain(one) == domain(other)
}

fn check_settings(settings: &ChannelSettings<'_>) -> Result<(), InvalidSetting> {
    let EmailConfig { timeout, from, helo_name, unknown_mailbox_after, .. } = settings.section::<EmailConfig>();
    check_timeout(*timeout, TIMEOUT_MAX)?;
    if *unknown_mailbox_after > DISABLES_AFTER_MAX {
        let (after, max) = (HumanDuration(*unknown_mailbox_after), HumanDuration(DISABLES_AFTER_MAX));
        return Err(InvalidSetting { key: "unknown_mailbox_after", problem: format!("{after} is longer than {max}") });
    }
    if let Some(name) = helo_name.as_deref().filter(|name| !smtp::is_helo_name(name)) {
        return Err(InvalidSetting { key: "helo_name", problem: format!("{name:?} is no host name") });
    }
    let no_mailbox = || InvalidSetting { key: "from", problem: format!("{from:?} is not a mailbox") };
    Author::parse(from).map(drop).ok_or_else(no_mailbox)
}

fn preview(
    settings: &ChannelSettings<'_>,
    PreviewRequest { alert, locale, .. }: PreviewRequest<'_>,
) -> Result<Vec<String>, ChannelError> {
    let EmailConfig { templates, locale: default, .. } = settings.section::<EmailConfig>();
    let templates = Templates::load(templates.as_deref(), default)?;
    let question = VerifyVariables { subject: alert.subject.as_str(), ..SAMPLE_VERIFICATION };
    let notice = DisabledNotice { subject: alert.subject.clone(), ..notice_text::disabled_sample() };
    let disabled = templates.render_disabled(&notice, locale)?;
    let mails =
        [templates.render(alert, AlertPurpose::Alert, locale)?, templates.render_verification(question, locale)?];
    let texts = mails.into_iter().flat_map(|mail| [mail.subject_line, mail.text, mail.html]);
    Ok(texts.chain([disabled.heading, disabled.text]).collect())
}

/// The locale in which a reader of this one is told, where none of its own has templates.
fn substitute_locale<'a>(templates: &'a Templates, locale: &Locale) -> Option<&'a Locale> {
    let used = templates.used_for(Some(locale));
    (!locale.fallbacks().any(|own| own == *used)).then_some(used)
}
