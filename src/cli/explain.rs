//! `explain`: explains the state of an alert, a delivery or a subject.

use std::sync::Arc;

use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, printable};
use crate::types::Subject;
use crate::views::explain::{Audience, ExplainError};

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).args(["id", "subject"]),
    after_help = "Explains everything from the usage that raised an alert to what happens next: the recipients, or why \
    there are none, mutes, caps, a pause, the circuit of the destination, and each attempt with what the other side \
    said. For a subject: what it used, and what is missing for the next alert.

Examples:
  quotabell explain 6f1ed002
  quotabell explain alert_5725b489d7cf5f4bb741e820dca044da
  quotabell explain '<digest_0a1b2c3d4e5f60718293a4b5c6d7e8f9@example.com>'    # a Message-ID
  quotabell explain alice
  quotabell explain --subject deadbeef    # a subject whose name looks like an id"
)]
pub struct ExplainArgs {
    /// An alert, a delivery (the id, or at least 8 digits of it), a notice or message (the id that its
    /// receiver knows) or a subject
    #[arg(value_name = "ALERT|DELIVERY|SUBJECT")]
    pub id: Option<String>,
    /// A subject, even if its name looks like an id
    #[arg(long)]
    pub subject: Option<Subject>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: ExplainArgs, context: &CliContext) -> anyhow::Result<()> {
    let ExplainArgs { id, subject, format } = args;
    let config = context.config_with_files()?;
    let redis = connect::redis(&config).await?;
    let explainer = config.explainer(&redis.partitions, Arc::new(config.channels()?), config.plans()?);
    let asked = async {
        match subject {
            Some(subject) => explainer.subject(&subject).await,
            None => explainer.explain(id.as_deref().unwrap_or_default(), Audience::Operator).await,
        }
    };
    let explained = match asked.await {
        Err(ExplainError::Redis(error)) => redis.explained("explain", Err(error))?,
        Err(error @ ExplainError::NothingNamed(_)) => {
            return Err(hint::failed(
                error,
                "deliveries stay readable for 14 days after their end, alerts until 48 hours after the end of their \
                 period; `quotabell alerts export` shows ids for longer; with --subject any name is taken for a \
                 subject",
            ));
        }
        Err(error @ ExplainError::Ambiguous { .. }) => return Err(hint::usage(error, "give more digits")),
        Err(error) => {
            return Err(hint::failed(
                error,
                "`quotabell deliveries list` and `quotabell alerts` show ids; deliveries stay readable for 14 days after their end",
            ));
        }
        Ok(explained) => explained,
    };
    output::print(&format, &explained, |output| {
        explained.explanation.iter().try_for_each(|sentence| output.sentence(&printable(sentence)))
    })
}
