//! `man`: the manual pages, made from the same words as `--help`.

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};

use super::output::Output;
use super::{Cli, hint};

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell man > /usr/local/share/man/man1/quotabell.1
  quotabell man subject set | man -l -")]
pub struct ManArgs {
    /// The verb whose page to print [default: the program's own]
    pub verb: Vec<String>,
}

/// Prints a page as roff.
///
/// # Errors
///
/// When there is no such verb, or stdout is closed.
pub fn run(args: &ManArgs) -> anyhow::Result<()> {
    let mut root = Cli::command();
    root.build();
    let page = clap_mangen::Man::new(find(root, &args.verb)?);
    let mut text = Vec::new();
    page.render(&mut text).context("render the manual page")?;
    let mut output = Output::stdout();
    output.bytes(&text)?;
    output.finish()
}

fn find(root: Command, verbs: &[String]) -> anyhow::Result<Command> {
    let mut command = root;
    for verb in verbs {
        let known: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        let Some(found) = command.find_subcommand(verb) else {
            let message = format!("{} has no verb {verb:?}", command.get_name());
            let hint = match known.as_slice() {
                [] => "it has none at all".to_owned(),
                known => format!("its verbs are {}", known.join(", ")),
            };
            return Err(hint::usage(message, hint));
        };
        command = found.clone();
    }
    Ok(command)
}
