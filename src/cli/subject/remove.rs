//! `subject remove`: forgets what is set for subjects. Their counts and alerts stay.

use clap::Args;

use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::terminal::hint;
use crate::terminal::output::say;
use crate::types::Subject;

/// Arguments of `subject remove`.
#[derive(Debug, Args)]
#[command(
    after_help = "Counts and alerts stay: a removed subject is metered on with the default plan and the fallback contacts. \
    Pending deliveries to its contacts are cancelled.

Examples:
  quotabell subject remove alice
  quotabell subject remove alice bob"
)]
pub struct SubjectRemoveArgs {
    /// Who
    #[arg(required = true, value_name = "SUBJECT")]
    pub subjects: Vec<Subject>,
}

/// Removes the subjects.
///
/// # Errors
///
/// When nothing was set for one of them (the others are removed); a bad configuration or Redis.
pub async fn run(args: SubjectRemoveArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let mut pipeline = redis::pipe();
    for subject in &args.subjects {
        pipeline.cmd("DEL").arg(redis.keys().subject(subject));
    }
    let removed: Vec<u64> = redis.pipe("remove subjects", &pipeline).await?;
    let mut absent = Vec::new();
    for (subject, removed) in args.subjects.iter().zip(removed) {
        if removed == 0 { absent.push(subject.as_str()) } else { say(format_args!("removed {subject}")) }
    }
    if absent.is_empty() {
        return Ok(());
    }
    Err(hint::failed(
        format_args!("nothing was set for {}", absent.join(", ")),
        "`quotabell subject list` shows the subjects for which something is set",
    ))
}
