//! `whatif`: which alerts another plan would have raised.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::connect;
use super::context::CliContext;
use super::since::Since;
use crate::subjects::config::PlanConfig;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, Table, say, say_empty};
use crate::types::limits::LimitsError;
use crate::types::text::pluralize;
use crate::types::{Limits, Metric, Percent, Subject, Threshold, WindowLimit, threshold};
use crate::views::whatif::{self, TriedPlan, WhatIfAlertView, WhatIfRecipient, WhatIfRequest, WhatIfScope};

#[derive(Debug, Args)]
#[command(after_help = "Replays the days that are kept (history.days) and those that still have counters. No hours \
        are kept, so an alert has only its day, and limits of an hour or in total are left out. If the first days of a \
        period are no longer kept, counting starts at its first kept day. With --plan, limits and thresholds of a \
        subject itself stay as they are; --limit replaces them. A contact's digest counts as one message, by whole \
        days: a short digest may send more. TO names a contact's quiet time, because it is not known whether an alert \
        came in it. Mutes, caps and grants are ignored. Changes nothing.

Examples:
  quotabell whatif --limit requests=6000/day
  quotabell whatif --limit requests=100000/month --threshold 50,90 --plan-name free --since 90d
  quotabell whatif --plan pro.toml --subject alice --json | jq '.alerts[] | {day, threshold, to}'

