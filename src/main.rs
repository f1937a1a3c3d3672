//! The program: runs one command and returns one exit code.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use clap::error::ErrorKind;
use quotabell::cli::{Cli, RuntimeKind, hint_on_subject, hold_hangup, release_hangup, version_details};
use quotabell::terminal::hint::{self, Exit, ExitReport};

/// A delivery allocates several hundred small blocks in one thread and frees them in another, for which the C library's
/// allocator needs a fifth of the daemon's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First, because a reload may be requested as soon as the process exists.
    hold_hangup();
    use_small_pages();
    // The panic was already reported. It is an ordinary failure, not the exit code 101.
    let report = std::panic::catch_unwind(run).unwrap_or_else(|_| {
        hint::report(&Err(hint::failed(
            "quotabell panicked",
            "this is a bug of quotabell: please report the lines above",
        )))
    });
    report.print();
    ExitCode::from(report.exit.code())
}

fn run() -> ExitReport {
    match Cli::try_parse() {
        Ok(cli) => {
            if !cli.is_daemon() {
                release_hangup();
            }
            hint::report(&execute(cli))
        }
        Err(error) => report_usage(&error),
    }
}

fn execute(cli: Cli) -> anyhow::Result<()> {
    // One crypto provider for all TLS users, before any of them needs it: two in one binary cause a panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return Err(hint::failed("a provider of cryptography is installed already", "this is a bug of quotabell"));
    }
    let mut builder = match cli.runtime_kind() {
        RuntimeKind::MultiThread => tokio::runtime::Builder::new_multi_thread(),
        RuntimeKind::CurrentThread => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build().context("start the runtime")?;
    // One future type for both runtimes, because each would otherwise compile the whole program for itself.
    let command: Pin<Box<dyn Future<Output = anyhow::Result<()>>>> = Box::pin(cli.execute());
    let ended = runtime.block_on(command);
    // A thread of the system may still look up the name of the Redis server for half a minute. The process does not
    // wait.
    runtime.shutdown_background();
    ended
}

/// Prints help and version to stdout; a wrong command line ends with a hint like every other error.
fn report_usage(error: &clap::Error) -> ExitReport {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is a reader that has seen enough.
            let _ = error.print();
            if error.kind() == ErrorKind::DisplayVersion {
                let _ = io::stdout().write_all(version_details(&words()).as_bytes());
            }
            ExitReport { exit: Exit::Done, text: String::new() }
        }
        _ => hint::report_usage(&error.render().to_string(), hint_on_subject(error, &words()).as_deref()),
    }
}

fn words() -> Vec<String> {
    std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect()
}

/// The allocator takes and returns memory constantly. Pages of 2 MiB, which the kernel has to clear, would cost a
/// seventh of the daemon's time while it sends.
fn use_small_pages() {
    // A kernel without this call changes nothing.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}
