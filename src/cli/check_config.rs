//! `check-config`: the settings in effect, and whether they work. Writes nothing anywhere.
//!
//! Settings go to stdout, a line for each check to stderr. What is wrong with files and variables ends the verb at once, exit 78;
//! connections are all tried, and any that fails makes it exit 1. Read next: `server` and `rights`, the checks of Redis.

use clap::Args;

use super::context::CliContext;
use crate::channels::{ChannelDefinition, Channels, REGISTRY, ServerProbe};
use crate::config::Config;
use crate::contacts::Contact;
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, say};
use crate::types::Class;
use crate::wire::RedisEndpoint;

pub mod rights;
mod server;

/// Arguments of `check-config`.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints the settings in effect, passwords and secrets as ***. Exit 78 names the first thing that is wrong with them; \
    exit 1 says that a connection failed or that the user of redis.url may not do what the daemon does, after all were \
    tried: run it as the daemon's user. Sends no mail, calls no webhook, writes nothing to Redis.

Examples:
  quotabell check-config
  quotabell check-config --offline --config quotabell.toml
  QUOTABELL__LOG__LEVEL=debug quotabell check-config --offline | grep level"
)]
pub struct CheckConfigArgs {
    /// Leave out connections: check only what stands in files and variables
    #[arg(long)]
    pub offline: bool,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Checks everything and prints the settings in effect.
///
/// # Errors
///
/// The first thing that is wrong with the configuration or a template; else the connections that failed.
pub async fn run(args: CheckConfigArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let channels = config.channels()?;
    // Reads the files that [redis] names.
    let _: RedisEndpoint = config.target()?;
    let token = config.token()?;
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => output.json(&config.masked())?,
        Format::Table => output.bytes(toml::to_string(&config.masked())?.as_bytes())?,
    }
    output.finish()?;
    let mut findings = Findings::default();
    channels.warnings().for_each(|warning| findings.warn(warning));
    token.iter().filter_map(|token| token.warning()).for_each(|warning| findings.warn(&warning));
    findings.note("configuration", Ok("configuration and templates are valid".to_owned()));
    if !args.offline {
        server::check(&config, &mut findings).await?;
        check_channels(&channels, &config, &mut findings).await?;
    }
    findings.judge()
}

/// What the checks found. Each is told at once: the next may take a minute.
#[derive(Debug, Default)]
struct Findings {
    checks: usize,
    failed: Vec<Failed>,
}

#[derive(Debug)]
struct Failed {
    what: &'static str,
    hint: String,
}

impl Findings {
    /// Tells how one check ended.
    fn note(&mut self, what: &'static str, found: anyhow::Result<String>) {
        self.checks += 1;
        match found {
            Ok(text) => say(format_args!("ok: {text}")),
            Err(error) => {
                let told = hint::report(&Err(error)).text;
                let (problem, hint) = told.split_once("\nhint: ").unwrap_or((&told, ""));
                let hint = hint.trim_end();
                say(format_args!("failed: {}", problem.strip_prefix("error: ").unwrap_or(problem)));
                say(format_args!("  hint: {hint}"));
                self.failed.push(Failed { what, hint: hint.to_owned() });
            }
        }
    }

    /// Tells what is allowed but unwise.
    fn warn(&self, text: &str) {
        say(format_args!("warning: {text}"));
    }

    fn judge(self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.failed.iter().map(|failed| failed.what).collect();
        let hint = match self.failed.as_slice() {
            [] => return Ok(()),
            [one] => one.hint.as_str(),
            _ => "each line that begins with failed has a hint below it",
        };
        Err(hint::failed(format_args!("{} of {} checks failed: {}", names.len(), self.checks, names.join(", ")), hint))
    }
}

/// Asks the server that a channel needs, and sends nothing. Where nobody has named one, its absence is no failure: many use another
/// channel.
async fn check_channels(channels: &Channels, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    for definition in REGISTRY {
        let Some(probe) = channels.probe(definition.channel).await else { continue };
        let ServerProbe { server, location, outcome, hint } = probe;
        if outcome.class == Class::Delivered {
            findings.note(server, Ok(format!("the {server} answers ({location})")));
            continue;
        }
        let why = outcome.error.as_deref().unwrap_or("no reason given");
        if is_wanted(definition, config)? {
            let hint = outcome.hint.unwrap_or(hint);
            findings.note(server, Err(hint::failed(format_args!("the {server} {location}: {why}"), hint)));
        } else {
            findings.checks += 1;
            let channel = definition.channel.as_str();
            findings.warn(&format!(
                "no {server} at {location}, the default: {why}; contacts of the channel {channel} get nothing until the section \
                 [{channel}] names one"
            ));
        }
    }
    channels.close().await;
    Ok(())
}

/// Whether somebody has named the channel's server, or a contact that needs it.
fn is_wanted(definition: &ChannelDefinition, config: &Config) -> anyhow::Result<bool> {
    let defaults = Config::defaults()?;
    let is_configured = (definition.is_configured)(&config.channel_settings(), &defaults.channel_settings());
    let needs_it = |contact: &Contact| contact.channel() == definition.channel;
    Ok(is_configured || config.fallback.contacts.iter().any(needs_it))
}
