//! The command line: a file per command.
//!
//! Each command's arguments, help and work are in one file. Data goes to stdout, the rest to stderr. Read next: `hint`,
//! how a command fails; `output`, how it prints; `connect`, how it reaches Redis. Only `run` and `demo` start processes
//! that live on. Each command ends with an error for a wrong configuration or value, a failure of Redis, and a closed
//! stdout.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use self::context::CliContext;
pub use crate::app::{hold_hangup, release_hangup};
use crate::demo;
use crate::terminal::hint;
use crate::terminal::output::printable;
use crate::types::{Period, UnixMs};
use crate::zones;

mod actions;
mod alerts;
mod alerts_export;
mod check;
mod check_config;
mod completions;
mod connect;
mod console;
mod contact;
mod contact_args;
mod contact_checks;
mod context;
mod deliveries;
mod emit;
mod emit_http;
mod explain;
mod grant;
mod history;
mod listen;
mod man;
mod migrate;
mod mute_args;
mod portal;
mod preview;
mod refused;
mod reload;
mod run;
mod send_test;
mod since;
mod status;
pub mod subject;
mod subject_settings;
mod top;
mod usage;
mod whatif;
mod whole_number;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "quotabell",
    version,
    about = "Quota alerts from a Redis stream of usage events: counted once, raised once, delivered",
    after_help = "Examples:
  quotabell demo                                   see the whole job in under a minute
  quotabell run                                    the daemon, with a Redis of its own
  quotabell run --config quotabell.toml
  quotabell subject set alice --email a@b.test
  quotabell emit --subject alice --units 3
  quotabell usage alice

Exit codes: 0 done, 1 failed, 2 usage, 3 something needs attention (status), 78 configuration or template"
)]
pub struct Cli {
    /// The configuration file (TOML), which overrides the defaults. Every command takes it. Without it, the file that
    /// QUOTABELL_CONFIG names is read, else /etc/quotabell/quotabell.toml if that exists
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// With --version: also print the source and the version of the time zone data
    #[arg(long)]
    pub verbose: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: count usage events, raise alerts, deliver them
    Run(run::RunArgs),
    /// Run a complete example on this machine: Redis, traffic, alerts, a summary
    Demo(demo::DemoArgs),
    /// Check configuration, templates and connections, without side effects
    CheckConfig(check_config::CheckConfigArgs),
    /// Make the daemon read its plans again
    Reload(reload::ReloadArgs),
    /// Show whether everything works, and what needs attention
    Status(status::StatusArgs),
    /// Print an address of the console that logs you in once
    Console(console::ConsoleArgs),
    /// Append usage events to the stream
    Emit(emit::EmitArgs),
    /// Set, show, list, remove, mute and import subjects
    Subject(subject::SubjectArgs),
    /// List, add, remove, mute, unmute and enable the contacts of a subject
    Contact(contact::ContactArgs),
    /// Add, list and revoke grants: prepaid units, and more units for a period
    Grant(grant::GrantArgs),
    /// Print a link with which a customer opens the portal of its subject
    Portal(portal::PortalArgs),
    /// Show the usage, limits and alerts of a subject
    Usage(usage::UsageArgs),
    /// Show the usage of a subject by day
    History(history::HistoryArgs),
    /// Rank subjects by usage, or by the share of their limit
    Top(top::TopArgs),
    /// Show which alerts another plan would have raised
    Whatif(whatif::WhatIfArgs),
    /// Decide whether a subject may proceed, like POST /v1/check
    Check(check::CheckArgs),
    /// List who changed what
    Actions(actions::ActionsArgs),
    /// List raised alerts
    Alerts(alerts::AlertsArgs),
    /// List, show, replay, retry, cancel, discard and pause deliveries
    Deliveries(deliveries::DeliveriesArgs),
    /// Explain the state of an alert, a delivery or a subject, and what happens next
    Explain(explain::ExplainArgs),
    /// List the events that could not be counted
    Refused(refused::RefusedArgs),
    /// Move all stored data to another Redis, or to another number of partitions
    Migrate(migrate::MigrateArgs),
    /// Send one real message to one contact
    SendTest(send_test::SendTestArgs),
    /// Receive emails and webhooks on this machine and print them
    Listen(listen::ListenArgs),
    /// Print a template rendered with sample values
    Preview(preview::PreviewArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man(man::ManArgs),
}

/// Which tokio runtime a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// A daemon: threads on every core.
    MultiThread,
    /// A few calls: this thread will do.
    CurrentThread,
}

impl Cli {
    /// Which runtime the command needs.
    pub const fn runtime_kind(&self) -> RuntimeKind {
        if matches!(self.command, Command::Run(_) | Command::Demo(_)) {
            RuntimeKind::MultiThread
        } else {
            RuntimeKind::CurrentThread
        }
    }

    /// Whether this is the daemon, which handles its signals itself.
    pub const fn is_daemon(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }

