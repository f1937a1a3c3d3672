//! `subject set`: changes what is named, leaves the rest.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::change::{self, ContactsChange, FieldUpdate, MergeError, MergedChange, ReplacedContactsArgs, SubjectChange};
use super::store::{self, SubjectWrite};
use crate::cli::connect::{self, CliConnection};
use crate::cli::contact_checks::{self, TemplateCheck};
use crate::cli::contact_specs::{FilteredAddressArgs, GeneratedSecret, serialize_lists};
use crate::cli::context::CliContext;
use crate::config::Config;
use crate::contacts::masked_address;
use crate::contacts::merge::MergeReport;
use crate::subjects::record::{self, LIMIT_PREFIX};
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{BillingDay, Limits, Locale, Metric, Percent, Subject, percent};

#[derive(Debug, Args)]
#[command(after_help = "Changes only what is named; what --clear names is removed first.
The limits of a metric replace those that the subject had of it, and take precedence over all that the plan has for it.
Naming any contact replaces the contacts that the operator wrote. One that is there already keeps its id, its secret and whether \
    it is muted. Contacts that the subject's side added stay, unless --replace-all-contacts is given. `quotabell contact` \
    changes one contact.
The nth --webhook-secret belongs to the nth --webhook, and so does the nth --format; the nth --email-threshold and --email-metric \
    belong to the nth --email, and likewise for --webhook. Where there is none, the stored one is kept. \
    For a new webhook whose format needs a secret, one is generated and printed.

Examples:
  quotabell subject set alice --plan free --timezone Asia/Ho_Chi_Minh --locale vi
  quotabell subject set alice --limit requests=5000 --limit tokens=none
  quotabell subject set alice --limit requests=600/hour --limit requests=5000/day
  quotabell subject set alice --billing-day 15
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
    /// An IANA time zone, as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = record::parse_timezone)]
    pub timezone: Option<String>,
    /// The day of the month on which the subject's months begin, 1 to 31
    #[arg(long, value_name = "DAY")]
    pub billing_day: Option<BillingDay>,
    /// Units of a metric in each hour, day, week or month, a day without a window; `none` removes its limits
    #[arg(long = "limit", value_name = "METRIC=UNITS/WINDOW")]
    pub limits: Vec<LimitArg>,
    /// Percentage of a limit at which an alert is due, 1 to 1000
    #[arg(long = "threshold", value_name = "PERCENT", value_delimiter = ',')]
    pub thresholds: Vec<Percent>,
    /// The language of mails, as vi or pt-BR
    #[arg(long, value_name = "TAG")]
    pub locale: Option<Locale>,
    #[command(flatten)]
    pub contacts: FilteredAddressArgs,
    #[command(flatten)]
    pub replaced: ReplacedContactsArgs,
    /// Remove contacts, limits, thresholds, billing-day, timezone, locale or plan
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', hide_possible_values = true)]
    pub clear: Vec<Clearable>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Clearable {
    /// Every contact
    Contacts,
    /// Every limit of the subject's own
    Limits,
    /// The thresholds of the subject's own
    Thresholds,
    /// The billing day: months begin on the first again
    BillingDay,
    /// The time zone: UTC again
    Timezone,
    /// The locale: that of email.locale again
    Locale,
    /// The plan: the default plan again
    Plan,
}

/// `METRIC=UNITS/WINDOW`, `METRIC=UNITS` for a day, or `METRIC=none`.
#[derive(Debug, Clone)]
pub struct LimitArg {
    metric: Metric,
    limits: FieldUpdate<Limits>,
}

impl FromStr for LimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (metric, limits) = text.split_once('=').ok_or(
            "a limit is written METRIC=UNITS or METRIC=UNITS/WINDOW, as requests=5000 or requests=600/hour, or METRIC=none",
        )?;
        let metric = metric.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { metric, limits: change::limits(limits)? })
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SetSummary<'a> {
    subject: &'a Subject,
    changed: Vec<String>,
    #[serde(flatten, serialize_with = "serialize_lists")]
    secrets: Vec<GeneratedSecret>,
}

/// Writes the change, and prints the secrets that were generated.
pub async fn run(args: SubjectSetArgs, context: &CliContext) -> anyhow::Result<()> {
    let format = args.format.clone();
    let clear = args.clear.clone();
    let config = context.config()?;
    let mut change = change_of(args, &config)?;
    if let Some(fault) = TemplateCheck::new(&config).fault(change.contact_specs())? {
        return Err(hint::usage(fault, OPTIONS));
    }
    let locale_warning = match &change.locale {
        FieldUpdate::Set(locale) => config.channels()?.locale_warning(locale),
        FieldUpdate::Keep | FieldUpdate::Clear => None,
    };
    let redis = connect::redis(&config).await?;
    if clear.contains(&Clearable::Limits) {
        clear_limits(&mut change, &redis).await?;
    }
    let what = format!("set subject {}", change.subject);
    let contacts_max = config.subjects.contacts_max;
    let write = redis.explained(&what, store::write_one(redis.client(), redis.keys(), contacts_max, &change).await)?;
    let MergedChange { generated, report, .. } = written(&what, write)?;
    for note in report_lines(&report) {
        say(note);
    }
    let warnings = contact_checks::warnings(change.contact_specs(), &config);
    for warning in change.limit_warnings().into_iter().chain(warnings).chain(locale_warning) {
        say(format_args!("warning: {warning}"));
    }
    let done = SetSummary { subject: &change.subject, changed: change.field_names(), secrets: generated };
    output::print(&format, &done, |output| {
        for GeneratedSecret { address, secret, .. } in &done.secrets {
            output.line(format_args!("{secret}  {address}"))?;
        }
        say(format_args!("set {}: {}", done.subject, done.changed.join(", ")));
        Ok(())
    })
}

