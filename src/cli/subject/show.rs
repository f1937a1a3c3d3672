//! `subject show`: what is set for one subject.

use clap::Args;

use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::cli::subject_settings;
use crate::contacts::Contact;
use crate::subjects::mutes::MutedPart;
use crate::subjects::record::write_thresholds;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, or_dash, printable, say};
use crate::types::text::separated;
use crate::types::{ContactFilter, Metric, Mute, Subject};
use crate::views::SubjectView;

#[derive(Debug, Args)]
#[command(
    after_help = "Other settings come from the subject's plan, the default plan and the fallback contacts. Secrets \
        are shown as ***. Unreadable settings and unusable contacts are reported on stderr.

Examples:
  quotabell subject show alice
  quotabell subject show alice --json | jq .limits"
)]
pub struct SubjectShowArgs {
    /// The subject
    pub subject: Subject,
    #[command(flatten)]
    pub format: FormatArgs,
}

impl SubjectView {
    /// Names on stderr what can't be read, what no alert can use, and limits that contradict each other.
    pub(super) fn warn(&self) {
        for error in &self.unreadable {
            say(format_args!("warning: subject {:?}: {}", self.subject, printable(&error.to_string())));
        }
        for (metric, limits) in &self.limits {
            for pair in limits.contradictions() {
                say(format_args!("warning: subject {:?}: the limits of {metric}: {pair}", self.subject));
            }
        }
    }

    /// One line of the list, as [`HEADING`] names the columns.
    pub(super) fn row(&self) -> Vec<String> {
        vec![
            self.subject.clone(),
            or_dash(self.plan.as_deref()),
            or_dash(self.timezone.as_deref()),
            self.limits(),
            self.thresholds(),
            self.contacts(),
        ]
    }

    /// Each limit with its metric.
    fn limits(&self) -> String {
        let limits = self.limits.iter().flat_map(|(metric, limits)| {
            let texts = limits.to_string();
            texts.split(' ').map(|limit| format!("{metric}={}", separated(limit))).collect::<Vec<_>>()
        });
        let limits: Vec<String> = limits.collect();
        or_dash((!limits.is_empty()).then(|| limits.join(" ")))
    }

    fn thresholds(&self) -> String {
        or_dash(self.thresholds.as_deref().map(write_thresholds))
    }

    fn contacts(&self) -> String {
        let shown = |contact: &Contact| format!("{}{}", contact.address(), reservations(contact));
        let contacts: Vec<String> = self.contacts.iter().map(shown).collect();
        let contacts = or_dash((!contacts.is_empty()).then(|| contacts.join(" ")));
        [contacts].into_iter().chain(self.mutes()).collect::<Vec<_>>().join("; ")
    }

    /// What of it is muted, until when and why, a sentence each.
    fn mutes(&self) -> impl Iterator<Item = String> {
        let told = |metric: Option<&Metric>, mute: &Mute| MutedPart { metric, mute }.to_string();
        let of_metrics = self.metric_mutes.iter().map(move |(metric, mute)| told(Some(metric), mute));
        self.mute.iter().map(move |mute| told(None, mute)).chain(of_metrics)
    }
}

/// Why a contact gets no alerts, to stand beside it; empty for one that gets them.
fn reservations(contact: &Contact) -> String {
    let muted = contact.mute.as_ref().map(|mute| format!(" ({mute})"));
    let unverified = (!contact.verified).then(|| " (not confirmed)".to_owned());
    let disabled = contact.disabled.as_ref().map(|state| format!(" (disabled since {}: {state})", state.at));
    muted.into_iter().chain(unverified).chain(disabled).collect()
}

/// The columns of [`SubjectView::row`].
pub(super) const HEADING: [&str; 6] = ["SUBJECT", "PLAN", "TIMEZONE", "LIMITS", "THRESHOLDS", "CONTACTS"];
/// All of them: `subject show` cuts nothing.
pub(super) const MAY_SHRINK: &[&str] = &HEADING;

pub async fn run(args: SubjectShowArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let fields = subject_settings::read_fields(&redis, &args.subject).await?;
    if fields.is_empty() {
        return Err(hint::failed(
            format_args!("nothing is set for subject {}", args.subject),
            format_args!(
                "it has the default plan {:?} and the fallback contacts; `quotabell usage` shows its counts",
                plans.default_plan_of(args.subject.as_str()).name
            ),
        ));
    }
    let now = redis.server_time().await?;
    let shown = SubjectView::read(args.subject.as_str().as_bytes(), &fields, &plans, now);
    shown.warn();
    output::print(&args.format, &shown, |output| output.pairs(&pairs(&shown)))
}

fn pairs(shown: &SubjectView) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("subject", shown.subject.clone()),
        ("plan", or_dash(shown.plan.as_deref())),
        ("timezone", or_dash(shown.timezone.as_deref())),
        ("billing day", or_dash(shown.billing_day)),
        ("billing month", or_dash(shown.billing_month)),
        ("limits", shown.limits()),
        ("thresholds", shown.thresholds()),
        ("locale", or_dash(shown.locale.as_ref())),
        ("name", or_dash(shown.name.as_ref())),
    ];
    if shown.contacts.is_empty() {
        pairs.push(("contact", or_dash(None::<&str>)));
    }
    for contact in &shown.contacts {
        let filter = match &contact.filter {
            filter if *filter == ContactFilter::default() => String::new(),
            filter => format!(" (alerts: {})", filter.summary()),
        };
        let (channel, address) = (contact.channel().as_str(), contact.address());
        pairs.push(("contact", format!("{} {channel} {address}{}{filter}", contact.id, reservations(contact))));
    }
    pairs.extend(shown.mutes().map(|mute| ("mute", mute)));
    pairs
}
