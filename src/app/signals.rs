//! SIGTERM and SIGINT, which end the daemon, and SIGHUP, which does not.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signal to read the plans again. From now on it does not end the process.
pub(super) fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// The signals that end the daemon.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on; the default (to die at once) is off.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
