//! `send-test`: one real message to one contact.

use clap::Args;

use super::output::FormatArgs;
use super::subject::change;
use super::{Surroundings, hint};
use crate::types::Subject;

/// Arguments of `send-test`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("to").required(true).args(["subject", "email", "webhook"]),
    after_help = "Sends at once, with the settings in effect, and prints what the other side said. Writes nothing to Redis.

Examples:
  quotabell send-test --email a@b.test
  quotabell send-test --webhook https://example.com/hook --webhook-secret whsec_...
  quotabell send-test --subject alice
  quotabell send-test --subject alice --contact c_0123456789abcdef"
)]
pub struct SendTestArgs {
    /// To a contact of this subject; to its only one, unless --contact names it
    #[arg(long)]
    pub subject: Option<Subject>,
    /// The id of the subject's contact
    #[arg(long, value_name = "ID", requires = "subject")]
    pub contact: Option<String>,
    /// To this address
    #[arg(long, value_name = "ADDRESS", value_parser = change::address)]
    pub email: Option<String>,
    /// To this receiver
    #[arg(long, value_name = "URL", value_parser = change::url)]
    pub webhook: Option<String>,
    /// The receiver's secret [default: a new one, printed]
    #[arg(long, value_name = "SECRET", requires = "webhook")]
    pub webhook_secret: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Sends the message.
///
/// # Errors
///
/// A bad configuration, no such contact, or an outcome that is not `delivered`.
pub async fn run(_args: SendTestArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    surroundings.config()?;
    Err(hint::failed("send-test: not built yet", "`quotabell check-config` works already"))
}
