//! The settings: one value of each part's own type. Read next: [`check`](super::check), the relations between them.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::config::{CheckConfig, HttpConfig};
use crate::channels::email::EmailConfig;
use crate::channels::webhook::WebhookConfig;
use crate::channels::{ChannelSettings, DnsConfig};
use crate::contacts::{FallbackConfig, OperatorConfig, masked_contact};
use crate::events::config::StreamConfig;
use crate::ledger::history::HistoryConfig;
use crate::outbox::{AlertsConfig, DeliveryConfig, RetryConfig};
use crate::subjects::config::{PlanConfig, SubjectsConfig};
use crate::types::duration;
use crate::verification::VerificationConfig;
use crate::wire::RedisConfig;

use super::place::Places;
use crate::types::text_form::text_enum;

/// Every setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The plan of subjects that name none; a key of `plans`.
    pub default_plan: String,
    /// `[redis]`.
    pub redis: RedisConfig,
    /// `[stream]`.
    pub stream: StreamConfig,
    /// `[history]`.
    pub history: HistoryConfig,
    /// `[subjects]`.
    pub subjects: SubjectsConfig,
    /// `[plans.*]`.
    pub plans: BTreeMap<String, PlanConfig>,
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
    /// `[check]`.
    pub check: CheckConfig,
    /// `[verification]`.
    pub verification: VerificationConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[shutdown]`.
    pub shutdown: ShutdownConfig,
    /// Where each key was written, for the parts that judge their own settings.
    #[serde(skip)]
    pub(super) places: Places,
}

impl Config {
    /// Whether the other configuration differs in nothing but its plans.
    pub fn is_same_but_for_plans(&self, other: &Self) -> bool {
        let Self { default_plan, plans, places, .. } = self.clone();
        Self { default_plan, plans, places, ..other.clone() } == *self
    }

    /// These settings without the secrets and passwords of their contacts, to be shown.
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.fallback.contacts = self.fallback.contacts.iter().map(masked_contact).collect();
        for one in &mut shown.operator.contacts {
            one.contact = masked_contact(&one.contact);
        }
        shown
    }

    /// The sections that belong to channels: a new channel's is added here.
    pub fn channel_settings(&self) -> ChannelSettings<'_> {
        ChannelSettings::new([&self.email as &dyn Any, &self.webhook, &self.dns])
    }
}

/// The section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    pub format: LogFormat,
    /// The least level that is written.
    pub level: LogLevel,
}

/// How a log line looks.
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
        /// Something failed that somebody must mend.
        Error = "error",
        /// Something is odd.
        Warn = "warn",
        /// What happened.
        Info = "info",
        /// How it happened.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// The section `[shutdown]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long attempts that are under way may take after SIGTERM before they are left to the next start.
    #[serde(with = "duration")]
    pub drain: Duration,
}
