//! The end of a demonstration with `--console`: a daemon with a console shows what has happened, until Ctrl-C.
//!
//! Before that, one receiver refuses an alert, so that there is something to find and to send again.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use tokio::time::{interval, timeout};

use super::daemon::{self, CONFIGURATION, Daemon};
use super::environment::DemoEnvironment;
use super::mail;
use super::received::LocalReceivers;
use super::receivers::{CaughtMail, HttpCatcher};
use super::screen::Screen;
use crate::terminal::hint;
use crate::terminal::output::printable;

/// Interval between two checks of the daemon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum time from an event to its alert.
const ALERT_MAX: Duration = Duration::from_secs(20);

/// Starts the daemon, logs the user in and receives what is sent. Never returns without an error.
pub(super) async fn stay(
    environment: &mut DemoEnvironment,
    mut receivers: LocalReceivers,
    screen: &Screen,
) -> anyhow::Result<()> {
    let folder = environment.folder.path.as_path();
    // That of the daemons before, which is known and free.
    let http = environment.daemon.as_ref().context("a daemon has run")?.address("http listens")?;
    configure(folder, &format!("http.public_url = \"http://{http}\""))?;
    let daemon = environment.daemon.insert(Daemon::start(folder, "daemon-3.log", Some(http), "127.0.0.1:0")?);
    daemon.ready().await?;
    let address = daemon.address("the console listens")?;
    // The command below finds the console by it, and so does the user later.
    configure(folder, &format!("console.listen = \"{address}\""))?;
    let mut refusing = refused_alert(folder).await?;
    screen.line("\nThe receiver of lena refused an alert once, so this delivery is dead. Sent again, it arrives.")?;
    screen.line("The console shows all of it, until Ctrl-C. What it sends by email is printed below. To log in:")?;
    let printed = daemon::quotabell(folder, "console")?.status().await;
    if !printed.context("run quotabell console")?.success() {
        return Err(hint::failed("the console gave no login", format_args!("http://{address}/ shows it without one")));
    }
    let path = folder.join(CONFIGURATION);
    let program = env::args_os().next().unwrap_or_else(|| "quotabell".into());
    screen.line(format_args!("For another login: {} console --config {}", program.display(), path.display()))?;
    let mut looks = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = looks.tick() => daemon.check_running()?,
            email = receivers.mail.next() => show(&email, screen)?,
            _ = receivers.steady.next() => {}
            _ = receivers.flaky.next() => {}
            _ = refusing.next() => {}
        }
    }
}

/// Prints an email: it may have a code or a link that somebody waits for.
fn show(email: &CaughtMail, screen: &Screen) -> anyhow::Result<()> {
    let subject = mail::header(&email.text, "Subject").unwrap_or_default();
    screen.line(format_args!("\nEmail to {}: {}\n", printable(&email.to.join(", ")), printable(&subject)))?;
    mail::text(&email.text).trim().lines().try_for_each(|line| screen.line(format_args!("  {}", printable(line))))
}

/// Adds a setting to the configuration in the folder.
fn configure(folder: &Path, setting: &str) -> anyhow::Result<()> {
    let path = folder.join(CONFIGURATION);
    let file = OpenOptions::new().append(true).open(&path);
    let added = file.and_then(|mut file| writeln!(file, "{setting}"));
    added.with_context(|| format!("write {}", path.display()))
}

/// Sets up a subject as an operator does, and has its receiver refuse its first alert for good. Returns the receiver,
/// which accepts everything after that.
async fn refused_alert(folder: &Path) -> anyhow::Result<HttpCatcher> {
    let was_refused = AtomicBool::new(false);
    let respond = move |_: &[u8]| match was_refused.swap(true, Ordering::Relaxed) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => {
            let told = "unknown event type; it is known from now on";
            (StatusCode::UNPROCESSABLE_ENTITY, [("webhook-delivery", "abort-message")], told).into_response()
        }
    };
    let started = HttpCatcher::start_on((Ipv4Addr::LOCALHOST, 0).into(), respond).await;
    let mut receiver = started.context("start a receiver of webhooks")?;
    let hook = receiver.url("/lena");
    run(folder, "subject", &["set", "lena", "--limit", "requests=1000", "--webhook", &hook]).await?;
    run(folder, "emit", &["--subject", "lena", "--units", "900"]).await?;
    timeout(ALERT_MAX, receiver.next()).await.context("no alert of lena arrived")?;
    Ok(receiver)
}

/// Runs a command; its output is of interest only if it fails.
async fn run(folder: &Path, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = daemon::quotabell(folder, command)?.args(arguments).output().await;
    let output = output.with_context(|| format!("run quotabell {command}"))?;
    ensure!(output.status.success(), "quotabell {command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
