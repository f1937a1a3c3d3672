//! `subject import`: many subjects from a file. A bad line is reported and left out; the others are imported.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use futures_util::future::join_all;
use indicatif::ProgressBar;
use serde::Serialize;

use super::import_reader::{ImportFormat, ImportLine, ImportReader, ImportRow, SUBJECT};
use super::import_warnings::{self, NamedSubjects};
use super::set::{self, ReplacedContactsArgs};
use crate::actions::contact_spec::{ContactColumns, GeneratedSecret};
use crate::actions::contacts::ContactActionError;
use crate::actions::grants::{self, GrantError, NewGrant};
use crate::actions::subject_change::{self, ContactsChange, MergedChange, SubjectChange};
use crate::actions::subject_patch::SubjectPatch;
use crate::cli::connect::{self, CliConnection};
use crate::cli::contact_checks::TemplateCheck;
use crate::cli::context::CliContext;
use crate::config::Config;
use crate::contacts::TooManyContacts;
use crate::contacts::merge::UnlistedPolicy;
use crate::contacts::store::EditContactsError;
use crate::redis_client::{ErrorKind, error_kind};
use crate::subjects::Plans;
use crate::subjects::record::limit_warnings;
use crate::terminal::hint::{self, with_hint};
use crate::terminal::output::{Format, FormatArgs, Output, pluralize, printable, say};
use crate::terminal::progress::{self, ProgressUnit};
use crate::types::Subject;

/// Subjects that are written at the same time.
const CHUNK: usize = 500;

#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct SubjectImportArgs {
    /// The file, or - for stdin
    pub file: PathBuf,
    /// The format of the file: csv or jsonl [default: jsonl if it begins with {, else csv]
    #[arg(long = "as", value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub written_as: Option<ImportFormat>,
    #[command(flatten)]
    pub replaced: ReplacedContactsArgs,
    /// Check every line and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

fn help() -> String {
    let contacts: Vec<String> = ContactColumns::names().collect();
    format!(
        "CSV has a header line; JSON Lines has one object per line. The fields of both: subject, plan, timezone, \
    billing_day, billing_month, limit:METRIC (such as 5000 or \"600/hour 5000/day\"), thresholds, locale, name, {}. A JSON \
        line may name \
    `limits` and `grants` as the HTTP API does.
Each line changes what it names, like `subject set`: an empty cell changes nothing, `none` removes the limits of a metric.
Several contacts: the column twice (CSV) or a list (JSON); the nth \
    webhook_secret, webhook_format and webhook_headers (a JSON object) belong to the nth webhook. The nth \
    email_thresholds (such as 80,100 or all) and email_metrics select the alerts of the nth email, and likewise for \
    webhook. If one of these is absent, the stored value is kept; if a new webhook needs a secret, one is generated \
    and printed. Contacts that the subject's side added stay, unless --replace-all-contacts is given.
Invalid lines are reported with their number and skipped; the others are imported. Exit 1 if any line was invalid.
Spreadsheet files may have UTF-8 or UTF-16 with a byte order mark; commas, semicolons or tabs; and a line sep=; above the header. The import warns of a subject that occurs twice, is a number in exponent form, or has spaces at its ends or invisible characters.

Examples:
  quotabell subject import subjects.csv --dry-run
  quotabell subject import subjects.csv
  printf 'subject,email,email_thresholds\\nalice,a@b.test,\"80,100\"\\n' | quotabell subject import -
  printf 'subject,plan,email\\nalice,free,a@b.test\\n' | quotabell subject import -
  echo '{{\"subject\":\"alice\",\"limit:requests\":5000,\"thresholds\":[50,90]}}' | quotabell subject import -",
        contacts.join(", ")
    )
}

/// A secret that was generated, and for whom.
#[derive(Debug, Serialize)]
struct SubjectSecret {
    subject: Subject,
    #[serde(flatten)]
    generated: GeneratedSecret,
}

#[derive(Debug, Serialize)]
struct BadLine {
    line: u64,
    error: String,
}

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
struct ImportSummary {
    dry_run: bool,
    imported: u64,
    bad: Vec<BadLine>,
    webhook_secrets: Vec<SubjectSecret>,
}

/// A line that was checked and waits to be written.
struct CheckedLine {
    line: u64,
    change: SubjectChange,
    grants: Vec<NewGrant>,
}

