//! `send-test`: one real message to one contact.

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::connect::{self, CliConnection};
use super::contact_args::AddressArgs;
use super::context::CliContext;
use super::subject_settings;
use crate::actions::contact_spec::{self, ContactColumns, GeneratedSecret};
use crate::actions::test_message::{ChooseError, choose, sample, start_cooldown, warnings};
use crate::channels::{Labels, Sample, TestKind};
use crate::config::Config;
use crate::contacts::merge::ContactSpec;
use crate::contacts::resolver::ResolvedContacts;
use crate::contacts::{Contact, masked_address};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, or_dash, printable, say};
use crate::types::{Channel, ContactId, Outcome, OutcomeClass, Subject, UnixMs};
use crate::views::SubjectSettings;

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("to").required(true).arg("subject").args(AddressArgs::names()),
    after_help = "Sends at once, with the settings in effect, and prints what the other side said. A contact of a \
    subject gets at most one test message every 10 s. Caps do not apply.
If a needed secret is not named, one is generated for this message and printed.

Examples:
  quotabell send-test --email a@b.test
  quotabell send-test --webhook https://example.com/hook --webhook-secret whsec_...
  quotabell send-test --webhook https://hooks.slack.com/services/T0/B0/abc --format slack
  quotabell send-test --webhook https://example.com/hook --kind quota.resolved
  quotabell send-test --subject alice
  quotabell send-test --subject alice --contact a@b.test"
)]
pub struct SendTestArgs {
    /// Send to the only contact of this subject, or to the one that --contact names
    #[arg(long)]
    pub subject: Option<Subject>,
    /// The subject's contact: its id, the beginning of its id, or its address
    #[arg(long, value_name = "CONTACT", requires = "subject", conflicts_with_all = AddressArgs::names())]
    pub contact: Option<String>,
    /// What is sent: quota.threshold_reached, quota.grant_expires, quota.resolved, quota.forecast, quota.spike,
    /// quota.silence or quota.digest
    #[arg(long, value_name = "TYPE", default_value_t = TestKind::Alert)]
    pub kind: TestKind,
    #[command(flatten)]
    pub named: AddressArgs,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct TestMessageView<'a> {
    contact: &'a ContactId,
    channel: Channel,
    outcome: &'static str,
    status: Option<u16>,
    duration_ms: u64,
    error: Option<&'a str>,
    /// Host and port of the other side.
    peer: Option<&'a str>,
    /// What the other side said when it refused.
    reply: Option<&'a str>,
    /// A secret that was made for this message, with which the receiver can check it.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<&'a str>,
}

pub async fn run(args: SendTestArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let channels = config.channels()?;
    let named = args.named.into_columns().and_then(ContactColumns::into_specs);
    let named = named.map_err(|fault| hint::usage(fault, "`quotabell send-test --help` shows examples"))?;
    let Addressee { contact, secret, sample, now, redis } = match &args.subject {
        Some(subject) => of_subject(subject, args.contact.as_deref(), &config).await?,
        None => of_address(named)?,
    };
    // The test would open an incident that nothing closes.
    let never_sent = matches!(args.kind, TestKind::Forecast | TestKind::Spike | TestKind::Silence | TestKind::Digest);
    if never_sent && contact.has_incidents() {
        let fault = format_args!("PagerDuty gets no message of the kind {}", args.kind);
        return Err(hint::usage(fault, "--kind quota.threshold_reached, or --kind quota.resolved"));
    }
    let window = sample.limit.window;
    if matches!(args.kind, TestKind::Forecast | TestKind::Digest) && !window.has_forecast() {
        let fault = format_args!("{} tells of a forecast, and limits by {window} have none", args.kind);
        return Err(hint::usage(fault, "forecasts have the windows day, week and month"));
    }
    channels.warnings(contact.channel()).iter().for_each(|warning| say(format_args!("warning: {warning}")));
    if let Some(redis) = &redis {
        cool_down(redis, &contact).await?;
        redis.record("sendTest", args.subject.as_ref(), contact.id.as_str(), 1).await;
    }
    if let Err(fault) = channels.check(&contact) {
        let hint = "an alert would be sent in the standard form: name another format, or add the template and restart the daemon";
        return Err(hint::failed(format_args!("contact {}: {fault}", contact.id), hint));
    }
    let labels = Labels::of_sample(&config.plans()?, &sample);
    let outcome = channels.send_test(&contact, args.kind, (&sample, &labels), now).await;
    channels.close().await;
    let shown = TestMessageView::new(&contact, &outcome, secret.as_ref());
    output::print(&args.format, &shown, |output| output.pairs(&shown.pairs(&contact)))?;
    outcome_to_result(&outcome, &contact)
}

/// Who gets the message.
struct Addressee {
    contact: Contact,
    /// The generated secret, if one was needed.
    secret: Option<GeneratedSecret>,
    sample: Sample,
    now: UnixMs,
    /// Stores the cooldown; `None` for a named address, which needs no Redis.
    redis: Option<CliConnection>,
}

fn of_address(named: Vec<ContactSpec>) -> anyhow::Result<Addressee> {
    let named = contact_spec::only(named).map_err(|fault| hint::usage(fault, "one message goes to one contact"))?;
    let secret = GeneratedSecret::of(&named);
    Ok(Addressee { contact: named.contact, secret, sample: Sample::example(), now: own_time(), redis: None })
}

/// This machine's clock: no Redis is asked whose clock could be read, and nothing is stored.
#[expect(
    clippy::disallowed_methods,
    reason = "a message to a named address needs no Redis, so there is no server's clock"
)]
fn own_time() -> UnixMs {
    UnixMs(chrono::Utc::now().timestamp_millis())
}

