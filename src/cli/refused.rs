//! `refused list`: the events that could not be counted, and why.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::connect::{self, Redis};
use super::context::CliContext;
use crate::terminal::output::{Format, FormatArgs, Output, Table, lossless, say_empty};
use crate::types::{Keys, StreamId};

/// Entries of one read: at most 16 fields of 1 KiB each, so a reply stays below 16 MB.
const LIST_PAGE_SIZE: usize = 500;

/// Arguments of `refused`.
#[derive(Debug, Args)]
pub struct RefusedArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: RefusedAction,
}

/// What to do with refused events.
#[derive(Debug, Subcommand)]
pub enum RefusedAction {
    /// List refused events, oldest first
    #[command(after_help = "The last 100000 or so are kept.

Examples:
  quotabell refused list --limit 20
  quotabell refused list --json | jq -r .reason | sort | uniq -c")]
    List {
        /// Only the newest N [default: all]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
}

/// A refused event.
#[derive(Debug, Serialize)]
struct Refused {
    /// The id of the usage event's entry in the stream.
    entry: String,
    reason: String,
    detail: String,
    /// The event's own fields; of a repeated one the first, which is the one that was judged.
    fields: BTreeMap<String, String>,
}

/// An entry as XRANGE gives it: id, then names and values in turn.
type RawEntry = (String, Vec<Vec<u8>>);

/// Lists refused events.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: RefusedArgs, context: &CliContext) -> anyhow::Result<()> {
    let RefusedAction::List { limit, format } = args.action;
    let config = context.config()?;
    let key = Keys::new(&config.stream.key).refused();
    let redis = connect::redis(&config)?;
    let mut printer = Printer {
        format: format.format(),
        table: Table::new(&["ENTRY", "REASON", "DETAIL", "FIELDS"]),
        output: Output::stdout(),
        printed: 0,
    };
    let mut from = match limit {
        Some(limit) => match oldest_of_newest(&redis, &key, limit).await? {
            Some(id) => id,
            None => return printer.finish(),
        },
        None => StreamId::ZERO.to_string(),
    };
    loop {
        let mut command = redis::cmd("XRANGE");
        command.arg(&key).arg(&from).arg("+").arg("COUNT").arg(LIST_PAGE_SIZE);
        let page: Vec<RawEntry> = redis.query(format_args!("read {key}"), &command).await?;
        printer.print(&page)?;
        match page.last() {
            // An exclusive start: the next page begins after the last entry of this one.
            Some((last, _)) if page.len() == LIST_PAGE_SIZE => from = format!("({last}"),
            _ => return printer.finish(),
        }
    }
}

/// The id at which the newest `limit` entries begin. Ids alone would do, but XREVRANGE always sends the fields too, so this
/// reads in pages like the listing itself.
async fn oldest_of_newest(redis: &Redis, key: &str, limit: u64) -> anyhow::Result<Option<String>> {
    let mut to = "+".to_owned();
    let mut oldest = None;
    let mut wanted = limit;
    while wanted > 0 {
        let count = wanted.min(LIST_PAGE_SIZE as u64);
        let mut command = redis::cmd("XREVRANGE");
        command.arg(key).arg(&to).arg("-").arg("COUNT").arg(count);
        let page: Vec<RawEntry> = redis.query(format_args!("read {key}"), &command).await?;
        let full = page.len() as u64 == count;
        let Some((last, _)) = page.into_iter().next_back() else { break };
        to = format!("({last}");
        oldest = Some(last);
        if !full {
            break;
        }
        wanted -= count;
    }
    Ok(oldest)
}

struct Printer {
    format: Format,
    table: Table,
    output: Output,
    /// How many so far.
    printed: usize,
}

impl Printer {
    fn print(&mut self, page: &[RawEntry]) -> anyhow::Result<()> {
        self.printed += page.len();
        let refused = page.iter().map(|(_, values)| refused_of(values));
        match self.format {
            Format::Json => refused.into_iter().try_for_each(|refused| self.output.json(&refused)),
            Format::Table => {
                let rows: Vec<Vec<String>> = refused
                    .map(|Refused { entry, reason, detail, fields }| {
                        let fields: Vec<String> =
                            fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                        vec![entry, reason, detail, fields.join(" ")]
                    })
                    .collect();
                if rows.is_empty() { Ok(()) } else { self.output.rows(&mut self.table, &rows) }
            }
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        if self.printed == 0 && self.format == Format::Table {
            say_empty("no refused events");
        }
        self.output.finish()
    }
}

/// Our three fields stand first; an original field may bear one of their names.
fn refused_of(values: &[Vec<u8>]) -> Refused {
    let mut pairs = values.chunks_exact(2).map(|pair| (lossless(&pair[0]), lossless(&pair[1])));
    let mut own = |_name| pairs.next().map(|(_, value)| value).unwrap_or_default();
    let (entry, reason, detail) = (own("entry"), own("reason"), own("detail"));
    let mut fields = BTreeMap::new();
    for (name, value) in pairs {
        if let Entry::Vacant(vacant) = fields.entry(name) {
            vacant.insert(value);
        }
    }
    Refused { entry, reason, detail, fields }
}
