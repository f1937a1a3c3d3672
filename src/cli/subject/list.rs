//! `subject list`: every subject for which something is set.

use std::collections::BTreeSet;

use clap::Args;

use super::show::{HEADING, MAY_SHRINK};
use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::cli::whole_number::from_one;
use crate::redis_client::Scan;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say, say_empty};
use crate::types::Subject;
use crate::views::{SubjectView, subject_list};

/// Hashes that are read in one write.
const CHUNK: usize = 500;

#[derive(Debug, Args)]
#[command(after_help = "Sorted by name. Secrets are shown as ***.

Examples:
  quotabell subject list
  quotabell subject list --limit 20
  quotabell subject list --json | jq -r 'select(.contacts == []) | .subject'")]
pub struct SubjectListArgs {
    /// Only the first N [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: SubjectListArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let subjects: Vec<Subject> = scan(&redis).await?.into_iter().collect();
    let mut left = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut subjects = subjects.as_slice();
    let mut printed = 0;
    let mut output = Output::stdout();
    let mut table = Table::new(&HEADING).may_shrink(MAY_SHRINK);
    while left > 0 && !subjects.is_empty() {
        let (chunk, rest) = subjects.split_at(subjects.len().min(CHUNK).min(left));
        let read = subject_list::read_subjects(redis.client(), redis.keys(), &plans, chunk).await;
        let (shown, not_hashes): (Vec<_>, Vec<_>) =
            redis.explained("read subjects", read)?.into_iter().partition(|subject| !subject.is_no_hash());
        for SubjectView { subject, .. } in not_hashes {
            let key = format!("{}{subject}", redis.keys().subject_prefix());
            say(format_args!("warning: key {key:?} is not a hash: nothing of this subject can be read"));
        }
        shown.iter().for_each(SubjectView::warn);
        (subjects, left, printed) = (rest, left - shown.len(), printed + shown.len());
        output.list(args.format.format(), &mut table, &shown, SubjectView::row)?;
    }
    if printed == 0 && args.format.format() == Format::Table {
        say_empty("no subjects");
    }
    output.finish()
}

/// Every subject, once each: SCAN may return a key more than once. A million subjects take some 60 MB here, and nothing
/// but time on the server.
async fn scan(redis: &CliConnection) -> anyhow::Result<BTreeSet<Subject>> {
    let (mut subjects, mut illegal) = (BTreeSet::new(), BTreeSet::new());
    let prefix = redis.keys().subject_prefix().len();
    let what = "list subjects";
    // In a cluster they lie on all of its primaries.
    for server in redis.explained(what, redis.client().primaries().await)? {
        let mut scan = Scan::keys(redis.keys().subject_pattern());
        while let Some(slice) = redis.explained(what, scan.next::<Vec<u8>>(&server).await)? {
            for key in slice {
                match Subject::parse(key.get(prefix..).unwrap_or_default()) {
                    Ok(subject) => drop(subjects.insert(subject)),
                    Err(_) => drop(illegal.insert(key)),
                }
            }
        }
    }
    for key in illegal {
        say(format_args!("warning: the key {:?} names no subject, so nothing reads it", String::from_utf8_lossy(&key)));
    }
    Ok(subjects)
}