async fn of_subject(subject: &Subject, named: Option<&str>, config: &Config) -> anyhow::Result<Addressee> {
    let redis = connect::redis(config).await?;
    let stored = subject_settings::read_levels(&redis, subject).await?;
    let contacts = config.contact_resolver().read_contacts(&stored);
    for unreadable in &contacts.unreadable {
        let id = unreadable.id.as_ref().map_or("unknown", ContactId::as_str);
        say(format_args!("warning: subject {:?}: contact {id}: {}", subject.as_str(), unreadable.why));
    }
    let contact = choose(&contacts, named).map_err(|error| not_chosen(subject, named, &contacts, &error))?;
    let now = redis.server_time().await?;
    warnings(subject, &contacts, &contact, now).iter().for_each(say);
    let settings = SubjectSettings::read(&stored, &config.plans()?);
    subject_settings::warn(subject, &settings.unreadable);
    Ok(Addressee { contact, secret: None, sample: sample(subject, settings), now, redis: Some(redis) })
}

async fn cool_down(redis: &CliConnection, contact: &Contact) -> anyhow::Result<()> {
    let id = &contact.id;
    let active = start_cooldown(redis.partitions.first(), contact).await;
    let active = redis.explained(format_args!("ask when contact {id} got its last test message"), active)?;
    let Some(left) = active else { return Ok(()) };
    let left_s = left.as_millis().div_ceil(1000).max(1);
    Err(hint::failed(
        format_args!("contact {id} got a test message just now: the next one may leave in {left_s} s"),
        format_args!("wait {left_s} s; only test messages to this contact wait, alerts do not"),
    ))
}

fn not_chosen(
    subject: &Subject,
    named: Option<&str>,
    contacts: &ResolvedContacts,
    error: &ChooseError,
) -> anyhow::Error {
    let flags = AddressArgs::names().map(|flag| format!("--{flag}"));
    match error {
        ChooseError::NotFound(known) => {
            let what = match named {
                Some(text) => printable(text),
                None if !contacts.unreadable.is_empty() => "that can be read".to_owned(),
                None => "that alerts could go to, and there is no fallback".to_owned(),
            };
            let hint = match known.is_empty() {
                true => {
                    let line = format!("quotabell subject set {subject} {} ADDRESS", flags[0]);
                    format!("`{line}` sets one, or name {} here", flags.join(" or "))
                }
                false if known.iter().all(|contact| !contact.verified) => format!(
                    "there are {}; they get nothing until they are confirmed over HTTP (docs/http-api.md)",
                    listed(known)
                ),
                false if known.iter().all(|contact| contact.disabled.is_none()) => {
                    format!("there are {}; --contact names one", listed(known))
                }
                false => format!(
                    "there are {}; --contact names one, and `quotabell contact enable` lets alerts to a disabled one through",
                    listed(known)
                ),
            };
            hint::failed(format_args!("{subject} has no contact {what}"), hint)
        }
        ChooseError::Unverified(id) => hint::failed(
            format_args!("contact {} of {subject} is not confirmed", printable(id.as_str())),
            format_args!(
                "it gets nothing until its owner confirms it over HTTP (docs/http-api.md), or named with `quotabell subject set`; {} send to \
                 any address",
                flags.join(" and ")
            ),
        ),
        ChooseError::Several(several) => hint::usage(
            format_args!("{} contacts of {subject} fit: name one by its id with --contact", several.len()),
            format_args!("they are {}", listed(several)),
        ),
        ChooseError::Ambiguous(error) => hint::usage(error, "name more of the id, or the address"),
    }
}

fn listed<'a>(contacts: impl IntoIterator<Item = &'a Contact>) -> String {
    contacts.into_iter().map(described).collect::<Vec<_>>().join(", ")
}

fn described(contact: &Contact) -> String {
    // A URL that the platform wrote may hold a password, which every attempt refuses.
    let address = masked_address(contact);
    let state = match (contact.verified, &contact.disabled) {
        (false, _) => ", not confirmed",
        (true, Some(_)) => ", disabled",
        (true, None) => "",
    };
    format!("{} ({} {address}{state})", contact.id, contact.channel().as_str())
}

impl<'a> TestMessageView<'a> {
    fn new(contact: &'a Contact, outcome: &'a Outcome, secret: Option<&'a GeneratedSecret>) -> Self {
        Self {
            contact: &contact.id,
            channel: contact.channel(),
            outcome: outcome.class.as_str(),
            status: outcome.status,
            duration_ms: u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
            error: outcome.error.as_deref(),
            peer: outcome.peer.as_deref(),
            reply: outcome.reply.as_deref(),
            webhook_secret: secret.map(|secret| secret.secret.as_str()),
        }
    }

    fn pairs(&self, contact: &Contact) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            ("contact", described(contact)),
            ("outcome", self.outcome.to_owned()),
            ("status", or_dash(self.status)),
            ("duration", format!("{} ms", self.duration_ms)),
        ];
        let known =
            [("error", self.error), ("peer", self.peer), ("reply", self.reply), ("secret", self.webhook_secret)];
        pairs.extend(known.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))));
        pairs
    }
}

/// Says what to do about a message that did not arrive.
fn outcome_to_result(outcome: &Outcome, contact: &Contact) -> anyhow::Result<()> {
    if outcome.class == OutcomeClass::Delivered {
        return Ok(());
    }
    let hint = outcome.hint.unwrap_or_else(|| contact.channel().hint(outcome));
    let to = outcome.peer.as_ref().map_or_else(String::new, |peer| format!(" to {peer}"));
    let what = outcome.error.as_deref().unwrap_or("no reason given");
    Err(hint::failed(format_args!("the test message{to} was not delivered ({}): {what}", outcome.class), hint))
}
