//! `send-test`: one real message to one contact.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::connect::{self, CliConnection};
use super::contact_specs::{AddressArgs, ContactSpecs, GeneratedSecret};
use super::context::CliContext;
use super::subject_settings;
use crate::channels::{ChannelDefinition, REGISTRY, Sample};
use crate::config::Config;
use crate::contacts::resolver::{ContactResolver, ContactsSource, ResolvedContacts};
use crate::contacts::select::{SelectContactError, select};
use crate::contacts::{Contact, masked_address};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, or_dash, printable, say};
use crate::throttle::{Cooldown, CooldownDecision};
use crate::types::{Channel, ContactId, Keys, Outcome, OutcomeClass, Subject, UnixMs, Window};
use crate::views::SubjectSettings;

/// How long a contact of a subject is left alone after a test message: what is in somebody's mailbox can't be taken
/// back, and a command in a loop is written quickly.
const COOLDOWN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("to").required(true).arg("subject").args(AddressArgs::flags()),
    after_help = "Sends at once, with the settings in effect, and prints what the other side said. A contact of a subject gets one test message in 10 s; caps neither hold it back nor count it.
A secret that is not named is made for this message, and printed.

Examples:
  quotabell send-test --email a@b.test
  quotabell send-test --webhook https://example.com/hook --webhook-secret whsec_...
  quotabell send-test --webhook https://hooks.slack.com/services/T0/B0/abc --format slack
  quotabell send-test --subject alice
  quotabell send-test --subject alice --contact a@b.test"
)]
pub struct SendTestArgs {
    /// To a contact of this subject; to its only one, unless --contact names it
    #[arg(long)]
    pub subject: Option<Subject>,
    /// The subject's contact: its id, the beginning of its id, or its address
    #[arg(long, value_name = "CONTACT", requires = "subject", conflicts_with_all = AddressArgs::flags())]
    pub contact: Option<String>,
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
    #[serde(flatten)]
    secret: Option<BTreeMap<String, &'a str>>,
}

pub async fn run(args: SendTestArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let channels = config.channels()?;
    let named = args.named.into_contacts();
    let named = named.map_err(|fault| hint::usage(fault, "`quotabell send-test --help` shows examples"))?;
    let Addressee { contact, secret, sample, now, redis } = match &args.subject {
        Some(subject) => of_subject(subject, args.contact.as_deref(), &config).await?,
        None => of_address(named)?,
    };
    channels.warnings(contact.channel()).iter().for_each(|warning| say(format_args!("warning: {warning}")));
    if let Some(redis) = &redis {
        cool_down(redis, &config.keys(), &contact).await?;
    }
    if let Err(fault) = channels.check(&contact) {
        let hint = "an alert would be sent in the standard form: name another format, or add the template and restart the daemon";
        return Err(hint::failed(format_args!("contact {}: {fault}", contact.id), hint));
    }
    let outcome = channels.send_test(&contact, &sample, now).await;
    channels.close().await;
    let shown = TestMessageView::new(&contact, &outcome, secret.as_ref());
    output::print(&args.format, &shown, |output| output.pairs(&shown.pairs(&contact)))?;
    outcome_to_result(&outcome, &contact)
}

/// Who gets the message.
struct Addressee {
    contact: Contact,
    /// Its secret, where one had to be made.
    secret: Option<GeneratedSecret>,
    sample: Sample,
    now: UnixMs,
    /// Where its cooldown is kept; `None` for an address that is named, for which no Redis is needed.
    redis: Option<CliConnection>,
}

fn of_address(named: ContactSpecs) -> anyhow::Result<Addressee> {
    let (contact, secret) = named.into_one().map_err(|fault| hint::usage(fault, "one message goes to one contact"))?;
    Ok(Addressee { contact: contact.contact, secret, sample: Sample::example(), now: own_time(), redis: None })
}

/// This machine's clock: no Redis is asked whose clock could be read, and nothing is stored.
#[expect(
    clippy::disallowed_methods,
    reason = "a message to a named address needs no Redis, so there is no server's clock"
)]
fn own_time() -> UnixMs {
    UnixMs(chrono::Utc::now().timestamp_millis())
}