pub async fn run(args: SubjectImportArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = if args.dry_run { None } else { Some(connect::redis(&config).await?) };
    let (input, bar) = open(&args.file)?;
    let mut import = Import {
        config: &config,
        plans: config.plans()?,
        templates: TemplateCheck::new(&config),
        redis,
        format: args.format.format(),
        output: Output::stdout(),
        bar,
        unnamed: args.replaced.unnamed(),
        named: NamedSubjects::default(),
        waiting: Vec::new(),
        summary: ImportSummary { dry_run: args.dry_run, ..ImportSummary::default() },
    };
    let read = import.read_all(input, args.written_as).await;
    // Whatever stopped the reading: lines that were good until then are imported, and their secrets printed.
    let written = import.write_waiting().await;
    if let (Some(redis), imported @ 1..) = (&import.redis, import.summary.imported) {
        redis.record("importSubjects", None, "", usize::try_from(imported).unwrap_or(usize::MAX)).await;
    }
    import.finish(read.and(written), &args.file)
}

fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, ProgressBar)> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(io::stdin()), ProgressBar::hidden()));
    }
    let file = File::open(path).with_context(|| format!("open {}", path.display()));
    let file = with_hint(file, "name a file that can be read, or - for stdin")?;
    let bar = progress::bar(file.metadata().map_or(0, |metadata| metadata.len()), ProgressUnit::Bytes);
    Ok((Box::new(bar.wrap_read(file)), bar))
}

/// Adds the grants of a line, which may be there already.
async fn give(redis: &CliConnection, plans: &Plans, subject: &Subject, grants: &[NewGrant]) -> Result<(), GrantError> {
    for grant in grants {
        grants::add(redis.partitions.partition_of(subject), plans, subject, grant).await?;
    }
    Ok(())
}

struct Import<'a> {
    config: &'a Config,
    plans: Plans,
    templates: TemplateCheck<'a>,
    redis: Option<CliConnection>,
    format: Format,
    output: Output,
    bar: ProgressBar,
    unnamed: UnlistedPolicy,
    named: NamedSubjects,
    waiting: Vec<CheckedLine>,
    summary: ImportSummary,
}

