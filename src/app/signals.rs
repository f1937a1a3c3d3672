//! SIGTERM and SIGINT, which end the daemon, and SIGHUP, which does not.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long after the first signal another one is taken for the same. `timeout` of the shell signals its child and then
/// the whole group, and a terminal's Ctrl-C reaches both a wrapper and the daemon that the wrapper signals. Shorter
/// than a person needs to ask again.
pub(super) const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// Holds SIGHUP back until [`release_hangup`], in this thread and those that it spawns: a daemon that is starting would
/// die of it. Processes that are started get it all the same.
pub fn hold_hangup() {
    // An error would mean that the system does not know the signal.
    let _ = hangup_alone().thread_block();
}

/// Lets SIGHUP through, and one that was held.
pub fn release_hangup() {
    let _ = hangup_alone().thread_unblock();
}

fn hangup_alone() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Number::SIGHUP);
    set
}

/// The signal to read the plans again. From now on it does not end the process.
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
    /// When the first of them came.
    first: Option<Instant>,
}

impl Signals {
    /// Listens from now on; the default (to die at once) is off.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, first: None })
    }

    /// Waits for the next of them.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        self.first.get_or_insert_with(Instant::now);
    }

    /// Waits for one that was sent on its own account, later than [`SAME_SIGNAL`] after the first.
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
                    "a signal within {SAME_SIGNAL:?} of the first is taken for the same: the drain goes on, and a later one ends it"
                );
                told = true;
            }
        }
    }
}