A file has what a section [plans.NAME] has:
  limits = { requests = \"6000/day\" }
  thresholds = [50, 90]")]
pub struct WhatIfArgs {
    /// A file (TOML) with the limits and thresholds of a plan
    #[arg(long, value_name = "FILE", required_unless_present = "limits", conflicts_with_all = ["limits", "thresholds"])]
    pub plan: Option<PathBuf>,
    /// Units of a metric in each day, week, month, quarter or year
    #[arg(long = "limit", value_name = "METRIC=UNITS/WINDOW", value_parser = parse_limit)]
    pub limits: Vec<(Metric, WindowLimit)>,
    /// When an alert is due: at a percentage of a limit, at used:UNITS or at remaining:UNITS [default: 80,100]
    #[arg(long = "threshold", value_name = "THRESHOLD", value_delimiter = ',')]
    pub thresholds: Vec<Threshold>,
    /// Only alerts since then: a duration before now, such as 30d, or a time
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub since: Since,
    /// Only this subject
    #[arg(long, conflicts_with = "plan_name")]
    pub subject: Option<Subject>,
    /// Only subjects of this plan
    #[arg(long, value_name = "NAME")]
    pub plan_name: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

fn parse_limit(text: &str) -> Result<(Metric, WindowLimit), String> {
    let (metric, limit) = text.split_once('=').ok_or("write METRIC=UNITS/WINDOW, such as requests=6000/day")?;
    let metric = metric.parse().map_err(|error| format!("{error}"))?;
    Ok((metric, limit.parse().map_err(|error| format!("{error}"))?))
}

pub async fn run(args: WhatIfArgs, context: &CliContext) -> anyhow::Result<()> {
    let tried = tried(&args)?;
    let config = context.config()?;
    let plans = config.plans()?;
    if let Some(name) = args.plan_name.as_ref().filter(|name| plans.get(name).is_none()) {
        let names = plans.names().join(", ");
        return Err(hint::usage(format_args!("--plan-name: {name:?} is no plan"), format!("the plans are {names}")));
    }
    let scope = match (args.subject, args.plan_name) {
        (Some(subject), _) => WhatIfScope::Subject(subject),
        (None, Some(name)) => WhatIfScope::Plan(name),
        (None, None) => WhatIfScope::All,
    };
    let redis = connect::redis(&config).await?;
    let now = redis.server_time().await?;
    if args.since.before(now) > now {
        return Err(hint::usage("--since is in the future", "name a time that has passed"));
    }
    let request = WhatIfRequest { tried, scope, since: args.since.before(now), now };
    let view = whatif::read(&redis.partitions, &plans, &config.contact_resolver(), &request).await;
    let view = redis.explained("read the usage of past days", view)?;
    if view.unreadable > 0 {
        let subjects = pluralize(view.unreadable as u64, "subject is", "subjects are");
        say(format_args!("warning: {subjects} left out, because settings can't be read"));
    }
    for metric in &view.without_usage {
        let by =
            if let WhatIfScope::Subject(subject) = &request.scope { format!(" by {subject}") } else { String::new() };
        say(format_args!("warning: no usage of {metric}{by} is kept"));
    }
    for limit in &view.not_replayed {
        say(format_args!("warning: {limit} is left out: usage by hour or in total is not kept"));
    }
    output::print(&args.format, &view, |output| {
        if view.alerts.is_empty() {
            say_empty("no alert would have been raised");
        } else {
            let rows: Vec<Vec<String>> = view.alerts.iter().map(row).collect();
            output.rows(&mut Table::new(&HEADING).may_shrink(&["SUBJECT"]), &rows)?;
        }
        let alerts = pluralize((view.alerts.len() + view.left_out) as u64, "alert", "alerts");
        let messages = pluralize(view.messages as u64, "message", "messages");
        let subjects = pluralize(view.subjects as u64, "subject", "subjects");
        // The present limits include those that are left out.
        let now = match view.not_replayed.as_slice() {
            [] => {
                let now = pluralize(view.alerts_now as u64, "alert", "alerts");
                format!("; under the present limits of these metrics {now}")
            }
            _ => String::new(),
        };
        let gathered = match view.messages_without_digests {
            alone if alone == view.messages => String::new(),
            alone => format!(" ({alone} without digests)"),
        };
        say(format_args!("{alerts} and {messages}{gathered} for {subjects}{now}"));
        if view.left_out > 0 {
            say(format_args!("warning: only {} alerts are listed: choose a subject or a plan", view.alerts.len()));
        }
        Ok(())
    })
}

const HEADING: [&str; 8] = ["DAY", "SUBJECT", "METRIC", "PERIOD", "THRESHOLD", "USED", "LIMIT", "TO"];

fn row(alert: &WhatIfAlertView) -> Vec<String> {
    vec![
        alert.day.to_string(),
        alert.subject.to_string(),
        alert.metric.to_string(),
        alert.period.to_string(),
        alert.format.threshold(alert.threshold),
        alert.format.amount(alert.used),
        alert.format.amount(alert.limit),
        alert.to.iter().map(recipient).collect::<Vec<_>>().join(" "),
    ]
}

/// `alice@example.com`, or `alice@example.com (digest 1h, quiet 22:00-07:00)`.
fn recipient(WhatIfRecipient { address, digest, quiet }: &WhatIfRecipient) -> String {
    let digest = digest.map(|digest| format!("digest {digest}"));
    let quiet = quiet.map(|quiet| format!("quiet {quiet}"));
    let waits: Vec<String> = digest.into_iter().chain(quiet).collect();
    if waits.is_empty() { address.clone() } else { format!("{address} ({})", waits.join(", ")) }
}

/// The limits and thresholds that are tried, from the file or the arguments.
fn tried(args: &WhatIfArgs) -> anyhow::Result<TriedPlan> {
    let Some(file) = &args.plan else {
        let mut limits: BTreeMap<Metric, Vec<WindowLimit>> = BTreeMap::new();
        for (metric, limit) in &args.limits {
            limits.entry(metric.clone()).or_default().push(*limit);
        }
        let limits = limits.into_iter().map(|(metric, limits)| Ok((metric, Limits::new(limits)?)));
        let limits: Result<_, LimitsError> = limits.collect();
        let limits = limits.map_err(|error| hint::usage(format_args!("--limit: {error}"), "a window has one limit"))?;
        let percents = || [80, 100].into_iter().filter_map(Percent::new).map(Threshold::from).collect();
        let thresholds = if args.thresholds.is_empty() { percents() } else { args.thresholds.clone() };
        return checked(TriedPlan { limits, thresholds, is_plan: false });
    };
    let shown = file.display();
    let hint = "--plan takes a file with limits and thresholds, --plan-name selects subjects";
    let wrong = |why: String| hint::failed(format_args!("--plan: {shown}: {why}"), hint);
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let PlanConfig { limits, thresholds, .. } =
        toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    checked(TriedPlan { limits, thresholds, is_plan: true })
}

fn checked(tried: TriedPlan) -> anyhow::Result<TriedPlan> {
    let thresholds = threshold::ascending(tried.thresholds)
        .map_err(|error| hint::usage(format_args!("thresholds: {error}"), "each threshold is named once"))?;
    if thresholds.is_empty() || tried.limits.is_empty() {
        return Err(hint::usage(
            "nothing can be replayed without limits and thresholds",
            "name a limit and a threshold",
        ));
    }
    Ok(TriedPlan { thresholds, ..tried })
}
