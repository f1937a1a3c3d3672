//! `contact add`: one more contact of a subject, beside those that are there.

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::change::not_changed;
use crate::actions::contact_spec::{self, ContactColumns, GeneratedSecret};
use crate::actions::contacts::{self, AddOutcome, ContactAddition};
use crate::cli::connect;
use crate::cli::contact_args::{AddressArgs, ContactFilterArgs};
use crate::cli::contact_checks::{self, TemplateCheck};
use crate::cli::context::CliContext;
use crate::contacts::Contact;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{ContactId, Subject};

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("named").required(true).args(AddressArgs::names()),
    after_help = "Adds one contact and leaves the others unchanged. If the address exists already, the contact keeps \
        its id and mute; --webhook-secret, --format, --header, --threshold, --metric, --window, \
        --quiet, --quiet-all, --digest, --digest-all, --subtree and --resolved each replace the old value. \
        The contact is verified and enabled. Without --webhook-secret, a new webhook whose format needs one gets a \
        generated secret, printed once.

Examples:
  quotabell contact add alice --email a@b.test
  quotabell contact add alice --email cto@b.test --threshold 100 --metric requests
  quotabell contact add alice --email cto@b.test --threshold all
  quotabell contact add alice --email cto@b.test --window month --quiet 22:00-07:00
  quotabell contact add alice --webhook https://example.com/hook --id main
  quotabell contact add alice --webhook https://hooks.slack.com/services/T0/B0/abc --format slack
  quotabell contact add alice --webhook https://events.pagerduty.com/v2/enqueue --format pagerduty --webhook-secret KEY
  quotabell contact add alice --webhook https://example.com/hook --header 'Authorization: Bearer TOKEN'"
)]
pub struct ContactAddArgs {
    /// The subject of the contact
    pub subject: Subject,
    #[command(flatten)]
    pub contact: AddressArgs,
    /// The id of the new contact [default: derived from its address]
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

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct AddedContactView {
    subject: Subject,
    id: ContactId,
    outcome: AddOutcome,
    webhook_secrets: Vec<GeneratedSecret>,
}

/// Adds the contact, and prints the secret that was generated.
pub async fn run(args: ContactAddArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let bad = |message: String| hint::usage(message, "`quotabell contact add --help` lists the options, with examples");
    let mut contact =
        args.contact.into_columns().and_then(ContactColumns::into_specs).and_then(contact_spec::only).map_err(bad)?;
    contact.filter = args.filter.change().map_err(bad)?;
    contact.contact.filter = contact.filter.of_new();
    if let Some(id) = &args.id {
        contact.contact.id = id.clone();
    }
    if let Some(fault) = TemplateCheck::new(&config).fault(std::slice::from_ref(&contact))? {
        return Err(bad(fault.to_string()));
    }
    let redis = connect::redis(&config).await?;
    let partition = redis.partitions.partition_of(&args.subject);
    let contacts_max = config.subjects.contacts_max;
    let added = contacts::add(partition, &args.subject, &contact, args.id.as_ref(), contacts_max).await;
    let added = added.map_err(|error| not_changed(&redis, &args.subject, error))?;
    let ContactAddition { id, address, outcome, keeps_secret } = added;
    redis.record("addContact", Some(&args.subject), id.as_str(), 1).await;
    let webhook_secrets = GeneratedSecret::of(&contact).into_iter().filter(|_| !keeps_secret).collect();
    for warning in contact_checks::warnings(std::slice::from_ref(&contact), &config) {
        say(format_args!("warning: {warning}"));
    }
    let added = AddedContactView { subject: args.subject, id, outcome, webhook_secrets };
    output::print(&args.format, &added, |output| {
        for GeneratedSecret { url, secret } in &added.webhook_secrets {
            output.line(format_args!("{secret}  {url}"))?;
        }
        let (id, address) = (printable(added.id.as_str()), printable(&address));
        say(match outcome {
            AddOutcome::Added => format!("added {id} {address}"),
            AddOutcome::Changed => format!("changed {id} {address}"),
            AddOutcome::Unchanged => format!("{address} exists already, as contact {id}"),
        });
        Ok(())
    })
}
