//! `completions`: prints the script with which a shell completes commands and options.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::terminal::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell completions bash > /etc/bash_completion.d/quotabell
  quotabell completions zsh > \"${fpath[1]}/_quotabell\"
  quotabell completions fish > ~/.config/fish/completions/quotabell.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

pub fn run(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<()> {
    // Into memory first: the generator panics when its writer fails, for example on a closed pipe.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "quotabell", &mut text);
    let mut output = Output::stdout();
    output.bytes(&text)?;
    output.finish()
}