/// The subject's only contact, or the one that is named; fallback contacts where it has none of its own, as for an
/// alert.
async fn of_subject(subject: &Subject, named: Option<&str>, config: &Config) -> anyhow::Result<Addressee> {
    let redis = connect::redis(config).await?;
    let resolver = ContactResolver::new(config.keys(), config.fallback.contacts.clone())
        .with_contacts_max(config.subjects.contacts_max);
    let contacts = match resolver.contacts_of(redis.client(), subject).await {
        Ok(contacts) => contacts,
        Err(error) => redis.explained(format_args!("read contacts of {subject}"), Err(error.source))?,
    };
    for unreadable in &contacts.unreadable {
        let id = unreadable.id.as_ref().map_or("unknown", ContactId::as_str);
        say(format_args!("warning: subject {:?}: contact {id}: {}", subject.as_str(), unreadable.why));
    }
    let contact = choose(subject, named, &contacts)?;
    // One of its own that gets no alerts may be named as well.
    if contacts.source == ContactsSource::Fallback && contacts.readable.contains(&contact) {
        let has_none = if unusable(&contacts).next().is_none() { "" } else { " that could be used" };
        say(format_args!(
            "{subject} has no contact of its own{has_none}: contact {} of the fallback gets this message",
            contact.id
        ));
    }
    let now = redis.server_time().await?;
    if let Some(mute) = contact.muted_at(now) {
        let mute = printable(&mute.to_string());
        say(format_args!("warning: contact {} is {mute}; it gets this message, but no alerts", contact.id));
    }
    if let Some(state) = &contact.disabled {
        let id = &contact.id;
        say(format_args!("warning: contact {id} is disabled, {state}: it gets this message, but no alerts"));
    }
    let sample = sample_of(subject, &redis, config).await?;
    Ok(Addressee { contact, secret: None, sample, now, redis: Some(redis) })
}

/// Lets one message to a contact through in [`COOLDOWN`], however many runs ask at once. The contact is known by its
/// address: two subjects may share one mailbox, or the ids of two.
async fn cool_down(redis: &CliConnection, keys: &Keys, contact: &Contact) -> anyhow::Result<()> {
    let key = keys.send_test_cooldown(&contact.derived_id());
    let passage = Cooldown::new(COOLDOWN).try_start(redis.client(), &key).await;
    match redis.explained(format_args!("ask when contact {} got its last test message", contact.id), passage)? {
        CooldownDecision::Started => Ok(()),
        CooldownDecision::Active { retry_after } => {
            let left_s = retry_after.as_millis().div_ceil(1000).max(1);
            Err(hint::failed(
                format_args!(
                    "contact {} got a test message just now: the next one may leave in {left_s} s",
                    contact.id
                ),
                format_args!("wait {left_s} s; only test messages to this contact wait, alerts do not"),
            ))
        }
    }
}

/// The subject as its next alert would show it: its plan, its zone, and the limit of `requests` or else of its first
/// metric, that of the day where it has one. One without any limit gets no alerts; its message shows a made-up one.
async fn sample_of(subject: &Subject, redis: &CliConnection, config: &Config) -> anyhow::Result<Sample> {
    let fields = subject_settings::read_fields(redis, subject).await?;
    let plans = config.plans()?;
    let SubjectSettings { plan, zone, billing_day, limits, unreadable } = SubjectSettings::read(&fields, &plans);
    subject_settings::warn(subject, &unreadable);
    let sample = Sample { plan, zone, billing_day, ..Sample::for_subject(subject.clone()) };
    let Some((metric, limits)) = limits.get_key_value(&sample.metric).or_else(|| limits.first_key_value()) else {
        return Ok(sample);
    };
    let of_day = limits.as_slice().iter().find(|limit| limit.window == Window::Day);
    let limit = of_day.unwrap_or(&limits.as_slice()[0]);
    Ok(Sample { metric: metric.clone(), limit: *limit, ..sample })
}

fn choose(subject: &Subject, named: Option<&str>, contacts: &ResolvedContacts) -> anyhow::Result<Contact> {
    if let Some(text) = named {
        return choose_named(subject, text, contacts);
    }
    match (contacts.readable.as_slice(), contacts.source) {
        ([contact], _) => Ok(contact.clone()),
        ([], _) => Err(no_recipient(subject, contacts)),
        (several, source) => {
            let (count, known) = (several.len(), listed(several));
            let problem = match source {
                ContactsSource::Own => format!("{subject} has {count} contacts: name one with --contact"),
                ContactsSource::Fallback => format!(
                    "{subject} has no contact of its own that could be used, and the fallback has {count}: name one with --contact"
                ),
            };
            Err(hint::usage(problem, format_args!("they are {known}")))
        }
    }
}

/// The contact that is named, found as the commands of contacts find it: also one that gets no alerts.
fn choose_named(subject: &Subject, text: &str, contacts: &ResolvedContacts) -> anyhow::Result<Contact> {
    // A webhook whose new secret nobody has confirmed has two of one id: the first is the one that gets alerts.
    let known: Vec<&Contact> = contacts.readable.iter().chain(unusable(contacts)).collect();
    let selected = match select(&known, text) {
        Ok(ids) => ids,
        Err(error @ SelectContactError::Ambiguous { .. }) => {
            return Err(hint::usage(error, "name more of the id, or the address"));
        }
        Err(SelectContactError::NotFound(_)) => return Err(not_found(subject, text, contacts)),
    };
    let with_id = |id: &ContactId| *known.iter().find(|contact| contact.id == *id).expect("it was selected");
    match selected.iter().map(with_id).collect::<Vec<_>>().as_slice() {
        [contact] if contact.verified => Ok((*contact).clone()),
        [contact] => Err(hint::failed(
            format_args!("contact {} of {subject} is not verified", printable(contact.id.as_str())),
            unconfirmed(),
        )),
        several => Err(hint::usage(
            format_args!("{} contacts of {subject} have this address", several.len()),
            format_args!("name one by its id: {}", listed(several.iter().copied())),
        )),
    }
}

