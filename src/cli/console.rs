//! `console`: the address of the console, with a login of one use.

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;
use url::Url;

use super::connect;
use super::context::CliContext;
use crate::config::Config;
use crate::console::config::OFF;
use crate::console::one_use_login;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, say};

#[derive(Debug, Args)]
#[command(
    after_help = "The page has a button that logs you in as admin. It works once, within 30 seconds; the session lasts 12 hours.
In a terminal of a desktop, the browser opens the page.

Examples:
  quotabell console
  quotabell console --json | jq -r .url"
)]
pub struct ConsoleArgs {
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Serialize)]
struct ConsoleLogin {
    url: String,
}

pub async fn run(args: ConsoleArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let mut url = address(&config)?;
    let redis = connect::redis(&config).await?;
    let created = one_use_login::create(redis.partitions.first()).await;
    let secret = redis.explained("store a login", created)?;
    url.query_pairs_mut().append_pair("login", &secret);
    let login = ConsoleLogin { url: url.into() };
    output::print(&args.format, &login, |output| {
        let opened = if opens_browser(&login.url) { ": the browser opens it" } else { "" };
        say(format_args!("the page logs you in once, within 30 seconds{opened}"));
        output.line(&login.url)
    })
}

/// Opens the page if somebody at a desktop has run the command. Returns whether the browser was started.
fn opens_browser(url: &str) -> bool {
    let has_desktop =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some_and(|it| !it.is_empty()));
    let mut command = Command::new("xdg-open");
    // Its own group: what ends the terminal leaves the browser alone.
    command.arg(url).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    has_desktop && stdout().is_terminal() && command.spawn().is_ok()
}

/// The address of the login page.
fn address(config: &Config) -> anyhow::Result<Url> {
    let listen = config.console.listen.as_str();
    if listen == OFF {
        return Err(hint::failed("the console is off", "set console.listen, and restart the daemon"));
    }
    // An address that stands for all of them is none to open; a container publishes the port on this machine.
    let port = listen.parse().ok().filter(|all: &SocketAddr| all.ip().is_unspecified()).map(|all| all.port());
    let address = port.map_or_else(|| listen.to_owned(), |port| format!("localhost:{port}"));
    let mut base = config.console.public_base().or_else(|| Url::parse(&format!("http://{address}/")).ok());
    if let Some(path) = base.as_ref().map(|base| base.path().to_owned()).filter(|path| !path.ends_with('/'))
        && let Some(base) = &mut base
    {
        base.set_path(&format!("{path}/"));
    }
    let login = base.and_then(|base| base.join("login").ok());
    login.ok_or_else(|| hint::failed("the console has no address to open", "set console.public_url"))
}
