//! `subject set`: changes what is named, leaves the rest.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::Serialize;

use crate::actions::contact_spec::{ContactColumns, GeneratedSecret};
use crate::actions::grants;
use crate::actions::subject_change::{self, ContactsChange, MergedChange, SubjectChange};
use crate::actions::subject_patch::{OtherSettings, SubjectPatch};
use crate::cli::connect;
use crate::cli::contact::not_changed;
use crate::cli::contact_args::FilteredAddressArgs;
use crate::cli::contact_checks::{self, TemplateCheck};
use crate::cli::context::CliContext;
use crate::config::Config;
use crate::contacts::masked_address;
use crate::contacts::merge::{MergeReport, UnlistedPolicy};
use crate::subjects::SubjectRecord;
use crate::subjects::record::{self, LIMIT_PREFIX, limit_warnings};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{BillingDay, BillingMonth, DisplayName, Locale, Subject, Threshold};

#[derive(Debug, Args)]
#[command(after_help = "Changes only what is named; what --clear names is removed first.
Limits of a metric replace all limits that the subject had for it, and those of its plan.
Naming a contact replaces the contacts that the operator added. An existing contact keeps its id, secret and mute. \
    Contacts that the subject's side added stay, unless --replace-all-contacts is given. `quotabell contact \
    add` changes one contact, also its digest, its quiet time and whether it hears of ends (--resolved).
The nth --webhook-secret belongs to the nth --webhook, and so does the nth --format; the nth --email-threshold and --email-metric \
    belong to the nth --email, and likewise for --webhook. If an option is absent, the stored value is kept. \
    If a new webhook's format needs a secret, one is generated and printed.

Examples:
  quotabell subject set alice --plan free --timezone Asia/Ho_Chi_Minh --locale vi
  quotabell subject set alice --limit requests=5000 --limit tokens=none
  quotabell subject set alice --limit requests=600/hour --limit requests=5000/day
  quotabell subject set cust_4711 --name 'Acme Inc.'
  quotabell subject set alice --billing-day 15
  quotabell subject set acme --limit spend=100000/year --billing-month 4
  quotabell subject set alice --threshold 50 --threshold 90
  quotabell subject set alice --email a@b.test --webhook https://example.com/hook
  quotabell subject set alice --email a@b.test --email-threshold all --email cto@b.test --email-threshold 100
  quotabell subject set alice --clear contacts")]
pub struct SubjectSetArgs {
    /// The subject: 1 to 256 bytes
    pub subject: Subject,
    /// A plan of the configuration
    #[arg(long)]
    pub plan: Option<String>,
    /// An IANA time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = record::parse_timezone)]
    pub timezone: Option<String>,
    /// The day of the month on which the subject's months begin, 1 to 31
    #[arg(long, value_name = "DAY")]
    pub billing_day: Option<BillingDay>,
    /// The month in which the subject's years begin, and from which its quarters are counted, 1 to 12
    #[arg(long, value_name = "MONTH")]
    pub billing_month: Option<BillingMonth>,
    /// Units of a metric in each hour, day, week, month, quarter, year or in total; `none` removes its limits
    #[arg(long = "limit", value_name = "METRIC=UNITS/WINDOW")]
    pub limits: Vec<String>,
    /// When an alert is due: at a percentage of a limit, 1 to 1000, at used:UNITS or at remaining:UNITS
    #[arg(long = "threshold", value_name = "THRESHOLD", value_delimiter = ',')]
    pub thresholds: Vec<Threshold>,
    /// The language of emails, such as vi or pt-BR
    #[arg(long, value_name = "TAG")]
    pub locale: Option<Locale>,
    /// The subject's name in texts, beside its id
    #[arg(long)]
    pub name: Option<DisplayName>,
    #[command(flatten)]
    pub contacts: FilteredAddressArgs,
    #[command(flatten)]
    pub replaced: ReplacedContactsArgs,
    /// Remove contacts, limits, thresholds, billing-day, billing-month, timezone, locale, name or plan
    #[arg(long, value_parser = CLEARABLE, value_name = "WHAT", value_delimiter = ',', hide_possible_values = true)]
    pub clear: Vec<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// What `--clear` takes: `contacts`, `limits`, and fields with a hyphen for each underscore.
const CLEARABLE: [&str; 9] =
    ["contacts", "limits", "thresholds", "billing-day", "billing-month", "timezone", "locale", "name", "plan"];

/// `--replace-all-contacts`, for commands that name contacts.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReplacedContactsArgs {
    /// If contacts are named, also replace those that the subject's side added, and those that can't be read
    #[arg(long)]
    pub replace_all_contacts: bool,
}

