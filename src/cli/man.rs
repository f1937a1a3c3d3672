//! `man`: the manual pages, from the same texts as `--help`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::Resettable;
use clap::{Args, Command};

use crate::terminal::hint;
use crate::terminal::output::Output;

/// The heading of the examples in a command's help.
const EXAMPLES: &str = "Examples:\n";
/// The heading of the exit codes in the program's help.
const EXIT_CODES: &str = "Exit codes: ";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell man --dir /usr/local/share/man/man1
  quotabell man subject set | man -l -")]
pub struct ManArgs {
    /// The command whose page to print [default: the program's own]
    pub command: Vec<String>,
    /// Write the pages of the program and of all its commands to this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// Prints the page of `root` or of one of its commands, as roff; or writes all pages to a folder.
pub fn run(args: &ManArgs, root: Command) -> anyhow::Result<()> {
    // Its pages would repeat those of the commands.
    let mut root = root.disable_help_subcommand(true);
    root.build();
    if let Some(dir) = &args.dir {
        return write_pages(root, dir);
    }
    let page = manual_page(find(root, &args.command)?).context("render the manual page")?;
    let mut output = Output::stdout();
    output.bytes(&page)?;
    output.finish()
}

/// Writes the page of a command and of those below it, under the names that pages refer to: `quotabell-subject-set.1`.
fn write_pages(command: Command, dir: &Path) -> anyhow::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner.clone(), dir)?;
    }
    let path = dir.join(format!("{}.1", command.get_display_name().unwrap_or(command.get_name())));
    let page = manual_page(command).context("render the manual page")?;
    std::fs::write(&path, page).with_context(|| format!("write the manual page {}", path.display()))
}

/// The page of a command. The text after the options gets its own sections, because the renderer would join the lines
/// of the examples.
fn manual_page(command: Command) -> std::io::Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut prose = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut sections = String::new();
    for part in after.split("\n\n") {
        if let Some(examples) = part.strip_prefix(EXAMPLES) {
            let lines: Vec<String> = examples.lines().map(|line| escaped(line.trim_start())).collect();
            sections.push_str(&format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n")));
        } else if let Some(codes) = part.strip_prefix(EXIT_CODES) {
            sections.push_str(&format!(".SH \"EXIT STATUS\"\n{}\n", escaped(codes.trim_end())));
        } else if !part.is_empty() {
            prose.push_str("\n\n");
            prose.push_str(part);
        }
    }
    let command = command.after_help(Resettable::Reset).long_about(prose);
    let version = concat!("quotabell ", env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command).source(version).render(&mut page)?;
    page.extend(sections.as_bytes());
    Ok(page)
}

/// A line that roff prints literally: without escapes and requests, and with real minus signs and apostrophes.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\*(Aq").replace('`', "\\(ga");
    if text.starts_with(['.', '\\']) { format!("\\&{text}") } else { text }
}

fn find(root: Command, names: &[String]) -> anyhow::Result<Command> {
    let mut command = root;
    for name in names {
        let known: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let Some(found) = command.find_subcommand(name) else {
            let message = format!("{} has no command {name:?}", command.get_name());
            let hint = match known.as_slice() {
                [] => "it has none at all".to_owned(),
                known => format!("its commands are {}", known.join(", ")),
            };
            return Err(hint::usage(message, hint));
        };
        command = found.clone();
    }
    Ok(command)
}
