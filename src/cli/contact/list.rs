//! `contact list`: the contacts of one subject.

use clap::Args;

use super::change::not_changed;
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::contacts::Contact;
use crate::contacts::array::UnreadableContact;
use crate::contacts::store::read_contacts;
use crate::terminal::output::{FormatArgs, Table, print_list, printable, say};
use crate::types::Subject;
use crate::views::ContactView;

#[derive(Debug, Args)]
#[command(after_help = "STATE says why a contact gets no alerts: muted (until when and why), not confirmed, or \
        disabled (why). ALERTS has the thresholds and metrics whose alerts it gets. ADDED BY is subject for a contact that \
        was added over HTTP. Secrets are shown as ***.

Examples:
  quotabell contact list alice
  quotabell contact list alice --json | jq -r 'select(.muted) | .id'")]
pub struct ContactListArgs {
    /// The subject
    pub subject: Subject,
    #[command(flatten)]
    pub format: FormatArgs,
}

const HEADING: [&str; 6] = ["ID", "CHANNEL", "ADDRESS", "STATE", "ALERTS", "ADDED BY"];
/// `subject show` has all of an address.
const MAY_SHRINK: &[&str] = &["ADDRESS", "STATE", "ALERTS"];

pub async fn run(args: ContactListArgs, context: &CliContext) -> anyhow::Result<()> {
    let subject = &args.subject;
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    let array = read_contacts(redis.client(), redis.keys(), subject).await;
    let array = array.map_err(|error| not_changed(&redis, subject, error.into()))?;
    let (contacts, now) = (array.contacts(), redis.server_time().await?);
    let listed: Vec<ContactView> = contacts.iter().map(|contact| ContactView::new(contact, now)).collect();
    let mut nothing = match config.fallback.contacts.is_empty() {
        true => "no contacts of its own",
        false => "no contacts of its own: the fallback contacts of the configuration get the alerts",
    };
    for UnreadableContact { id, why } in array.read().filter_map(Result::err) {
        let id = id.map_or_else(String::new, |id| format!(" {}", printable(id.as_str())));
        say(format_args!("warning: contact{id} can't be read and gets nothing: {}", printable(&why)));
        // It keeps alerts from the fallback, too, until it is mended.
        nothing = "no contacts that can be read";
    }
    print_list(&args.format, &listed, Table::new(&HEADING).may_shrink(MAY_SHRINK), nothing, row)
}

fn row(ContactView { contact, added_by }: &ContactView) -> Vec<String> {
    let Contact { id, mute, verified, disabled, filter, .. } = contact;
    let unverified = (!verified).then(|| "not confirmed".to_owned());
    let disabled = disabled.as_ref().map(|state| format!("disabled: {state}"));
    let states: Vec<String> = mute.iter().map(ToString::to_string).chain(unverified).chain(disabled).collect();
    let state = if states.is_empty() { "-" } else { &states.join(", ") };
    let (channel, filter) = (contact.channel().as_str(), filter.summary());
    [id.as_str(), channel, contact.address(), state, &filter, added_by.as_str()].map(str::to_owned).to_vec()
}
