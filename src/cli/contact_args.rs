//! Contacts as a command line names them. The nth secret belongs to the nth webhook, and so does the nth format.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use crate::actions::contact_spec::ContactColumns;
use crate::contacts::state::FilterChange;
use crate::types::Channel;

/// The options that name addresses.
#[derive(Debug, Clone, Args)]
pub struct AddressArgs {
    /// Email to this address
    #[arg(long, value_name = "ADDRESS")]
    email: Vec<String>,
    /// Webhook to this receiver
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// The webhook's secret: whsec_ and base64 of 24 to 64 bytes; for pagerduty its routing key
    #[arg(long, value_name = "SECRET")]
    webhook_secret: Vec<String>,
    /// The format of the webhook: standard, cloudevents, slack, discord, teams, pagerduty or template:NAME
    #[arg(long = "format", value_name = "FORMAT")]
    webhook_format: Vec<String>,
    /// A header of the webhook's requests; repeat the option for several headers
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
}

/// The same for a command that names several contacts, with the alerts that each gets.
#[derive(Debug, Clone, Args)]
pub struct FilteredAddressArgs {
    #[command(flatten)]
    addresses: AddressArgs,
    /// Thresholds whose alerts the nth --email gets, such as 80,remaining:1000, or `all`
    #[arg(long, value_name = "THRESHOLD,...")]
    email_threshold: Vec<String>,
    /// Metrics whose alerts the nth --email gets, or `all`
    #[arg(long, value_name = "METRIC,...")]
    email_metric: Vec<String>,
    /// Windows whose alerts the nth --email gets, such as day,month, or `all`
    #[arg(long, value_name = "WINDOW,...")]
    email_window: Vec<String>,
    /// Thresholds whose alerts the nth --webhook gets, such as 80,remaining:1000, or `all`
    #[arg(long, value_name = "THRESHOLD,...")]
    webhook_threshold: Vec<String>,
    /// Metrics whose alerts the nth --webhook gets, or `all`
    #[arg(long, value_name = "METRIC,...")]
    webhook_metric: Vec<String>,
    /// Windows whose alerts the nth --webhook gets, such as day,month, or `all`
    #[arg(long, value_name = "WINDOW,...")]
    webhook_window: Vec<String>,
}

/// The options that say which alerts one contact gets.
#[derive(Debug, Clone, Args)]
pub struct ContactFilterArgs {
    /// Only alerts at this threshold, such as 80, used:5000 or remaining:1000, or `all`
    #[arg(long = "threshold", value_name = "THRESHOLD")]
    thresholds: Vec<String>,
    /// Only alerts of this metric, or `all`
    #[arg(long = "metric", value_name = "METRIC")]
    metrics: Vec<String>,
    /// Only alerts of this window, such as day, or `all`
    #[arg(long = "window", value_name = "WINDOW")]
    windows: Vec<String>,
    /// Part of the day in which notifications wait, in the subject's zone, such as 22:00-07:00, or `none`. Alerts at
    /// 100 % are sent anyway
    #[arg(long, value_name = "HH:MM-HH:MM")]
    quiet: Option<String>,
    /// Alerts at 100 % wait too; `false` ends that
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    quiet_all: Option<String>,
    /// Time in which notifications are gathered into one message, such as 1h, or `none`. Alerts at 100 % of a day or
    /// longer are sent at once
    #[arg(long, value_name = "DURATION")]
    digest: Option<String>,
    /// Alerts at 100 % are gathered too; `false` ends that
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    digest_all: Option<String>,
    /// Also alerts of all levels below the subject; `false` ends that
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    subtree: Option<String>,
    /// Notify the contact when all its alerts of a quota have ended; `false` ends that. By default only pagerduty
    /// contacts are notified, to resolve their incidents
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    resolved: Option<String>,
}

fn header(line: &str) -> Result<(String, String), &'static str> {
    let (name, value) = line.split_once(':').ok_or("a header is written as \"Authorization: Bearer ...\"")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl AddressArgs {
    /// The options that name an address, one for each channel.
    pub fn names() -> [&'static str; Channel::SENDING.len()] {
        Channel::SENDING.map(Channel::as_str)
    }

    /// What is named, as a row of an import.
    ///
    /// # Errors
    ///
    /// Headers of several webhooks.
    pub fn into_columns(self) -> Result<ContactColumns, String> {
        let Self { email, webhook, webhook_secret, webhook_format, header } = self;
        if !header.is_empty() && webhook.len() > 1 {
            return Err(format!("--header belongs to one webhook, {} are named", webhook.len()));
        }
        let headers: BTreeMap<String, String> = header.into_iter().collect();
        let headers = if headers.is_empty() { Vec::new() } else { vec![json!(headers).to_string()] };
        let columns = ContactColumns::default().with("email", email).with("webhook", webhook);
        let columns = columns.with("webhook_secret", webhook_secret).with("webhook_format", webhook_format);
        Ok(columns.with("webhook_headers", headers))
    }
}

impl FilteredAddressArgs {
    /// As [`AddressArgs::into_columns`].
    pub fn into_columns(self) -> Result<ContactColumns, String> {
        let Self { addresses, email_threshold, email_metric, email_window, .. } = self;
        let Self { webhook_threshold, webhook_metric, webhook_window, .. } = self;
        let columns = addresses.into_columns()?.with("email_thresholds", email_threshold);
        let columns = columns.with("email_metrics", email_metric).with("webhook_thresholds", webhook_threshold);
        let columns = columns.with("webhook_metrics", webhook_metric);
        Ok(columns.with("email_windows", email_window).with("webhook_windows", webhook_window))
    }
}

impl ContactFilterArgs {
    /// What is to become of the alerts that the contact gets.
    ///
    /// # Errors
    ///
    /// A value that is no threshold, metric, window, quiet time or interval, is named twice, or stands beside `all`.
    pub fn change(&self) -> Result<FilterChange, String> {
        let joined = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        FilterChange::parse(|part| match part {
            "thresholds" => joined(&self.thresholds),
            "metrics" => joined(&self.metrics),
            "windows" => joined(&self.windows),
            "quiet" => self.quiet.clone(),
            "quiet_all" => self.quiet_all.clone(),
            "digest" => self.digest.clone(),
            "digest_all" => self.digest_all.clone(),
            "subtree" => self.subtree.clone(),
            "resolved" => self.resolved.clone(),
            _ => None,
        })
    }
}