    /// Does what the command says.
    ///
    /// # Errors
    ///
    /// Whatever stopped the command; [`crate::terminal::hint::report`] turns it into an exit code and text.
    pub async fn execute(self) -> anyhow::Result<()> {
        if self.verbose {
            return Err(hint::usage("--verbose goes with --version alone", "`quotabell --version --verbose`"));
        }
        let context = CliContext::new(self.config);
        match self.command {
            Command::Run(args) => run::run(args, &context).await,
            Command::Demo(args) => demo::run(args).await,
            Command::CheckConfig(args) => check_config::run(args, &context).await,
            Command::Reload(args) => reload::run(args, &context).await,
            Command::Status(args) => status::run(args, &context).await,
            Command::Console(args) => console::run(args, &context).await,
            Command::Emit(args) => match args.http.clone() {
                Some(url) => emit_http::run(args, &url, &context).await,
                None => emit::run(args, &context).await,
            },
            Command::Subject(args) => subject::run(args, &context).await,
            Command::Contact(args) => contact::run(args, &context).await,
            Command::Grant(args) => grant::run(args, &context).await,
            Command::Portal(args) => portal::run(args, &context).await,
            Command::Usage(args) => usage::run(args, &context).await,
            Command::History(args) => history::run(args, &context).await,
            Command::Top(args) => top::run(args, &context).await,
            Command::Whatif(args) => whatif::run(args, &context).await,
            Command::Check(args) => check::run(args, &context).await,
            Command::Actions(args) => actions::run(args, &context).await,
            Command::Alerts(args) => alerts::run(args, &context).await,
            Command::Deliveries(args) => deliveries::run(args, &context).await,
            Command::Explain(args) => explain::run(args, &context).await,
            Command::Refused(args) => refused::run(args, &context).await,
            Command::Migrate(args) => migrate::run(args, &context).await,
            Command::SendTest(args) => send_test::run(args, &context).await,
            Command::Listen(args) => listen::run(args, &context).await,
            Command::Preview(args) => preview::run(args, &context).await,
            Command::Completions(args) => completions::run(&args, Self::command()),
            Command::Man(args) => man::run(&args, Self::command()),
        }
    }
}

/// What `--version` prints below the version for a command line of these words: what else decides how the program
/// counts.
pub fn version_details(words: &[String]) -> String {
    if words.iter().any(|word| word == "--verbose") {
        format!("zone data: {}\n", zones::data_in_use())
    } else {
        String::new()
    }
}

/// What to write instead of a command line whose subject stands by itself where `--subject` names it, or the other way
/// round: commands about one subject take it by itself, lists that it only narrows take the option.
pub fn hint_on_subject(error: &clap::Error, words: &[String]) -> Option<String> {
    // An argument in its own place with a wrong value was not meant as the subject.
    let found = match error.kind() {
        ErrorKind::UnknownArgument => error.get(ContextKind::InvalidArg),
        // A list with commands beside it takes the word as one.
        ErrorKind::InvalidSubcommand => error.get(ContextKind::InvalidSubcommand),
        _ => None,
    };
    let Some(ContextValue::String(found)) = found else { return None };
    let mut command = &Cli::command();
    let mut path = vec![command.get_name()];
    for word in words {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            path.push(below.get_name());
        }
    }
    let is_option = |word: &str| word == SUBJECT_OPTION || word.starts_with("--subject=");
    let is_subject = |one: &clap::Arg| one.get_id() == "subject" || one.get_id() == "subjects";
    let positionals: Vec<&clap::Arg> = command.get_positionals().collect();
    if is_option(found) {
        positionals.iter().find(|one| is_subject(one))?;
        let names = positionals.iter().flat_map(|one| one.get_value_names().unwrap_or_default());
        let line: Vec<&str> = path.into_iter().chain(names.map(|name| name.as_str())).collect();
        return Some(format!("name the subject without an option: {}", line.join(" ")));
    }
    // Commands that do more than list have a command for it.
    if found == LIST_COMMAND && command.get_opts().any(|one| one.get_id() == "limit") {
        return Some(format!("`{}` lists them", path.join(" ")));
    }
    let takes_option = command.get_opts().any(is_subject) && !words.iter().any(|word| is_option(word));
    (takes_option && positionals.is_empty() && may_be_subject(found))
        .then(|| format!("to name a subject, write {SUBJECT_OPTION} {}", printable(found)))
}

/// Whether a word that has no place is rather a subject than an option, an address or a time.
fn may_be_subject(word: &str) -> bool {
    let is_address = word.contains('@') || word.contains("://");
    let is_time = word.parse::<Period>().is_ok() || word.parse::<UnixMs>().is_ok();
    !(word.starts_with('-') || is_address || is_time)
}

/// What lists, of commands that also do something else.
const LIST_COMMAND: &str = "list";

/// The option by which lists take a subject.
const SUBJECT_OPTION: &str = "--subject";
