//! `subject remove`: forgets what is set for subjects, or everything that is stored of them.

use std::time::Duration;

use clap::Args;

use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::erasure::{self, branch};
use crate::subjects::Plans;
use crate::terminal::hint;
use crate::terminal::output::say;
use crate::types::Subject;
use crate::types::text::pluralize;

#[derive(Debug, Args)]
#[command(
    after_help = "Counts and alerts stay: a removed subject is still metered, with the default plan and the fallback \
        contacts. Pending deliveries to its contacts are cancelled, and incidents at PagerDuty stay open.
With --everything, counts, grants, alerts, history, refused events, deliveries, codes, confirm links and limiters are \
    removed too, also of all levels below a subject. The daemon may run: \
    later usage is counted from zero. If it fails, repeat it.

Examples:
  quotabell subject remove alice
  quotabell subject remove alice bob
  quotabell subject remove --everything alice"
)]
pub struct SubjectRemoveArgs {
    /// The subjects
    #[arg(required = true, value_name = "SUBJECT")]
    pub subjects: Vec<Subject>,
    /// Also remove counts, alerts and deliveries
    #[arg(long)]
    pub everything: bool,
}

pub async fn run(args: SubjectRemoveArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    if args.everything {
        let plans = config.plans()?;
        return erase(&args.subjects, &redis, &plans, config.stream.event_age_max()).await;
    }
    let mut pipeline = redis::pipe();
    for subject in &args.subjects {
        pipeline.cmd("DEL").arg(redis.keys().subject(subject));
    }
    let removed: Vec<u64> = redis.pipe("remove subjects", &pipeline).await?;
    let mut absent = Vec::new();
    for (subject, removed) in args.subjects.iter().zip(removed) {
        if removed == 0 {
            absent.push(subject.as_str());
        } else {
            say(format_args!("removed {subject}"));
            redis.record("removeSubject", Some(subject), "", 1).await;
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    Err(hint::failed(
        format_args!("nothing was set for {}", absent.join(", ")),
        "`quotabell subject list` shows the subjects for which something is set",
    ))
}

async fn erase(
    subjects: &[Subject],
    redis: &CliConnection,
    plans: &Plans,
    event_age_max: Duration,
) -> anyhow::Result<()> {
    for subject in subjects {
        let below = branch::below(&redis.partitions, subject).await;
        let below = redis.explained(format_args!("find the subjects below {subject}"), below)?;
        if !below.is_empty() {
            let subjects = pluralize(below.len(), "subject", "subjects");
            say(format_args!("{subject} has {subjects} below it, which are removed too"));
        }
        let erased = erasure::erase_branch(&redis.partitions, plans, event_age_max, subject, &below).await;
        let erased = redis.explained(format_args!("remove everything of {subject}"), erased)?;
        say(format_args!("removed {subject}: {}", erased.removed));
        // Without the subject's name.
        redis.record("eraseSubject", None, "", below.len() + 1).await;
    }
    Ok(())
}
