//! SIGTERM and SIGINT, which end the daemon, and SIGHUP, which reloads.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// For this time after the first signal, another one counts as the same. `timeout` of the shell signals its child and
/// then the whole group, and Ctrl-C in a terminal reaches both a wrapper and the daemon that the wrapper signals. A
/// person needs longer for a second signal.
pub(super) const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// Blocks SIGHUP in this thread and its future threads until [`release_hangup`], because it would kill a daemon that is
/// starting. Child processes still receive it.
pub fn hold_hangup() {
    // An error would mean that the system does not know the signal.
    let _ = hangup_alone().thread_block();
}

/// Unblocks SIGHUP, and delivers a blocked one.
pub fn release_hangup() {
    let _ = hangup_alone().thread_unblock();
}

fn hangup_alone() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Number::SIGHUP);
    set
}

/// Listens for the reload signal, which from now on does not end the process.
pub(super) fn hangup() -> std::io::Result<Signal> {
    let listening = signal(SignalKind::hangup())?;
    release_hangup();
    Ok(listening)
}

/// The signals that end the daemon.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Time of the first of them.
    first: Option<Instant>,
}

impl Signals {
    /// Listens from now on; the default action (immediate end) is off.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, first: None })
    }

    /// Waits for the next signal.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        self.first.get_or_insert_with(Instant::now);
    }

    /// Waits for a separate signal, later than [`SAME_SIGNAL`] after the first.
    pub(super) async fn stop_again(&mut self) {
        let mut told = false;
        loop {
            let first = self.first;
            self.stop().await;
            if first.is_none_or(|first| first.elapsed() >= SAME_SIGNAL) {
                return;
            }
            if !told {
                tracing::info!(
                    "a signal within {SAME_SIGNAL:?} of the first was ignored: the drain continues, and a later signal ends it"
                );
                told = true;
            }
        }
    }
}