impl Import<'_> {
    async fn read_all(&mut self, input: Box<dyn Read>, format: Option<ImportFormat>) -> anyhow::Result<()> {
        let format_hint = "`quotabell subject import --help` shows both formats";
        let mut rows = with_hint(ImportReader::new(input, format), format_hint)?;
        while let Some(ImportLine { number, row }) = with_hint(rows.next_line(), format_hint)? {
            let was_trimmed = row.as_ref().is_ok_and(|row| row.subject_was_trimmed);
            let checked = row.and_then(|row| self.check(row));
            let fault = match &checked {
                Ok((change, _)) => self.templates.fault(change.contacts.specs())?,
                Err(_) => None,
            };
            match fault.map_or(checked, |fault| Err(fault.to_string())) {
                Ok((change, grants)) => {
                    let mut warnings = import_warnings::odd_subject(&change.subject, was_trimmed);
                    warnings.extend(self.named.add(&change.subject, number));
                    warnings.extend(limit_warnings(&change.settings.set));
                    for warning in warnings {
                        self.bar.suspend(|| say(format_args!("line {number}: warning: {warning}")));
                    }
                    // Lines of one subject are written one after the other.
                    if self.waiting.iter().any(|checked| checked.change.subject == change.subject) {
                        self.write_waiting().await?;
                    }
                    self.waiting.push(CheckedLine { line: number, change, grants });
                }
                Err(error) => self.report(number, error),
            }
            if self.waiting.len() >= CHUNK {
                self.write_waiting().await?;
            }
        }
        Ok(())
    }

    /// Writes what waits, all of it at once. Takes note of every line before it returns a failure that concerns them
    /// all, so that no secret of a line that was written is lost.
    async fn write_waiting(&mut self) -> anyhow::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let Some(redis) = &self.redis else {
            self.summary.imported += waiting.len() as u64;
            return Ok(());
        };
        let (partition, contacts_max) = (redis.partitions.first(), self.config.subjects.contacts_max);
        let writes = waiting.iter().map(|line| subject_change::write(partition, contacts_max, &line.change));
        let (mut bad, mut failure) = (Vec::new(), Ok(()));
        for (CheckedLine { line, change, grants }, written) in waiting.iter().zip(join_all(writes).await) {
            let subject = &change.subject;
            let why = match written {
                Ok(MergedChange { generated, report, .. }) => {
                    let secrets = generated.into_iter();
                    let secrets = secrets.map(|generated| SubjectSecret { subject: subject.clone(), generated });
                    self.summary.webhook_secrets.extend(secrets);
                    match give(redis, &self.plans, subject, grants).await {
                        Ok(()) => {}
                        Err(GrantError::Redis { source, .. }) => {
                            let what = format!("write line {line}, subject {subject}");
                            failure = failure.and(redis.explained(what, Err(source)));
                            continue;
                        }
                        Err(error) => {
                            bad.push((*line, format!("subject {subject}: grants: {error}")));
                            continue;
                        }
                    }
                    if let Some(warning) = set::unreadable_line(&report) {
                        self.bar.suspend(|| say(format_args!("line {line}: {warning}")));
                    }
                    self.summary.imported += 1;
                    continue;
                }
                Err(ContactActionError::Edit(EditContactsError::Redis(error))) => match error_kind(&error) {
                    ErrorKind::WrongType => error.to_string(),
                    _ => {
                        let what = format!("write line {line}, subject {subject}");
                        failure = failure.and(redis.explained(what, Err(error)));
                        continue;
                    }
                },
                Err(error) => error.to_string(),
            };
            bad.push((*line, format!("subject {subject}: {why}")));
        }
        bad.into_iter().for_each(|(line, error)| self.report(line, error));
        self.print_secrets().and(failure)
    }

    fn check(
        &self,
        ImportRow { settings, contacts, grants, .. }: ImportRow,
    ) -> Result<(SubjectChange, Vec<NewGrant>), String> {
        let mut patch = SubjectPatch::default();
        let (subject, settings): (Vec<_>, Vec<_>) = settings.into_iter().partition(|(name, _)| name == SUBJECT);
        let (_, subject) = subject.into_iter().next().ok_or("no subject")?;
        let subject = Subject::parse(subject.as_bytes()).map_err(|error| error.to_string())?;
        settings.iter().try_for_each(|(name, text)| patch.parse(name, text))?;
        let contacts = ContactsChange::merge(contacts.into_specs()?, self.unnamed);
        let contacts_max = self.config.subjects.contacts_max;
        if contacts.specs().len() > contacts_max {
            return Err(TooManyContacts { contacts_max }.to_string());
        }
        let change = SubjectChange { subject, settings: patch.checked(&self.plans)?, contacts };
        change.check_levels(&self.config.keys()).map_err(|error| format!("subject {}: {error}", change.subject))?;
        if change.is_empty() && grants.is_empty() {
            return Err(format!("nothing to set for {}", change.subject));
        }
        Ok((change, grants))
    }

    fn report(&mut self, line: u64, error: String) {
        let text = format!("line {line}: {}", printable(&error));
        self.bar.suspend(|| say(text));
        self.summary.bad.push(BadLine { line, error });
    }

    /// For people, secrets are printed as soon as they are stored: what fails later must not lose them.
    fn print_secrets(&mut self) -> anyhow::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        for SubjectSecret { subject, generated } in self.summary.webhook_secrets.drain(..) {
            let subject = printable(subject.as_str());
            self.output.line(format_args!("{subject}  {}  {}", generated.secret, generated.url))?;
        }
        Ok(())
    }

    fn finish(mut self, outcome: anyhow::Result<()>, file: &Path) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let ImportSummary { dry_run, imported, .. } = self.summary;
        let bad = self.summary.bad.len();
        if self.format == Format::Json {
            self.output.json(&self.summary)?;
        }
        self.output.finish()?;
        let done = if dry_run { "would import" } else { "imported" };
        say(format_args!("{done} {}", pluralize(imported, "line", "lines")));
        outcome.with_context(|| format!("import {}", file.display()))?;
        if bad == 0 {
            return Ok(());
        }
        Err(hint::failed(
            format_args!(
                "{bad} of {} of {} {} bad",
                pluralize(imported + bad as u64, "line", "lines"),
                file.display(),
                if bad == 1 { "is" } else { "are" }
            ),
            "mend those lines and import again: lines that were imported change nothing the second time",
        ))
    }
}
