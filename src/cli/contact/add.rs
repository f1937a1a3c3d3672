//! `contact add`: one more contact of a subject, beside those that are there.

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::edit::edit;
use crate::channels;
use crate::cli::connect;
use crate::cli::contact_checks::{self, TemplateCheck};
use crate::cli::contact_filter::ContactFilterArgs;
use crate::cli::contact_specs::{AddressArgs, ContactSpecs, GeneratedSecret, serialize_lists};
use crate::cli::context::CliContext;
use crate::contacts::merge::{ContactSpec, UnlistedPolicy};
use crate::contacts::{Contact, ContactArray, masked_address};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{ContactId, Subject};

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("named").required(true).args(AddressArgs::flags()),
    after_help = "Adds one contact and leaves the others alone. Where the address is there already, the contact keeps its id and whether \
    it is muted; --webhook-secret, --format, --header, --threshold and --metric replace what it has of each. It counts as verified, and \
    is enabled. Without --webhook-secret, one is generated for a new webhook whose format needs one, and printed once.

Examples:
  quotabell contact add alice --email a@b.test
  quotabell contact add alice --email cto@b.test --threshold 100 --metric requests
  quotabell contact add alice --email cto@b.test --threshold all
  quotabell contact add alice --webhook https://example.com/hook --id main
  quotabell contact add alice --webhook https://hooks.slack.com/services/T0/B0/abc --format slack
  quotabell contact add alice --webhook https://events.pagerduty.com/v2/enqueue --format pagerduty --webhook-secret KEY
  quotabell contact add alice --webhook https://example.com/hook --header 'Authorization: Bearer TOKEN'"
)]
pub struct ContactAddArgs {
    /// Whose contact
    pub subject: Subject,
    #[command(flatten)]
    pub contact: AddressArgs,
    /// The id of the new contact [default: one that follows from its address]
    #[arg(long, value_parser = contact_id)]
    pub id: Option<ContactId>,
    #[command(flatten)]
    pub filter: ContactFilterArgs,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 64;

fn contact_id(text: &str) -> Result<ContactId, String> {
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    match (1..=ID_BYTES_MAX).contains(&text.len()) && text.chars().all(is_legal) && text != Contact::RESERVED_ID {
        true => Ok(ContactId::from_stored(text)),
        false => {
            Err(format!("an id has 1 to {ID_BYTES_MAX} of the characters A-Z, a-z, 0-9, _, - and ., and is not none"))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum AddOutcome {
    Added,
    /// It was there, and has another secret, format or headers, hears other alerts, or is verified or enabled now.
    Changed,
    Unchanged,
}

/// The contact as it stands in the array after the edit.
struct AddedTo {
    id: ContactId,
    /// Its address, as far as it may be shown.
    address: String,
    outcome: AddOutcome,
    /// Whether it has the secret that was stored before, and not the one that was named or generated now.
    keeps_secret: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct AddedContact {
    subject: Subject,
    id: ContactId,
    outcome: AddOutcome,
    #[serde(flatten, serialize_with = "serialize_lists")]
    secrets: Vec<GeneratedSecret>,
}

/// Adds the contact, and prints the secret that was generated.
pub async fn run(args: ContactAddArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let bad = |message: String| hint::usage(message, "`quotabell contact add --help` lists the options, with examples");
    let named = args.contact.into_contacts().and_then(ContactSpecs::into_one).map_err(bad)?;
    let (mut contact, generated) = named;
    contact.filter = args.filter.change().map_err(bad)?;
    contact.contact.filter = contact.filter.of_new();
    if let Some(id) = &args.id {
        contact.contact.id = id.clone();
    }
    if let Some(fault) = TemplateCheck::new(&config).fault(std::slice::from_ref(&contact))? {
        return Err(bad(fault.to_string()));
    }
    let redis = connect::redis(&config).await?;
    let contacts_max = config.subjects.contacts_max;
    let added = edit(&redis, &args.subject, |array| add(array, &contact, args.id.as_ref(), contacts_max)).await?;
    let AddedTo { id, address, outcome, keeps_secret } = added;
    let secrets: Vec<GeneratedSecret> = generated.into_iter().filter(|_| !keeps_secret).collect();
    for warning in contact_checks::warnings(std::slice::from_ref(&contact), &config) {
        say(format_args!("warning: {warning}"));
    }
    let added = AddedContact { subject: args.subject, id, outcome, secrets };
    output::print(&args.format, &added, |output| {
        for GeneratedSecret { address, secret, .. } in &added.secrets {
            output.line(format_args!("{secret}  {address}"))?;
        }
        let id = printable(added.id.as_str());
        say(match outcome {
            AddOutcome::Added => format!("added {id} {address}"),
            AddOutcome::Changed => format!("changed {id} {address}"),
            AddOutcome::Unchanged => format!("{address} is there already, as {id}"),
        });
        Ok(())
    })
}

/// An address as it was named, as far as it may be shown of the contact that it is stored as.
fn shown_as_named(named: &Contact, stored: &Contact) -> String {
    let options = stored.options().cloned().unwrap_or_default();
    printable(&masked_address(&named.clone().with_options(options)))
}

/// Adds the contact to the stored ones. Repeatable: a secret that was stored by a try whose answer was lost counts as
/// given now.
fn add(
    array: &mut ContactArray,
    named: &ContactSpec,
    id: Option<&ContactId>,
    contacts_max: usize,
) -> anyhow::Result<AddedTo> {
    let contact = &named.contact;
    let stored = array.contacts();
    let refused = |message: String| hint::failed(message, "leave --id out, or name another id");
    if let Some(id) = id {
        if let Some(other) =
            stored.iter().find(|other| other.contact.id == *id && !other.contact.has_same_address(contact))
        {
            return Err(refused(format!("id {id} is the one of {}", printable(&masked_address(&other.contact)))));
        }
        if let Some(known) =
            stored.iter().find(|known| known.contact.has_same_address(contact) && known.contact.id != *id)
        {
            let (address, id) = (shown_as_named(contact, &known.contact), printable(known.contact.id.as_str()));
            return Err(refused(format!("{address} is there already, as {id}")));
        }
    }
    let before = array.to_stored();
    let is_sound = |stored: &Contact| channels::check_contact(stored).is_ok();
    let merged = array.merge(std::slice::from_ref(named), UnlistedPolicy::KeepAll, contacts_max, is_sound);
    let report = merged.map_err(|error| hint::failed(error, "or set subjects.contacts_max"))?;
    let outcome = match stored.iter().any(|other| other.contact.has_same_address(contact)) {
        false => AddOutcome::Added,
        true if array.to_stored() == before => AddOutcome::Unchanged,
        true => AddOutcome::Changed,
    };
    let keeps_secret = report.kept_secrets.iter().any(|kept| kept.secret() != contact.secret());
    let known = array.contacts().into_iter().filter(|other| other.contact.has_same_address(contact));
    let known = known.min_by_key(|other| !other.contact.verified).expect("it was merged");
    Ok(AddedTo { address: shown_as_named(contact, &known.contact), id: known.contact.id, outcome, keeps_secret })
}