/// The contacts of the subject's own that get no alerts.
fn unusable(contacts: &ResolvedContacts) -> impl Iterator<Item = &Contact> {
    contacts.disabled.iter().chain(&contacts.unverified)
}

/// Says which contacts there are instead of the one that is named.
fn not_found(subject: &Subject, text: &str, contacts: &ResolvedContacts) -> anyhow::Error {
    let text = printable(text);
    let (readable, unusable) = (listed(&contacts.readable), listed(unusable(contacts)));
    let known = match (readable.as_str(), unusable.as_str(), contacts.source) {
        ("", "", _) => {
            return hint::failed(format_args!("{subject} has no contact {text} that can be read"), set_one(subject));
        }
        ("", own, _) | (own, "", ContactsSource::Own) => format!("it has {own}"),
        (usable, own, ContactsSource::Own) => format!("it has {usable}, {own}"),
        (fallback, "", ContactsSource::Fallback) => format!("it has none of its own, and the fallback has {fallback}"),
        (fallback, own, ContactsSource::Fallback) => format!("it has {own}, and the fallback has {fallback}"),
    };
    hint::failed(format_args!("{subject} has no contact {text}"), known)
}

/// What to do about a subject without contacts.
fn set_one(subject: &Subject) -> String {
    let flags = AddressArgs::flags().map(|flag| format!("--{flag}"));
    let ChannelDefinition { placeholder, .. } = REGISTRY[0];
    let line = format!("quotabell subject set {subject} {} {placeholder}", flags[0]);
    format!("`{line}` sets one, or name {} here", flags.join(" or "))
}

/// What to do about a contact that nobody has confirmed.
fn unconfirmed() -> String {
    let flags = AddressArgs::flags().map(|flag| format!("--{flag}")).join(" and ");
    let ways = "it is confirmed over HTTP (docs/http-api.md), or named with `quotabell subject set`";
    format!("it gets nothing until {ways}; {flags} send to any address")
}

/// Why a subject has nobody to send to, and what to do about it.
fn no_recipient(subject: &Subject, contacts: &ResolvedContacts) -> anyhow::Error {
    // What can't be read keeps alerts from the fallback too, until it is mended.
    if !contacts.unreadable.is_empty() {
        return hint::failed(format_args!("{subject} has no contact that can be read"), set_one(subject));
    }
    match (contacts.unverified.as_slice(), contacts.disabled.as_slice()) {
        ([], []) => hint::failed(format_args!("{subject} has no contact, and there is no fallback"), set_one(subject)),
        ([contact], []) => hint::failed(
            format_args!(
                "contact {}, the only one of {subject}, is not verified, and there is no fallback",
                contact.id
            ),
            unconfirmed(),
        ),
        (several, []) => hint::failed(
            format_args!("none of the {} contacts of {subject} is verified, and there is no fallback", several.len()),
            unconfirmed(),
        ),
        (_, disabled) => hint::failed(
            format_args!("{subject} has no contact that could be used, and there is no fallback"),
            format_args!(
                "disabled: {}; --contact sends there all the same, `quotabell contact enable` lets alerts through again",
                listed(disabled)
            ),
        ),
    }
}

fn listed<'a>(contacts: impl IntoIterator<Item = &'a Contact>) -> String {
    contacts.into_iter().map(described).collect::<Vec<_>>().join(", ")
}

fn described(contact: &Contact) -> String {
    // A URL that the platform wrote may hold a password, which every attempt refuses.
    let address = masked_address(contact);
    format!("{} ({} {address})", contact.id, contact.channel().as_str())
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
            secret: secret.map(|secret| BTreeMap::from([(secret.json_name(), secret.secret.as_str())])),
        }
    }

    fn pairs(&self, contact: &Contact) -> Vec<(&'static str, String)> {
        let secret = self.secret.iter().flat_map(BTreeMap::values).copied().next();
        let mut pairs = vec![
            ("contact", described(contact)),
            ("outcome", self.outcome.to_owned()),
            ("status", or_dash(self.status)),
            ("duration", format!("{} ms", self.duration_ms)),
        ];
        let known = [("error", self.error), ("peer", self.peer), ("reply", self.reply), ("secret", secret)];
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
