//! `preview`: a template rendered with sample values.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::context::CliContext;
use crate::channels::sample::SAMPLE_AT;
use crate::channels::{Labels, PreviewMessage, PreviewPart, PreviewRequest, REGISTRY, Sample};
use crate::contacts::MessageFormat;
use crate::terminal::hint;
use crate::terminal::output::Output;
use crate::types::{
    Alert, BillingDay, BillingMonth, BillingStart, DisplayName, Locale, Metric, Subject, Threshold, UsageNoticeKind,
    WindowLimit,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Uses the templates that the settings name: the embedded ones, or those in email.templates. Sends nothing.

Examples:
  quotabell preview text
  quotabell preview html --threshold 100 > alert.html
  quotabell preview text --locale vi
  quotabell preview webhook --subject alice --limit 5000 | jq .
  quotabell preview --format slack
  quotabell preview --format template:ops --threshold 100
  quotabell preview text --limit 600/hour
  quotabell preview subject --limit 100000/month --billing-day 15
  quotabell preview verify-text
  quotabell preview usage-notice-text --kind quota.spike"
)]
pub struct PreviewArgs {
    /// Which text, of those that the channels have. The help names them all.
    #[arg(value_parser = part_names(), help = parts_help(), hide_possible_values = true)]
    #[arg(required_unless_present = "format")]
    pub part: Option<String>,
    /// The webhook's body in this format: standard, cloudevents, slack, discord, teams, pagerduty or template:NAME
    #[arg(long)]
    pub format: Option<MessageFormat>,
    /// What the texts named usage-notice say: quota.forecast, quota.spike or quota.silence [default: quota.forecast]
    #[arg(long, value_name = "TYPE", value_parser = usage_kind)]
    pub kind: Option<UsageNoticeKind>,
    /// The language of the reader, such as vi or pt-BR [default: email.locale]
    #[arg(long, value_name = "TAG")]
    pub locale: Option<Locale>,
    /// The sample's subject
    #[arg(long, default_value = "alice")]
    pub subject: Subject,
    /// The display name of the sample's subject
    #[arg(long)]
    pub name: Option<DisplayName>,
    /// The sample's metric
    #[arg(long, default_value = "requests")]
    pub metric: Metric,
    /// The sample's threshold: percent, used:UNITS or remaining:UNITS
    #[arg(long, value_name = "THRESHOLD", default_value = "80")]
    pub threshold: Threshold,
    /// The sample's limit: units a day, or units and a window, such as 600/hour
    #[arg(long, value_name = "UNITS/WINDOW", default_value = "5000")]
    pub limit: WindowLimit,
    /// The day of the month on which the sample's months begin
    #[arg(long, value_name = "DAY", default_value = "1")]
    pub billing_day: BillingDay,
    /// The month in which the sample's years begin
    #[arg(long, value_name = "MONTH", default_value = "1")]
    pub billing_month: BillingMonth,
}

/// The names of all texts, with descriptions.
fn parts_help() -> String {
    let texts: Vec<String> = parts().map(|part| format!("{} ({})", part.name, lower_first(part.about))).collect();
    format!("Which text: {}", texts.join("; "))
}

fn lower_first(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

fn usage_kind(text: &str) -> Result<UsageNoticeKind, String> {
    let found = UsageNoticeKind::ALL.into_iter().find(|kind| kind.webhook_type() == text);
    let allowed = || UsageNoticeKind::ALL.map(UsageNoticeKind::webhook_type).join(", ");
    found.ok_or_else(|| format!("allowed are {}", allowed()))
}

/// The texts that can be rendered: all texts of all channels.
fn parts() -> impl Iterator<Item = &'static PreviewPart> {
    REGISTRY.into_iter().flat_map(|definition| definition.preview_parts)
}

fn part_names() -> PossibleValuesParser {
    parts().map(|part| PossibleValue::new(part.name).help(part.about)).into()
}