impl ReplacedContactsArgs {
    /// What becomes of stored contacts that are not named.
    pub const fn unnamed(&self) -> UnlistedPolicy {
        if self.replace_all_contacts { UnlistedPolicy::RemoveAll } else { UnlistedPolicy::RemoveOperators }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SetSummary<'a> {
    subject: &'a Subject,
    changed: Vec<String>,
    webhook_secrets: Vec<GeneratedSecret>,
}

/// Writes the change, and prints the secrets that were generated.
pub async fn run(args: SubjectSetArgs, context: &CliContext) -> anyhow::Result<()> {
    let format = args.format.clone();
    let config = context.config()?;
    let change = change_of(args, &config)?;
    let (specs, settings) = (change.contacts.specs(), &change.settings.set);
    if let Some(fault) = TemplateCheck::new(&config).fault(specs)? {
        return Err(hint::usage(fault, OPTIONS));
    }
    let locale_warning = match &settings.locale {
        Some(locale) => config.channels()?.locale_warning(locale),
        None => None,
    };
    let redis = connect::redis(&config).await?;
    let partition = redis.partitions.partition_of(&change.subject);
    let merged = subject_change::write(partition, config.subjects.contacts_max, &change).await;
    let merged = merged.map_err(|error| not_changed(&redis, &change.subject, error))?;
    let MergedChange { fields, generated, report } = merged;
    redis.record("setSubject", Some(&change.subject), "", 1).await;
    for note in report_lines(&report) {
        say(note);
    }
    let warnings = limit_warnings(settings).into_iter().chain(contact_checks::warnings(specs, &config));
    let of_grants = grants::warnings_of_lost_limits(partition, &config.plans()?, &change.subject).await?;
    for warning in warnings.chain(locale_warning).chain(of_grants) {
        say(format_args!("warning: {warning}"));
    }
    let done = SetSummary { subject: &change.subject, changed: fields.names(), webhook_secrets: generated };
    output::print(&format, &done, |output| {
        for GeneratedSecret { url, secret } in &done.webhook_secrets {
            output.line(format_args!("{secret}  {url}"))?;
        }
        say(format_args!("set {}: {}", done.subject, done.changed.join(", ")));
        Ok(())
    })
}

/// What an operator should know about the contacts that were kept.
fn report_lines(report: &MergeReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.kept_of_subject.is_empty() {
        let kept: Vec<String> =
            report.kept_of_subject.iter().map(|contact| printable(&masked_address(contact))).collect();
        lines.push(format!("kept what the subject's side added: {}", kept.join(", ")));
    }
    lines.extend(unreadable_line(report));
    lines
}

/// A warning about stored elements that no alert can use and that were kept.
pub(super) fn unreadable_line(report: &MergeReport) -> Option<String> {
    let kept = report.kept_unreadable;
    (kept > 0)
        .then(|| format!("warning: kept contacts that can't be read ({kept}), --replace-all-contacts removes them"))
}

/// What to do about a wrong option.
const OPTIONS: &str = "`quotabell subject set --help` lists the options, with examples";

fn change_of(args: SubjectSetArgs, config: &Config) -> anyhow::Result<SubjectChange> {
    let bad = |message: String| hint::usage(message, OPTIONS);
    let SubjectSetArgs {
        subject,
        plan,
        timezone,
        billing_day,
        billing_month,
        thresholds,
        locale,
        name,
        replaced,
        clear,
        ..
    } = args;
    let thresholds = Some(thresholds).filter(|thresholds| !thresholds.is_empty());
    let limits = BTreeMap::new();
    let set = SubjectRecord { plan, timezone, billing_day, billing_month, thresholds, locale, name, limits };
    let [clears_contacts, clears_limits] = ["contacts", "limits"].map(|what| clear.iter().any(|named| named == what));
    let others = if clears_limits { OtherSettings::ClearLimits } else { OtherSettings::Keep };
    let cleared = clear.iter().filter(|what| !["contacts", "limits"].contains(&what.as_str()));
    let cleared: BTreeSet<String> = cleared.map(|what| what.replace('-', "_")).collect();
    let mut settings = SubjectPatch { set, cleared, others };
    for (metric, limits) in limits_of(args.limits).map_err(bad)? {
        settings.parse(&format!("{LIMIT_PREFIX}{metric}"), &limits).map_err(bad)?;
    }
    let settings = settings.checked(&config.plans()?).map_err(bad)?;
    let named = args.contacts.into_columns().and_then(ContactColumns::into_specs).map_err(bad)?;
    if replaced.replace_all_contacts && named.is_empty() {
        return Err(bad(
            "--replace-all-contacts needs a contact to replace them with, or use --clear contacts".to_owned()
        ));
    }
    let contacts = match clears_contacts {
        true => ContactsChange::Replace(named),
        false => ContactsChange::merge(named, replaced.unnamed()),
    };
    let change = SubjectChange { subject, settings, contacts };
    if change.is_empty() { Err(bad(format!("nothing to set for {}", change.subject))) } else { Ok(change) }
}

/// The limits of each metric as they are stored. Each option may add windows to those of its metric.
fn limits_of(named: Vec<String>) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for limit in named {
        let (metric, limits) = limit.split_once('=').ok_or_else(|| {
            format!(
                "--limit {limit}: a limit is written METRIC=UNITS or METRIC=UNITS/WINDOW, such as requests=5000 or \
                 requests=600/hour, or METRIC=none"
            )
        })?;
        let together = all.entry(metric.to_owned()).or_default();
        *together = match (together.as_str(), limits) {
            ("", limits) | ("none", limits @ "none") => limits.to_owned(),
            ("none", _) | (_, "none") => {
                return Err(format!("--limit {limit}: none cannot be combined with another limit"));
            }
            (before, limits) => format!("{before} {limits}"),
        };
    }
    Ok(all)
}
