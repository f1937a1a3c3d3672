//! `subject show`: what is set for one subject.

use clap::Args;

use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::cli::hears;
use crate::contacts::Contact;
use crate::subjects::Plans;
use crate::subjects::record::write_thresholds;
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, printable, say};
use crate::types::{ContactFilter, Subject};
use crate::views::SubjectView;
use crate::views::subject::{self, SubjectField};

/// Arguments of `subject show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Shows what is set for the subject itself; what is not set comes from its plan, the default plan and the \
    fallback contacts. Secrets are shown as ***. What can't be read or used \
    is named on stderr.

Examples:
  quotabell subject show alice
  quotabell subject show alice --json | jq .limits"
)]
pub struct SubjectShowArgs {
    /// Who
    pub subject: Subject,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

impl SubjectView {
    /// Reads the hash of a subject; names on stderr what can't be read, and what no alert can use.
    pub(super) fn of(subject: &[u8], fields: &[SubjectField], plans: &Plans) -> Self {
        let shown = Self::read(subject, fields, plans);
        for error in &shown.unreadable {
            say(format_args!("warning: subject {:?}: {}", shown.subject, printable(&error.to_string())));
        }
        shown
    }

    /// One line of the list, as [`HEADING`] names the columns.
    pub(super) fn row(&self) -> Vec<String> {
        vec![self.subject.clone(), self.plan(), self.timezone(), self.limits(), self.thresholds(), self.contacts()]
    }

    fn plan(&self) -> String {
        self.plan.clone().unwrap_or_else(|| NOT_SET.to_owned())
    }

    fn timezone(&self) -> String {
        self.timezone.clone().unwrap_or_else(|| NOT_SET.to_owned())
    }

    fn billing_day(&self) -> String {
        self.billing_day.map_or_else(|| NOT_SET.to_owned(), |day| day.to_string())
    }

    /// As `subject set --limit` takes them: each with its metric.
    fn limits(&self) -> String {
        let limits = self.limits.iter().flat_map(|(metric, limits)| {
            let texts = limits.to_string();
            texts.split(' ').map(|limit| format!("{metric}={limit}")).collect::<Vec<_>>()
        });
        let limits: Vec<String> = limits.collect();
        if limits.is_empty() { NOT_SET.to_owned() } else { limits.join(" ") }
    }

    fn thresholds(&self) -> String {
        self.thresholds.as_deref().map_or_else(|| NOT_SET.to_owned(), write_thresholds)
    }

    fn contacts(&self) -> String {
        let shown = |contact: &Contact| {
            let unverified = if contact.verified { "" } else { UNVERIFIED };
            let disabled = if contact.disabled.is_some() { DISABLED } else { "" };
            format!("{}{unverified}{disabled}", contact.address())
        };
        let contacts: Vec<String> = self.contacts.iter().map(shown).collect();
        if contacts.is_empty() { NOT_SET.to_owned() } else { contacts.join(" ") }
    }
}

const NOT_SET: &str = "-";
/// Beside a contact that gets no alerts because nobody has confirmed it.
const UNVERIFIED: &str = " (unverified)";
/// Beside one that gets none because its receiver or mailbox has gone.
const DISABLED: &str = " (disabled)";

/// The columns of [`SubjectView::row`].
pub(super) const HEADING: [&str; 6] = ["SUBJECT", "PLAN", "TIMEZONE", "LIMITS", "THRESHOLDS", "CONTACTS"];

/// Prints the subject.
///
/// # Errors
///
/// When nothing is set for it; a bad configuration, Redis, or stdout.
pub async fn run(args: SubjectShowArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = Plans::new(&config.plans, &config.default_plan)?;
    let redis = connect::redis(&config).await?;
    let fields = subject::read_fields(redis.client(), redis.keys(), &args.subject).await;
    let fields = redis.judged(format_args!("read subject {}", args.subject), fields)?;
    if fields.is_empty() {
        return Err(hint::failed(
            format_args!("nothing is set for subject {}", args.subject),
            format_args!(
                "it has the default plan {:?} and the fallback contacts; `quotabell usage` shows its counts",
                config.default_plan
            ),
        ));
    }
    let shown = SubjectView::of(args.subject.as_str().as_bytes(), &fields, &plans);
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => output.json(&shown)?,
        Format::Table => output.pairs(&pairs(&shown))?,
    }
    output.finish()
}

fn pairs(shown: &SubjectView) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("subject", shown.subject.clone()),
        ("plan", shown.plan()),
        ("timezone", shown.timezone()),
        ("billing day", shown.billing_day()),
        ("limits", shown.limits()),
        ("thresholds", shown.thresholds()),
    ];
    if shown.contacts.is_empty() {
        pairs.push(("contact", NOT_SET.to_owned()));
    }
    for contact in &shown.contacts {
        let muted = if contact.muted { " (muted)" } else { "" };
        let unverified = if contact.verified { "" } else { UNVERIFIED };
        let disabled = contact.disabled.as_ref();
        let disabled = disabled.map_or_else(String::new, |state| format!(" (disabled since {}: {state})", state.at));
        let hears = match &contact.hears {
            filter if *filter == ContactFilter::default() => String::new(),
            filter => format!(" (hears {})", hears::shown(filter)),
        };
        let (channel, address) = (contact.channel().as_str(), contact.address());
        pairs.push(("contact", format!("{} {channel} {address}{muted}{unverified}{disabled}{hears}", contact.id)));
    }
    pairs
}
