//! The program: one command, one exit code.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use clap::error::ErrorKind;
use quotabell::cli::{Cli, RuntimeKind, hint_on_subject, hold_hangup, release_hangup, version_details};
use quotabell::terminal::hint::{self, Exit, ExitReport};

/// A delivery is some hundred small pieces of memory, taken in one thread and given back in another, which the C
/// library's allocator does at a fifth of the daemon's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a reload may be asked for as soon as the process is there.
    hold_hangup();
    use_small_pages();
    // A panic has been reported where it happened. It is a failure as any other, not the exit code 101.
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
    // One provider of cryptography for all that speaks TLS, before anything can ask for it: two in one binary panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return Err(hint::failed("a provider of cryptography is installed already", "this is a bug of quotabell"));
    }
    let mut builder = match cli.runtime_kind() {
        RuntimeKind::MultiThread => tokio::runtime::Builder::new_multi_thread(),
        RuntimeKind::CurrentThread => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build().context("start the runtime")?;
    // As one kind of future for both runtimes: each would else have all of the program compiled for itself.
    let command: Pin<Box<dyn Future<Output = anyhow::Result<()>>>> = Box::pin(cli.execute());
    let ended = runtime.block_on(command);
    // The system may still look up the name of the Redis server in a thread, for half a minute. Nobody waits for that.
    runtime.shutdown_background();
    ended
}

/// Help and version go to stdout as asked; a wrong command line ends with a hint like every other error.
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

/// The allocator takes and gives back memory all the time. Where the kernel hands it out in pages of 2 MiB, which it
/// has to clear, that is a seventh of the daemon's time while it sends.
fn use_small_pages() {
    // A kernel that does not know the call leaves things as they are.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}
