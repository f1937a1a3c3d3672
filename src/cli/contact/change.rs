//! `contact remove`, `mute`, `unmute` and `enable`: changes the contacts that an id or an address names.

use clap::Args;
use serde::Serialize;

use crate::actions::contacts::{self, ContactActionError, ContactSelector};
use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::cli::mute_args::MuteArgs;
use crate::contacts::store::EditContactsError;
use crate::contacts::{ContactOrigin, masked_address};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{ContactId, Mute, Subject};

pub const REMOVE_HELP: &str =
    "Removes every contact of the same address, including one that the subject's side added. \
    Its incidents at PagerDuty stay open.

Examples:
  quotabell contact remove alice c_ab39b01901a28f91
  quotabell contact remove alice a@b.test";

pub const UNMUTE_HELP: &str = "Alerts that were raised during the mute are not sent.

Examples:
  quotabell contact unmute alice c_ab39b01901a28f91
  quotabell contact unmute alice a@b.test";

pub const ENABLE_HELP: &str = "The daemon disables a contact if its receiver or mailbox is gone, or if all attempts \
    fail for days. Fix the cause first: otherwise the next attempt disables it again. Alerts that went to other \
    contacts meanwhile are not sent again.

Examples:
  quotabell contact enable alice c_ab39b01901a28f91
  quotabell contact enable alice a@b.test";

/// One contact of a subject.
#[derive(Debug, Args)]
pub struct SelectedContactArgs {
    /// The subject of the contact
    pub subject: Subject,
    /// The contact: its id, the beginning of its id, or its address
    pub contact: String,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Deliveries to a muted contact end as muted, and are not sent later.

Examples:
  quotabell contact mute alice c_ab39b01901a28f91
  quotabell contact mute alice a@b.test --for 2h --reason \"new office\"
  quotabell contact mute alice a@b.test --until 2026-12-01T00:00:00Z")]
pub struct ContactMuteArgs {
    #[command(flatten)]
    pub selected: SelectedContactArgs,
    #[command(flatten)]
    pub mute: MuteArgs,
}

/// What `--json` prints of a removal.
#[derive(Debug, Serialize)]
struct RemovedContacts<'a> {
    subject: &'a Subject,
    removed: Vec<&'a ContactId>,
}

/// What `--json` prints of a mute.
#[derive(Debug, Serialize)]
struct MutedContacts<'a> {
    subject: &'a Subject,
    muted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mute: Option<Mute>,
    contacts: &'a [ContactId],
}

/// What `--json` prints of contacts that are enabled again.
#[derive(Debug, Serialize)]
struct EnabledContacts<'a> {
    subject: &'a Subject,
    enabled: &'a [ContactId],
}

pub async fn remove(
    SelectedContactArgs { subject, contact, format }: SelectedContactArgs,
    context: &CliContext,
) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let (partition, selector) = (redis.partitions.partition_of(&subject), ContactSelector::Text(&contact));
    let removed = contacts::remove(partition, &subject, selector, ContactOrigin::Operator).await;
    let removed = removed.map_err(|error| not_changed(&redis, &subject, error))?;
    let ids: Vec<&ContactId> = removed.iter().map(|contact| &contact.id).collect();
    record(&redis, "removeContact", &subject, &ids).await;
    output::print(&format, &RemovedContacts { subject: &subject, removed: ids }, |_| {
        for contact in &removed {
            say(format_args!("removed {} {}", contact.id, printable(&masked_address(contact))));
        }
        Ok(())
    })
}

/// Records the ids: an address may be a secret.
async fn record(redis: &CliConnection, action: &'static str, subject: &Subject, contacts: &[&ContactId]) {
    for contact in contacts {
        redis.record(action, Some(subject), contact.as_str(), 1).await;
    }
}

pub async fn mute(args: ContactMuteArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let mute = args.mute.into_mute(&redis).await?;
    set_mute(&redis, args.selected, Some(&mute)).await
}

pub async fn unmute(args: SelectedContactArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    set_mute(&redis, args, None).await
}

async fn set_mute(
    redis: &CliConnection,
    SelectedContactArgs { subject, contact, format }: SelectedContactArgs,
    mute: Option<&Mute>,
) -> anyhow::Result<()> {
    let (partition, selector) = (redis.partitions.partition_of(&subject), ContactSelector::Text(&contact));
    let ids = contacts::set_mute(partition, &subject, selector, mute).await;
    let ids = ids.map_err(|error| not_changed(redis, &subject, error))?;
    let (muted, shown) = (mute.is_some(), mute.cloned());
    let changed: Vec<&ContactId> = ids.iter().collect();
    record(redis, if muted { "muteContact" } else { "unmuteContact" }, &subject, &changed).await;
    output::print(&format, &MutedContacts { subject: &subject, muted, mute: shown, contacts: &ids }, |_| {
        for id in &ids {
            let id = printable(id.as_str());
            say(mute.map_or_else(|| format!("unmuted {id}"), |mute| format!("muted {id}{}", printable(&mute.terms()))));
        }
        Ok(())
    })
}

pub async fn enable(
    SelectedContactArgs { subject, contact, format }: SelectedContactArgs,
    context: &CliContext,
) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let partition = redis.partitions.partition_of(&subject);
    let enabled = contacts::enable(partition, &subject, ContactSelector::Text(&contact)).await;
    let enabled = enabled.map_err(|error| not_changed(&redis, &subject, error))?;
    record(&redis, "enableContact", &subject, &enabled.iter().collect::<Vec<_>>()).await;
    output::print(&format, &EnabledContacts { subject: &subject, enabled: &enabled }, |_| {
        if enabled.is_empty() {
            say(format_args!("{} is not disabled", printable(&contact)));
        }
        enabled.iter().for_each(|id| say(format_args!("enabled {}", printable(id.as_str()))));
        Ok(())
    })
}

/// Says why the contacts of a subject could not be read or written, with a hint.
pub fn not_changed(redis: &CliConnection, subject: &Subject, error: ContactActionError) -> anyhow::Error {
    let what = format!("contacts of subject {subject}");
    match error {
        ContactActionError::Edit(EditContactsError::Redis(error)) => {
            redis.explained(what, Err::<(), _>(error)).expect_err("an error stays an error")
        }
        ContactActionError::Edit(EditContactsError::NotAnArray(_)) => hint::failed(
            format_args!("subject {subject}: {error}"),
            "repair the field contacts, or replace it: `quotabell subject set --replace-all-contacts`",
        ),
        ContactActionError::Edit(EditContactsError::Contended) => hint::failed(
            format_args!("{what}: another client changes them all the time"),
            "nothing was written: try again, or find out who writes them",
        ),
        ContactActionError::IdTaken { .. } | ContactActionError::OtherId { .. } => {
            hint::failed(printable(&error.to_string()), "leave --id out, or name another id")
        }
        ContactActionError::Level(error) => hint::failed(error, "subjects.separator decides how ids are divided"),
        ContactActionError::TooMany(error) => hint::failed(error, "or set subjects.contacts_max"),
        ContactActionError::Select(_) | ContactActionError::OperatorsOwn | ContactActionError::MutedByOthers => {
            hint::failed(
                format_args!("subject {subject}: {error}"),
                format_args!("`quotabell contact list {subject}` shows its contacts"),
            )
        }
    }
}