/// What was written, or why nothing was.
pub(super) fn written(what: &str, write: SubjectWrite) -> anyhow::Result<MergedChange> {
    match write {
        SubjectWrite::Written(merged) => Ok(merged),
        SubjectWrite::Conflict => Err(hint::failed(
            format_args!("{what}: another client changes its contacts all the time"),
            "nothing was written: try again, or find out who writes its contacts",
        )),
        SubjectWrite::Unmergeable(error) => {
            let hint = match error {
                MergeError::NotAnArray(_) => {
                    "repair the field contacts, or name all contacts with --replace-all-contacts"
                }
                MergeError::TooMany(_) => "name fewer contacts, or set subjects.contacts_max",
            };
            Err(hint::failed(format_args!("{what}: {error}"), format_args!("nothing was written: {hint}")))
        }
    }
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
    (kept > 0).then(|| {
        format!("warning: kept what can't be read among the contacts ({kept}), --replace-all-contacts removes it")
    })
}

/// What to do about a wrong option.
const OPTIONS: &str = "`quotabell subject set --help` lists the options, with examples";

fn change_of(args: SubjectSetArgs, config: &Config) -> anyhow::Result<SubjectChange> {
    let bad = |message: String| hint::usage(message, OPTIONS);
    let cleared = |what| args.clear.contains(&what);
    let mut change = SubjectChange::for_subject(args.subject);
    let plan = args.plan.map(|name| change::plan(config, &name)).transpose().map_err(bad)?;
    change.plan = setting(plan, &args.clear, Clearable::Plan);
    change.timezone = setting(args.timezone, &args.clear, Clearable::Timezone);
    change.billing_day = setting(args.billing_day, &args.clear, Clearable::BillingDay);
    change.locale = setting(args.locale, &args.clear, Clearable::Locale);
    change.limits = limits_of(args.limits).map_err(bad)?;
    let thresholds = percent::ascending(args.thresholds).map_err(|error| bad(format!("--threshold: {error}")))?;
    let thresholds = Some(thresholds).filter(|thresholds| !thresholds.is_empty());
    change.thresholds = setting(thresholds, &args.clear, Clearable::Thresholds);
    let named = args.contacts.0.into_contacts().map_err(bad)?;
    if args.replaced.replace_all_contacts && named.contacts.is_empty() {
        return Err(bad(
            "--replace-all-contacts needs a contact to replace them with, or use --clear contacts".to_owned()
        ));
    }
    change.contacts = match cleared(Clearable::Contacts) {
        true if named.contacts.is_empty() => ContactsChange::Clear,
        true => ContactsChange::Replace(named),
        false => ContactsChange::merge(named, args.replaced.unnamed()),
    };
    if change.field_names().is_empty() && !cleared(Clearable::Limits) {
        return Err(bad(format!("nothing to set for {}", change.subject)));
    }
    Ok(change)
}

/// What is named is set. Without it, what `--clear` names is cleared, and the rest is kept.
fn setting<T>(named: Option<T>, clear: &[Clearable], what: Clearable) -> FieldUpdate<T> {
    match named {
        Some(value) => FieldUpdate::Set(value),
        None if clear.contains(&what) => FieldUpdate::Clear,
        None => FieldUpdate::Keep,
    }
}

/// The limits of each metric. Each option may add windows to those of its metric.
fn limits_of(named: Vec<LimitArg>) -> Result<BTreeMap<Metric, FieldUpdate<Limits>>, String> {
    let mut all: BTreeMap<Metric, FieldUpdate<Limits>> = BTreeMap::new();
    for LimitArg { metric, limits } in named {
        let together = match (all.remove(&metric), limits) {
            (None, limits) => limits,
            (Some(FieldUpdate::Set(before)), FieldUpdate::Set(limits)) => {
                let both = before.as_slice().iter().chain(limits.as_slice()).copied();
                FieldUpdate::Set(Limits::new(both).map_err(|error| format!("limits of {metric}: {error}"))?)
            }
            (Some(FieldUpdate::Clear), FieldUpdate::Clear) => FieldUpdate::Clear,
            _ => return Err(format!("limits of {metric}: none stands beside another limit")),
        };
        all.insert(metric, together);
    }
    Ok(all)
}

/// Adds the removal of every limit that is set now and not named anew. Between this look and the write another client
/// may set one more: then both happened, in this order.
async fn clear_limits(change: &mut SubjectChange, redis: &CliConnection) -> anyhow::Result<()> {
    let mut command = redis::cmd("HKEYS");
    command.arg(redis.keys().subject(&change.subject));
    let fields: Vec<Vec<u8>> = redis.query(format_args!("read subject {}", change.subject), &command).await?;
    let metrics = fields.iter().filter_map(|field| field.strip_prefix(LIMIT_PREFIX.as_bytes()));
    for metric in metrics.filter_map(|metric| Metric::parse(metric).ok()) {
        change.limits.entry(metric).or_insert(FieldUpdate::Clear);
    }
    Ok(())
}
