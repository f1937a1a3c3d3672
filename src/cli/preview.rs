//! `preview`: a template rendered with sample values.

use clap::{Args, ValueEnum};

use super::{Surroundings, hint};
use crate::types::{Metric, Percent, Subject, Units};

/// Arguments of `preview`.
#[derive(Debug, Args)]
#[command(
    after_help = "Renders what the settings in effect name: the embedded templates, or those of email.templates. Sends nothing.

Examples:
  quotabell preview text
  quotabell preview html --threshold 100 > alert.html
  quotabell preview webhook --subject alice --limit 5000 | jq ."
)]
pub struct PreviewArgs {
    /// Which part of an alert: subject, text, html or webhook
    #[arg(value_enum, hide_possible_values = true)]
    pub part: Part,
    /// The sample's subject
    #[arg(long, default_value = "alice")]
    pub subject: Subject,
    /// The sample's metric
    #[arg(long, default_value = "requests")]
    pub metric: Metric,
    /// The sample's threshold, percent
    #[arg(long, value_name = "PERCENT", default_value = "80")]
    pub threshold: Percent,
    /// The sample's limit, units
    #[arg(long, value_name = "UNITS", default_value = "5000")]
    pub limit: Units,
}

/// What can be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The e-mail's subject line
    Subject,
    /// The e-mail's text part
    Text,
    /// The e-mail's HTML part
    Html,
    /// The webhook's JSON body
    Webhook,
}

/// Prints the rendered part.
///
/// # Errors
///
/// A bad configuration or template, or stdout.
pub async fn run(_args: PreviewArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    surroundings.config()?;
    Err(hint::failed("preview: not built yet", "`quotabell check-config` works already"))
}