pub async fn run(args: PreviewArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let format = args.format.clone().unwrap_or_default();
    let meant = part_of(&args)?;
    let (locale, kind) = (args.locale.clone(), args.kind.unwrap_or(UsageNoticeKind::Forecast));
    let name = args.name.clone();
    let alert = Alert { plan: config.default_plan.clone(), ..sample(args)? };
    let labels = &Labels::new(&config.plans()?, &alert, name);
    let request = PreviewRequest { alert: &alert, labels, format: &format, kind, locale: locale.as_ref() };
    let previews = config.preview(request)?;
    let text = previews.into_iter().find(|preview| preview.part.name == meant).expect("every part is rendered").text;
    let mut output = Output::stdout();
    output.line(text.strip_suffix('\n').unwrap_or(&text))?;
    output.finish()
}

/// The name of the selected part: a format selects the body of the channel that has formats.
fn part_of(args: &PreviewArgs) -> anyhow::Result<&'static str> {
    let with_formats = REGISTRY.into_iter().find(|definition| definition.secret.is_some());
    let bodies = with_formats.map_or(&[][..], |definition| definition.preview_parts);
    let body = bodies.first().map(|part| part.name);
    let named = args.part.as_deref().and_then(|name| parts().find(|part| part.name == name));
    let is_of = |message: PreviewMessage| named.is_some_and(|part| part.message == message);
    if args.kind.is_some() && !is_of(PreviewMessage::UsageNotice) {
        return Err(hint::usage(
            "--kind applies only to the texts named usage-notice",
            "leave --kind out, or name one of them",
        ));
    }
    let is_body = named.is_none_or(|part| bodies.iter().any(|known| known.name == part.name));
    if args.locale.is_some() && is_body {
        let wrong = "--locale applies only to emails: chats and other receivers of webhooks get English";
        return Err(hint::usage(wrong, "leave --locale out, or name a text of an email"));
    }
    // A preview would show an incident that no message opens.
    let is_never_sent = is_body && (is_of(PreviewMessage::UsageNotice) || is_of(PreviewMessage::Set));
    if let (Some(format), Some(part)) =
        (args.format.as_ref().filter(|format| format.has_incidents()), named.filter(|_| is_never_sent))
    {
        let wrong = format!("{format} gets no message of the kind {}", part.name);
        return Err(hint::usage(
            wrong,
            "forecasts, spikes, silences and digests would open incidents that nothing closes",
        ));
    }
    let is_forecast = args.kind.is_none_or(|kind| kind == UsageNoticeKind::Forecast);
    let tells_forecast = is_of(PreviewMessage::UsageNotice) && is_forecast || is_of(PreviewMessage::Set);
    let window = args.limit.window;
    if let Some(part) = named.filter(|_| tells_forecast && !window.has_forecast()) {
        let wrong = format!("{} tells of a forecast, and limits by {window} have none", part.name);
        return Err(hint::usage(wrong, "forecasts have the windows day, week and month"));
    }
    match (named, &args.format, body) {
        (Some(PreviewPart { name, .. }), Some(format), Some(body)) if !is_body => {
            let wrong = format!("{name} has no formats, only {body} has");
            Err(hint::usage(wrong, format_args!("leave {name} out: `quotabell preview --format {format}`")))
        }
        (Some(part), ..) => Ok(part.name),
        (None, ..) => Ok(body.unwrap_or_default()),
    }
}

/// The sample with which templates are checked, with the values of the arguments. It has just reached its threshold and
/// is always raised at the same time, so that two versions of a template can be compared.
fn sample(args: PreviewArgs) -> anyhow::Result<Alert> {
    let PreviewArgs {
        part: _,
        format: _,
        kind: _,
        locale: _,
        subject,
        name: _,
        metric,
        threshold,
        limit,
        billing_day: day,
        billing_month: month,
    } = args;
    let billing = BillingStart { month, day };
    if threshold.units_of(limit.units).is_none() {
        let wrong = format!("{threshold} is never due with a limit of {}", limit.units);
        return Err(hint::usage(wrong, "set a higher --limit"));
    }
    Ok(Sample { metric, limit, billing, ..Sample::for_subject(subject) }.alert(threshold, SAMPLE_AT))
}
