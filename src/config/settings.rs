//! The settings: the configuration types of all parts. Read next: [`check`](super::check), the relations between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::config::{CheckConfig, HttpConfig};
use crate::api::ingestion::config::EventsConfig;
use crate::channels::email::EmailConfig;
use crate::channels::webhook::WebhookConfig;
use crate::channels::{ChannelSettings, DnsConfig};
use crate::console::config::ConsoleConfig;
use crate::contacts::{FallbackConfig, OperatorConfig, masked_contact};
use crate::events::config::StreamConfig;
use crate::ledger::history::HistoryConfig;
use crate::outbox::{AlertsConfig, DeliveryConfig, RetryConfig};
use crate::portal::config::PortalConfig;
use crate::redis_client::RedisConfig;
use crate::redis_client::endpoint::UrlSource;
use crate::subjects::config::{PlanConfig, SubjectsConfig};
use crate::types::{Metric, MetricFormat, duration};
use crate::verification::VerificationConfig;

use super::place::Places;
use crate::types::text_form::text_enum;

/// Every setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The plan of subjects that name no plan; a key of `plans`.
    pub default_plan: String,
    /// `[redis]`.
    pub redis: RedisConfig,
    /// `[stream]`.
    pub stream: StreamConfig,
    /// `[events]`.
    pub events: EventsConfig,
    /// `[history]`.
    pub history: HistoryConfig,
    /// `[subjects]`.
    pub subjects: SubjectsConfig,
    /// `[plans.*]`.
    pub plans: BTreeMap<String, PlanConfig>,
    /// `[metrics.*]`: how people read their counts.
    pub metrics: BTreeMap<Metric, MetricFormat>,
    /// `[alerts]`.
    pub alerts: AlertsConfig,
    /// `[fallback]`.
    pub fallback: FallbackConfig,
    /// `[operator]`.
    pub operator: OperatorConfig,
    /// `[delivery]`.
    pub delivery: DeliveryConfig,
    /// `[retry]`.
    pub retry: RetryConfig,
    /// `[webhook]`.
    pub webhook: WebhookConfig,
    /// `[email]`.
    pub email: EmailConfig,
    /// `[dns]`.
    pub dns: DnsConfig,
    /// `[http]`.
    pub http: HttpConfig,
    /// `[console]`.
    pub console: ConsoleConfig,
    /// `[portal]`.
    pub portal: PortalConfig,
    /// `[check]`.
    pub check: CheckConfig,
    /// `[verification]`.
    pub verification: VerificationConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[shutdown]`.
    pub shutdown: ShutdownConfig,
    /// The place of each key, for the parts that check their own settings.
    #[serde(skip)]
    pub(super) places: Places,
}

/// The settings that can change while the daemon runs.
const OF_PLANS: [&str; 3] = ["default_plan", "plans", "metrics"];
const RELOADED: [&str; 5] = ["events.types", "http.token", "http.token_file", "http.tokens", "subjects.default_plans"];

impl Config {
    /// The keys whose values differ in the other configuration and apply only after a restart, such as `email.timeout`.
    pub fn changed_until_restart(&self, other: &Self) -> Vec<String> {
        let [own, new] =
            [self, other].map(|config| serde_json::to_value(config).expect("settings are text and numbers"));
        // Serialization masks these settings, or the password in them.
        let secrets = [
            ("redis.url", self.redis.url != other.redis.url),
            ("email.smtp_url", self.email.smtp_url != other.email.smtp_url),
            ("webhook.proxy", self.webhook.proxy != other.webhook.proxy),
        ];
        let mut changed: BTreeSet<String> =
            secrets.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect();
        for section in differing(&own, &new).filter(|section| !OF_PLANS.contains(&section.as_str())) {
            let keys: Vec<String> = differing(&own[&section], &new[&section]).collect();
            changed.extend(keys.iter().map(|key| format!("{section}.{key}")));
        }
        changed.into_iter().filter(|key| !RELOADED.contains(&key.as_str())).collect()
    }

    /// The files with secrets and authorities that settings name and whose content applies only after a restart.
    pub fn named_files(&self) -> Vec<NamedFile<'_>> {
        let dkim = self.email.dkim.as_ref().map(|dkim| &dkim.key_file);
        let files = [
            (UrlSource::URL_FILE, self.redis.url_file.as_ref()),
            ("redis.ca_file", self.redis.ca_file.as_ref()),
            ("email.smtp_url_file", self.email.smtp_url_file.as_ref()),
            ("email.ca_file", self.email.ca_file.as_ref()),
            ("email.dkim.key_file", dkim),
            ("webhook.ca_file", self.webhook.ca_file.as_ref()),
            ("portal.logo_file", self.portal.logo_file.as_ref()),
        ];
        files.into_iter().filter_map(|(setting, path)| Some(NamedFile { setting, path: path? })).collect()
    }

    /// Whether the operator's file sets anything. An empty file, or one with comments only, does not.
    pub fn has_file_settings(&self) -> bool {
        self.places.any_in_file()
    }

    /// These settings for display, without the secrets and passwords of contacts.
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.fallback.contacts = self.fallback.contacts.iter().map(masked_contact).collect();
        for one in &mut shown.operator.contacts {
            one.contact = masked_contact(&one.contact);
        }
        shown
    }

    /// The sections of the channels. Add the section of a new channel here.
    pub const fn channel_settings(&self) -> ChannelSettings<'_> {
        ChannelSettings { email: &self.email, webhook: &self.webhook, dns: &self.dns }
    }
}

/// A file and the setting that names it.
#[derive(Debug, Clone, Copy)]
pub struct NamedFile<'a> {
    pub setting: &'static str,
    pub path: &'a Path,
}

/// The keys of two tables whose values differ.
fn differing<'a>(own: &'a Value, new: &'a Value) -> impl Iterator<Item = String> + use<'a> {
    let keys = [own, new].into_iter().filter_map(Value::as_object).flat_map(|table| table.keys());
    let keys: BTreeSet<&String> = keys.collect();
    keys.into_iter().filter(|key| own.get(key.as_str()) != new.get(key.as_str())).cloned()
}

/// The section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    pub format: LogFormat,
    /// Minimum level of the events that are logged.
    pub level: LogLevel,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

text_enum! {
    /// How important an event must be to be logged.
    pub enum LogLevel {
        /// A failure that an operator has to fix.
        Error = "error",
        /// An unusual condition.
        Warn = "warn",
        /// An ordinary event.
        Info = "info",
        /// Details of an event.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// The section `[shutdown]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownConfig {
    /// Maximum time for running attempts after SIGTERM; later ones are left to the next start.
    #[serde(with = "duration")]
    pub drain: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::Contact;
    use crate::types::Secret;

    /// A change of only a password must be reported, but the password must not appear in the log.
    #[test]
    fn settings_that_differ_are_named_without_their_values() {
        let before = Config::defaults().expect("valid");
        let changed = |change: fn(&mut Config)| {
            let mut after = before.clone();
            change(&mut after);
            before.changed_until_restart(&after)
        };
        assert!(changed(|_| {}).is_empty());
        assert!(changed(|config| config.plans.clear()).is_empty());
        assert!(changed(|config| config.default_plan = "pro".to_owned()).is_empty());
        let secrets = changed(|config| {
            config.redis.url = "redis://:one@127.0.0.1".into();
            config.email.smtp_url = "smtps://user:two@b.test".into();
            config.http.token = Some(Secret::new("three".to_owned()));
            config.webhook.proxy = Some("http://user:four@proxy.test".into());
        });
        assert_eq!(secrets, ["email.smtp_url", "redis.url", "webhook.proxy"], "a token is in effect at once");
        let others = changed(|config| {
            config.webhook.timeout *= 2;
            config.webhook.allow_http ^= true;
            config.fallback.contacts = vec![Contact::webhook("https://a.test", Secret::new("four".to_owned()))];
        });
        assert_eq!(others, ["fallback.contacts", "webhook.allow_http", "webhook.timeout"]);
        let passwords = ["redis://:one@a.test", "redis://:two@a.test"].map(|url| {
            let mut config = before.clone();
            config.redis.url = url.into();
            config
        });
        assert_eq!(passwords[0].changed_until_restart(&passwords[1]), ["redis.url"]);
        let tokens = ["one", "two"].map(|token| {
            let mut config = before.clone();
            config.fallback.contacts = vec![Contact::webhook("https://a.test", Secret::new(token.to_owned()))];
            config
        });
        assert_eq!(tokens[0].changed_until_restart(&tokens[1]), ["fallback.contacts"]);
    }
}
